"""A layer in whose calls no attention is seen: where what it does instead leaves attention first.

There may be no product of queries and keys, or a softmax of something else, or a single key. That is said beside what
is known to be wrong with its answers, as right layers may do many things in a way of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.code.watching import Operation
from attn_exp.diagnosis.inside.cores import CLOSE, Core, Seen, behind, cores, logits_of, nearest_product, softmaxes
from attn_exp.diagnosis.inside.inside_functions import is_of_both
from attn_exp.experiment.verdict import BROKEN, CALLED, HELD, Finding, Verdict

RUNG = "attention inside"
OF_ITSELF = "no token sees another"
NOT_ASKED = "what else it does (it is seen from inside alone)"


@dataclass(frozen=True)
class Left:
    """The first stage that is not that of attention, and what is true of it."""

    stage: str
    said: str


def verdict(name: str, seen: Seen, asked: str, *, alone: bool) -> Verdict | None:
    """Return where a layer without a core leaves attention; None where that is not known.

    `alone`: where nothing else is known to be wrong, that is told only of a layer in which no token sees another, or of
    attention of another kind.
    """
    left = None
    with suppress(Exception):  # it may take no other numbers than those that it was asked
        left = where_it_leaves(seen) if not alone or of_another_kind(seen) or sees_no_other(seen) else None
    if left is None:
        return None
    findings = (Finding(CALLED, HELD, "with x; it is seen from inside"), Finding(RUNG, BROKEN, left.said))
    return Verdict(
        name, False, (), f"something else: {left.said}", findings, asked, not_asked=(NOT_ASKED,),
        unexplained=True, stage=left.stage,
    )  # fmt: skip


def where_it_leaves(seen: Seen) -> Left | None:
    """Return the first stage of a layer without a core that is not that of attention, if it is known."""
    one_key = [one for one in cores(seen.operations) if one.weights.shape[2] == 1]
    known = of_one_key(seen, one_key) if one_key else of_another_kind(seen)
    if one_key or known is not None:
        return known
    places = list(softmaxes(seen.operations))
    products = {at for at, one in enumerate(seen.operations) if is_of_both(one)}
    weighed = {at for place in places for at in behind(seen.operations, place)}
    said = OF_ITSELF if sees_no_other(seen) else ""
    if places and products and not products & weighed and not products & used(seen, max(places)):
        beside = f", and {said}" if said else ""
        return Left("weights", f"its softmax is not of the product of queries and keys, which nothing uses{beside}")
    if not said and places and all(is_of_scores(seen.operations, place) for place in places):
        return Left("context", "the weights are those of queries and keys, and no product mixes values by them")
    if not said or seen.speaks_of_channels():
        return None
    if not products:
        return Left("scores", f"{said}: queries and keys are nowhere multiplied as matrices")
    return Left("scores", f"{said}: what is multiplied is made of one token alone")


def of_another_kind(seen: Seen) -> Left | None:
    """Return what is true of attention of another kind than that of a softmax of scores; None of others."""
    if is_linear(seen.operations, seen.x.shape[1]):
        return Left("scores", LINEAR)
    if any(is_mixed_by_a_matrix(seen.operations, place) for place in softmaxes(seen.operations)):
        return Left("weights", "weights are multiplied by a matrix before they meet the values, as heads are mixed so")
    return None


LINEAR = (
    "no softmax attention of queries and keys, but linear attention: keys and values are multiplied with each other, "
    "and queries with what comes of that"
)


def is_linear(operations: Sequence[Operation], tokens: int) -> bool:
    """Say whether a product sums up over all tokens, and another one multiplies rows of x with these sums.

    No softmax stands between the two, as among channels.
    """
    places = list(softmaxes(operations))
    return any(
        is_of_both(operations[first]) and is_sum_for(operations[first], one, tokens) and not set(way) & set(places)
        for one in filter(is_of_both, operations)
        for made in one.made[-2:] if made is not None
        for way in [(made, *(() if operations[made].is_product else behind(operations, made)))]
        for first in way if operations[first].is_product
    )  # fmt: skip


def is_sum_for(first: Operation, one: Operation, tokens: int) -> bool:
    """Say whether a product sums up over the tokens, which are rows of another one, and has none of these itself."""
    rows, summed = first.given[-2].shape[-1], first.said.shape[-2:]
    return (
        rows == tokens > 1 and rows not in summed and rows in one.said.shape[-2:] and one.given[-2].shape[-1] in summed
    )


def is_mixed_by_a_matrix(operations: Sequence[Operation], place: int) -> bool:
    """Say whether what a softmax of scores returns is multiplied by a matrix, and that with values."""
    if not is_of_scores(operations, place):
        return False
    after = [(at, one) for at, one in enumerate(operations) if one.is_product and at > place]
    mixed = {at for at, one in after if not is_of_both(one) and place in behind(operations, at)}
    return any(is_of_both(one) and mixed & set(behind(operations, at)) for at, one in after)


def is_of_scores(operations: Sequence[Operation], place: int) -> bool:
    """Say whether a softmax is that of a product of queries and keys, times one number."""
    logits = logits_of(operations, place)
    nearest = nearest_product(operations, place, logits.reshape(-1, *logits.shape[-2:]))
    return nearest is not None and nearest[0] < CLOSE


def of_one_key(seen: Seen, several: list[Core]) -> Left | None:
    """Return what is true of a layer with one key for all tokens, where that is made of several; None of others."""
    for place in (0, -1):
        given = [seen.x.copy(), seen.memory.copy()]
        for one in given:
            one[:, place] += np.random.default_rng(71).standard_normal(one[:, place].shape)
        again = [one for one in cores(seen.ask(*given)[0]) if one.weights.shape[2] == 1]
        if len(again) != len(several) or any(map(is_same_key, several, again)):
            return None
    return Left("k", "all tokens are made into one key, which gets all the weight that a query has")


def is_same_key(one: Core, other: Core) -> bool:
    """Say whether two calls have the same key."""
    return one.k.shape != other.k.shape or np.allclose(one.k, other.k)


def used(seen: Seen, last: int) -> set[int]:
    """Return the places of all that the answer is made of, or what stands behind a place and is used by nothing."""
    made = {at for one in seen.operations for at in one.made if at is not None}
    ahead = [at for at in range(last, len(seen.operations)) if at == len(seen.operations) - 1 or at not in made]
    met = set(ahead)
    while ahead:
        before = {at for at in seen.operations[ahead.pop()].made if at is not None} - met
        met |= before
        ahead += before
    return met


def sees_no_other(seen: Seen) -> bool:
    """Say whether the first and the last token of an entry see none but themselves, and no other entry.

    What sees another entry was given its axes in another order.
    """
    if seen.said.shape[:2] != seen.x.shape[:2]:
        return False
    rng = np.random.default_rng(73)

    def among_others(side: Array, kept: int) -> Array:
        other: Array = rng.standard_normal(side.shape)
        other[0, kept] = side[0, kept]
        return other

    for kept in (0, -1):
        memory = rng.standard_normal(seen.memory.shape)
        if not np.array_equal(seen.ask(among_others(seen.x, kept), memory)[1][0, kept], seen.said[0, kept]):
            return False
    return True
