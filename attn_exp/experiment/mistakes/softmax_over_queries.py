"""The softmax runs down the queries instead of along the keys."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes._parts import over
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, normalize=over(-2))


MISTAKE = Mistake(
    group="softmax",
    says="The softmax runs down the queries instead of along the keys.",
    fix="softmax over the last axis, the keys",
    seen="PyTorch-NLP issue 2; labml issue 146; axis=-2 or dim=0",
    stage="weights",
    changes=(change,),
)
