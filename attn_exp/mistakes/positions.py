"""Mistakes in positions, encoded in q and k or in x: missing, off by one, in the wrong pairs, or in the values too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms import steps
from attn_exp.forms.pipeline import Setup
from attn_exp.mistakes.mistake import Change, Mistake, around, instead
from attn_exp.rules.positions.position import Position
from attn_exp.rules.positions.rope import Rope


def skip_positions(affected: str) -> Change:
    return around(
        "place",
        lambda step, setup, side, heads, positions: step(setup, side, heads, () if side == affected else positions),
    )


def shift_positions(affected: str, shift: int) -> Change:

    def place(setup: Setup, side: str, heads: Array, positions: Sequence[Position]) -> Array:
        start = ((setup.past or setup.rules.offset) if side == "q" else 0) + (shift if side == affected else 0)
        for position in positions if side != "v" else ():
            heads = steps.encode_position(position, heads, start)
        return heads

    return instead(place=place)


def replace_positions(replacement: Callable[[Position], Position | None]) -> Change:
    return lambda recipe: replace(
        recipe, positions=tuple(replacement(position) or position for position in recipe.positions)
    )


@dataclass(frozen=True)
class Mixed(Position):
    """Rotary positions that mix the two pairings of features: the angles follow one, and the rotation the other.

    With `uses_even_angle`, both neighbours are rotated by the angle of the even one.
    """

    rope: Rope
    uses_even_angle: bool = False

    def turn(self, heads: Array, positions: Array) -> Array:
        size = self.rope.size or heads.shape[-1]
        angles, result, half = self.rope.angles(positions, size), heads.copy(), size // 2
        if self.rope.interleaved:  # rotate neighbours `(a, b)` towards `(-b, a)`, with tables for halves
            tables, partners = np.concatenate([angles, angles], axis=-1), np.empty_like(heads[..., :size])
            angle_table = np.repeat(tables[..., ::2], 2, axis=-1) if self.uses_even_angle else tables
            partners[..., ::2], partners[..., 1::2] = -heads[..., 1:size:2], heads[..., :size:2]
        else:
            angle_table = np.repeat(angles, 2, axis=-1)
            partners = np.concatenate([-heads[..., half:size], heads[..., :half]], axis=-1)
        result[..., :size] = heads[..., :size] * np.cos(angle_table) + partners * np.sin(angle_table)
        return result


MISTAKES = {
    "position_missing": Mistake(
        says="Positions are not encoded, or not in both q and k: the order of the tokens is lost.",
        fix="encode the positions in q and k, or in x",
        seen="mlx-vlm issue 1983 (always position 0)",
        stage="q",
        changes=(lambda recipe: replace(recipe, positions=()), skip_positions("q"), skip_positions("k")),
        needs=("position",),
    ),
    "rope_pairing": Mistake(
        says="Rotary positions rotate the wrong pairs: neighbours (2i, 2i+1) instead of halves (i, i + d/2), the "
        "reverse, or a mixture of both.",
        fix="use the pairing that the weights were trained with, in the tables and in the rotation",
        seen="transformers issue 25199; LLMs-from-scratch issues 746 to 838",
        stage="q",
        changes=(
            replace_positions(
                lambda position: (
                    replace(position, interleaved=not position.interleaved) if isinstance(position, Rope) else None
                )
            ),
            replace_positions(lambda position: Mixed(position) if isinstance(position, Rope) else None),
            replace_positions(
                lambda position: Mixed(position, uses_even_angle=True) if isinstance(position, Rope) else None
            ),
        ),
        needs=("rope",),
    ),
    "rope_off_by_one": Mistake(
        says="The rotary positions of queries and keys are offset by one.",
        fix="give the query and the key of a token the same position",
        seen="fla issue 766; flashinfer PR 847; a cache that counts the new token twice",
        stage="q",
        changes=(shift_positions("q", 1), shift_positions("q", -1), shift_positions("k", 1), shift_positions("k", -1)),
        needs=("rope",),
    ),
    "rope_on_values": Mistake(
        says="Rotary positions are applied to the values too.",
        fix="rotate only q and k",
        seen="one loop over q, k and v",
        stage="v",
        changes=(
            around(
                "place",
                lambda step, setup, side, heads, positions: step(setup, "k" if side == "v" else side, heads, positions),
            ),
        ),
        needs=("rope",),
    ),
}
