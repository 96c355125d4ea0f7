"""The attention among the operations of a call: each softmax, what goes into it, and what it mixes.

`Core` is one of them, and `Seen` a layer that is asked so that its cores can be held against each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations, permutations
from math import prod
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.calling.way import SPACE, Way
from attn_exp.diagnosis.code.returned import parts_of
from attn_exp.diagnosis.code.source import source_of
from attn_exp.diagnosis.code.watching import Operation
from attn_exp.diagnosis.matrices.idle import (
    diagonals,
    idle_biases,
    idle_matrices,
    matrices_of,
    never_called,
    packed_axis,
    waiting,
)
from attn_exp.diagnosis.matrices.layers import TorchLayer
from attn_exp.diagnosis.matrices.module_sizes import HEADS, whole_numbers
from attn_exp.diagnosis.matrices.named_matrices import sounds_like
from attn_exp.diagnosis.matrices.plain_layers import PlainLayer
from attn_exp.diagnosis.matrices.pure_layers import PureLayer
from attn_exp.diagnosis.matrices.roles import restored
from attn_exp.own_code import held

TOKENS, HIDDEN, CLOSE = 7, -1e4, 1e-6
"""Tokens of x here; logits below are those of hidden keys; a gap of numbers of size 1 that is none."""
TOKENS_ALONG = (TOKENS, TOKENS, 6, 16)
"""Tokens that lie along none, one, two or three axes: of 7, all would lie in one row, and what goes along the others
would not show."""
MOST_AXES, MOST_OPERATIONS = 6, 4000


@dataclass(frozen=True, eq=False)
class Core:
    """One softmax with what goes into it and what it mixes; the first axis counts entries and heads.

    `q [n t d]` and `k [n s d]` are those of the product `scores [n t s]`; `logits` and `weights` are `[n t s]`, `v [n s
    e]`, and `shares` what the softmax returned, before anything is put on it. `before` is by what q and k were
    multiplied before the product, and `after` by what the weights were behind the softmax; `normed` says that q and k
    were given a size of their own. `at` are the places of the product of q and k, of the softmax and of the product
    with v among the operations; `swapped` says that this one returned `[n e t]`.
    """

    q: Array
    k: Array
    v: Array
    scores: Array
    logits: Array
    shares: Array
    weights: Array
    before: float
    after: float
    normed: bool
    at: tuple[int, int, int]
    swapped: bool
    is_bare: bool = False
    """Whether there is no softmax: what becomes of the product is what v is mixed with."""
    is_summed: bool = False
    """Whether shares and values are each summed up over the keys, so that no value is mixed by them."""

    @property
    def size(self) -> int:
        """How many numbers a query has."""
        return int(self.q.shape[-1])


def cores(operations: Sequence[Operation], tokens: int = 0) -> list[Core]:
    """Return each softmax among some operations that stands between two products, in the order of the call.

    Where there is none, it is each product of all `tokens` with all that stands before another product.
    """
    found = [one for place in softmaxes(operations)
             if (one := core(operations, place) or summed_apart(operations, place)) is not None]  # fmt: skip
    return found or [one for place in range(len(operations)) if (one := without_softmax(operations, place, tokens))]


def without_softmax(operations: Sequence[Operation], place: int, tokens: int) -> Core | None:
    """Return what stands around a product of all tokens with all that is used as weights, times a number.

    None of others, and where that number is the share of one of the keys, as what takes means of products does. One
    number, and no other, may be filled in where a mask hides.
    """
    one = operations[place]
    is_likely = one.is_product and one.name != "convolution" and all(one.of_x[-2:])
    if not is_likely or one.said.shape[-2:] != (tokens, tokens) or one.given[-1].shape[-2] == tokens:
        return None
    mixing = mixed_with(operations, place)
    if mixing is None:
        return None
    at, side = mixing
    left, right = (in_rows(each) for each in operations[at].given[-2:])
    weights, v = (left, right) if side == 0 else (right.swapaxes(1, 2), left.swapaxes(1, 2))
    q, k = in_rows(one.given[-2]), in_rows(one.given[-1]).swapaxes(1, 2)
    if not all(operations[at].of_x[-2:]) or weights.shape != in_rows(one.said).shape:
        return None
    scores, before = q @ k.swapaxes(1, 2), prod(multiplied(operations, made)[0] for made in one.made[-2:])
    shown = ~filled_in(weights)
    used, made = weights[shown], scores[shown]
    factor = float((used * made).sum() / max((made**2).sum(), 1e-300))
    is_mean = abs(factor * before * tokens - 1.0) < CLOSE or is_divided(operations, at, tokens)
    if is_mean or np.abs(used - factor * made).max(initial=0.0) > CLOSE * np.abs(used).max(initial=0.0):
        return None
    places = (place, operations[at].made[side - 2] or place, at)
    return Core(q, k, v, scores, weights, weights, weights, before, 1.0, False, places, side == 1, is_bare=True)


def is_divided(operations: Sequence[Operation], place: int, number: int) -> bool:
    """Say whether what an operation returns is divided by a number, or multiplied by one over it."""
    others = [one for one in operations[place + 1 :] if place in one.made and one.name in ("div", "mul")]
    known = [(one, float(array.ravel()[0])) for one in others for array in one.given if array.size == 1]
    known += [(one, factor) for one in others for factor in one.numbers]
    return any(abs((1 / factor if one.name == "mul" else factor) - number) < CLOSE for one, factor in known if factor)


def softmaxes(operations: Sequence[Operation]) -> Iterator[int]:
    """Yield the places of operations that return shares: called so, or quotients of exponentials by their sum."""
    for place, one in enumerate(operations):
        if one.said.dtype.kind != "f" or one.said.ndim < len("ts") or not one.is_of_x or one.said.size < 2:
            continue
        made_of_rows = one.name in ("stack", "index_put") and one.given[-1].ndim == 1
        is_made = one.name in ("div", "mul", *POWERS) or made_of_rows  # a power too, less the log of a sum
        if one.name in ("_softmax", "_safe_softmax", LOGARITHMS) or (is_made and is_share(operations, place)):
            yield place


LOGARITHMS = "_log_softmax"
"""The operation that returns the logarithms of shares."""
POWERS = ("exp", "exp2")


def is_share(operations: Sequence[Operation], place: int) -> bool:
    """Say whether a quotient is that of exponentials by their sum, whichever are summed; inf by inf is NaN."""
    said = operations[place].said
    if not ((said >= 0) | np.isnan(said)).all() or not any(
        operations[one].name in POWERS for one in behind(operations, place)
    ):
        return False
    sums = [said.sum(axis=axis) for axis in range(said.ndim) if said.shape[axis] > 1]
    return any(np.allclose(one[~np.isnan(one)], 1.0, atol=CLOSE) for one in sums) or is_divided_by_sums(
        operations, place
    )


def is_divided_by_sums(operations: Sequence[Operation], place: int) -> bool:
    """Say whether exponentials are divided by sums of the same ones, whatever is summed and wherever that is put."""
    one, power = operations[place], operations[operations[place].made[0] or 0]
    if one.name != "div" or len(one.given) < len("xy") or power.name != "exp" or one.given[0].ndim > MOST_AXES - 2:
        return False
    powers, total = one.given[0], one.given[1].ravel()
    along = (axes for count in range(1, powers.ndim + 1) for axes in combinations(range(powers.ndim), count))
    sums = (powers.sum(axis=axes).ravel() for axes in along)
    return any(sum_of.size == total.size and np.allclose(sum_of, total, rtol=CLOSE) for sum_of in sums)


def behind(operations: Sequence[Operation], place: int) -> Iterator[int]:
    """Yield what an operation was made of, back to the products, which are yielded too."""
    seen, ahead = set[int](), [place]
    while ahead:
        for made, of_x in zip(operations[one := ahead.pop()].made, operations[one].of_x, strict=True):
            if made is not None and of_x and made not in seen:
                seen.add(made)
                yield made
                if not operations[made].is_product:
                    ahead.append(made)


def core(operations: Sequence[Operation], place: int) -> Core | None:
    """Return what stands around one softmax, or None where that is no attention."""
    shares = operations[place].said
    mixing = mixed_with(operations, place)
    if mixing is None or shares.ndim > MOST_AXES:
        return None
    at, side = mixing
    first, second = (in_rows(one) for one in operations[at].given[-2:])
    weights, v = (first, second) if side == 0 else (second.swapaxes(1, 2), first.swapaxes(1, 2))
    found = order_of_axes(shares, weights)
    if found is None or weights.shape[-1] != v.shape[1]:
        return None
    order, after = found
    logits = logits_of(operations, place).transpose(order).reshape(weights.shape)
    shares = shares.transpose(order).reshape(weights.shape)
    nearest = nearest_product(operations, place, logits)
    if nearest is None:
        return None
    _, product, turned = nearest
    q, k, factor, normed = queries_and_keys(operations, product, turned=turned)
    scores = q @ k.swapaxes(1, 2)  # what the product returns may be scaled, or have something added to it
    return Core(q, k, v, scores, logits, shares, weights, factor, after, normed, (product, place, at), side == 1)


def nearest_product(operations: Sequence[Operation], place: int, logits: Array) -> tuple[float, int, bool] | None:
    """Return how far the logits `[n t s]` of a softmax are from the product that they are made of, its place, and
    whether it is turned; None where they are made of none."""
    products = sorted(place for place in behind(operations, place) if operations[place].is_product)
    fits = [fit for product in products for fit in fitted(operations, product, logits)]
    # turned only where that is sure: beside what is added to them, or of equal sides, either may be nearer by chance
    return min(fits, key=lambda fit: (fit[2] and fit[0] > CLOSE, max(fit[0], CLOSE), fit[2]), default=None)


def queries_and_keys(
    operations: Sequence[Operation], product: int, *, turned: bool
) -> tuple[Array, Array, float, bool]:  # fmt: skip
    """Return the rows that a product multiplies, by what they were multiplied before, and whether a norm came there."""
    given = [in_rows(one) for one in operations[product].given[-2:]]
    sides = [given[0], given[1].swapaxes(1, 2)]
    q, k = sides[::-1] if turned else sides
    before = [multiplied(operations, made) for made in operations[product].made[-2:]]
    return q, k, prod(factor for factor, _ in before), any(normed for _, normed in before)


def summed_apart(operations: Sequence[Operation], place: int) -> Core | None:
    """Return what stands around a softmax whose shares are summed up over all keys, which is 1, and multiplied with a
    sum of values over these; None of others."""
    said, sums = operations[place].said, {at for at, one in enumerate(operations) if one.name == "sum" and one.is_of_x}
    of_shares = {at for at in sums if place in operations[at].made and np.allclose(operations[at].said, 1.0)
                 and operations[at].given[0].size > operations[at].said.size}  # fmt: skip
    met = ((at, other) for at, one in enumerate(operations) if (one.name == "mul" or one.is_product)
           and of_shares & set(one.made) for other in one.made if other in sums - of_shares)  # fmt: skip
    at, other = next(met, (0, 0))
    over = next((axis for axis in range(said.ndim) if np.allclose(said.sum(axis=axis), 1.0, atol=CLOSE)), None)
    v = before_sum(operations[other])
    if not at or over is None or said.ndim > MOST_AXES or v is None:
        return None
    orders = [(*rest, over) for rest in permutations(axis for axis in range(said.ndim) if axis != over)]
    laid = [(logits_of(operations, place).transpose(order), order) for order in orders]
    fits = [(nearest, order) for logits, order in laid
            if (nearest := nearest_product(operations, place, logits.reshape(-1, *logits.shape[-2:])))]  # fmt: skip
    if not fits:
        return None
    (_, product, turned), order = min(fits, key=lambda fit: fit[0])
    logits, shares = (array.transpose(order).reshape(-1, *array.transpose(order).shape[-2:])
                      for array in (logits_of(operations, place), said))  # fmt: skip
    q, k, factor, normed = queries_and_keys(operations, product, turned=turned)
    if len(v) != len(shares) or v.shape[1] != shares.shape[2]:
        return None
    scores, places, swapped = q @ k.swapaxes(1, 2), (product, place, at), operations[at].made[-1] in of_shares
    return Core(q, k, v, scores, logits, shares, shares, factor, 1.0, normed, places, swapped, is_summed=True)


def before_sum(one: Operation) -> Array | None:
    """Return the rows `[n s e]` that were summed up over s, or None where it was no sum over one axis."""
    array, said = one.given[0] if one.given else one.said, one.said
    long = [axis for axis, length in enumerate(array.shape) if length > 1]
    array = array.reshape([array.shape[axis] for axis in long])
    for axis in range(array.ndim):
        total = array.sum(axis=axis)
        if total.size == said.size and np.allclose(total.ravel(), said.ravel()):
            rows = np.moveaxis(array, axis, -2) if array.ndim > 1 else array[None]
            return rows.reshape(-1, *rows.shape[-2:])
    return None


def is_multiplied(operations: Sequence[Operation], one: Core, filled: Array) -> bool:
    """Say whether logits are 0 where they are multiplied by what is 0 there whatever x is, and in no other place."""
    factors = [
        array
        for place in behind(operations, one.at[1])
        if operations[place].name == "mul"
        for array, of_x in zip(operations[place].given, operations[place].of_x, strict=True)
        if not of_x and array.shape[-2:] == filled.shape[-2:]
    ]
    closed = filled.any(axis=0)
    return any(np.array_equal(array.reshape(-1, *closed.shape)[0] == 0, closed) for array in factors)


def logits_of(operations: Sequence[Operation], place: int) -> Array:
    """Return what a softmax is given; of one in parts what its exponentials are of, before a number is taken away.

    That number may be another for each query, or for each key, but not for both.
    """
    one = operations[place]
    if "softmax" in one.name:
        return one.given[0]
    power = power_of(operations, place)
    if power is not None:
        below = next((operations[made] for made in power.made[:1] if made is not None), one)
        return below.given[0] if below.name == "sub" and is_shift(below, one.said.shape) else power.given[0]
    with np.errstate(all="ignore"):
        return np.log(one.said)


def power_of(operations: Sequence[Operation], place: int) -> Operation | None:
    """Return the operation that takes the powers of a softmax in parts, or None where it has other axes."""
    one = operations[place]
    before = next((operations[made] for made in one.made[:1] if made is not None), one)
    power = one if one.name in POWERS else before
    return power if power.name in POWERS and power.said.shape == one.said.shape else None


def is_raw(operations: Sequence[Operation], place: int) -> bool:
    """Say whether the powers of a softmax in parts are taken of logits as they are."""
    power = power_of(operations, place)
    return power is not None and logits_of(operations, place) is power.given[0]


def is_shift(one: Operation, shape: tuple[int, ...]) -> bool:
    """Say whether a difference is that of an array and of numbers that are the same along an axis."""
    if len(one.given) < len("xy") or one.given[0].shape != shape:
        return False
    taken = np.broadcast_to(one.given[1], shape)
    return any(shape[axis] > 1 and (taken == taken.take([0], axis)).all() for axis in range(len(shape)))


def in_rows(array: Array) -> Array:
    """Return a matrix as one of several."""
    return array if array.ndim == len("nts") else array[None]


def mixed_with(operations: Sequence[Operation], place: int) -> tuple[int, int] | None:
    """Return the first product that weights go into, and as which of its two sides."""
    theirs = {place}
    for at in range(place + 1, len(operations)):
        sides = [side for side, made in enumerate(operations[at].made) if made in theirs]
        if sides and operations[at].is_product:
            side = sides[0] - len(operations[at].given) + 2
            return (at, side) if side >= 0 and operations[at].given[-1].ndim <= len("nts") else None
        if sides:
            theirs.add(at)
    return None


def order_of_axes(array: Array, other: Array) -> tuple[tuple[int, ...], float] | None:
    """Return the order in which the axes of an array make a multiple of another, which may have fewer, and the factor.

    Zeros of the other are not held against it, nor what is no number or far below all shares: a mask may have been put
    on it.
    """
    if array.size != other.size:
        return None
    kept = (other != 0) & (other > HIDDEN) & np.isfinite(other)
    for order in permutations(range(array.ndim)):
        tried = array.transpose(order).reshape(other.shape)
        place = np.unravel_index(np.abs(np.where(kept, tried, 0.0)).argmax(), other.shape)
        factor = float(other[place] / tried[place]) if tried[place] else 0.0
        if kept.any() and (np.abs(factor * tried - other)[kept] <= 1e-9 * max(abs(factor), 1.0)).all():
            return order, factor
    return None


def fitted(operations: Sequence[Operation], place: int, logits: Array) -> Iterator[tuple[float, int, bool]]:
    """Yield how far the logits are from a multiple of a product, its place, and whether it is turned."""
    one = operations[place]
    scores = in_rows(one.said)
    if one.name == "convolution" or not all(one.of_x[-2:]) or scores.ndim != logits.ndim:
        return
    shown, half = (logits > HIDDEN) & ~often(logits), len(logits) // 2
    for turned, said in ((False, scores), (True, scores.swapaxes(1, 2))):
        if said.shape == logits.shape:
            gap = multiple(logits, said, shown)[1]
            if len(logits) == 2 * half:  # what is added for the place alone is not in the difference of two entries
                left, right = (array[:half] - array[half:] for array in (np.where(shown, logits, 0.0), said))
                gap = min(gap, multiple(left, right, shown[:half] & shown[half:])[1])
            yield gap, place, turned


def often(logits: Array) -> Array:
    """Return which logits are a number that comes more than once, as one that is filled in does."""
    _, places, counts = np.unique(logits, return_inverse=True, return_counts=True)
    return np.asarray(counts[places].reshape(logits.shape) > 1)


def filled_in(weights: Array) -> Array:
    """Return which of some weights are one number that is filled in; none where several numbers come more than once."""
    filled = often(weights)
    is_one = filled.any() and not filled.all() and np.ptp(weights[filled]) == 0
    return filled if is_one else np.zeros_like(filled)


def multiple(logits: Array, scores: Array, shown: Array) -> tuple[float, float]:
    """Return the factor with which scores are nearest to logits where they are shown, and how far they still are.

    Only what parts the logits of one query tells anything, as the softmax knows no more.
    """
    right, tried = apart(logits, shown), apart(scores, shown)
    factor = float((right * tried).sum() / max((tried * tried).sum(), 1e-300))
    return factor, float(np.abs(right - factor * tried).max(initial=0.0) / max(np.abs(right).max(initial=0.0), 1e-300))


def apart(logits: Array, shown: Array) -> Array:
    """Return logits without the mean of those of a query, and 0 for those that are not shown."""
    kept = np.where(shown, logits, 0.0)
    count = np.maximum(shown.sum(axis=-1, keepdims=True), 1)
    return np.where(shown, kept - kept.sum(axis=-1, keepdims=True) / count, 0.0)


def multiplied(operations: Sequence[Operation], place: int | None) -> tuple[float, bool]:
    """Return by what numbers a side was multiplied since the last product, and whether a norm came between."""
    factor = 1.0
    while place is not None and not operations[place].is_product:
        one = operations[place]
        mine = [side for side, of_x in enumerate(one.of_x) if of_x]
        if not mine or "norm" in one.name or (len(mine) > 1 and one.name in ("mul", "div")):
            return factor, bool(mine)
        if len(mine) > 1 and one.name in ("add", "sub"):  # a sum is multiplied by what both of its parts are
            parts = {multiplied(operations, one.made[side]) for side in mine}
            by, normed = parts.pop() if len(parts) == 1 else (1.0, False)
            return factor * by, normed
        if one.name in ("mul", "div") and not is_mean(operations, place):
            factor *= number_of(one)
        place = one.made[mine[0]]
    return factor, False


def is_mean(operations: Sequence[Operation], place: int) -> bool:
    """Say whether an operation divides a sum by how many were summed up."""
    summed = next((operations[made] for made in operations[place].made if made is not None), None)
    if summed is None or summed.name != "sum" or not summed.said.size:
        return False
    return abs(number_of(operations[place]) * summed.given[0].size / summed.said.size - 1.0) < CLOSE


def number_of(one: Operation) -> float:
    """Return the one number that an operation multiplies with, or divides by."""
    others = [array for array, of_x in zip(one.given, one.of_x, strict=True) if not of_x and array.size == 1]
    number = next(iter([*one.numbers, *(float(array.ravel()[0]) for array in others)]), 1.0)
    return number if one.name == "mul" else 1 / number


def factor_on_the_way(operations: Sequence[Operation], place: int | None, product: int) -> float | None:
    """Return by what numbers a product is multiplied until it is a part of what an operation returns; None where it is
    none, or is normed or multiplied with more than a number."""
    if place is None or place == product:
        return None if place is None else 1.0
    one = operations[place]
    mine = [made for made, of_x in zip(one.made, one.of_x, strict=True) if of_x]
    is_scaled = one.name in ("mul", "div")
    if one.is_product or "norm" in one.name or (is_scaled and len(mine) > 1):
        return None
    found = [way for made in mine if (way := factor_on_the_way(operations, made, product)) is not None]
    return found[0] * (number_of(one) if is_scaled else 1.0) if found else None


# What is asked of a layer: numbers, others, one token changed, one row of what it mixes changed


@dataclass(frozen=True, eq=False)
class Seen:
    """A layer seen from inside: what its calls are, and its cores of two questions that differ in all numbers.

    `said` is its answer to the first. `width` is how many numbers a token has, and `told` how many heads the layer says
    that it has, or 0; `words` are its words for masks, and what each is. Where no attention is seen, it has no cores.
    """

    ask: Callable[..., tuple[list[Operation], Array]]
    x: Array
    memory: Array
    said: Array
    operations: list[Operation]
    first: list[Core]
    second: list[Core]
    width: int
    told: int
    words: Mapping[str, str]
    idle: Callable[[], Sequence[str]] = list
    """The names of the matrices that change nothing."""
    diagonals: Callable[[], Sequence[str]] = list
    """The names of the matrices of which only the diagonal is used."""
    named: Callable[[], Mapping[str, str]] = dict
    """What the name of the matrix that q, k and v are each made with says that it makes, where it says that."""
    matrices: Sequence[str] = ()
    """The names of all matrices."""
    without_bias: Callable[[], Sequence[str]] = list
    """The sides whose bias changes nothing, where it should."""
    speaks_of_channels: Callable[[], bool] = bool
    """Whether the layer's class says that it means attention among channels."""
    is_image: bool = False
    """Whether tokens are the points of an image."""

    def cores_of(self, x: Array, memory: Array) -> list[Core]:
        """Return the cores of a call."""
        return cores(self.ask(x, memory)[0], self.x.shape[1])

    @cached_property
    def is_turned(self) -> bool:
        """Whether names say that what is read as queries here makes keys, as weights that are turned look."""
        return self.named().get("q") == "k"

    @property
    def is_one_for_several(self) -> bool:
        """Whether there is one head where the layer says that it has several, and not as many rows for each token."""
        if self.first[0].q.shape[1] == self.told * self.x.shape[1]:
            return False
        return self.heads == 1 < self.told and self.first[0].size not in (self.told, self.width // self.told)

    @property
    def heads(self) -> int:
        """How many heads there are, where each is a softmax for each entry: 0 where that does not come out."""
        count = sum(len(one.weights) for one in self.first)
        return count // len(self.x) if count % len(self.x) == 0 else 0


def first_seen(
    layer: TorchLayer | PureLayer | PlainLayer, ways: Sequence[Way], words: Callable[[Way], Mapping[str, str]]
) -> Seen | None:  # fmt: skip
    """Return what is seen inside a layer in the first of some calls in which attention is; `words` are for masks."""
    for way in ways:
        with suppress(Exception):
            if (seen := seen_inside(layer, way, words(way))) is not None and seen.first:
                return seen
    return None


def seen_inside(
    layer: TorchLayer | PureLayer | PlainLayer, way: Way, words: Mapping[str, str], told: int = 0
) -> Seen | None:  # fmt: skip
    """Return what is seen of attention inside a layer, or None where that cannot be read; maybe there are no cores.

    `words` are those for masks that it takes, and what each is: a `mask`, or a `padding`. `told`: how many heads its
    class was told, where it keeps no number of them.
    """
    tokens = way.tokens or TOKENS_ALONG[sum(axis in SPACE for axis in way.axes)]
    x, memory, other, of_other = np.random.default_rng(67).standard_normal((4, 2, tokens, way.width))

    def ask(
        x: Array, memory: Array, instead: Any = None, masks: Mapping[str, Any] | None = None
    ) -> tuple[list[Operation], Array]:
        given = [layer.lent(x), layer.lent(memory) if way.memory else None]
        named = {word: layer.lent_as_it_is(mask) for word, mask in (masks or {}).items()}
        with held():
            call = partial(way.call, layer, *given, **named)
            operations, said = layer.told(call, given, {*way.given, *named}, instead)
        first = next(iter(parts_of(said).values()))
        return operations, np.asarray(first.detach().cpu() if hasattr(first, "detach") else first, np.float64)

    ask(x, memory)  # what a first call makes and keeps is made
    operations, said = ask(x, memory)
    if len(operations) > MOST_OPERATIONS:
        return None
    first, second = (cores(each, tokens) for each in (operations, ask(other, of_other)[0]))
    same = [one.at for one in first] == [one.at for one in second]
    numbers = dict(whole_numbers(layer.module))
    heads = next((value for word, value in numbers.items() if word in HEADS and value > 0), told)
    if not same:
        return None
    if all(one.weights.shape[2] == 1 for one in first):  # one key has a weight of 1
        first = second = []

    def answer() -> Array:
        return layer.answer(way, x, memory if way.memory else None)

    def idle() -> list[str]:
        found = idle_matrices(layer, answer)
        later = waiting(layer, found, answer) if found else ()
        return [*(name for name in found if name not in later), *never_called(layer)]

    def named() -> dict[str, str]:
        return sides_by_name(layer, first[0], lambda: cores(ask(x, memory)[0], tokens)[0])

    every = [*matrices_of(layer.parameters), *never_called(layer)]
    return Seen(
        ask, x, memory, said, operations, first, second, way.width, heads, words, idle,
        partial(diagonals, layer, answer), named, every,
        partial(idle_biases, layer, answer), partial(speaks_of_channels, layer.module), "w" in way.axes.lower(),
    )  # fmt: skip


def sides_by_name(
    layer: TorchLayer | PureLayer | PlainLayer, before: Core, again: Callable[[], Core]
) -> dict[str, str]:
    """Return what the names of matrices say that q, k and v of a core are made with; `again` asks the layer anew.

    The first number that a packed matrix makes is one of q, however it is packed.
    """
    found, rng = dict[str, str](), np.random.default_rng(97)
    with restored(layer) as own:
        for name, array in own.items():
            axis = packed_axis(name, array)
            if axis is not None:
                layer.put({name: array + np.where(np.indices(array.shape)[axis] == 0, 1.0, 0.0)})
                after = again()
                layer.put({name: array})
                if after.k.shape == before.k.shape and not np.allclose(after.k, before.k):
                    found |= {"q": "k", "k": "q"} if np.allclose(after.q, before.q) else {}
            if (side := sounds_like(name)) and array.ndim > 1:  # a matrix, also one of one column
                layer.put({name: array + rng.standard_normal(array.shape)})
                after = again()
                layer.put({name: array})
                moved = [one for one in "qkv" if getattr(after, one).shape == getattr(before, one).shape
                         and not np.allclose(getattr(after, one), getattr(before, one))]  # fmt: skip
                found |= {moved[0]: side} if len(moved) == 1 else {}
    return found


def speaks_of_channels(module: Any) -> bool:
    """Say whether a class says that it means attention among channels, as those of DANet, XCiT and DaViT do."""
    with suppress(OSError, TypeError):
        return bool(OF_CHANNELS.search(source_of(type(module))))
    return False


OF_CHANNELS = re.compile(r"(?i)(among|across|between|over|cross).?(the )?channels?|channel.?(wise|att|self|mix|block)|"
                         r"covariance|transposed.(self.?)?attention|\bxca\b")  # fmt: skip
