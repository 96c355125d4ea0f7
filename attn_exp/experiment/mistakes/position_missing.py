"""Positions have no effect: the order of the tokens is lost."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes.mistake import Change, Mistake
from attn_exp.forms.pipeline import Recipe, Step


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, positions=())


def one_side(side: str) -> Change:
    """Return the change that marks no positions of one side."""
    return lambda recipe: replace(recipe, place=without(recipe.place, side))


def without(place: Step, unmarked: str) -> Step:
    return lambda at, side, heads, positions: place(at, side, heads, () if side == unmarked else positions)


MISTAKE = Mistake(
    group="positions",
    says="Positions have no effect: the order of the tokens is lost.",
    fix="mark the positions of q and k, or of x",
    seen="mlx-vlm issue 1983 (always position 0)",
    stage="q",
    changes=(
        change,
        one_side("q"),
        one_side("k"),
    ),
    needs=("position",),
)
