"""Explain how two implementations differ: how each answers the cases in question, and the first stage that differs.

Some cases have no single right answer: how a causal mask is aligned if t and s differ, which key/value head a query
head uses, what a query outputs that sees no key. There, each of the two follows one of the common conventions.
Everything else is compared with the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Answer, Case, differs, expected, predicted, same_answer, without_blind
from attn_exp.diagnosis.asking.offer import at_of
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.explaining.answers import Answers
from attn_exp.diagnosis.explaining.explanations import explained
from attn_exp.diagnosis.explaining.located import is_product, weights_of
from attn_exp.diagnosis.recipes.candidates import (
    best,
    everywhere,
    is_right,
    what_a_setting_computes,
    what_mistakes_compute,
)
from attn_exp.experiment.library_conventions import blind
from attn_exp.experiment.verdict import Verdict
from attn_exp.forms.pipeline import Recipe
from attn_exp.forms.steps import share, share_in_turns
from attn_exp.rules.masks.causal import Causal

EMPTY_ROWS = "rows without keys"
FOLLOWS = "follows the definition"
WHERE = {
    "values": "on plain inputs", "unequal lengths": "where t and s differ", "another length": "on plain inputs",
    "shared heads": "where heads share keys and values", "one key/value head": "where heads share keys and values",
    "masks": "with a mask", "large inputs": "where logits are large", "equal inputs": "where all logits are equal",
    "tiny inputs": "where logits are tiny", EMPTY_ROWS: "for queries that see no key", "causal": "under a causal mask",
    "window": "under a window", "padding": "with filler", "hidden keys far ahead": "where hidden logits are far ahead",
}  # fmt: skip
"""Where two functions differ, in words for the user; other cases go by the name of their kind."""
MOST_PLACES = 3


@dataclass(frozen=True)
class Reading:
    """How a function answers some cases; `known` if a mistake or convention explains it.

    `blind` is the output of queries that see no key.
    """

    words: str
    known: bool = True
    blind: str = ""


UNKNOWN = Reading("does not, and no known name explains how", known=False)


@dataclass(frozen=True, eq=False)
class Pair:
    """A case with the answers of both, and the bits to which both are comparable."""

    case: Case
    answers: tuple[Answer, Answer]
    digits: int

    @property
    def both(self) -> bool:
        return all(answer.output is not None for answer in self.answers)

    @property
    def silent(self) -> bool:
        return all(answer.output is None for answer in self.answers)

    def part(self, digits: int) -> bool:
        """Return whether the answers differ by more than rounding."""
        return self.both and not same_answer(*self.answers, self.case, min(digits, self.digits))

    @cached_property
    def gap(self) -> float | None:
        """Maximum difference over the largest expected number; None unless both answered."""
        one, other = (answer.output for answer in self.answers)
        if one is None or other is None:
            return None
        if one.shape != other.shape or not np.array_equal(np.isnan(one), np.isnan(other)):
            return float("inf")
        with np.errstate(all="ignore"):
            apart = np.nan_to_num(np.abs(one - other)).max(initial=0.0)
        return float(apart / max(np.abs(np.nan_to_num(expected(self.case)["output"])).max(initial=0.0), 1e-30))

    def how_far(self) -> str:
        """Describe the difference between the answers."""
        one, other = (answer.output for answer in self.answers)
        assert one is not None and other is not None and self.gap is not None
        if one.shape != other.shape:
            return f"shapes {list(one.shape)} and {list(other.shape)}"
        return "NaN in one alone" if np.isinf(self.gap) else f"apart by up to {self.gap:.2g} of the largest number"


@dataclass(frozen=True)
class Cause:
    """A difference between two functions and its cases; `known` if a mistake or convention explains it."""

    rungs: tuple[str, ...]
    said: str
    places: tuple[str, ...] = ()
    known: bool = False

    def sentence(self) -> str:
        """Return it as a sentence without the full stop."""
        if not self.places:
            return self.said
        shown = list(self.places)
        if len(shown) > MOST_PLACES:
            shown[MOST_PLACES - 1 :] = [f"in {len(shown) - MOST_PLACES + 1} more kinds of questions"]
        return f"They part {' and '.join([', '.join(shown[:-1]), shown[-1]] if shown[1:] else shown)}: {self.said}"


Seen = Sequence[tuple[Case, Answer]]


def causes(
    parted: Sequence[Pair],
    pairs: Sequence[Pair],
    verdicts: tuple[Verdict, Verdict],
    names: tuple[str, str],
    digits: int,
) -> list[Cause]:
    """Return the differences between two functions, merging cases with the same explanation, in order."""
    readers = [
        Reader([(pair.case, pair.answers[place]) for pair in pairs], verdicts[place], digits) for place in (0, 1)
    ]
    made: dict[tuple[str, str], list[tuple[list[Pair], tuple[Reading, Reading]]]] = {}
    rungs = list(dict.fromkeys(pair.case.rung for pair in parted))
    for rung in rungs if "masks" not in rungs else [rung for rung in rungs if rung != EMPTY_ROWS]:
        here = [pair for pair in parted if pair.case.rung == rung]
        first, second = (reader.reading([(pair.case, pair.answers[place]) for pair in here])
                         for place, reader in enumerate(readers))  # fmt: skip
        made.setdefault((first.words, second.words), []).append((here, (first, second)))
    return [cause_of(names, found) for found in made.values()]


def cause_of(names: tuple[str, str], found: Sequence[tuple[list[Pair], tuple[Reading, Reading]]]) -> Cause:
    """Merge several kinds of cases with the same pair of readings into one cause."""
    said = []
    for place, name in enumerate(names):
        readings = [both[place] for _, both in found]
        said.append(f"{name} {readings[0].words}{next((one.blind for one in readings if one.blind), '')}")
    first, second = found[0][1]
    known = first.known and second.known and first.words != second.words
    rungs = tuple(here[0].case.rung for here, _ in found)
    return Cause(rungs, "; ".join(said), tuple(places_of([here for here, _ in found])), known)


def places_of(kinds: Sequence[Sequence[Pair]]) -> Iterator[str]:
    """Yield where two functions differ; a difference on plain cases covers all others."""
    plain = [where(kind) for kind in kinds if where(kind) == WHERE["values"]]
    turned = [pair for kind in kinds if aligned(kind[0].case) for pair in kind]
    others = (where(kind) for kind in kinds if not aligned(kind[0].case))
    yield from plain[:1] or dict.fromkeys((*([where(turned)] if turned else []), *others))


def where(pairs: Sequence[Pair]) -> str:
    """Describe where two functions differ, by the kind of case."""
    case = pairs[0].case
    if aligned(case):
        longer = {at_of(pair.case).keys > at_of(pair.case).rows for pair in pairs}
        lengths = "t and s differ" if len(longer) > 1 else "s > t" if True in longer else "t > s"
        return f"under a causal mask, where {lengths}"
    return WHERE.get(case.rung, f"in {case.rung!r}")


def aligned(case: Case) -> bool:
    """Return whether a case has a causal mask and t differs from s, so that alignment matters."""
    at = at_of(case)
    return at.rows != at.keys and any(isinstance(mask, Causal) for mask in case.recipe.rules.masks)


@dataclass(frozen=True, eq=False)
class Reader:
    """All answers of one function, and its verdict; describes how the function answers a kind of case."""

    seen: Seen
    verdict: Verdict
    digits: int

    def reading(self, here: Seen) -> Reading:
        """Return how some cases are answered."""
        case = here[0][0]
        if case.rung == EMPTY_ROWS:
            return Reading(f"gives {without_keys(here[0])}")
        for applies, words, change in READINGS:
            if applies(case) and self.gives(here, change):
                return Reading(words, blind=self.blind_rows(here, change))
        if is_right(list(here), self.digits):
            return Reading(FOLLOWS)
        if self.verdict.mistakes and self.verdict.is_wrong:
            return self.named(here)
        return self.found

    def named(self, here: Seen) -> Reading:
        """Return the mistake of its verdict, or another one that reproduces these cases."""
        held = [pair for pair in self.seen if pair[1].output is not None and is_right([pair], self.digits)]
        fits = Answers([*here, *held], self.digits, self.digits).single_that_fit()
        found = best(fits)
        if found is None or any(set(fit.names) <= set(self.verdict.mistakes) for fit in fits):
            return Reading(f"computes {self.verdict.computes.rstrip('.')}")
        return Reading(f"computes {what_mistakes_compute(found.names).rstrip('.')}")

    def gives(self, here: Seen, change: Callable[[Case], Recipe]) -> bool:
        """Return whether a reading reproduces some answers; queries that see no key are ignored."""
        for case, answer in here:
            stages = predicted(change(case), case.given)
            if answer.output is None or stages is None or answer.output.shape != stages["output"].shape:
                return False
            rows = {**stages, "output": without_blind(stages["output"], stages)}
            if differs(without_blind(answer.output, stages), rows, self.digits):
                return False
        return True

    def blind_rows(self, here: Seen, change: Callable[[Case], Recipe]) -> str:
        """Describe the output of queries that see no key under this reading, if there are any."""
        for case, answer in here:
            stages = predicted(change(case), case.given)
            if stages is not None and blind(stages["masked"]).any():
                return (
                    f", with {without_keys((replace(case, recipe=change(case)), answer))} for queries that see no key"
                )
        return ""

    @cached_property
    def found(self) -> Reading:
        """What explains all its wrong answers if its verdict names no mistake."""
        lost = [pair for pair in self.seen if pair[1].output is not None and not is_right([pair], self.digits)]
        held = [pair for pair in self.seen if not any(pair is other for other in lost)]
        answers = Answers([*lost, *held], self.digits, self.digits)
        if self.verdict.is_wrong:  # its check found no mistake, so only a setting is left
            setting = answers.setting_that_fits()
            return Reading(f"computes {what_a_setting_computes(setting.setting)}") if setting else UNKNOWN
        found = explained(answers)
        if found.names:
            return Reading(f"computes {what_mistakes_compute(found.names).rstrip('.')}")
        return Reading(f"computes {what_a_setting_computes(found.setting)}") if found.setting else UNKNOWN


def without_keys(pair: tuple[Case, Answer]) -> str:
    """Describe the output of the first query that sees no key: zeros, equal weights, or the unmasked output."""
    case, answer = pair
    assert answer.output is not None
    stages = expected(case)
    place = int(np.argmax(blind(stages["masked"])[0, 0]))
    row = answer.output[..., place, :]
    if np.isnan(row).any():
        return "NaN"
    recipe = case.recipe.with_rules(masks=())
    for said, other in (
        ("zeros", stages),
        ("the mean of all values", predicted(recipe.with_rules(scale=0.0, scores=()), case.given)),
        ("what it would without a mask", predicted(recipe, case.given)),
    ):
        right = None if other is None else other["output"][..., place, :]
        if right is not None and right.shape == row.shape and np.allclose(row, right, rtol=0, atol=1e-3):
            return said
    return "other numbers"


def with_offset(case: Case, offset: int) -> Recipe:
    """Return the recipe with the first query at another position among the keys."""
    return case.recipe.with_rules(offset=offset)


def shares(case: Case) -> bool:
    """Return whether there are several key/value heads, each shared by query heads."""
    return case.recipe.groups not in (1, case.recipe.heads)


READINGS: tuple[tuple[Callable[[Case], bool], str, Callable[[Case], Recipe]], ...] = (
    (aligned, "aligns causal masks top left", lambda case: with_offset(case, 0)),
    (aligned, "aligns causal masks bottom right", lambda case: with_offset(case, at_of(case).keys - at_of(case).rows)),
    (shares, "gives neighbouring heads the same keys", everywhere(lambda recipe: replace(recipe, share=share))),
    (shares, "gives keys to heads in turns", everywhere(lambda recipe: replace(recipe, share=share_in_turns))),
)
"""Conventions for ambiguous cases: when each applies, its description, and what it computes."""


# The first stage that differs, for functions of q, k and v


def first_stage(callers: tuple[Caller, Caller], case: Case, names: tuple[str, str], digits: int) -> str:
    """Describe which stage of two functions differs first, reading the weights with v = identity."""
    one, other = (weights_of(caller, case) for caller in callers)
    if one is None or other is None or one.shape != other.shape:
        return "No known name explains it"
    for name, caller, made in zip(names, callers, (one, other), strict=True):
        if not is_product(caller, case, made):
            return (
                f"The answer of {name} is not its weights times the values: something else is added, or mixed into it"
            )
    room = max(2.0 ** (6 - digits), 1e-9)
    if np.allclose(one, other, rtol=0, atol=room, equal_nan=True):
        return "Their weights are the same: they differ in how the values are used"
    return "The first stage that differs is the weights: " + "; ".join(how_weights_differ(one, other, names))


def how_weights_differ(one: Array, other: Array, names: tuple[str, str]) -> Iterator[str]:
    """Yield how two arrays of weights are related."""
    sums = [weights.sum(axis=-1) for weights in (one, other)]
    for name, total in zip(names, sums, strict=True):
        if not np.allclose(total, 1.0, atol=1e-4):
            yield f"those of {name} sum to {span(total)} for a query"
    shown = (one > LEAST) & (other > LEAST)
    hidden = [int((weights == 0.0).sum()) for weights in (one, other)]
    if hidden[0] != hidden[1] or not shown.any():
        yield f"{names[0]} gives no weight to {hidden[0]} places of {one.size}, {names[1]} to {hidden[1]}"
        return
    logits = [np.log(np.where(shown, weights, 1.0)) for weights in (one, other)]
    counts = shown.sum(axis=-1, keepdims=True)
    logits = [np.where(shown, logit - logit.sum(axis=-1, keepdims=True) / np.maximum(counts, 1), 0) for logit in logits]
    factor = float((logits[0] * logits[1]).sum() / max((logits[1] ** 2).sum(), 1e-30))
    if np.allclose(logits[0], factor * logits[1], atol=1e-3 * max(float(np.abs(logits[0]).max()), 1e-30)):
        same = np.isclose(factor, 1.0, atol=1e-3)
        said = f"the logits of {names[1]} are {1 / factor if factor else np.inf:.4g} times those of {names[0]}"
        yield "but for their sums they are the same" if same else said
    else:
        yield f"they differ by up to {np.abs(one - other).max():.2g}, not by a constant factor"


LEAST = 1e-12
"""Smaller weights count as zero: their logits are lost."""


def span(numbers: Array) -> str:
    """Format the minimum and maximum, or one number if all are equal."""
    least, most = float(np.min(numbers)), float(np.max(numbers))
    return f"{most:.4g}" if np.isclose(least, most, rtol=1e-3) else f"{least:.4g} to {most:.4g}"
