"""Attention inside a layer of PyTorch's, as its operations show it: q, k, v, scores, weights and what they mix.

A layer may make its queries, keys and values in any way, and do anything with the answer: what lies between is told
here by numbers alone. That is less than a check of the whole layer says, and it holds where that finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from math import isclose, prod, sqrt
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.layers import TorchLayer
from attn_exp.diagnosis.module_sizes import HEADS, whole_numbers
from attn_exp.diagnosis.request import Request
from attn_exp.diagnosis.returned import parts_of
from attn_exp.diagnosis.watching import Operation, watched
from attn_exp.diagnosis.ways_into_layers import Way
from attn_exp.errors import UserError
from attn_exp.experiment.verdict import ABSENT, BROKEN, CALLED, HELD, REMARK, Finding, Verdict
from attn_exp.own_code import held

TOKENS, HIDDEN, CLOSE = 7, -1e4, 1e-6
"""Tokens of x here; logits below are those of hidden keys; a gap of numbers of size 1 that is none."""
MOST_AXES, MOST_OPERATIONS = 6, 4000
NEIGHBOURS = ("convolution", "roll", "avg_pool1d", "avg_pool2d", "max_pool2d_with_indices", "_fft_r2c", "cumsum", "pad",
              "upsample_bilinear2d", "upsample_nearest2d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d",
              "mkldnn_rnn_layer", "lstm", "gru")  # fmt: skip
"""Operations in which tokens meet on purpose."""


@dataclass(frozen=True, eq=False)
class Core:
    """One softmax with what goes into it and what it mixes; the first axis counts entries and heads.

    `q [n t d]` and `k [n s d]` are those of the product `scores [n t s]`; `logits` and `weights` are `[n t s]`, `v [n s
    e]`. `before` is by what q and k were multiplied before the product, `normed` says that they
    were given a size of their own. `at` are the places of the product of q and k, of the softmax and of the product
    with v among the operations; `swapped` says that this one returned `[n e t]`.
    """

    q: Array
    k: Array
    v: Array
    scores: Array
    logits: Array
    weights: Array
    before: float
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
        if one.name in ("_softmax", "_safe_softmax") or (one.name in ("div", "mul") and is_share(operations, place)):
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
    order = order_of_axes(shares, weights)
    if order is None or weights.shape[-1] != v.shape[1]:
        return None
    one = operations[place]
    with np.errstate(all="ignore"):
        logits = one.given[0] if "softmax" in one.name else np.log(shares)
    logits = logits.transpose(order).reshape(weights.shape)
    products = sorted(place for place in behind(operations, place) if operations[place].is_product)
    fits = [fit for product in products for fit in fitted(operations, product, logits)]
    if not fits:
        return None
    _, product, turned = min(fits, key=lambda fit: fit[0])
    given = [in_rows(one) for one in operations[product].given[-2:]]
    sides = [given[0], given[1].swapaxes(1, 2)]
    scores = in_rows(operations[product].said)
    if turned:
        sides, scores = sides[::-1], scores.swapaxes(1, 2)
    before = [multiplied(operations, made) for made in operations[product].made[-2:]]
    factor, normed = prod(factor for factor, _ in before), any(normed for _, normed in before)
    q, k = sides
    return Core(q, k, v, scores, logits, weights, factor, normed, (product, place, at), side == 1)


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


def order_of_axes(array: Array, other: Array) -> tuple[int, ...] | None:
    """Return the order in which the axes of an array make the same numbers as another, which may have fewer axes."""
    if array.size != other.size:
        return None
    for order in permutations(range(array.ndim)):
        if np.allclose(array.transpose(order).reshape(other.shape), other, rtol=0, atol=1e-9):
            return order
    return None


def fitted(operations: Sequence[Operation], place: int, logits: Array) -> Iterator[tuple[float, int, bool]]:
    """Yield how far the logits are from a multiple of a product, its place, and whether it is turned."""
    one = operations[place]
    scores = in_rows(one.said)
    if one.name == "convolution" or not all(one.of_x[-2:]) or scores.ndim != logits.ndim:
        return
    for turned, said in ((False, scores), (True, scores.swapaxes(1, 2))):
        if said.shape == logits.shape:
            yield multiple(logits, said, logits > HIDDEN)[1], place, turned


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

    `width` is how many numbers a token has, and `told` how many heads the layer says that it has, or 0.
    """

    ask: Callable[..., tuple[list[Operation], Array]]
    x: Array
    memory: Array
    operations: list[Operation]
    first: list[Core]
    second: list[Core]
    width: int
    told: int

    @property
    def heads(self) -> int:
        """How many heads there are, where each is a softmax for each entry: 0 where that does not come out."""
        count = sum(len(one.weights) for one in self.first)
        return count // len(self.x) if count % len(self.x) == 0 else 0


