"""One softmax runs over all places of the matrix instead of one for each query."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes._parts import over
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, normalize=over(-2, -1))


def everything(recipe: Recipe) -> Recipe:
    return replace(recipe, normalize=over(0, 1, 2, 3))


MISTAKE = Mistake(
    group="softmax",
    says="One softmax runs over all places of the matrix instead of one for each query.",
    fix="softmax over the last axis, the keys",
    seen="exp(s) / exp(s).sum() without an axis",
    stage="weights",
    changes=(
        change,
        everything,
    ),
)
