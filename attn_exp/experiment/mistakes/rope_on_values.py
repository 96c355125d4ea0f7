"""Rotary positions turn the values too."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe, Step


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, place=also_values(recipe.place))


def also_values(place: Step) -> Step:
    return lambda at, side, heads, positions: place(at, "k" if side == "v" else side, heads, positions)


MISTAKE = Mistake(
    group="positions",
    says="Rotary positions turn the values too.",
    fix="turn q and k alone",
    seen="one loop over q, k and v",
    stage="v",
    changes=(change,),
    needs=("rope",),
)
