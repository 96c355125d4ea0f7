"""Scores, their scale, the masks that no word says, and weights inside a layer, by numbers alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isclose, log, sqrt

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.inside.cores import (
    CLOSE,
    HIDDEN,
    LOGARITHMS,
    Core,
    Seen,
    apart,
    behind,
    factor_on_the_way,
    is_multiplied,
    multiple,
)
from attn_exp.diagnosis.inside.other_words import are_open
from attn_exp.experiment.verdict import BROKEN, HELD, REMARK, Finding
from attn_exp.rules.normalizers.softmax import softmax


def of_scores(
    seen: Seen, one: Core, other: Core, request: Request, others: Callable[[], Seen | None]
) -> Iterator[tuple[Finding, str]]:  # fmt: skip
    """Say whether logits are a multiple of `q k^T`, by what it is multiplied, and what stands beside.

    What is added to it whatever x is, is not in the difference of two questions.
    """
    rung = "the scores inside"
    if are_shares(one.logits) and are_shares(other.logits):
        yield Finding(rung, BROKEN, "they are shares already, as a softmax makes them"), "softmax_twice"
        one, other = map(before_shares, (one, other))
    cap = cap_of(seen, one)
    if cap:
        yield Finding("the cap inside", REMARK, f"they are bent so that none is larger than {cap:.4g}"), ""
        one, other = (before_cap(each, cap) for each in (one, other))
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


def before_shares(one: Core) -> Core:
    """Return a softmax whose logits are shares with what the softmax before it was given."""
    return replace(one, logits=np.log(np.maximum(one.logits, 1e-300))) if are_shares(one.logits) else one


def cap_of(seen: Seen, one: Core) -> float:
    """Return c where the logits of a softmax are c times the tanh of something, or 0."""
    for place in behind(seen.operations, one.at[1]):
        said = seen.operations[place].said
        if seen.operations[place].name == "tanh" and said.size == one.logits.size:
            bent, known = said.reshape(one.logits.shape), one.logits > HIDDEN
            cap = multiple(np.where(known, one.logits, 0.0), np.where(known, bent, 0.0), known)
            if cap[0] > 0 and cap[1] < CLOSE:
                return cap[0]
    return 0.0


def before_cap(one: Core, cap: float) -> Core:
    """Return a softmax whose logits are c times the tanh of others over c with those; as it is where c is 0."""
    inside = np.abs(one.logits) < cap
    return replace(one, logits=np.where(inside, cap * np.arctanh(np.where(inside, one.logits, 0.0) / (cap or 1.0)),
                                        one.logits))  # fmt: skip


def factor_of(one: Core, other: Core, shown: Array) -> tuple[float, float]:
    """Return by what `q k^T` is multiplied where it is shown, and how far the logits of two questions are from that."""
    left, right = (np.where(shown, each.logits, 0.0) for each in (one, other))
    return multiple(left - right, one.scores - other.scores, shown)


def hidden_places(one: Core, other: Core) -> tuple[Array, Array]:
    """Return where the logits of two questions are those of hidden keys, and where they are a number that x does not
    change, as one that is filled in, but not far below the others."""
    hidden = (one.logits <= HIDDEN) | (other.logits <= HIDDEN)
    filled = ~hidden & (one.logits == other.logits) & (np.abs(one.scores - other.scores) > CLOSE)
    if all((each.logits.max(axis=-1) == 0).all() for each in (one, other)):  # less the largest of each query
        filled &= one.logits != 0
    return hidden, filled


def of_masks(seen: Seen, one: Core, hidden: Array, filled: Array, is_asked: bool) -> Iterator[tuple[Finding, str]]:
    """Say which keys are hidden whatever x is, and by which mistake that is not what a causal mask hides; `is_asked`:
    somebody wants one."""
    rung = "the mask inside"
    closed = (hidden | filled).any(axis=0)
    closed = closed.T if are_turned(seen) else closed  # what is read as queries is asked
    if not closed.any():
        if is_asked and one.logits.shape[1] > 1:
            yield Finding(rung, BROKEN, "later keys are seen"), "causal_ignored"
        return
    place = np.subtract.outer(-np.arange(closed.shape[0]), -np.arange(closed.shape[1]))  # of the key less of the query
    said = f"{int(closed.sum())} of {closed.size} places are hidden"
    known = {"": place > 0, "causal_strict": place >= 0, "causal_next": place > 1, "causal_flipped": place < 0,
             "mask_inverted": place <= 0}  # fmt: skip
    name = next((name for name, places in known.items() if np.array_equal(closed, places)), None)
    frame = frame_of(np.asarray(closed))
    if name:
        yield Finding(rung, BROKEN, f"{said}: {SHOWN[name]}"), name
    elif frame:
        yield Finding(BY_FRAMES, HELD, f"{said}: each query sees its own frame of {frame} and those before it"), ""
    else:
        yield Finding(rung, HELD, said), ""
    numbers = one.logits[filled]
    if not numbers.size or np.ptp(numbers) > 0:
        return
    said = f"their logits are {numbers[0]:.4g}, so that they keep weight"
    if not hidden.any() and numbers[0] > -HIDDEN:
        above = f"their logits are {numbers[0]:.4g}, far above the others"
        yield Finding("the fill inside", BROKEN, above), "mask_sign"
    elif not hidden.any():
        is_product = not numbers.any() and is_multiplied(seen.operations, one, filled)
        yield Finding("the fill inside", BROKEN, said), "mask_multiplied" if is_product else "mask_small_fill"
    elif numbers[0] > one.logits[~(hidden | filled)].min(initial=np.inf) - FAR:
        yield Finding("the fill inside", BROKEN, f"beside hidden keys, other logits are {numbers[0]:.4g}"), ""


def frame_of(closed: Array) -> int:
    """Return how many tokens a frame has, of several, where each query `[t s]` sees its own and those before; or 0."""
    tokens = len(closed)
    sizes = (size for size in range(2, tokens) if tokens % size == 0)
    frames = ((size, np.arange(tokens) // size) for size in sizes if closed.shape == (tokens, tokens))
    return next((size for size, frame in frames if np.array_equal(closed, frame[:, None] < frame)), 0)


BY_FRAMES = "the mask inside, by frames"
FAR = 20.0
"""What is so far below all other logits has next to no weight."""
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
    because = why_usual(seen, one, factor, usual)
    if because is not None:
        return Finding(OF_SCALE, HELD, f"{said}{because}"), ""
    is_bare = isclose(factor, 1.0, rel_tol=room) and isclose(one.after, 1.0, rel_tol=room)
    if is_bare and seen.is_image and seen.heads == 1 and are_open(request, "scale"):
        return Finding(OF_IMAGE, HELD, f"{said}; over the points of an image few have one"), ""
    late = isclose(factor, 1.0, rel_tol=room) and not is_bare
    if one.normed or late:
        why = "queries or keys are normed" if one.normed else "the weights are instead"
        of_model = late and isclose(one.after, seen.width**-0.5, rel_tol=room) and seen.width != one.size
        state, name = (BROKEN, "scale_by_sqrt_d_model") if of_model else (REMARK, "")
        return Finding(OF_SCALE, state, f"{said}; {why}"), name
    if one.size == 1 < one.v.shape[2]:
        return Finding(OF_SCALE, BROKEN, f"{said}: a query has one number where a value has several"), ""
    names = names_of_scale(seen, one, factor)
    other = others()
    if other is not None and len(other.first) == len(other.second) == len(seen.first):
        place = next(place for place, each in enumerate(seen.first) if each.at == one.at)
        cap = cap_of(other, other.first[place])
        first, second = (before_cap(before_shares(each[place]), cap) for each in (other.first, other.second))
        hidden, filled = hidden_places(first, second)
        again, gap = factor_of(first, second, ~(hidden | filled))
        again = again * first.before if gap < CLOSE * 10 else scale_beside_others(other, first)
        also = names_of_scale(other, first, again)
        of_keys = any(isclose(factor, keys**power, rel_tol=room) for power in (0.5, 1.0, -1.0))  # as many in both
        is_fixed = isclose(factor, again, rel_tol=room) and first.size != one.size and not of_keys
        fixed = ["scale_fixed"] if is_fixed else []
        names = [name for name in names if name in also] or fixed
    return Finding(OF_SCALE, BROKEN, said), next(iter(names), SCALE_OTHER)


def why_usual(seen: Seen, one: Core, factor: float, usual: float) -> str | None:
    """Return in which way a scale is the usual one, in words behind it; None where it is not."""
    room = CLOSE * 10
    if isclose(factor, usual, rel_tol=room):
        return ""
    if seen.is_one_for_several and isclose(factor, usual * sqrt(seen.told), rel_tol=room):
        return f": that of the {seen.told} heads that it should have"
    counts = () if names_of_scale(seen, one, factor) else range(2, terms_of(seen, one) + 1)
    several = next((count for count in counts if isclose(factor * sqrt(count), usual, rel_tol=room)), 0)
    return f", over the root of {several}: so many are added up" if several else None


def terms_of(seen: Seen, one: Core) -> int:
    """Return how many arrays are added up to the logits of a softmax, of which its product of q and k is one."""
    way = [place for place in behind(seen.operations, one.at[1]) if seen.operations[place].name in ("add", "sub")]
    sums = (seen.operations[place] for place in way if one.at[0] in behind(seen.operations, place))
    return 1 + sum(all(array.size > 1 for array in each.given) and len(each.given) > 1 for each in sums)


OF_SCALE, OF_IMAGE, SCALE_OTHER = "the scale inside", "the scale inside, of an image", "scale_other"


def names_of_scale(seen: Seen, one: Core, factor: float) -> list[str]:
    """Return the mistakes that multiply scores by this factor, in these sizes, the likeliest first."""
    (rows, keys), heads = one.logits.shape[1:], max(seen.told, seen.heads, 1)
    known = {
        "no_scale": 1.0, "scores_negated": -1 / sqrt(one.size), "scale_by_d": 1 / one.size,
        "scale_by_sqrt_d_model": 1 / sqrt(seen.width),
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
    if seen.operations[one.at[1]].name == LOGARITHMS:
        yield Finding(rung, BROKEN, "they are the logarithms of shares"), "log_softmax"
        shares = np.exp(shares)
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


SUMMED = "values_summed"


def are_turned(seen: Seen) -> bool:
    """Say whether weights are turned before they meet the values: those of each key sum to 1, and names say so."""
    of_keys, of_queries = ([one.shares.sum(axis=axis) for one in seen.first] for axis in (1, 2))
    are_ones = [all(np.allclose(one, 1.0, atol=CLOSE) for one in sums) for sums in (of_keys, of_queries)]
    return are_ones == [True, False] and seen.is_turned


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
    rows = shares.shape[1]  # those of a channel, or of a frame, where queries of several meet the same keys
    for count in (count for count in range(2, rows) if rows % count == 0):
        in_groups = shares.reshape(len(shares), rows // count, count, -1)
        yield from (("queries", in_groups.sum(axis=axis)) for axis in (1, 2))
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
            yield Finding(DROPPED, BROKEN, "in evaluation, other ones are dropped in each call"), "dropout_on"
            return
        name = "mask_after_softmax" if np.array_equal(places, np.triu(np.ones_like(places), 1)) else ""
        yield Finding(rung, BROKEN, "the weights of later keys are hidden" if name else "some weights are hidden"), name
    if one.is_summed:
        yield Finding("the values inside", BROKEN, "weights and values are each summed up over the keys"), SUMMED
    if not isclose(one.after, 1.0, rel_tol=CLOSE):
        yield Finding(rung, BROKEN, f"weights are multiplied by {one.after:.4g}"), "scale_after_softmax"


DROPPED = "weights that are dropped"
TRANSPOSED = "weights_transposed"
