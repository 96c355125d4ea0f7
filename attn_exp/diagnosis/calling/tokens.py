"""Along which axes of x tokens lie that see each other: what else is an axis holds entries, as a batch does."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.calling.neutral_of_layers import MASKS, Filled, read_otherwise
from attn_exp.diagnosis.calling.search_of_ways import HERE
from attn_exp.diagnosis.calling.way import ALONE, APART, SPACE, Way, lengths_of
from attn_exp.diagnosis.calling.ways_into_layers import with_memory, with_one_query
from attn_exp.diagnosis.matrices.layers import TorchLayer
from attn_exp.diagnosis.matrices.plain_layers import PlainLayer
from attn_exp.diagnosis.matrices.pure_layers import PureLayer
from attn_exp.diagnosis.matrices.roles import TOKENS

Layer = TorchLayer | PureLayer | PlainLayer


def as_tokens_lie(layer: Layer, way: Way, heads: Collection[int] = ()) -> Way:
    """Return the way with the axes, the groups and the memory that the answers of a layer show, in one query at a time
    where it takes no more; heads of one of some numbers are no groups."""
    if way.axes == "tm" and are_apart(layer, way):
        way = with_one_query(layer, way, layer.lent) or way
    way, before = entries_apart(layer, tokens_first(layer, depending(layer, way))), way
    way = groups_apart(layer, way, heads)
    if way.groups or (way.memory and way.axes == before.axes):
        return way
    return with_memory(layer, way, layer.lent)


def tokens_first(layer: Layer, way: Way) -> Way:
    """Return the way with tokens on the first axis, where entries of a batch see each other otherwise.

    A layer of no library may take one text alone, and any second axis by chance. Of rows of texts, as alignments are,
    one is taken where they share their weights.
    """
    if way.axes == "tm" and isinstance(layer, TorchLayer) and not way.tokens:
        return with_entries(layer, way)
    if way.axes not in OTHERWISE or way.tokens or (way.axes != "btm" and len(way.sides) > 1):  # heads of q, k and v
        return way

    def mixes(one: Way, within: bool = False) -> bool:
        x, other = np.random.default_rng(19).standard_normal((2, 2, 6, way.width)) * SMALL
        try:
            before = layer.answer(one, x, None)
            if within:  # the first token sees the last, or the other way round
                ends = np.concatenate([x[:, :-1], other[:, -1:]], 1), np.concatenate([other[:, :1], x[:, 1:]], 1)
                after = [layer.answer(one, end, None) for end in ends]
                return not all(np.allclose(before[:, at], one[:, at]) for at, one in zip((0, -1), after, strict=True))
            after = [layer.answer(one, np.stack(pair), None) for pair in ((x[0], other[1]), (other[0], x[1]))]
            return not all(np.allclose(before[at], after[at][at]) for at in range(2))
        except Exception:
            return not within

    axes = ("tbm",) if not isinstance(layer, PlainLayer) and way.axes == "btm" else OTHERWISE[way.axes]
    turned = {name: with_axes_turned(make) for name, make in way.given.items()}
    ways = [way] if turned == way.given else [way, replace(way, given=turned)]
    others = [replace(each, axes=one) for one in axes for each in ways] if mixes(way) else []
    return next((one for one in others if not mixes(one) and (one.axes in KNOWN or mixes(one, within=True))), way)


def with_axes_turned(make: Any) -> Any:
    """Return what makes an argument for tokens that lie first, where entries were taken for them before."""
    if not isinstance(make, Filled):
        return make
    others = {"b": "s", "s": "b"} if make.shape == "b s" else {"b": "t", "t": "b", "s": "b"}
    return replace(make, shape=" ".join(others.get(letter, letter) for letter in make.shape.split()))


KNOWN = ("tm", "tbm")
OTHERWISE = {"btm": KNOWN, "bhwm": ("1tbm", "t1bm", "b1tm", "bt1m", "1btm", "tb1m")}
"""Orders of axes to try instead of one in which entries see each other."""


def with_entries(layer: TorchLayer, way: Way) -> Way:
    """Return the way of a layer that takes one text with several on the second axis, if it takes them too."""
    masks = {name: make for name, make in way.given.items() if isinstance(make, Filled) and make in MASKS}
    for shape in ("t s", "b t s") if masks else ("",):
        given = dict(way.given) | {name: replace(make, shape=shape) for name, make in masks.items()}
        many = replace(way, axes="tbm", given=given)
        with suppress(Exception):
            x = np.random.default_rng(23).standard_normal((2, 5, way.width))
            if np.allclose(layer.answer(many, x, None), layer.answer(way, x, None), atol=layer.rounding * 10):
                return many
    return way


def depending(layer: Layer, way: Way) -> Way:
    """Return the way with a mask the other way round, where it hides all.

    The answer is the same for any x then, or for every token: what is added to all logits and is large leaves no share
    of them.
    """
    x = np.random.default_rng(31).standard_normal((2, 2, way.tokens or HERE, way.width))

    def says_nothing(one: Way) -> bool:
        try:
            first, second = (layer.answer(one, rows, None) for rows in x)
        except Exception:
            return True
        return np.array_equal(first, second) or (first.shape[1] > 1 and not np.ptp(first, axis=1).any())

    if not says_nothing(way):
        return way
    return next((other for other in read_otherwise(way) if not says_nothing(other)), way)


def takes_any_number(layer: Layer, way: Way) -> bool:
    """Say whether a layer takes one token alone, and as many as most questions have.

    Where one stands beside those of an image, that has none then; some have a mask or a table of few tokens.
    """
    with suppress(Exception):
        return all(layer.answer(way, np.ones((1, count, way.width)), None).size > 0 for count in (1, OF_QUESTIONS))
    return False


OF_QUESTIONS = 9


def are_apart(layer: Layer, way: Way) -> bool:
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
        alone = [axis for at, axis in enumerate(places) if not any_beyond(seen, at, places)]
        return (
            without_axes(way, lengths, alone)
            if alone or len(places) > len("hw") or len(way.sides) > 1
            else of_one_row(layer, way, places)
        )
    return way


def groups_apart(layer: Layer, way: Way, heads: Collection[int]) -> Way:
    """Return the way with x as one group of several, where tokens see those of their own group alone.

    Windows of an image and blocks of a text are such groups. Heads that nobody exchanged with tokens look like as many
    groups as there are heads, one of these numbers: those of more tokens are larger then. Exchanged twice, they look
    like groups of as many tokens, none beside another.
    """
    if len([axis for axis in way.axes if axis in SPACE]) != 1 or "m" not in way.axes or way.asks:
        return way
    with layer.without_norms(), suppress(Exception):
        count = way.tokens or IN_GROUPS
        groups = groups_of(layer, way, count)
        if len({len(group) for group in groups}) > 1 and not way.tokens:  # the last one is not full
            count = 2 * len(groups[0])
            groups = groups_of(layer, way, count)
        size = len(groups[0])
        of_heads = size in heads and groups[0] != list(range(size))
        if len({len(group) for group in groups}) > 1 or not 1 < size < count or of_heads:
            return way
        more = groups_of(layer, replace(way, tokens=0), count + size)
        is_group = [len(group) for group in more] == [size] * (len(groups) + 1) if more else len(groups) not in heads
        if is_group:
            return replace(way, groups=tuple(map(tuple, groups)), tokens=size, memory=False)
    return way


IN_GROUPS = 12


def groups_of(layer: Layer, way: Way, tokens: int) -> list[list[int]]:
    """Return the tokens that see each other, in groups; none where some see one of another group, or a call fails."""
    x, other = np.random.default_rng(47).standard_normal((2, 1, tokens, way.width))
    try:
        before = layer.answer(way, x, None)
        seen = np.eye(tokens, dtype=np.bool_)
        for at in range(tokens):
            changed = x.copy()
            changed[:, at] = other[:, at]
            gap = np.abs(layer.answer(way, changed, None) - before)[0].max(axis=-1)
            seen[at] |= gap > layer.rounding * 10 * gap.max()
    except Exception:
        return []
    seen |= seen.T  # the later of two may see the earlier alone
    if not (seen == (seen.astype(int) @ seen > 0)).all():
        return []
    return [list(map(int, np.flatnonzero(row))) for at, row in enumerate(seen) if not row[:at].any()]


def of_one_row(layer: Layer, way: Way, places: Sequence[str]) -> Way:
    """Return the way with one row of an image, or one column, where all of them share their weights and no values.

    A row of equal tokens has one answer then, whatever the other rows are.
    """
    rng, lengths = np.random.default_rng(43), lengths_of(places, OF_TWO_ROWS)

    def answers(rows: Array, at: int) -> Array:
        whole = np.repeat(rows[:, None], lengths[1 - at], 1).swapaxes(0, at)
        said = layer.answer(way, whole.reshape(1, OF_TWO_ROWS, way.width), None)
        return said.reshape(*lengths, -1).swapaxes(0, at)

    for at, axis in enumerate(places):
        rows, others = rng.standard_normal((2, lengths[at], way.width))
        others[0] = rows[0]
        one, other = answers(rows, at), answers(others, at)
        if np.allclose(one[0], other[0], atol=layer.rounding) and not np.allclose(one[1:], other[1:]):
            return replace(way, axes=way.axes.replace(axis, ALONE).replace(places[1 - at], "t"))
    return way


OF_TWO_ROWS = 6
"""Tokens of an image of two rows of three."""


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
