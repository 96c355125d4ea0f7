"""The softmax runs over the heads instead of the keys."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes._parts import over
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, normalize=over(1))


MISTAKE = Mistake(
    group="softmax",
    says="The softmax runs over the heads instead of the keys.",
    fix="softmax over the last axis, the keys",
    seen="softmax without a dim; catalyst PR 285",
    stage="weights",
    changes=(change,),
)
