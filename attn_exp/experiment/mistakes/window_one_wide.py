"""The window is one key too wide."""

from __future__ import annotations

from attn_exp.experiment.mistakes._parts import other_window
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return other_window(recipe, 1, 0)


def ahead(recipe: Recipe) -> Recipe:
    return other_window(recipe, 0, 1)


def both(recipe: Recipe) -> Recipe:
    return other_window(recipe, 1, 1)


MISTAKE = Mistake(
    group="masks",
    says="The window is one key too wide.",
    fix="a window of w tokens has left = w - 1: the query counts as one",
    seen="Megatron-Bridge PR 2656; transformers PR 26792",
    stage="masked",
    changes=(
        change,
        ahead,
        both,
    ),
    needs=("window",),
)
