"""Rotary positions of queries and keys start one apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from attn_exp.arrays import Array
from attn_exp.experiment.mistakes.mistake import Change, Mistake
from attn_exp.forms import steps
from attn_exp.forms.pipeline import At, Step
from attn_exp.rules.positions.position import Position


def change(side: str, steps_on: int) -> Change:
    """Return the change that moves the positions of one side."""
    return lambda recipe: replace(recipe, place=moved(side, steps_on))


def moved(side: str, steps_on: int) -> Step:
    def step(at: At, letter: str, heads: Array, positions: Sequence[Position]) -> Array:
        first = at.past if at.past else at.rules.offset
        start = (first if letter == "q" else 0) + (steps_on if letter == side else 0)
        for position in positions if letter != "v" else ():
            heads = steps.turned(position, heads, start)
        return heads

    return step


MISTAKE = Mistake(
    group="positions",
    says="Rotary positions of queries and keys start one apart.",
    fix="query and key of one token have the same position",
    seen="fla issue 766; flashinfer PR 847; a cache that counts the new token twice",
    stage="q",
    changes=(*(change(side, steps_on) for side in "qk" for steps_on in (1, -1)),),
    needs=("rope",),
)
