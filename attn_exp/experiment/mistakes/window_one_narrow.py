"""The window is one key too narrow."""

from __future__ import annotations

from attn_exp.experiment.mistakes._parts import other_window
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return other_window(recipe, -1, 0)


def ahead(recipe: Recipe) -> Recipe:
    return other_window(recipe, 0, -1)


def both(recipe: Recipe) -> Recipe:
    return other_window(recipe, -1, -1)


MISTAKE = Mistake(
    group="masks",
    says="The window is one key too narrow.",
    fix="a window of left = n sees n keys before the query, and the query's own",
    seen="vllm issue 3385; mlx-lm PR 390",
    stage="masked",
    changes=(
        change,
        ahead,
        both,
    ),
    needs=("window",),
)
