"""The attention among the operations of a call: each softmax, what goes into it, and what it mixes.

`Core` is one of them, and `Seen` a layer that is asked so that its cores can be held against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from math import prod
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.idle import idle_biases, idle_matrices, matrices_of
from attn_exp.diagnosis.layers import TorchLayer
from attn_exp.diagnosis.module_sizes import HEADS, whole_numbers
from attn_exp.diagnosis.named_matrices import sounds_like
from attn_exp.diagnosis.plain_layers import PlainLayer
from attn_exp.diagnosis.pure_layers import PureLayer
from attn_exp.diagnosis.returned import parts_of
from attn_exp.diagnosis.roles import restored
from attn_exp.diagnosis.watching import Operation
from attn_exp.diagnosis.ways_into_layers import Way
from attn_exp.own_code import held

TOKENS, HIDDEN, CLOSE = 7, -1e4, 1e-6
"""Tokens of x here; logits below are those of hidden keys; a gap of numbers of size 1 that is none."""
OF_IMAGE = 6
"""Tokens of an image: of 7, all would lie in one row, and what goes along the other axis would not show."""
MOST_AXES, MOST_OPERATIONS = 6, 4000


@dataclass(frozen=True, eq=False)
class Core:
    """One softmax with what goes into it and what it mixes; the first axis counts entries and heads.

    `q [n t d]` and `k [n s d]` are those of the product `scores [n t s]`; `logits` and `weights` are `[n t s]`, `v [n s
    e]`. `before` is by what q and k were multiplied before the product, and `after` by what the weights were behind the
    softmax; `normed` says that q and k were given a size of their own. `at` are the places of the product of q and k,
    of the softmax and of the product with v among the operations; `swapped` says that this one returned `[n e t]`.
    """

    q: Array
    k: Array
    v: Array
    scores: Array
    logits: Array
    weights: Array
    before: float
    after: float
    normed: bool
    at: tuple[int, int, int]
    swapped: bool

    @property
    def size(self) -> int:
        """How many numbers a query has."""
        return int(self.q.shape[-1])


def cores(operations: Sequence[Operation]) -> list[Core]:
    """Return each softmax among some operations that stands between two products, in the order of the call."""
    found = (core(operations, place) for place in softmaxes(operations))
    return [one for one in found if one is not None]


def softmaxes(operations: Sequence[Operation]) -> Iterator[int]:
    """Yield the places of operations that return shares: called so, or quotients of exponentials by their sum."""
    for place, one in enumerate(operations):
        if one.said.dtype.kind != "f" or one.said.ndim < len("ts") or not one.is_of_x or one.said.size < 2:
            continue
        made_of_rows = one.name in ("stack", "index_put") and one.given[-1].ndim == 1
        is_made = one.name in ("div", "mul") or made_of_rows
        if one.name in ("_softmax", "_safe_softmax") or (is_made and is_share(operations, place)):
            yield place


def is_share(operations: Sequence[Operation], place: int) -> bool:
    """Say whether a quotient is that of exponentials by their sum."""
    said = operations[place].said
    if not (said >= 0).all():
        return False
    sums = [said.sum(axis=axis) for axis in range(said.ndim) if said.shape[axis] > 1]
    if not any(np.allclose(one, 1.0, atol=CLOSE) for one in sums):
        return False
    return any(operations[one].name in ("exp", "exp2") for one in behind(operations, place))


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
    products = sorted(place for place in behind(operations, place) if operations[place].is_product)
    fits = [fit for product in products for fit in fitted(operations, product, logits)]
    if not fits:
        return None
    _, product, turned = min(fits, key=lambda fit: fit[0])
    given = [in_rows(one) for one in operations[product].given[-2:]]
    sides = [given[0], given[1].swapaxes(1, 2)]
    q, k = sides[::-1] if turned else sides
    scores = q @ k.swapaxes(1, 2)  # what the product returns may be scaled, or have something added to it
    before = [multiplied(operations, made) for made in operations[product].made[-2:]]
    factor, normed = prod(factor for factor, _ in before), any(normed for _, normed in before)
    return Core(q, k, v, scores, logits, weights, factor, after, normed, (product, place, at), side == 1)


def logits_of(operations: Sequence[Operation], place: int) -> Array:
    """Return what a softmax is given; of one in parts what its exponentials are of, before a number is taken away.

    That number may be another for each query, or for each key, but not for both.
    """
    one = operations[place]
    if "softmax" in one.name:
        return one.given[0]
    power = next((operations[made] for made in one.made[:1] if made is not None), one)
    if power.name == "exp" and power.said.shape == one.said.shape:
        below = next((operations[made] for made in power.made[:1] if made is not None), one)
        if below.name == "sub" and is_shift(below, one.said.shape):
            return below.given[0]
        return power.given[0]
    with np.errstate(all="ignore"):
        return np.log(one.said)


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

    Zeros of the other are not held against it, nor what is far below all shares: a mask may have been put on it.
    """
    if array.size != other.size:
        return None
    kept = (other != 0) & (other > HIDDEN)
    for order in permutations(range(array.ndim)):
        tried = array.transpose(order).reshape(other.shape)
        place = np.unravel_index(np.abs(np.where(kept, tried, 0.0)).argmax(), other.shape)
        factor = float(other[place] / tried[place]) if tried[place] else 0.0
        if (np.abs(factor * tried - other)[kept] <= 1e-9 * max(abs(factor), 1.0)).all():
            return order, factor
    return None


