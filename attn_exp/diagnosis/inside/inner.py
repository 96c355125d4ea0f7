"""Attention inside a layer, as its operations show it: q, k, v, scores, weights and what they mix.

A layer may make its queries, keys and values in any way, and do anything with the answer: what lies between is told
here by numbers alone. That is less than a check of the whole layer says, and it holds where that finds nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.calling.behaviour import TWICE
from attn_exp.diagnosis.code.watching import DROPPING, Operation
from attn_exp.diagnosis.inside import masks_inside
from attn_exp.diagnosis.inside.cores import (
    CLOSE,
    HIDDEN,
    Core,
    Seen,
    behind,
    cores,
    is_raw,
)
from attn_exp.diagnosis.inside.masks_inside import TURNED
from attn_exp.diagnosis.inside.other_words import BLOCKS, INVERTED, UNSCALED
from attn_exp.diagnosis.inside.sides_inside import (
    OF_GRID,
    OF_LENGTHS,
    OF_NUMBERS,
    are_all_changed,
    are_channels,
    are_joined,
    changed,
    exchanged,
    follows_another,
    has_rows,
    of_heads,
    of_positions,
    of_tokens,
    products_behind,
)
from attn_exp.diagnosis.inside.weights_inside import (
    DROPPED,
    OF_IMAGE,
    OF_SCALE,
    factor_of,
    hidden_places,
    of_scores,
    of_weights,
)
from attn_exp.diagnosis.matrices.idle import (
    RUNG,
    THIRD,
    WHOLE,
    are_projections,
    is_of_any,
    may_be_output,
    said_of_diagonals,
    said_of_idle,
)
from attn_exp.diagnosis.matrices.named_matrices import sounds_like
from attn_exp.diagnosis.recipes.candidates import what_mistakes_compute
from attn_exp.errors import UncalledError, UserError
from attn_exp.experiment.verdict import ABSENT, BROKEN, CALLED, HELD, REMARK, Finding, Verdict
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.positions.rope import Rope


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
        yield from of_positions(seen, any(isinstance(one, Rope) for one in request.positions))
    for one, other in zip(seen.first, seen.second, strict=True):
        yield from of_scores(seen, one, other, request, others)
        yield from of_weights(seen, one)
    yield of_answer(seen) if reaches_answer(seen) else LOST
    yield from of_large_inputs(seen)
    yield from of_order(seen)
    if not any(one.is_summed for one in seen.first):  # else what makes queries and keys changes nothing
        yield from of_matrices(seen)
        yield from of_sides_in_a_row(seen)
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


def of_order(seen: Seen) -> Iterator[tuple[Finding, str]]:
    """Say whether queries, keys and values change places, by the names of the matrices that make them.

    What asks is made with the matrix of keys too where weights are turned, or run down the queries: that is no order.
    """
    named = seen.named()
    if sorted(named) == sorted(named.values()) == ["k", "q", "v"] and any(named[side] != side for side in "qkv"):
        are_rows = all(np.allclose(one.weights.sum(axis=2), 1.0, atol=CLOSE) for one in seen.first)
        name = "qkv_order" if named["v"] != "v" else "queries_keys_swapped" if are_rows else ""
        said = ", ".join(f"{side} is made with the matrix of {named[side]}" for side in "qkv" if named[side] != side)
        if name:
            yield Finding("the order inside", BROKEN, said), name


def of_sides_in_a_row(seen: Seen) -> Iterator[tuple[Finding, str]]:
    """Say whether keys or values are projected from queries, or values from keys, which a matrix made before."""
    made = {side: products_behind(seen, seen.first[0], side) for side in "qkv"}
    before = {side: set(itertools.chain.from_iterable(behind(seen.operations, place) for place in places))
              for side, places in made.items()}  # fmt: skip
    for side, others in (("q", "kv"), ("k", "v")):
        late = [other for other in others if made[side] and made[side] <= before[other]]
        if late:
            said = f"{' and '.join(late)}: projected from {side}, and not from x"
            yield Finding("what is projected inside", BROKEN, said), "projected_twice"
            return


def of_matrices(seen: Seen) -> Iterator[tuple[Finding, str]]:
    """Say which matrices change nothing, and which side is made with the matrix of another instead of its own."""
    yield from said_of_diagonals(seen.diagonals())
    idle = list(seen.idle())
    if not idle:
        if "v" in seen.without_bias():
            yield Finding(RUNG, BROKEN, "the bias of the values changes nothing"), "no_value_bias"
        return
    of_one_input = seen.cores_of(seen.x, seen.x)
    made_of_nothing = all(is_of_inputs(seen, one, "qkv") for one in seen.first)  # matrices have any name then

    def is_alike(side: str, other: str) -> bool:
        if made_of_nothing:
            return False
        made = [[matrices_behind(seen, one, each) for each in (side, other)] for one in seen.first]
        if not any(map(THIRD.search, idle)) and all(mine == others != set() for mine, others in made):
            return True  # whatever is done to them afterwards
        pairs = [(getattr(one, side), getattr(one, other)) for one in of_one_input]
        return bool(pairs) and all(are_multiples(rows, others) for rows, others in pairs)

    are_all = made_of_nothing or are_projections(idle, seen.matrices)
    sides = "qkv" if are_all else sides_without_matrix(seen, idle)
    are_raw = bool(sides) and all(is_of_inputs(seen, one, sides) for one in seen.first)
    is_output = has_rows(seen) and is_without_output(seen, idle)
    through = is_through_another(seen)
    yield from said_of_idle(idle, is_alike, are_raw=are_raw, is_output=is_output, through=through)


def is_through_another(seen: Seen) -> bool:
    """Say whether what is mixed is multiplied by a matrix that queries, keys or values are made with too."""
    sides = [matrices_behind(seen, one, side) for one in seen.first for side in "qkv"]
    after = [one for one in seen.operations[max(one.at[2] for one in seen.first) + 1 :] if one.is_product]
    return bool(set().union(*map(matrices_of_product, after)) & set().union(*sides))


def matrices_of_product(one: Operation) -> set[bytes]:
    """Return what x is multiplied with in a product, as bytes."""
    given = zip(one.given, one.of_x, strict=True)
    return {array.tobytes() for array, of_x in given if not of_x and array.ndim > 1}


def matrices_behind(seen: Seen, one: Core, side: str) -> set[bytes]:
    """Return what the rows of a side are multiplied with in the products that they come from, as bytes."""
    products = (seen.operations[place] for place in products_behind(seen, one, side))
    return set().union(*map(matrices_of_product, products))


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


def sides_without_matrix(seen: Seen, idle: Sequence[str]) -> str:
    """Return the sides of which all matrices are idle, by their names; none where others are idle too."""
    sides = [sounds_like(name) for name in idle]
    is_all = all(name in idle for name in seen.matrices if sounds_like(name) in sides)
    return "".join(sorted(set(sides))) if is_all and set(sides) <= set("qkv") else ""


def is_of_inputs(seen: Seen, one: Core, sides: str) -> bool:
    """Say whether sides hold numbers of the inputs as they are, or q and k multiplied by one number."""
    known = np.sort(np.concatenate([seen.x.ravel(), seen.memory.ravel()]))

    def are_known(rows: Array, factor: float) -> bool:
        numbers = rows.ravel() / factor
        place = np.clip(np.searchsorted(known, numbers), 1, len(known) - 1)
        return bool((np.minimum(abs(known[place] - numbers), abs(known[place - 1] - numbers)) < CLOSE).all())

    factors = (1.0, one.before, abs(one.before) ** 0.5)
    return all(any(are_known(getattr(one, side), by) for by in (factors if side in "qk" else (1.0,))) for side in sides)


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


def of_answer(seen: Seen, among_channels: bool = False) -> tuple[Finding, str]:
    """Say whether what a query mixes reaches its own token alone, as far as no neighbours are joined on purpose.

    Where queries are channels, what they mix of a token should.
    """
    rung = "the answer"
    absent = Finding(rung, ABSENT, "which token is whose is not known"), ""
    after = seen.operations[min(one.at[2] for one in seen.first) + 1 :]
    are_rows = all(seen.operations[one.at[2]].is_product for one in seen.first)  # no product, where all was summed up
    if are_joined(after) or not are_rows:
        return (Finding(rung, ABSENT, "neighbours are joined behind attention"), "") if are_rows else absent
    x, moved = seen.x.copy(), [1]
    x[0, 1] += np.random.default_rng(73).standard_normal(seen.width)
    again = seen.cores_of(x, seen.memory)
    pairs = zip(seen.first, again, strict=False)
    if not among_channels and all(are_all_changed(changed(one.q, other.q)) for one, other in pairs):
        x, moved = seen.x.copy(), [1, x.shape[1] - 1]  # a norm over all tokens stays as it is where two change places
        x[0] = exchanged(x[0], 1)
        again = seen.cores_of(x, seen.memory)
    if [one.at for one in again] != [one.at for one in seen.first]:
        return absent
    instead = dict[int, Callable[[Any], Any]]()
    for one, other in zip(seen.first, again, strict=True):
        rows = changed(*(side.swapaxes(1, 2) if among_channels else side for side in (one.q, other.q)))
        of_several = rows.sum(axis=-1).max(initial=0) != len(moved) or follows_another(seen, one)
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
    if (reached.sum() > len(moved) or not reached[0, moved].all()) and not by_norm:
        places = ", ".join(str(place + 1) for place in np.flatnonzero(reached.any(axis=0)))
        which = " and ".join(str(place + 1) for place in moved)
        whose = "channels mix of token 2" if among_channels else f"the query of token {which} mixes"
        is_spread = seen.heads != 1 and reached.sum() > len(moved)  # heads of one token go apart; one is not mixed
        of_one = "heads_merged_wrong" if is_spread else ""
        name = "entries_and_heads_mixed" if reached[1:].any() else of_one
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


class UnreadError(UserError):
    """A layer that can be called, and whose matrices nobody finds; `look` returns the verdict on its attention."""

    def __init__(self, said: str, look: Look) -> None:
        super().__init__(said)
        self.look = look


@dataclass(frozen=True, eq=False)
class Look:
    """What looks inside a layer once, when it is first called, and returns the verdict on what it sees, or None.

    `see` returns what is seen there, and `others` the same of one of its class in other sizes, which its scale is held
    against; None where that is not seen. `otherwise` returns what is to be said where there is none inside. Meanwhile
    the layer has the numbers that it had `at_first`: what was set aside to read its matrices may hide what they do.
    `switched` are the switches that its class was given and would not have by itself.
    """

    name: str
    see: Callable[[], Seen | None]
    request: Request
    others: Callable[[], Seen | None] = lambda: None
    at_first: Callable[[], AbstractContextManager[Any]] = nullcontext
    otherwise: Callable[[], Verdict | None] = lambda: None
    switched: str = ""

    @cached_property
    def verdict(self) -> Verdict | None:
        """The verdict on what is seen; a layer may take no other numbers than those that it was asked."""
        with suppress(Exception), self.at_first():
            return self.with_switches_said(verdict(self.name, self.see, self.request, cache(self.others)))
        return None

    def with_switches_said(self, found: Verdict | None) -> Verdict | None:
        """Return a verdict with a word on the switches that were not left as they are by default."""
        if found is None or not self.switched:
            return found
        called = (one for one in found.findings if one.rung == CALLED)
        said = {one: replace(one, said=f"{one.said}; made with {self.switched}") for one in called}
        return replace(found, findings=tuple(said.get(one, one) for one in found.findings))

    def seen(self) -> Seen | None:
        """Return what is seen of attention, or None also where looking fails."""
        with suppress(Exception), self.at_first():
            seen = self.see()
            return seen if seen is not None and seen.first else None
        return None

    @property
    def is_rich(self) -> bool:
        """Whether heads have several numbers each: those of one tell little."""
        seen = self.seen()
        return seen is not None and all(one.size > 1 for one in seen.first)

    def __call__(self) -> Verdict | None:
        return self.verdict or self.otherwise()


def another_each_time(name: str, request: Request, call: Callable[[], Array]) -> Verdict | None:
    """Return the verdict on a layer of which no more is known than that each call gives other answers, or None."""
    try:
        first, second = call(), call()
    except Exception:
        return None
    if np.array_equal(first, second, equal_nan=True):
        return None
    findings = (Finding(CALLED, HELD, "with x"), Finding(TWICE, BROKEN, "the same call gave different answers"))
    computes = "something else in each call; no attention is seen inside"
    return Verdict(name, False, (AT_RANDOM,), computes, findings, request.words)


AT_RANDOM = "not_deterministic"


def leaves_nothing_open(look: Callable[[], Verdict | None]) -> bool:
    """Say whether what is seen inside a layer tells all, or shows what no mistakes of the catalogue come to."""
    seen = look()
    if seen is None:
        return False
    is_of_no_name = any(one.rung in (OF_LENGTHS, OF_NUMBERS) and one.state == BROKEN for one in seen.findings)
    return is_of_no_name or tells_all(seen)


def tells_all(seen: Verdict | None) -> bool:
    """Say whether what is seen inside a layer leaves nothing open: it is right there, or its mistakes have names."""
    return seen is not None and bool(seen.passed or seen.right_under or seen.mistakes)


def verdict(
    name: str, see: Callable[[], Seen | None], request: Request, others: Callable[[], Seen | None]
) -> Verdict | None:  # fmt: skip
    """Return the verdict on a layer of which nothing but the attention inside is seen, or None where that is not.

    What has no name of its own here says nothing, and neither does a layer of which other masks than a causal one are
    asked. Where positions are asked for only what is wrong counts, as the angles are not held against those.
    """
    if not all(isinstance(mask, Causal) for mask in request.masks) or request.scores:
        return None
    seen, said = None, list[tuple[Finding, str]]()
    with suppress(Exception):  # a layer may take no other numbers than those that it was asked
        seen = see()
        said = list(dict.fromkeys(findings(seen, request, others))) if seen is not None and seen.first else []
    is_empty = seen is not None and all(not (one.v.any() and (one.q.any() or one.k.any())) for one in seen.first)
    if seen is None or not said or is_empty or (request.positions and all(one.state != BROKEN for one, _ in said)):
        return None
    turned = [one for one, name in said if name == INVERTED and one.rung in masks_inside.rungs(seen)]
    said = [(replace(one, state=HELD), "") if one in turned else (one, name) for one, name in said]
    said = as_one_mistake(said)
    broken = [one for one, _ in said if one.state == BROKEN]
    names = tuple(dict.fromkeys(name for one, name in said if name and one.state == BROKEN))
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
        computes, names = with_something_else(said)
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


def as_one_mistake(said: Sequence[tuple[Finding, str]]) -> list[tuple[Finding, str]]:
    """Return what is said of a layer with weights that are turned as that, where they and a mask look turned."""
    if {OVER_QUERIES, TURNED} <= {name for _, name in said}:
        return [(one, WEIGHTS_TURNED if name in (OVER_QUERIES, TURNED) else name) for one, name in said]
    return list(said)


OVER_QUERIES, WEIGHTS_TURNED = "softmax_over_queries", "weights_transposed"


def with_something_else(said: Sequence[tuple[Finding, str]]) -> tuple[str, tuple[str, ...]]:
    """Return what a layer computes in which something is wrong that has no name: what is named before it is so."""
    wrong = [(one, name) for one, name in said if one.state == BROKEN]
    unnamed = next(one for one, name in wrong if not name)
    names = tuple(dict.fromkeys(name for _, name in itertools.takewhile(lambda pair: pair[1], wrong)))
    if names:
        return what_mistakes_compute(names, said=f"Beside that, {unnamed.rung}: {unnamed.said}"), names
    return f"something else: {unnamed.rung}: {unnamed.said}", ()


STAGES = {
    CHANNELS: "scores", OF_NUMBERS: "scores", OF_LENGTHS: "q",
    "the tokens inside": "q", "the keys inside": "k", "the values inside": "v", "the heads inside": "q",
    "the positions inside": "q", "the scores inside": "scores", OF_SCALE: "logits",
    "the weights inside": "weights",
    "behind the softmax": "weights", DROPPED: "weights", "large inputs inside": "weights", RUNG: "output",
    WHOLE: "output", "what is projected inside": "k",
    "the answer": "output",
}  # fmt: skip
"""The first stage that differs where a rung is broken; each of the others is about a mask."""
CAUSAL = "mask=causal"
TWO_DIMENSIONS = "rotary positions in two dimensions"
MEANT = ": True in its mask means that one may not attend"


def is_causal(one: Core) -> bool:
    """Say whether each query sees the keys up to its own alone, of several; those of several heads may share keys."""
    rows, keys = one.logits.shape[1:]
    of_one, hidden = np.triu(np.ones((rows, keys), bool), 1), one.logits <= HIDDEN
    several = rows // keys if rows % keys == 0 else 1
    heads = (np.tile(of_one[:keys], (several, 1)), np.repeat(of_one[:keys], several, axis=0)) if several > 1 else ()
    return bool(of_one.any() and any((hidden == later).all() for later in (of_one, *heads)))


class OtherShapeError(UnreadError, UncalledError):
    """A layer whose answer is no row for each token; `look` as before."""


UNREAD = "how it makes q, k and v, and what it makes of the answer (its attention is seen from inside alone)"
UNREAD_WITH_MASKS = UNREAD.replace(", and", ",").replace(" (", ", and masks (")