def seen_inside(layer: TorchLayer, way: Way) -> Seen | None:
    """Return what is seen of attention inside a layer, or None where there is none that can be read."""
    tokens = way.tokens or TOKENS
    x, memory, other, of_other = np.random.default_rng(67).standard_normal((4, 2, tokens, way.width))

    def ask(x: Array, memory: Array, instead: Any = None) -> tuple[list[Operation], Array]:
        given = [layer.lent(x), layer.lent(memory) if way.memory else None]
        with held():
            operations, said = watched(
                partial(way.call, layer, *given), [one for one in given if one is not None], instead
            )
        return operations, next(iter(parts_of(said).values())).detach().cpu().double().numpy()

    ask(x, memory)  # what a first call makes and keeps is made
    operations, _ = ask(x, memory)
    if len(operations) > MOST_OPERATIONS:
        return None
    first, second = cores(operations), cores(ask(other, of_other)[0])
    same = [one.at for one in first] == [one.at for one in second]
    numbers = dict(whole_numbers(layer.module))
    heads = next((value for word, value in numbers.items() if word in HEADS and value > 0), 0)
    return Seen(ask, x, memory, operations, first, second, way.width, heads) if first and same else None


def findings(seen: Seen, request: Request) -> Iterator[tuple[Finding, str]]:
    """Yield what holds of attention inside a layer, stage by stage, and the name of what does not."""
    tokens = list(of_tokens(seen))
    yield from tokens
    yield from of_heads(seen)
    if all(one.state != BROKEN for one, _ in tokens):
        yield from of_positions(seen)
    for one, other in zip(seen.first, seen.second, strict=True):
        yield from of_scores(seen, one, other, request)
        yield of_weights(one)
    yield of_answer(seen)


def of_scores(seen: Seen, one: Core, other: Core, request: Request) -> Iterator[tuple[Finding, str]]:
    """Say whether logits are a multiple of `q k^T`, by what it is multiplied, and what stands beside.

    What is added to it whatever x is, is not in the difference of two questions.
    """
    rung = "the scores inside"
    shown = (one.logits > HIDDEN) & (other.logits > HIDDEN)
    left, right = (np.where(shown, each.logits, 0.0) for each in (one, other))
    factor, gap = multiple(left - right, one.scores - other.scores, shown)
    beside = float(np.abs(apart(left - factor * one.scores, shown)).max(initial=0.0))
    if gap < CLOSE * 10:
        places = int((~shown).any(axis=0).sum())
        said = f", {places} of {shown[0].size} places hidden" if places else ""
        said += ", and numbers that are the same whatever x is" if beside > CLOSE * 10 else ""
        yield Finding(rung, HELD, f"a multiple of q k^T{said}"), ""
        if factor:  # of keys that are all hidden, nothing is told
            yield of_scale(seen, one, factor * one.before, request)
        return
    products = [place for place in behind(seen.operations, one.at[1]) if seen.operations[place].is_product]
    if len(products) > 1:
        yield Finding(rung, REMARK, "q k^T is not all: other products of x are added to it"), ""
        return
    yield Finding(rung, BROKEN, "they are no multiple of q k^T, and what parts them changes with x"), ""


def of_scale(seen: Seen, one: Core, factor: float, request: Request) -> tuple[Finding, str]:
    """Say by what scores are multiplied, beside what is asked; of queries and keys that were normed any number does."""
    rows, keys = one.logits.shape[1:]
    usual = request.rules(one.size, rows, keys).scale
    said = f"scores are multiplied by {factor:.4g}; expected {usual:.4g} for heads of {one.size}"
    heads, room = max(seen.heads, 1), CLOSE * 10
    known = {
        "": usual, "no_scale": 1.0, "scale_by_d": 1 / one.size, "scale_by_sqrt_d_model": 1 / sqrt(seen.width),
        "scale_multiplied": sqrt(one.size), "scale_by_sqrt_heads": 1 / sqrt(heads), "scale_by_heads": 1 / heads,
        "scale_by_sqrt_queries": 1 / sqrt(rows), "scale_by_sqrt_keys": 1 / sqrt(keys),
    }  # fmt: skip
    name = next((name for name, number in known.items() if isclose(factor, number, rel_tol=room)), "scale_other")
    if name and one.normed:
        return Finding("the scale inside", REMARK, f"{said}; queries or keys are normed"), ""
    return Finding("the scale inside", BROKEN if name else HELD, said), name


