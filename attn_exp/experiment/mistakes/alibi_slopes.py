"""ALiBi's slopes are wrong for this number of heads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.mistakes._parts import other_alibi
from attn_exp.experiment.mistakes.mistake import Change, Mistake
from attn_exp.rules.scores.alibi import slopes


def closed(heads: int) -> Array:
    return np.asarray(2.0 ** (-8.0 * np.arange(1, heads + 1) / heads))


def from_zero(heads: int) -> Array:
    return np.asarray(2.0 ** (-8.0 * np.arange(heads) / heads))


def powers(heads: int) -> Array:
    return np.asarray(2.0 ** -np.arange(1.0, heads + 1))


def reversed_order(heads: int) -> Array:
    return np.asarray(slopes(heads)[::-1])


def rounded_up(heads: int) -> Array:
    return closed(1 << (heads - 1).bit_length())[:heads]


def fractions(heads: int) -> Array:
    return np.asarray(1.0 / np.arange(1.0, heads + 1))


def one_for_all(heads: int) -> Array:
    return np.full(heads, slopes(heads)[0])


def powers_from_zero(heads: int) -> Array:
    return np.asarray(2.0 ** -np.arange(0.0, heads))


def rounded_up_from_zero(heads: int) -> Array:
    return from_zero(1 << (heads - 1).bit_length())[:heads]


def change(rates: Callable[[int], Array]) -> Change:
    """Return the change that takes these slopes."""
    return lambda recipe: other_alibi(recipe, lambda grid: -rates(grid.heads)[grid.head] * abs(grid.query - grid.key))


WRONG = (
    closed,
    from_zero,
    powers,
    reversed_order,
    rounded_up,
    fractions,
    one_for_all,
    powers_from_zero,
    rounded_up_from_zero,
)


MISTAKE = Mistake(
    group="scores",
    says="ALiBi's slopes are wrong for this number of heads.",
    fix="2^(-8 i / h) from i = 1 where h is a power of two; else the slopes of the powers below and above",
    seen="mlx issue 343 (heads not a power of two); aprender PR 2143 (exponent off by one)",
    stage="masked",
    changes=(*(change(rates) for rates in WRONG),),
    needs=("alibi",),
)
