"""Attention inside a layer, as its operations show it: q, k, v, scores, weights and what they mix.

A layer may make its queries, keys and values in any way, and do anything with the answer: what lies between is told
here by numbers alone. That is less than a check of the whole layer says, and it holds where that finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import pairwise
from math import isclose, log, prod, sqrt
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis import masks_inside
from attn_exp.diagnosis.behaviour import TWICE
from attn_exp.diagnosis.candidates import what_mistakes_compute
from attn_exp.diagnosis.cores import (
    CLOSE,
    HIDDEN,
    Core,
    Seen,
    apart,
    behind,
    cores,
    factor_on_the_way,
    is_multiplied,
    is_raw,
    multiple,
)
from attn_exp.diagnosis.idle import (
    NO_OUTPUT,
    THIRD,
    UNUSED,
    are_projections,
    is_of_any,
    made_of_another,
    may_be_output,
)
from attn_exp.diagnosis.other_words import BLOCKS, INVERTED, UNSCALED, are_open
from attn_exp.diagnosis.request import Request
from attn_exp.diagnosis.watching import DROPPING, Operation
from attn_exp.errors import UncalledError, UserError
from attn_exp.experiment.verdict import ABSENT, BROKEN, CALLED, HELD, REMARK, Finding, Verdict
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.normalizers.softmax import softmax

NEIGHBOURS = ("convolution", "roll", "avg_pool1d", "avg_pool2d", "max_pool2d_with_indices", "_fft_r2c", "cumsum", "pad",
              "upsample_bilinear2d", "upsample_nearest2d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d",
              "mkldnn_rnn_layer", "lstm", "gru")  # fmt: skip
"""Operations in which tokens meet on purpose."""


def findings(seen: Seen, request: Request, others: Callable[[], Seen | None]) -> Iterator[tuple[Finding, str]]:
    """Yield what holds of attention inside a layer, stage by stage, and the name of what does not.

    `others` is the same layer in other sizes.
    """
    by_chance = list(of_two_calls(seen))
    if by_chance:  # whatever is changed, all that follows is another
        yield from by_chance
        return
    if are_channels(seen):
        yield from of_channels(seen)
        return
    tokens = list(of_tokens(seen))
    yield from tokens
    yield from of_heads(seen)
    if all(one.state != BROKEN for one, _ in tokens) and has_rows(seen) and not are_joined(seen.operations):
        yield from of_positions(seen)
    for one, other in zip(seen.first, seen.second, strict=True):
        yield from of_scores(seen, one, other, request, others)
        yield from of_weights(seen, one)
    yield of_answer(seen) if reaches_answer(seen) else LOST
    yield from of_large_inputs(seen)
    yield from of_matrices(seen)
    yield from masks_inside.of_words(seen)


def of_two_calls(seen: Seen) -> Iterator[tuple[Finding, str]]:
    """Say whether the queries, keys, values or the answer of the same call are others the second time."""
    operations, said = seen.ask(seen.x, seen.memory)
    again = cores(operations, seen.x.shape[1])
    sides = [(getattr(one, side), getattr(other, side)) for one, other in zip(again, seen.first, strict=True)
             for side in "qkv"] if len(again) == len(seen.first) else []  # fmt: skip
    drops = any(one.name in DROPPING for one in operations)
    is_steady = all(one.shape == other.shape and np.allclose(one, other, equal_nan=True) for one, other in sides)
    if is_steady and (drops or np.allclose(said, seen.said, equal_nan=True)):
        return  # dropout of weights is told where they are
    name = "dropout_on" if drops else "not_deterministic"
    yield Finding(TWICE, BROKEN, "the same call gave different answers"), name


def of_large_inputs(seen: Seen) -> Iterator[tuple[Finding, str]]:
    """Say whether the answer to large inputs is NaN, where powers are taken of logits as they are."""
    if any(is_raw(seen.operations, one.at[1]) for one in seen.first if not one.is_bare):
        with np.errstate(all="ignore"):
            said = seen.ask(LARGE * seen.x, LARGE * seen.memory)[1]
        if np.isnan(said).any():
            yield Finding("large inputs inside", REMARK, "powers of large logits overflow"), "no_max_subtraction"


LARGE = 1e3


def of_matrices(seen: Seen) -> Iterator[tuple[Finding, str]]:
    """Say which matrices change nothing, and which side is made with the matrix of another instead of its own."""
    rung, idle = "every matrix is used", list(seen.idle())
    if not idle:
        if "v" in seen.without_bias():
            yield Finding(rung, BROKEN, "the bias of the values changes nothing"), "no_value_bias"
        return
    of_one_input = seen.cores_of(seen.x, seen.x)

    def is_alike(side: str, other: str) -> bool:
        made = [[matrices_behind(seen, one, each) for each in (side, other)] for one in seen.first]
        if not any(map(THIRD.search, idle)) and all(mine == others != set() for mine, others in made):
            return True  # whatever is done to them afterwards
        pairs = [(getattr(one, side), getattr(one, other)) for one in of_one_input]
        return bool(pairs) and all(are_multiples(rows, others) for rows, others in pairs)

    instead = list(made_of_another(idle, is_alike))
    yield from ((Finding(rung, BROKEN, why), name) for why, name in instead)
    if not instead:
        raw = are_projections(idle, seen.matrices) and all(is_of_inputs(seen, one) for one in seen.first)
        name = UNUSED if raw else NO_OUTPUT if has_rows(seen) and is_without_output(seen, idle) else ""
        said = f"{', '.join(idle)} changes nothing: it is made and never used"
        yield Finding(rung, BROKEN if name else REMARK, said), name


def matrices_behind(seen: Seen, one: Core, side: str) -> set[bytes]:
    """Return what the rows of a side are multiplied with in the products that they come from, as bytes."""
    products = [seen.operations[place] for place in products_behind(seen, one, side)]
    return {array.tobytes() for each in products for array, of_x in zip(each.given, each.of_x, strict=True)
            if not of_x and array.ndim > 1}  # fmt: skip


def products_behind(seen: Seen, one: Core, side: str) -> set[int]:
    """Return the places of the products that the rows of a side come from."""
    at = seen.operations[one.at[2 if side == "v" else 0]]
    rows = np.sort(getattr(one, side), axis=None)
    place = at.made[-2 if np.array_equal(rows, np.sort(at.given[-2], axis=None)) else -1]
    if place is None:
        return set()
    every = [place, *behind(seen.operations, place)] if not seen.operations[place].is_product else [place]
    return {each for each in every if seen.operations[each].is_product}


def are_multiples(rows: Array, others: Array) -> bool:
    """Say whether rows are others times one number: a scale may stand before the scores, on one side alone."""
    if rows.shape != others.shape:
        return False
    factor = np.vdot(others, rows) / max(float(np.vdot(others, others)), 1e-300)
    return bool(np.allclose(rows, factor * others))


def is_without_output(seen: Seen, idle: Sequence[str]) -> bool:
    """Say whether idle matrices are that of the output: by name, or one of any name where none comes behind."""
    last = max(one.at[2] for one in seen.first)
    none = not any(one.is_product for one in seen.operations[last + 1 :])
    return may_be_output(idle, seen.matrices) or (none and len(idle) == 1 and is_of_any(idle[0]))


def is_of_inputs(seen: Seen, one: Core) -> bool:
    """Say whether q, k and v hold numbers of the inputs as they are, or q and k multiplied by one number."""
    known = np.sort(np.concatenate([seen.x.ravel(), seen.memory.ravel()]))

    def are_known(rows: Array, factor: float) -> bool:
        numbers = rows.ravel() / factor
        place = np.clip(np.searchsorted(known, numbers), 1, len(known) - 1)
        return bool((np.minimum(abs(known[place] - numbers), abs(known[place - 1] - numbers)) < CLOSE).all())

    factors = (1.0, one.before, abs(one.before) ** 0.5)
    return are_known(one.v, 1.0) and all(any(are_known(side, by) for by in factors) for side in (one.q, one.k))


def of_scores(
    seen: Seen, one: Core, other: Core, request: Request, others: Callable[[], Seen | None]
) -> Iterator[tuple[Finding, str]]:  # fmt: skip
    """Say whether logits are a multiple of `q k^T`, by what it is multiplied, and what stands beside.

    What is added to it whatever x is, is not in the difference of two questions.
    """
    rung = "the scores inside"
    if are_shares(one.logits) and are_shares(other.logits):
        yield Finding(rung, BROKEN, "they are shares already, as a softmax makes them"), "softmax_twice"
        one, other = (replace(each, logits=np.log(np.maximum(each.logits, 1e-300))) for each in (one, other))
    hidden, filled = hidden_places(one, other)
    shown = ~(hidden | filled)
    factor, gap = factor_of(one, other, shown)
    left = np.where(shown, one.logits, 0.0)
    beside = float(np.abs(apart(left - factor * one.scores, shown)).max(initial=0.0))
    if gap < CLOSE * 10:
        said = ", and numbers that are the same whatever x is" if beside > CLOSE * 10 else ""
        yield Finding(rung, HELD, f"a multiple of q k^T{said}"), ""
        if said and grows_with_distance(left - factor * one.scores, shown):
            yield Finding("what is added inside", BROKEN, "it grows with the distance of a key"), "alibi_sign"
        yield from of_masks(seen, one, hidden, filled, bool(request.masks) and not seen.words)
        if factor:  # of keys that are all hidden, nothing is told
            yield of_scale(seen, one, factor * one.before, request, others)
        return
    products = [place for place in behind(seen.operations, one.at[1]) if seen.operations[place].is_product]
    if len(products) > 1:
        yield Finding(rung, REMARK, "q k^T is not all: other products of x are added to it"), ""
        factor = scale_beside_others(seen, one)
        found = of_scale(seen, one, factor, request, others) if names_of_scale(seen, one, factor) else None
        if found is not None and found[1] != SCALE_OTHER:  # of several that are added, many have a scale of their own
            yield found
        return
    yield Finding(rung, BROKEN, "they are no multiple of q k^T, and what parts them changes with x"), ""


def scale_beside_others(seen: Seen, one: Core) -> float:
    """Return by what `q k^T` is multiplied where other products are added to it, on its way to the softmax; or NaN."""
    way = factor_on_the_way(seen.operations, seen.operations[one.at[1]].made[0], one.at[0])
    return np.nan if way is None else way * one.before


def grows_with_distance(added: Array, shown: Array) -> bool:
    """Say whether what is added to the scores `[n t s]` of each head is a positive number times the distance."""
    places = np.arange(added.shape[1])[:, None] - np.arange(added.shape[2])
    right, tried = apart(added, shown), apart(np.broadcast_to(abs(places), added.shape).astype(float), shown)
    slopes = (right * tried).sum(axis=(1, 2)) / np.maximum((tried * tried).sum(axis=(1, 2)), 1e-300)
    return bool((slopes > 0).all() and np.allclose(right, slopes[:, None, None] * tried, atol=CLOSE * 10))


def are_shares(logits: Array) -> bool:
    """Say whether the logits of each query are none below 0, and sum to 1."""
    return bool((logits >= 0).all() and np.allclose(logits.sum(axis=2), 1.0, atol=CLOSE))


def factor_of(one: Core, other: Core, shown: Array) -> tuple[float, float]:
    """Return by what `q k^T` is multiplied where it is shown, and how far the logits of two questions are from that."""
    left, right = (np.where(shown, each.logits, 0.0) for each in (one, other))
    return multiple(left - right, one.scores - other.scores, shown)


def hidden_places(one: Core, other: Core) -> tuple[Array, Array]:
    """Return where the logits of two questions are those of hidden keys, and where they are a number that x does not
    change, as one that is filled in, but not far below the others."""
    hidden = (one.logits <= HIDDEN) | (other.logits <= HIDDEN)
    filled = ~hidden & (one.logits == other.logits) & (np.abs(one.scores - other.scores) > CLOSE)
    return hidden, filled


def of_masks(seen: Seen, one: Core, hidden: Array, filled: Array, is_asked: bool) -> Iterator[tuple[Finding, str]]:
    """Say which keys are hidden whatever x is, and by which mistake that is not what a causal mask hides; `is_asked`:
    somebody wants one."""
    rung = "the mask inside"
    closed = (hidden | filled).any(axis=0)
    if not closed.any():
        if is_asked and one.logits.shape[1] > 1:
            yield Finding(rung, BROKEN, "later keys are seen"), "causal_ignored"
        return
    place = np.subtract.outer(-np.arange(closed.shape[0]), -np.arange(closed.shape[1]))  # of the key less of the query
    said = f"{int(closed.sum())} of {closed.size} places are hidden"
    known = {"": place > 0, "causal_strict": place >= 0, "causal_next": place > 1, "causal_flipped": place < 0,
             "mask_inverted": place <= 0}  # fmt: skip
    name = next((name for name, places in known.items() if np.array_equal(closed, places)), None)
    if name:
        yield Finding(rung, BROKEN, f"{said}: {SHOWN[name]}"), name
    else:
        yield Finding(rung, HELD, said), ""
    numbers = one.logits[filled]
    if numbers.size and not hidden.any() and np.ptp(numbers) == 0:
        said = f"their logits are {numbers[0]:.4g}, so that they keep weight"
        is_product = not numbers.any() and is_multiplied(seen.operations, one, filled)
        yield Finding("the fill inside", BROKEN, said), "mask_multiplied" if is_product else "mask_small_fill"


SHOWN = {
    "causal_strict": "each query sees those before its own alone",
    "causal_next": "each query sees the next one too",
    "causal_flipped": "each query sees its own and later keys alone",
    "mask_inverted": "each query sees later keys alone, which a causal mask hides",
}
"""What the queries see under each mistake of a causal mask."""


def of_scale(
    seen: Seen, one: Core, factor: float, request: Request, others: Callable[[], Seen | None]
) -> tuple[Finding, str]:  # fmt: skip
    """Say by what scores are multiplied, beside what is asked; of queries and keys that were normed any number does."""
    rows, keys = one.logits.shape[1:]
    usual, room = request.rules(one.size, rows, keys).scale, CLOSE * 10
    said = f"scores are multiplied by {factor:.4g}; expected {usual:.4g} for heads of {one.size}"
    if isclose(factor, usual, rel_tol=room):
        return Finding("the scale inside", HELD, said), ""
    is_bare = isclose(factor, 1.0, rel_tol=room) and isclose(one.after, 1.0, rel_tol=room)
    if is_bare and seen.is_image and seen.heads == 1 and are_open(request, "scale"):
        return Finding(OF_IMAGE, HELD, f"{said}; over the points of an image few have one"), ""
    late = isclose(factor, 1.0, rel_tol=room) and not is_bare
    if one.normed or late:
        why = "queries or keys are normed" if one.normed else "the weights are instead"
        of_model = late and isclose(one.after, seen.width**-0.5, rel_tol=room) and seen.width != one.size
        state, name = (BROKEN, "scale_by_sqrt_d_model") if of_model else (REMARK, "")
        return Finding("the scale inside", state, f"{said}; {why}"), name
    if one.size == 1 < one.v.shape[2]:
        return Finding("the scale inside", BROKEN, f"{said}: a query has one number where a value has several"), ""
    names = names_of_scale(seen, one, factor)
    other = others()
    if other is not None and len(other.first) == len(other.second) == len(seen.first):
        place = seen.first.index(one)
        first, second = other.first[place], other.second[place]
        hidden, filled = hidden_places(first, second)
        again, gap = factor_of(first, second, ~(hidden | filled))
        again = again * first.before if gap < CLOSE * 10 else scale_beside_others(other, first)
        also = names_of_scale(other, first, again)
        fixed = ["scale_fixed"] if isclose(factor, again, rel_tol=room) and first.size != one.size else []
        names = [name for name in names if name in also] or fixed
    return Finding("the scale inside", BROKEN, said), next(iter(names), SCALE_OTHER)


OF_IMAGE, SCALE_OTHER = "the scale inside, of an image", "scale_other"


def names_of_scale(seen: Seen, one: Core, factor: float) -> list[str]:
    """Return the mistakes that multiply scores by this factor, in these sizes, the likeliest first."""
    (rows, keys), heads = one.logits.shape[1:], max(seen.told, seen.heads, 1)
    known = {
        "no_scale": 1.0, "scale_by_d": 1 / one.size, "scale_by_sqrt_d_model": 1 / sqrt(seen.width),
        "scale_by_sqrt_heads": 1 / sqrt(heads), "scale_by_heads": 1 / heads, "scale_by_sqrt_keys": 1 / sqrt(keys),
        "scale_by_sqrt_queries": 1 / sqrt(rows), "scale_by_keys": 1 / keys,
    }  # fmt: skip
    several = [*known.items(), *(("scale_multiplied", number**power) for number in (one.size, seen.width)
                                 for power in (0.5, 1.0, 2.0))]  # fmt: skip
    return [name for name, number in several if isclose(factor, number, rel_tol=CLOSE * 10)]


def of_weights(seen: Seen, one: Core) -> Iterator[tuple[Finding, str]]:
    """Say over which axis the softmax gives 1, which should be the keys, and what is put on its weights behind it.

    Where it is the queries, names say what a query is: keys may ask, and queries be asked.
    """
    rung = "the weights inside"
    if one.is_bare:
        yield Finding(rung, BROKEN, "no softmax makes them"), "no_softmax"
        return
    shares = one.shares
    over = next((over for over, whole in sums_of(seen, shares) if are_one(whole)), "")
    if over == "keys" and (other := of_other_powers(one, shares)):
        yield Finding(rung, BROKEN, other[0]), other[1]
    elif over == "keys":
        yield Finding(rung, HELD, "each query's sum to 1"), ""
    elif over == "queries" and seen.is_turned:
        yield Finding(rung, BROKEN, "each key's sum to 1: they are turned before they meet the values"), TRANSPOSED
    elif over:
        of_entries = over == FIRST_AXIS and sees_other_entries(seen)
        name = "batch_mixed" if of_entries else OVER.get(over, "")
        yield Finding(rung, BROKEN, f"they sum to 1 over the {over}"), name
        if over == OF_ALL_ENTRIES:
            yield Finding(f"{rung}, of entries", BROKEN, "one softmax has queries of several entries"), "batch_mixed"
    elif is_of_other_rows(one, shares):
        yield Finding(rung, BROKEN, "each is divided by the sum of another row"), "keepdims_missing"
    elif seen.is_turned and is_of_other_rows(one, shares, turned=True):
        yield Finding(rung, BROKEN, "each is divided by the sum of another row"), "keepdims_missing"
        yield Finding(rung, BROKEN, "they are turned before they meet the values"), TRANSPOSED
    else:
        yield Finding(rung, BROKEN, "those of a query do not sum to 1"), ""
    yield from of_changed_weights(seen, one)


def are_one(sums: Array) -> bool:
    """Say whether sums are 1; of a row whose keys are all hidden there may be no number."""
    known = sums[~np.isnan(sums)]
    return bool(known.size and np.allclose(known, 1.0, atol=CLOSE))


def of_other_powers(one: Core, shares: Array) -> tuple[str, str] | None:
    """Return what is wrong with the powers that weights are made of, and its name; None where nothing known is."""
    largest = one.logits.max(axis=2)
    if np.allclose(softmax(one.logits), shares, atol=CLOSE, equal_nan=True):
        return None
    if len(largest[0]) == one.logits.shape[2] and np.allclose(
        softmax(one.logits - largest[:, None]), shares, atol=CLOSE
    ):
        return "the largest logit of another row is taken away", "keepdims_missing"
    is_of_two = np.allclose(softmax(one.logits * log(2)), shares, atol=CLOSE)
    return ("they are powers of 2", "softmax_base_2") if is_of_two else None


def sees_other_entries(seen: Seen) -> bool:
    """Say whether the answer for the first entry of a batch is another beside others."""
    beside = np.concatenate([seen.x[:1], 2 * seen.x[1:]])
    return not np.allclose(seen.ask(beside, seen.memory)[1][0], seen.said[0])


FIRST_AXIS, OF_ALL_ENTRIES = "entries and heads", "queries of all entries"
OVER = {"entries": "batch_mixed", "queries": "softmax_over_queries", OF_ALL_ENTRIES: "softmax_over_queries",
        "keys and queries": "softmax_over_all", "heads": "softmax_over_heads",
        "heads and keys": "softmax_over_heads_and_keys"}  # fmt: skip
"""The mistakes of weights that sum to 1 over something else than the keys."""


def sums_of(seen: Seen, shares: Array) -> Iterator[tuple[str, Array]]:
    """Yield sums of weights over some axes, and what lies along these."""
    along = {"keys": (2,), "queries": (1,), FIRST_AXIS: (0,), "keys and queries": (1, 2)}
    yield from ((over, shares.sum(axis=axes)) for over, axes in along.items())
    if len(seen.first) == 1 and seen.heads:
        by_heads = shares.reshape(len(seen.x), seen.heads, *shares.shape[1:])
        yield OF_ALL_ENTRIES, by_heads.sum(axis=(0, 2))
        yield "entries", by_heads.sum(axis=0)
        if seen.heads > 1:
            yield "heads", by_heads.sum(axis=1)
            yield "heads and keys", by_heads.sum(axis=(1, 3))


def is_of_other_rows(one: Core, shares: Array, *, turned: bool = False) -> bool:
    """Say whether each weight is divided by the sum of the row that its key has as a query; `turned` with both."""
    if shares.shape[1] != shares.shape[2]:
        return False
    powers = np.exp(one.logits - one.logits.max())
    sums = powers.sum(axis=1)[:, :, None] if turned else powers.sum(axis=2)[:, None]
    return bool(np.allclose(powers / sums, shares, rtol=CLOSE))


def of_changed_weights(seen: Seen, one: Core) -> Iterator[tuple[Finding, str]]:
    """Say what is put on weights behind the softmax: other numbers by chance, a causal mask, or a factor."""
    rung = "behind the softmax"

    def lost(core: Core) -> Array:
        hidden: Array = ((core.weights == 0) | ~np.isfinite(core.weights)) & (core.shares > 0)
        return hidden

    gone = lost(one)
    if gone.any():
        places = gone.any(axis=0)
        again = seen.cores_of(seen.x, seen.memory)[seen.first.index(one)]
        if not np.array_equal(lost(again), gone):
            yield Finding(rung, BROKEN, "in evaluation, other weights are dropped in each call"), "dropout_on"
            return
        name = "mask_after_softmax" if np.array_equal(places, np.triu(np.ones_like(places), 1)) else ""
        yield Finding(rung, BROKEN, "the weights of later keys are hidden" if name else "some weights are hidden"), name
    if not isclose(one.after, 1.0, rel_tol=CLOSE):
        yield Finding(rung, BROKEN, f"weights are multiplied by {one.after:.4g}"), "scale_after_softmax"


TRANSPOSED = "weights_transposed"


def has_rows(seen: Seen) -> bool:
    """Say whether a layer answers with a row for each token: else other rows may stand beside those of x inside."""
    return seen.said.shape[:2] == seen.x.shape[:2]


def of_tokens(seen: Seen) -> Iterator[tuple[Finding, str]]:
    """Say whether each row of q, k and v is made of one token, as far as no neighbours are joined on purpose."""
    rung = "the tokens inside"
    if are_joined(seen.operations):
        yield Finding(rung, ABSENT, "neighbours are joined, so that rows are made of several"), ""
        return
    if not has_rows(seen):
        yield Finding(rung, ABSENT, "its answer has no row for each token"), ""
        return
    lost, normed, keys_alone, tokens = (
        set[str](),
        False,
        False,
        seen.x.shape[1],
    )  # other keys are sums of many, as Linformer has them
    for place in (0, 1):
        again, of_other = (with_token_changed(seen, place, entry) for entry in (0, 1))
        if any([one.at for one in asked] != [one.at for one in seen.first] for asked in (again, of_other)):
            return
        others = of_no_tokens(seen, rung, list(zip(seen.first, again, of_other, strict=True)))
        if others is not None:
            yield others
            return
        pairs = [(side, changed(getattr(one, side), getattr(other, side)))
                 for one, other in zip(seen.first, again, strict=True)
                 if not follows_another(seen, one) for side in "qkv"
                 if side == "q" or tokens <= one.k.shape[1] <= 2 * tokens]  # fmt: skip
        lost |= {side for side, touched in pairs if is_mixed(touched)}
        keys_alone |= any((side, other) == ("k", "v") and touched.shape == moved.shape and (touched != moved).any()
                          for (side, touched), (other, moved) in pairwise(pairs))  # fmt: skip
        normed |= any(touched.any() for _, touched in pairs) and all(
            (touched.all(axis=1) | ~touched.any(axis=1)).all() for _, touched in pairs
        )
    if normed:
        yield Finding(rung, ABSENT, "each token changes all rows, as one changes a norm over all tokens"), ""
        return
    if not lost:
        yield Finding(rung, HELD, "each row of q, k and v is made of one token"), ""
        return
    known = {("k",): "keys_viewed", ("v",): "values_viewed", ("k", "q", "v"): "heads_not_transposed"}
    said = f"rows of {', '.join(sorted(lost))} are made of parts of several tokens"
    yield Finding(rung, BROKEN, said), known.get(tuple(sorted(lost)), "")
    if len(lost) == len("qkv") and keys_alone:
        yield (
            Finding("the keys inside", BROKEN, "their rows are made of other tokens than those of values"),
            "keys_viewed",
        )


def of_no_tokens(
    seen: Seen, rung: str, threes: Sequence[tuple[Core, Core, Core]]
) -> tuple[Finding, str] | None:  # fmt: skip
    """Return what is to be said where rows are those of several entries, or heads; None where they are tokens."""
    if len(threes) == 1 and are_heads_of_tokens(seen, threes[0][0]):
        return Finding(rung, BROKEN, "the heads of one token are the keys of a softmax"), "heads_not_transposed"
    if any(are_together(*three) for three in threes):
        return Finding(rung, BROKEN, "one softmax has keys of several entries of the batch"), "batch_mixed"
    return None


def are_heads_of_tokens(seen: Seen, one: Core) -> bool:
    """Say whether there is a softmax for each token, with as many queries and keys as the layer says it has heads."""
    tokens, several = seen.x.shape[1], seen.told > 1 and seen.told != seen.x.shape[1]
    return several and seen.heads == tokens and one.weights.shape[1:] == (seen.told, seen.told)


def follows_another(seen: Seen, one: Core) -> bool:
    """Say whether q, k or v are made of what another softmax mixed, and so of several tokens."""
    mixed = {other.at[2] for other in seen.first if other is not one}
    ahead, met = [one.at[0], one.at[2]], set[int]()
    while ahead:
        before = {made for made in seen.operations[ahead.pop()].made if made is not None} - met
        met |= before
        ahead += before
    return bool(mixed & met)


def with_token_changed(seen: Seen, place: int, entry: int) -> list[Core]:
    """Return the cores of a call in which the first token of one entry is another, of x or of the memory."""
    given = [seen.x.copy(), seen.memory.copy()]
    given[place][entry, 0] += np.random.default_rng(71).standard_normal(seen.width)
    return seen.cores_of(*given)


def are_together(one: Core, first: Core, second: Core) -> bool:
    """Say whether tokens of two entries, each changed in a call of its own, are keys of the same softmax."""
    return bool((changed(one.k, first.k).any(axis=1) & changed(one.k, second.k).any(axis=1)).any())


def are_channels(seen: Seen) -> bool:
    """Say whether each row of q, k and v is a channel, with one number of each token, however many there are."""
    if not has_rows(seen) or not have_tokens_in_rows(seen.first, seen.x.shape[1]):
        return False
    with suppress(Exception):  # it may take no other number of tokens
        twice = [np.concatenate([side, side[:, ::-1]], axis=1) for side in (seen.x, seen.memory)]
        longer = seen.cores_of(*twice)
        if not longer or not have_tokens_in_rows(longer, twice[0].shape[1]):
            return False
    if are_joined(seen.operations) or all(one.normed for one in seen.first):  # a norm of a channel is one of all tokens
        return True
    again = with_token_changed(seen, 0, 0)
    if [one.at for one in again] != [one.at for one in seen.first]:
        return False
    moved = [
        changed(getattr(one, side).swapaxes(1, 2), getattr(other, side).swapaxes(1, 2))
        for one, other in zip(seen.first, again, strict=True) for side in "qkv"
    ]  # fmt: skip
    return all(of_side.sum(axis=-1).max() == 1 for of_side in moved)


def have_tokens_in_rows(several: Sequence[Core], tokens: int) -> bool:
    """Say whether each row of all that is multiplied has a number for each token."""
    return all(rows.shape[-1] == tokens for one in several for rows in (one.q, one.k, one.v))


def of_channels(seen: Seen) -> Iterator[tuple[Finding, str]]:
    """Say what holds of attention among channels, where that is meant: no one number is its scale."""
    is_meant = seen.speaks_of_channels() or all(one.normed for one in seen.first)
    said = "each row of q, k and v is a channel, and its numbers are those of the tokens"
    yield Finding(CHANNELS, HELD if is_meant else BROKEN, said), ""
    for one, other in zip(seen.first, seen.second, strict=True):
        hidden, filled = hidden_places(one, other)
        factor, gap = factor_of(one, other, ~(hidden | filled))
        said = f"{factor * one.before:.4g} times q k^T" if gap < CLOSE * 10 else "they are no multiple of q k^T"
        yield Finding("the scores inside", HELD if gap < CLOSE * 10 else REMARK, said), ""
        yield from of_weights(seen, one)
    yield of_answer(seen, among_channels=True) if reaches_answer(seen) else LOST


CHANNELS = "the channels inside"


def of_heads(seen: Seen) -> Iterator[tuple[Finding, str]]:
    """Say whether there is one head where the layer says that it has several, and which of several share keys."""
    if seen.heads == 1 < seen.told and seen.first[0].size not in (seen.told, seen.width // seen.told):
        said = f"one, of {seen.first[0].size} numbers, and not {seen.told}"
        yield Finding("the heads inside", BROKEN, said), "single_head"
    one, heads = seen.first[0], seen.heads
    if len(seen.first) > 1 or heads < len("hhh") or len(one.k) != heads * len(seen.x):
        return
    if one.weights.shape[1] != seen.x.shape[1]:  # each query may be an entry of its own, and they share their keys
        return
    whose = [
        next(other for other in range(heads) if np.array_equal(one.k[other], one.k[head])) for head in range(heads)
    ]
    groups = len(set(whose))
    if 1 < groups < heads and whose == [head % groups for head in range(heads)]:
        said = f"of {heads}, each reads the keys of those {groups} behind it too: they are taken in turns"
        yield Finding("the heads inside", BROKEN, said), "kv_heads_tiled"
    elif groups == 1 and is_first_of_several(seen, one):
        yield Finding("the heads inside", BROKEN, f"each of {heads} reads the first of several keys"), "kv_heads_first"


def is_first_of_several(seen: Seen, one: Core) -> bool:
    """Say whether a matrix that makes keys and nothing else makes more of them than one head has."""
    keys, others = products_behind(seen, one, "k"), products_behind(seen, one, "q") | products_behind(seen, one, "v")
    is_own = bool(keys) and not keys & others
    return is_own and all(seen.operations[place].said.shape[-1] > one.size for place in keys)


def of_positions(seen: Seen) -> Iterator[tuple[Finding, str]]:
    """Say of queries and keys that are turned by their place whether the scores of equal tokens tell distances alone.

    Those of an image are the rows and the columns that lie between two points.
    With equal tokens x, `q_i = A_i x + c_i`: where `A_i` is the same for all i, nothing is turned. Values never are.
    """
    rung = "the positions inside"
    tokens = np.random.default_rng(79).standard_normal((2, seen.width))
    plain, others = (seen.cores_of(x, x) for x in (np.broadcast_to(one, seen.x.shape).copy() for one in tokens))
    if not [one.at for one in plain] == [one.at for one in others] == [one.at for one in seen.first]:
        return
    for one, other in zip(plain, others, strict=True):
        if are_rotated(other.v - one.v) and not is_turned_back(seen, one):
            yield Finding(rung, BROKEN, "values of equal tokens are turned by their places"), "rope_on_values"
        q, k = other.q - one.q, other.k - one.k
        if one.normed or q.shape != k.shape or all(np.allclose(side, side[:, :1], atol=CLOSE) for side in (q, k)):
            continue
        scores = q @ k.swapaxes(1, 2)
        if tells_steps_alone(scores, (scores.shape[1],)):
            yield Finding(rung, HELD, "of equal tokens turned by their places, scores tell distances alone"), ""
        elif any(tells_steps_alone(scores[:, first:, first:], grid) for first, grid in grids(scores.shape[1])):
            said = "of equal tokens turned by their places, scores tell how many rows and columns lie between two alone"
            yield Finding(OF_GRID, HELD, said), ""
        else:
            yield Finding(rung, BROKEN, "of equal tokens turned by their places, scores tell more than distances"), ""
            return


OF_GRID = "the positions inside, by rows and columns"


def grids(tokens: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the rows and columns of the images that tokens may be, after none or one that is no point of it."""
    for first in (0, 1):
        of_image = tokens - first
        yield from ((first, (of_image // w, w)) for w in range(2, of_image // 2 + 1) if of_image % w == 0)


def tells_steps_alone(scores: Array, grid: Sequence[int]) -> bool:
    """Say whether scores `[n t s]` of two tokens that lie in a grid are one number for each step between them."""
    places = np.stack(np.unravel_index(np.arange(scores.shape[1]), grid), axis=-1)
    steps = (places[:, None] - places).reshape(-1, len(grid))
    _, which = np.unique(steps, axis=0, return_inverse=True)
    flat, room = scores.reshape(len(scores), -1), 1e-4 * np.abs(scores).max()
    return all(np.ptp(flat[:, which.ravel() == step], axis=1).max() <= room for step in range(which.max() + 1))


def are_rotated(rows: Array) -> bool:
    """Say whether rows `[n t e]` are others for each place, and all of the same length."""
    lengths = np.linalg.norm(rows, axis=-1)
    is_one = np.allclose(lengths, lengths[:, :1], rtol=CLOSE * 10) and lengths.min(initial=np.inf) > CLOSE
    return is_one and not np.allclose(rows, rows[:, :1], atol=1e-3 * lengths.max(initial=0.0))


def is_turned_back(seen: Seen, one: Core) -> bool:
    """Say whether what is mixed is multiplied by numbers of its place before the next product."""
    after = seen.operations[one.at[2] + 1 :]
    between = after[: next((place for place, other in enumerate(after) if other.is_product), len(after))]
    return any(each.name == "mul" and array.size > 1 and not of_x for each in between
               for array, of_x in zip(each.given, each.of_x, strict=True))  # fmt: skip


def are_joined(operations: Sequence[Operation]) -> bool:
    """Say whether tokens meet in an operation on purpose; in a convolution of single points they do not."""
    return any(one.name in NEIGHBOURS and (one.name != "convolution" or prod(one.given[1].shape[2:]) > 1)
               for one in operations)  # fmt: skip


def is_mixed(touched: Array) -> bool:
    """Say whether another token changes rows of one head that lie side by side; an input may come twice."""
    return bool((touched[:, 1:] & touched[:, :-1]).any())


def changed(rows: Array, others: Array) -> Array:
    """Return which rows `[n t d]` are others, rounding apart; none where the sizes are others."""
    if rows.shape != others.shape:
        return np.zeros(rows.shape[:2], bool)
    other: Array = (np.abs(rows - others) > CLOSE * np.abs(rows).max(initial=0.0)).any(axis=-1)
    return other


def of_answer(seen: Seen, among_channels: bool = False) -> tuple[Finding, str]:
    """Say whether what a query mixes reaches its own token alone, as far as no neighbours are joined on purpose.

    Where queries are channels, what they mix of a token should.
    """
    rung = "the answer"
    absent = Finding(rung, ABSENT, "which token is whose is not known"), ""
    after = seen.operations[min(one.at[2] for one in seen.first) + 1 :]
    if are_joined(after):
        return Finding(rung, ABSENT, "neighbours are joined behind attention"), ""
    x = seen.x.copy()
    x[0, 1] += np.random.default_rng(73).standard_normal(seen.width)
    again = seen.cores_of(x, seen.memory)
    if [one.at for one in again] != [one.at for one in seen.first]:
        return absent
    instead = dict[int, Callable[[Any], Any]]()
    for one, other in zip(seen.first, again, strict=True):
        rows = changed(*(side.swapaxes(1, 2) if among_channels else side for side in (one.q, other.q)))
        of_several = rows.sum(axis=-1).max(initial=0) != 1 or follows_another(seen, one)
        if of_several or rows.shape[1] < x.shape[1]:  # several tokens may be one query
            return absent
        instead[one.at[2]] = partial(with_rows, rows=rows, swapped=one.swapped != among_channels)
    as_it_is = {at: partial(with_rows, rows=np.zeros((1, 1), bool), swapped=False) for at in instead}
    (_, said), (_, before) = seen.ask(seen.x, seen.memory, instead), seen.ask(seen.x, seen.memory, as_it_is)
    by_chance = not np.array_equal(before, seen.ask(seen.x, seen.memory, as_it_is)[1])
    if by_chance or said.shape != before.shape or said.shape[:2] != seen.x.shape[:2] or not np.isfinite(before).all():
        return absent
    reached = (np.abs(said - before) > CLOSE * np.abs(before).max()).reshape(*said.shape[:2], -1).any(axis=-1)
    by_norm = reached[0].all() and any("norm" in one.name for one in after)  # one over all tokens may stand behind
    if (reached.sum() > 1 or not reached[0, 1]) and not by_norm:
        places = ", ".join(str(place + 1) for place in np.flatnonzero(reached.any(axis=0)))
        whose = "channels mix of token 2" if among_channels else "the query of token 2 mixes"
        name = "entries_and_heads_mixed" if reached[1:].any() else "heads_merged_wrong"
        return Finding(rung, BROKEN, f"what {whose} reaches token {places}"), name
    whose = "channels mix of a token" if among_channels else "a query mixes"
    return absent if by_norm else (Finding(rung, HELD, f"what {whose} reaches its own token alone"), "")


LOST = Finding("the answer", BROKEN, "what the queries mix does not reach it"), ""


def reaches_answer(seen: Seen) -> bool:
    """Say whether anything of what the queries mix reaches the answer."""
    instead = {one.at[2]: doubled for one in seen.first}
    return not np.array_equal(seen.ask(seen.x, seen.memory, instead)[1], seen.said)


def doubled(said: Any) -> Any:
    """Return twice what a product returned, and a number more."""
    return said * 2 + 1


def with_rows(said: Any, rows: Array, *, swapped: bool) -> Any:
    """Return what a product of weights and values returned, with other numbers in some rows `[n t]`; without NaN."""
    other = np.nan_to_num(said) if isinstance(said, np.ndarray) else said.nan_to_num()
    of_all = other if other.ndim == len("nte") else other[None]
    of_all = of_all.swapaxes(1, 2) if swapped else of_all
    for n, row in zip(*np.nonzero(rows), strict=True):
        of_all[int(n), int(row)] += 1.0 + abs(of_all[int(n), int(row)])
    return other


# What is said of it


class UnreadError(UserError):
    """A layer that can be called, and whose matrices nobody finds; `look` returns the verdict on its attention."""

    def __init__(self, said: str, look: Look) -> None:
        super().__init__(said)
        self.look = look


@dataclass(frozen=True, eq=False)
class Look:
    """What looks inside a layer once, when it is first called, and returns the verdict on what it sees, or None.

    `see` returns what is seen there, and `others` the same of one of its class in other sizes, which its scale is held
    against; None where that is not seen. Meanwhile the layer has the numbers that it had `at_first`: what was set aside
    to read its matrices may hide what they do.
    """

    name: str
    see: Callable[[], Seen | None]
    request: Request
    others: Callable[[], Seen | None] = lambda: None
    at_first: Callable[[], AbstractContextManager[Any]] = nullcontext

    @cached_property
    def verdict(self) -> Verdict | None:
        """The verdict on what is seen; a layer may take no other numbers than those that it was asked."""
        with suppress(Exception), self.at_first():
            return verdict(self.name, self.see, self.request, cache(self.others))
        return None

    def seen(self) -> Seen | None:
        """Return what is seen, or None also where looking fails."""
        with suppress(Exception), self.at_first():
            return self.see()
        return None

    @property
    def is_rich(self) -> bool:
        """Whether heads have several numbers each: those of one tell little."""
        seen = self.seen()
        return seen is not None and all(one.size > 1 for one in seen.first)

    def __call__(self) -> Verdict | None:
        return self.verdict


def tells_all(seen: Verdict | None) -> bool:
    """Say whether what is seen inside a layer leaves nothing open: it is right there, or its mistakes have names."""
    return seen is not None and bool(seen.passed or seen.right_under or seen.mistakes)


def verdict(
    name: str, see: Callable[[], Seen | None], request: Request, others: Callable[[], Seen | None]
) -> Verdict | None:  # fmt: skip
    """Return the verdict on a layer of which nothing but the attention inside is seen, or None where that is not.

    What has no name of its own here says nothing, and neither does a layer of which positions or other masks than a
    causal one are asked.
    """
    if not all(isinstance(mask, Causal) for mask in request.masks) or request.scores or request.positions:
        return None
    seen, said = None, list[tuple[Finding, str]]()
    with suppress(Exception):  # a layer may take no other numbers than those that it was asked
        seen = see()
        said = list(dict.fromkeys(findings(seen, request, others))) if seen is not None else []
    if seen is None or not said:
        return None
    turned = [one for one, name in said if name == INVERTED and one.rung in masks_inside.rungs(seen)]
    said = [(replace(one, state=HELD), "") if one in turned else (one, name) for one, name in said]
    broken = [one for one, _ in said if one.state == BROKEN]
    names = tuple(dict.fromkeys(name for one, name in said if name and (one.state == BROKEN or broken)))
    shown = (Finding(CALLED, HELD, "with x; its attention is seen from inside"), *(one for one, _ in said))
    unscaled = any(one.rung == OF_IMAGE for one, _ in said)
    causal = not request.masks and all(map(is_causal, seen.first))
    meant = ((CAUSAL, causal), (UNSCALED, unscaled), (BLOCKS, bool(turned)))
    words = [word for word, is_so in meant if is_so]
    in_grid = any(one.rung == OF_GRID for one, _ in said)
    if not broken:
        whose = "among channels instead of tokens, " if any(one.rung == CHANNELS for one, _ in said) else ""
        turned_by = f"with {TWO_DIMENSIONS}, " if in_grid else ""
        computes = f"attention {turned_by}{whose}of the queries, keys and values that it makes of x in a way of its own"
    elif all(name for one, name in said if one.state == BROKEN):
        computes = what_mistakes_compute(names, said=f"It stands beside {TWO_DIMENSIONS}" if in_grid else "")
    else:
        computes, names = f"something else: {broken[0].rung}: {broken[0].said}", ()
    stage = STAGES.get(broken[0].rung, "masked") if broken and not names else ""
    under = " ".join(words) if not broken else ""
    if broken and words:
        computes = f"with {' '.join(words)}, though the settings do not say so, {computes}"
    if under:
        computes += f", with {under}"
        computes += MEANT if turned else ", though the settings do not say so; that is no mistake"
    usual = all(one.rung == masks_inside.rung("key_padding_mask") for one in turned)  # it means so in every library
    open_masks = [one for one, _ in said if one.rung in masks_inside.rungs(seen) and one.state == ABSENT]
    unread = UNREAD if seen.words and not open_masks else UNREAD_WITH_MASKS
    alike = () if usual or (broken and not names) else ((*names, INVERTED),)
    return Verdict(
        name, not broken and usual, names, computes, shown, request.words, alike, right_under=under,
        not_asked=(unread,), unexplained=bool(stage), stage=stage,
    )  # fmt: skip


STAGES = {
    CHANNELS: "q", "the tokens inside": "q", "the keys inside": "k", "the heads inside": "q",
    "the positions inside": "q", "the scores inside": "scores", "the scale inside": "logits",
    "the weights inside": "weights",
    "behind the softmax": "weights", "large inputs inside": "weights", "every matrix is used": "output",
    "the answer": "output",
}  # fmt: skip
"""The first stage that differs where a rung is broken; each of the others is about a mask."""

CAUSAL = "mask=causal"
TWO_DIMENSIONS = "rotary positions in two dimensions"
MEANT = ": True in its mask means that one may not attend"


def is_causal(one: Core) -> bool:
    """Say whether each query sees the keys up to its own alone, of several."""
    later = np.triu(np.ones(one.logits.shape[1:], bool), 1)
    return bool(later.any() and ((one.logits <= HIDDEN) == later).all())


class OtherShapeError(UnreadError, UncalledError):
    """A layer whose answer is no row for each token; `look` as before."""


UNREAD = "how it makes q, k and v, and what it makes of the answer (its attention is seen from inside alone)"
UNREAD_WITH_MASKS = UNREAD.replace(", and", ",").replace(" (", ", and masks (")