def fitted(operations: Sequence[Operation], place: int, logits: Array) -> Iterator[tuple[float, int, bool]]:
    """Yield how far the logits are from a multiple of a product, its place, and whether it is turned."""
    one = operations[place]
    scores = in_rows(one.said)
    if one.name == "convolution" or not all(one.of_x[-2:]) or scores.ndim != logits.ndim:
        return
    for turned, said in ((False, scores), (True, scores.swapaxes(1, 2))):
        if said.shape == logits.shape:
            yield multiple(logits, said, (logits > HIDDEN) & ~often(logits))[1], place, turned


def often(logits: Array) -> Array:
    """Return which logits are a number that comes more than once, as one that is filled in does."""
    _, places, counts = np.unique(logits, return_inverse=True, return_counts=True)
    return np.asarray(counts[places].reshape(logits.shape) > 1)


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
        if one.name in ("mul", "div"):
            others = [array for side, array in enumerate(one.given) if side not in mine and array.size == 1]
            number = next(iter([*one.numbers, *(float(array.ravel()[0]) for array in others)]), 1.0)
            factor *= number if one.name == "mul" else 1 / number
        place = one.made[mine[0]]
    return factor, False


# What is asked of a layer: numbers, others, one token changed, one row of what it mixes changed


@dataclass(frozen=True, eq=False)
class Seen:
    """A layer seen from inside: what its calls are, and its cores of two questions that differ in all numbers.

    `said` is its answer to the first. `width` is how many numbers a token has, and `told` how many heads the layer says
    that it has, or 0; `words` are its words for masks, and what each is.
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
    named: Callable[[], Mapping[str, str]] = dict
    """What the name of the matrix that q, k and v are each made with says that it makes, where it says that."""
    matrices: Sequence[str] = ()
    """The names of all matrices."""
    without_bias: Callable[[], Sequence[str]] = list
    """The sides whose bias changes nothing, where it should."""

    @property
    def heads(self) -> int:
        """How many heads there are, where each is a softmax for each entry: 0 where that does not come out."""
        count = sum(len(one.weights) for one in self.first)
        return count // len(self.x) if count % len(self.x) == 0 else 0


def first_seen(
    layer: TorchLayer | PureLayer | PlainLayer, ways: Sequence[Way], words: Callable[[Way], Mapping[str, str]]
) -> Seen | None:  # fmt: skip
    """Return what is seen inside a layer in the first of some calls in which anything is; `words` are for masks."""
    for way in ways:
        with suppress(Exception):
            if (seen := seen_inside(layer, way, words(way))) is not None:
                return seen
    return None


def seen_inside(layer: TorchLayer | PureLayer | PlainLayer, way: Way, words: Mapping[str, str]) -> Seen | None:
    """Return what is seen of attention inside a layer, or None where there is none that can be read.

    `words` are those for masks that it takes, and what each is: a `mask`, or a `padding`.
    """
    tokens = way.tokens or (OF_IMAGE if "w" in way.axes.lower() else TOKENS)
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
    first, second = cores(operations), cores(ask(other, of_other)[0])
    same = [one.at for one in first] == [one.at for one in second]
    numbers = dict(whole_numbers(layer.module))
    heads = next((value for word, value in numbers.items() if word in HEADS and value > 0), 0)
    if not first or not same or all(one.weights.shape[2] == 1 for one in first):  # one key has a weight of 1
        return None

    def answer() -> Array:
        return layer.answer(way, x, memory if way.memory else None)

    def idle() -> list[str]:
        return list(idle_matrices(layer, answer))

    def named() -> dict[str, str]:
        return sides_by_name(layer, first[0], lambda: cores(ask(x, memory)[0])[0])

    every = matrices_of(layer.parameters)
    return Seen(
        ask, x, memory, said, operations, first, second, way.width, heads, words, idle, named, every,
        partial(idle_biases, layer, answer),
    )  # fmt: skip


def sides_by_name(
    layer: TorchLayer | PureLayer | PlainLayer, before: Core, again: Callable[[], Core]
) -> dict[str, str]:
    """Return what the names of matrices say that q, k and v of a core are made with; `again` asks the layer anew."""
    found, rng = dict[str, str](), np.random.default_rng(97)
    with restored(layer) as own:
        for name, array in own.items():
            if (side := sounds_like(name)) and sum(length > 1 for length in array.shape) > 1:
                layer.put({name: array + rng.standard_normal(array.shape)})
                after = again()
                layer.put({name: array})
                moved = [one for one in "qkv" if getattr(after, one).shape == getattr(before, one).shape
                         and not np.allclose(getattr(after, one), getattr(before, one))]  # fmt: skip
                found |= {moved[0]: side} if len(moved) == 1 else {}
    return found