def of_weights(one: Core) -> tuple[Finding, str]:
    """Say over which axis the weights sum to 1: those that a query mixes values with should."""
    rung = "the weights inside"
    sums = {"keys": (2,), "queries": (1,), "entries and heads": (0,), "keys and queries": (1, 2)}
    over = next((name for name, axes in sums.items() if np.allclose(one.weights.sum(axis=axes), 1.0, atol=CLOSE)), "")
    if over == "keys":
        return Finding(rung, HELD, "each query's sum to 1"), ""
    name = {"queries": "softmax_over_queries"}.get(over, "")
    return Finding(rung, BROKEN, f"they sum to 1 over the {over}" if over else "those of a query do not sum to 1"), name


def of_tokens(seen: Seen) -> Iterator[tuple[Finding, str]]:
    """Say whether each row of q, k and v is made of one token, as far as no neighbours are joined on purpose."""
    rung = "the tokens inside"
    if any(one.name in NEIGHBOURS and not is_of_points(one) for one in seen.operations):
        yield Finding(rung, ABSENT, "neighbours are joined, so that rows are made of several"), ""
        return
    lost = set[str]()
    for place in (0, 1):
        given = [seen.x.copy(), seen.memory.copy()]
        given[place][0, 0] += np.random.default_rng(71).standard_normal(seen.width)
        again = cores(seen.ask(*given)[0])
        if [one.at for one in again] != [one.at for one in seen.first]:
            return
        lost |= {side for side in "qkv" for one, other in zip(seen.first, again, strict=True)
                 if is_mixed(getattr(one, side), getattr(other, side))}  # fmt: skip
    if not lost:
        yield Finding(rung, HELD, "each row of q, k and v is made of one token"), ""
        return
    known = {("k",): "keys_viewed", ("v",): "values_viewed", ("k", "q", "v"): "heads_not_transposed"}
    said = f"rows of {', '.join(sorted(lost))} are made of parts of several tokens"
    yield Finding(rung, BROKEN, said), known.get(tuple(sorted(lost)), "")


def of_heads(seen: Seen) -> Iterator[tuple[Finding, str]]:
    """Say whether there is one head where the layer says that it has several."""
    if seen.heads == 1 < seen.told:
        said = f"one, of {seen.first[0].size} numbers, and not {seen.told}"
        yield Finding("the heads inside", BROKEN, said), "single_head"


def of_positions(seen: Seen) -> Iterator[tuple[Finding, str]]:
    """Say of queries and keys that are turned by their place whether the scores of equal tokens tell distances alone.

    With equal tokens x, `q_i = A_i x + c_i`: where `A_i` is the same for all i, nothing is turned.
    """
    rung = "the positions inside"
    x = np.broadcast_to(np.random.default_rng(79).standard_normal(seen.width), seen.x.shape).copy()
    plain, larger = (cores(seen.ask(factor * x, factor * x)[0]) for factor in (1.0, 2.0))
    if not [one.at for one in plain] == [one.at for one in larger] == [one.at for one in seen.first]:
        return
    for one, other in zip(plain, larger, strict=True):
        q, k = other.q - one.q, other.k - one.k
        if one.normed or q.shape != k.shape or all(np.allclose(side, side[:, :1], atol=CLOSE) for side in (q, k)):
            continue
        scores = q @ k.swapaxes(1, 2)
        spans = [np.ptp(np.diagonal(scores, place, 1, 2), axis=-1).max() for place in range(1 - len(q[0]), len(q[0]))]
        if max(spans) > 1e-4 * np.abs(scores).max():
            yield Finding(rung, BROKEN, "of equal tokens turned by their places, scores tell more than distances"), ""
            return
        yield Finding(rung, HELD, "of equal tokens turned by their places, scores tell distances alone"), ""


def is_of_points(one: Operation) -> bool:
    """Say whether an operation is a convolution of single points."""
    return one.name == "convolution" and prod(one.given[1].shape[2:]) == 1


def is_mixed(rows: Array, others: Array) -> bool:
    """Say whether another token changes rows of one head that lie side by side; an input may come twice."""
    touched = changed(rows, others)
    return bool((touched[:, 1:] & touched[:, :-1]).any())


def changed(rows: Array, others: Array) -> Array:
    """Return which rows `[n t d]` are others, rounding apart; none where the sizes are others."""
    if rows.shape != others.shape:
        return np.zeros(rows.shape[:2], bool)
    other: Array = (np.abs(rows - others) > CLOSE * np.abs(rows).max(initial=0.0)).any(axis=-1)
    return other


