"""Along which axes of x tokens lie that see each other: what else is an axis holds entries, as a batch does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.layers import TorchLayer
from attn_exp.diagnosis.plain_layers import PlainLayer
from attn_exp.diagnosis.pure_layers import PureLayer
from attn_exp.diagnosis.roles import TOKENS
from attn_exp.diagnosis.ways_into_layers import APART, SPACE, Way, lengths_of

Layer = TorchLayer | PureLayer | PlainLayer


def tokens_first(layer: TorchLayer | PlainLayer, way: Way) -> Way:
    """Return the way with tokens on the first axis, where entries of a batch see each other otherwise.

    A layer of no library may take one text alone, and any second axis by chance.
    """
    if way.axes != "btm" or way.tokens:
        return way

    def mixes(one: Way) -> bool:
        x, other = np.random.default_rng(19).standard_normal((2, 2, 5, way.width)) * SMALL
        try:
            before = layer.answer(one, x, None)
            after = [layer.answer(one, np.stack(pair), None) for pair in ((x[0], other[1]), (other[0], x[1]))]
            return not all(np.allclose(before[at], after[at][at]) for at in range(2))
        except Exception:
            return True

    others = [replace(way, axes=axes) for axes in (("tbm",) if isinstance(layer, TorchLayer) else ("tm", "tbm"))]
    return next((other for other in others if not mixes(other)), way) if mixes(way) else way


def are_apart(layer: TorchLayer, way: Way) -> bool:
    """Say whether what was taken for tokens `[t m]` are entries of a batch: first and last see no other.

    Where a batch has its own axis that is a mistake: heads of one token attend to each other.
    """
    if way.axes != "tm" or way.tokens == 1:
        return False
    x, other = np.random.default_rng(37).standard_normal((2, 1, way.tokens or TOKENS, way.width))
    try:
        before = layer.answer(way, x, None)
        ends = [(at, np.concatenate(parts, axis=1)) for at, parts in ((0, (x[:, :1], other[:, 1:])),
                                                                      (-1, (other[:, :-1], x[:, -1:])))]  # fmt: skip
        return all(np.array_equal(before[:, at], layer.answer(way, one, None)[:, at]) for at, one in ends)
    except Exception:
        return False


def entries_apart(layer: Layer, way: Way) -> Way:
    """Return the way without axes along which no token sees another, as rows of an image where each is a text."""
    places = [axis for axis in way.axes if axis in SPACE]
    tokens = way.tokens or MANY[len(places) - 1]
    lengths = lengths_of(places, tokens)
    if len(places) == 1 or min(lengths) == 1:
        return way
    with layer.without_norms(), suppress(Exception):
        seen = sees(layer, way, tokens).reshape(*lengths, *lengths)
        return without_axes(way, lengths, [axis for at, axis in enumerate(places) if not any_beyond(seen, at, places)])
    return way


def without_axes(way: Way, lengths: Sequence[int], alone: Sequence[str]) -> Way:
    """Return the way with axes of entries instead of those along which no token sees another."""
    places = [axis for axis in way.axes if axis in SPACE]
    if len(alone) in (0, len(places)):
        return way
    axes = way.axes
    for letter, axis in zip(APART, alone, strict=False):
        axes = axes.replace(axis, letter)
    rest = [axis for axis in places if axis not in alone]
    axes = axes.replace(rest[0], "t") if len(rest) == 1 else axes
    return replace(way, axes=axes, tokens=way.tokens and int(np.prod([lengths[places.index(one)] for one in rest])))


def sees(layer: Layer, way: Way, tokens: int) -> Array:
    """Return which tokens change with which, `[of whom, who]`, of the first and the last alone."""
    x, other = np.random.default_rng(41).standard_normal((2, 1, tokens, way.width))
    seen = np.eye(tokens, dtype=np.bool_)
    before = layer.answer(way, x, None)
    for at in (0, tokens - 1):
        changed = x.copy()
        changed[:, at] = other[:, at]
        gap = np.abs(layer.answer(way, changed, None) - before)[0].max(axis=-1)
        seen[at] |= gap > layer.rounding * 10 * gap.max()
    return seen


def any_beyond(seen: Array, at: int, places: Sequence[str]) -> bool:
    """Say whether any token sees one that lies elsewhere along an axis."""
    here = np.moveaxis(seen, (at, len(places) + at), (0, 1))
    elsewhere = ~np.eye(len(here), dtype=np.bool_)
    return bool(here[elsewhere].any())


MANY = (6, 6, 16)
"""Tokens that lie in rows of two at least along each of one, two or three axes."""


SMALL = 0.05
"""Of x where nobody may attend to itself alone."""