def of_answer(seen: Seen) -> tuple[Finding, str]:
    """Say whether what a query mixes reaches its own token alone, as far as no neighbours are joined on purpose."""
    rung = "the answer"
    absent = Finding(rung, ABSENT, "which token is whose is not known"), ""
    after = seen.operations[min(one.at[2] for one in seen.first) + 1 :]
    if any(one.name in NEIGHBOURS and not is_of_points(one) for one in after):
        return Finding(rung, ABSENT, "neighbours are joined behind attention"), ""
    x = seen.x.copy()
    x[0, 1] += np.random.default_rng(73).standard_normal(seen.width)
    again = cores(seen.ask(x, seen.memory)[0])
    if [one.at for one in again] != [one.at for one in seen.first]:
        return absent
    instead = dict[int, Callable[[Any], Any]]()
    for one, other in zip(seen.first, again, strict=True):
        rows = changed(one.q, other.q)
        if rows.sum(axis=-1).max(initial=0) != 1:
            return absent
        instead[one.at[2]] = partial(with_rows, rows=rows, swapped=one.swapped)
    (_, said), (_, before) = seen.ask(seen.x, seen.memory, instead), seen.ask(seen.x, seen.memory)
    if said.shape != before.shape or said.shape[:2] != seen.x.shape[:2]:
        return absent
    reached = (np.abs(said - before) > CLOSE * np.abs(before).max()).reshape(*said.shape[:2], -1).any(axis=-1)
    if reached.sum() > 1 or not reached[0, 1]:
        places = ", ".join(str(place + 1) for place in np.flatnonzero(reached.any(axis=0)))
        return Finding(rung, BROKEN, f"what the query of token 2 mixes reaches token {places}"), "heads_merged_wrong"
    return Finding(rung, HELD, "what a query mixes reaches its own token alone"), ""


def with_rows(said: Any, rows: Array, *, swapped: bool) -> Any:
    """Return what a product of weights and values returned, with other numbers in some rows `[n t]`."""
    other = said.clone()
    of_all = other if other.ndim == len("nte") else other[None]
    of_all = of_all.transpose(1, 2) if swapped else of_all
    for n, row in zip(*np.nonzero(rows), strict=True):
        of_all[int(n), int(row)] += 1.0 + of_all[int(n), int(row)].abs()
    return other


# What is said of it


class UnreadError(UserError):
    """A layer that can be called, and whose matrices nobody finds; `look` returns what is seen of its attention."""

    def __init__(self, said: str, look: Callable[[], Seen | None]) -> None:
        super().__init__(said)
        self.look = look


def verdict(name: str, look: Callable[[], Seen | None], request: Request) -> Verdict | None:
    """Return the verdict on a layer of which nothing but the attention inside is seen, or None where that is not.

    What has no name of its own here says nothing, and neither does a layer of which masks or positions are asked.
    """
    if request.masks or request.scores or request.positions:
        return None
    seen, said = None, list[tuple[Finding, str]]()
    with suppress(Exception):  # a layer may take no other numbers than those that it was asked
        seen = look()
        said = list(dict.fromkeys(findings(seen, request))) if seen is not None else []
    if seen is None or not said:
        return None
    broken = [one for one, _ in said if one.state == BROKEN]
    names = tuple(dict.fromkeys(name for one, name in said if name and one.state == BROKEN))
    shown = (Finding(CALLED, HELD, "with x; its attention is seen from inside"), *(one for one, _ in said))
    under = ""
    if not broken:
        computes = "attention of the queries, keys and values that it makes of x in a way of its own"
        if all(is_causal(one) for one in seen.first):
            under = "mask=causal"
            computes += f", with {under}, though the settings do not say so; that is no mistake"
    elif len(names) == len({one.rung for one in broken}):
        computes = f"attention with {' and '.join(names)}"
    else:
        computes, names = f"something else: {broken[0].rung}: {broken[0].said}", ()
    return Verdict(
        name, not broken, names, computes, shown, request.words, right_under=under, not_asked=(UNREAD,)
    )  # fmt: skip


def is_causal(one: Core) -> bool:
    """Say whether each query sees the keys up to its own alone, of several."""
    later = np.triu(np.ones(one.logits.shape[1:], bool), 1)
    return bool(later.any() and ((one.logits <= HIDDEN) == later).all())


UNREAD = "how it makes q, k and v, what it makes of the answer, and masks (its attention is seen from inside alone)"
