"""Compare two implementations: where they agree, where they first differ, and why.

Each is first checked against the definition; that names its mistakes. Then both run the same cases, each with its own
library, layout, argument names and mask convention. `parting.py` explains the differences between their answers.
Modules get the same weights (`both.exchanged`); if weights cannot be exchanged, or one takes q, k, v and the other x,
each is compared with the definition on its own input.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter

import numpy as np

from attn_exp.diagnosis.asking.case import Case
from attn_exp.diagnosis.asking.layouts import axes
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.calling.behaviour import leak, masked
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.explaining.answers import SINGLE
from attn_exp.diagnosis.explaining.smallest import MOST_CALLS, as_python, small_case, smaller
from attn_exp.diagnosis.judging.check import check
from attn_exp.diagnosis.judging.judge_answers import Tell
from attn_exp.diagnosis.pairs.both import (
    Asked,
    Both,
    asked_of_both,
    called,
    common_request,
    matrices_of_both,
    names_of,
    rules_of,
)
from attn_exp.diagnosis.pairs.parting import EMPTY_ROWS, FOLLOWS, Cause, Pair, causes, first_stage
from attn_exp.diagnosis.pairs.traces import compare_traces
from attn_exp.errors import NOT_VERIFIED, RIGHT
from attn_exp.experiment.verdict import (
    ABSENT,
    ANSWERED,
    BROKEN,
    CALLED,
    HELD,
    REMARK,
    Finding,
    Side,
    Smallest,
    Verdict,
    decide,
)
from attn_exp.own_code import OwnFunction, held

OFFERS = {"mask": "a mask", "added": "numbers to add to the logits", "padding": "a mask of filler",
          "lengths": "lengths", "causal": "a word for causal", "window": "a window", "scale": "a scale",
          "softcap": "a cap of the logits", "alibi": "slopes", "sinks": "sinks", "W_o": "W_o",
          "b_q": "biases"}  # fmt: skip
"""Arguments that only one of the two may take, in words for the user."""


def against(
    one: OwnFunction, other: OwnFunction, request: Request, quick: bool = False, tell: Tell = lambda rung: None
) -> Verdict:
    """Run the same cases on two functions; return where they agree and what makes them differ.

    Raises:
        UserError: what one of them takes is not known, or a setting does not apply to it.
    """
    start = perf_counter()
    names = two_names(one, other)
    asked = []
    for own, name in zip((apart(one), apart(other)), names, strict=True):
        verdict = check(own, request, quick, partial(told_of, tell, name))
        if verdict.uncalled:
            return replace(verdict, name=name)
        asked.append(Asked(own, name, verdict))
    with held(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        verdict = of_both((asked[0], asked[1]), request, quick, tell)
    return replace(verdict, seconds=perf_counter() - start)


def told_of(tell: Tell, name: str, rung: str) -> None:
    """Report progress, with the name of the function being checked."""
    tell(f"{name}, {rung}" if rung else "")


def two_names(one: OwnFunction, other: OwnFunction) -> tuple[str, str]:
    """Return a distinct name for each: the function's name, with its file or number if needed."""
    long = [own.target or f"{own.file}:{own.name}" for own in (one, other)]
    short = [f"{target.rpartition(':')[0].replace(chr(92), '/').rpartition('/')[2]}:{own.name}"
             for own, target in zip((one, other), long, strict=True)]  # fmt: skip
    for first, second in ((one.name, other.name), (short[0], short[1]), (long[0], long[1])):
        if first != second:
            return first, second
    return f"{one.name} (first)", f"{other.name} (second)"


def apart(own: OwnFunction) -> OwnFunction:
    """Copy a module instance, so that weights can be written into it; return other functions unchanged."""
    if not hasattr(own.function, "state_dict") or inspect.isclass(own.function):
        return own
    return replace(own, function=copy.deepcopy(own.function))


def of_both(both: Both, request: Request, quick: bool, tell: Tell) -> Verdict:
    """Compare two functions that have been checked."""
    silent = [side for side in both if has_no_answer(side.verdict)]
    if silent:
        said = ". ".join(f"{side.name} gives no answer: {side.verdict.computes.rstrip('.')}" for side in silent)
        return verdict_of(both, request, [], [], None, reason=f"{said}.")
    tell("both, the same questions")
    first, second = (called(side, request) for side in both)
    common = common_request((first, second), request)
    if common is not request:
        first, second = (called(side, common) for side in both)
    same = matrices_of_both(first, second)
    if same is None:
        return by_definition((first, second), request)
    both, how = same
    pairs, parted, digits, rounding = compared(both, common, quick)
    names, verdicts = names_of(both), (both[0].verdict, both[1].verdict)
    found = by_themselves(both)
    if found and common is not request and not parted:
        found.append(Cause((), f"Asked under {' '.join(sorted(common.typed))} they agree", known=True))
    if rules_of(both[0]) != rules_of(both[1]) and common is request:
        parted = []  # one follows a rule unprompted that the other cannot be asked for
    elif plain_part(parted, pairs) and how and not any(map(is_unlike_definition, verdicts)):
        said = f"Each is right with its own matrices, but not {how}: they read them in another order"
        found.append(Cause(tuple({pair.case.rung: 0 for pair in parted}), said, known=True))
    else:
        found += causes(parted, pairs, verdicts, names, digits)
    said = compare_traces((both[0].called, both[1].called), parted[0].case, names) if parted else ""
    found += [Cause((), said)] if said else []
    if parted and not any(cause.known for cause in found):
        found.append(Cause((), first_stage((both[0].called, both[1].called), parted[0].case, names, digits)))
    findings = [Finding(CALLED, HELD, said_of_calls(both, how)), *findings_of(pairs, parted, names, digits, rounding)]
    findings += [*only_one_offers(both), *nan_behind_a_mask(both, pairs)]
    tell("the smallest input on which they differ")
    lost = parted or [pair for pair in pairs if pair.part(digits)]
    small = smallest_of_both(both, lost, digits) if lost else None
    tell("")
    return verdict_of(both, request, found, findings, small, alone=answered_by_one(pairs, names))


def answered_by_one(pairs: Sequence[Pair], names: tuple[str, str]) -> tuple[str, ...]:
    """Return the required cases that only one function answered."""
    alone = {pair.case.rung: pair.answers[1].output is None for pair in pairs if not (pair.both or pair.case.optional)}
    if not any(pair.both for pair in pairs):
        return ("every question (there is none that both answered)",)
    return tuple(f"{rung} (only {names[not is_first]} answers)" for rung, is_first in alone.items())


def is_unlike_definition(verdict: Verdict) -> bool:
    """Return whether a function is wrong, and not right under other settings either."""
    return verdict.is_wrong and not verdict.right_under


def compared(both: Both, common: Request, quick: bool) -> tuple[list[Pair], list[Pair], int, str]:
    """Return the cases that any of the two answered, those on which they differ, bits compared, and a rounding note."""
    pairs = [pair for pair in asked_of_both(both, common, quick) if not pair.silent]
    digits, rounding = bits_to_judge_by(pairs)
    return pairs, [pair for pair in pairs if pair.part(digits)], digits, rounding


def plain_part(parted: Sequence[Pair], pairs: Sequence[Pair]) -> bool:
    """Return whether the two differ on the plainest case."""
    return bool(parted) and parted[0].case.rung == pairs[0].case.rung


def bits_to_judge_by(pairs: Sequence[Pair]) -> tuple[int, str]:
    """Return to how many bits the answers are compared, and a note on rounding.

    If plain cases show that one of the two computes in float32, all are compared to the bits of float32.
    """
    own = min((pair.digits for pair in pairs if pair.both), default=53)
    first = next((pair for pair in pairs if pair.both), None)
    if first is None:
        return own, ""
    if own <= SINGLE or first.part(SINGLE) or not any(pair.part(own) and not pair.part(SINGLE) for pair in pairs):
        gaps = [pair.gap for pair in pairs if pair.gap is not None and not pair.part(own)]
        return own, f"within {max(gaps, default=0.0) * 2.0 ** (own - 1):.2g} units in the last place"
    gaps = [pair.gap for pair in pairs if pair.gap is not None and not pair.part(SINGLE)]
    units = f"{max(gaps) * 2.0 ** (SINGLE - 1):.2g} units of float32"
    return SINGLE, f"apart by up to {max(gaps):.1g} of the largest number: {units}, in which one of them computes"


# What the report says


def by_themselves(both: Both) -> list[Cause]:
    """Return differences that need no cases: a rule that only one follows, or opposite mask polarity."""
    made = list[Cause]()
    rules = [" ".join(rules_of(side)) for side in both]
    if rules[0] != rules[1]:
        said = [
            f"{side.name} is right under {rule} without being told" if rule else f"{side.name} is not"
            for side, rule in sorted(zip(both, rules, strict=True), key=lambda pair: not pair[1])
        ]
        made.append(Cause(("values",), ", ".join(said), known=True))
    turned = [side for side in both if not side.verdict.passed and "convention=" in side.verdict.right_under]
    if len(turned) == 1:
        name, words = turned[0].name, turned[0].verdict.right_under
        said_of_masks = f"The masks of {name} mean the opposite, as {words} has them; it was given such"
        made.append(Cause(("masks",), said_of_masks, known=True))
    return made


def differently_given(both: Both) -> bool:
    """Return whether the two get different extra arguments or differently packed arrays."""
    return all(side.caller for side in both) and len({side.called.offer.said for side in both}) > 1


def has_no_answer(verdict: Verdict) -> bool:
    """Return whether a function answered nothing, or its check ended early."""
    return any((one.rung, one.state) == (ANSWERED, BROKEN) or one.state == NOT_VERIFIED for one in verdict.findings)


def said_of_calls(both: Both, how: str) -> str:
    """Describe how each is called."""
    said = []
    for side in both:
        caller = side.called
        what = f"q, k, v [{axes(caller.layout)}]" if caller.offer.core else "x"
        masks = f", {caller.masking}" if str(caller.masking) else ""
        own = f", under {side.verdict.right_under}" if side.verdict.right_under else ""
        what += f", {caller.offer.said}" if caller.offer.said else ""
        said.append(f"{side.name} with {what}, {caller.library.name}, {caller.dtype}{masks}{own}")
    return "; ".join([*said, *([how] if how else [])])


def findings_of(
    pairs: Sequence[Pair], parted: Sequence[Pair], names: tuple[str, str], digits: int, rounding: str
) -> Iterator[Finding]:
    """Yield a finding for each kind of case."""
    lost = {pair.case for pair in parted}
    for rung in dict.fromkeys(pair.case.rung for pair in pairs):
        questions = [pair for pair in pairs if pair.case.rung == rung]
        bad = [pair for pair in questions if pair.case in lost]
        alone = [pair for pair in questions if not pair.both]
        if bad:
            yield Finding(rung, BROKEN, bad[0].how_far())
        elif alone:
            mute = int(alone[0].answers[1].output is None)
            error = "" if alone[0].case.optional else f"; {names[mute]}: {alone[0].answers[mute].error}"
            yield Finding(rung, ABSENT, f"only {names[1 - mute]} answers{error}")
        else:
            yield Finding(rung, HELD)
    if rounding:
        yield Finding("rounding", REMARK if digits == SINGLE else HELD, rounding)


def only_one_offers(both: Both) -> Iterator[Finding]:
    """Yield the arguments that only one of the two takes."""
    for role, words in OFFERS.items():
        takers = [side for side in both if side.called.offer.takes(role)]
        if len(takers) == 1:
            word = takers[0].called.offer.parameters[role]
            yield Finding(words, ABSENT, f"only {takers[0].name} takes {words} ({word})")


def nan_behind_a_mask(both: Both, pairs: Sequence[Pair]) -> Iterator[Finding]:
    """Yield a remark if NaN in a hidden value reaches the output of only one of the two."""
    case = pairs[0].case if pairs else None
    if case is None or case.given.q is None or case.given.v is None:
        return
    if not all(side.called.offer.takes("mask") for side in both):
        return
    seen = np.ones((case.given.q.shape[2], case.given.v.shape[2]), np.bool_)
    seen[:, -1] = False
    states = [leak(side.called, masked(case, seen))[0].state for side in both]
    if set(states) == {REMARK, HELD}:
        yield Finding("NaN behind a mask", REMARK, f"it reaches the answer of {both[states.index(REMARK)].name} alone")


def verdict_of(
    both: Both,
    request: Request,
    found: Sequence[Cause],
    findings: Sequence[Finding],
    small: tuple[Smallest, Smallest] | None,
    *,
    alone: tuple[str, ...] = (),
    reason: str = "",
) -> Verdict:
    """Return the verdict on both; `alone` are cases that one answered, `reason` is why nothing was compared."""
    first, second = both
    passed = not found
    shared = passed and first.verdict.mistakes == second.verdict.mistakes and first.verdict.is_wrong
    agree = "They agree on all questions that both answered"
    agree += ", each given its input in its own way" if differently_given(both) else ""
    agree += f"; both compute {first.verdict.computes}" if shared else ""
    said = ". ".join(cause.sentence().rstrip(".") for cause in found) or reason or agree
    names = dict.fromkeys(name for side in both if side.verdict.is_wrong for name in side.verdict.mistakes)
    own = [side.verdict for side in both]
    sides = tuple(
        Side(side.name, verdict.outcome, verdict.computes, verdict.mistakes, verdict.right_under, one)
        for side, verdict, one in zip(both, own, small or (None, None), strict=True)
    )
    return decide(Verdict(
        first.name, passed, () if passed else tuple(names), said, tuple(findings), request.words,
        against=second.name, sides=sides,
    ), alone, reason)  # fmt: skip


def by_definition(both: Both, request: Request) -> Verdict:
    """Compare two functions that cannot run the same cases by their own verdicts."""
    first, second = ({one.rung: one for one in side.verdict.findings} for side in both)
    alike = both[0].called.offer.core == both[1].called.offer.core
    why = "their matrices cannot be exchanged" if alike else "one takes q, k, v and the other x"
    findings = [Finding("the same input", ABSENT, f"{why}: each is held against the definition with its own input")]
    for rung in first:
        states: tuple[str, ...] = (first[rung].state, second[rung].state) if rung in second else ()
        if states in ((HELD, HELD), (BROKEN, BROKEN)):
            findings.append(Finding(rung, HELD, "" if states[0] == HELD else "neither follows the definition"))
        elif set(states) == {HELD, BROKEN}:
            findings.append(Finding(rung, BROKEN, f"{both[states.index(BROKEN)].name} does not follow the definition"))
    found = by_themselves(both)
    wrong = [side for side in both if is_unlike_definition(side.verdict)]
    names = [side.verdict.mistakes for side in both]
    if wrong and (len(wrong) == 1 or names[0] != names[1] or not names[0]):
        words = {side.name: f"computes {side.verdict.computes.rstrip('.')}" for side in wrong}
        said = "; ".join(f"{side.name} {words.get(side.name, FOLLOWS)}" for side in both)
        found.append(Cause((), said, known=True))
    alone = () if all(side.verdict.outcome == RIGHT for side in both) else (f"the same input ({why})",)
    return verdict_of(both, request, found, findings, None, alone=alone)


# The smallest input on which they differ


def smallest_of_both(both: Both, parted: Sequence[Pair], digits: int) -> tuple[Smallest, Smallest] | None:
    """Return the smallest input on which two functions differ, as code to paste for each."""
    first, second = both
    if first.function is None or first.function.inside is not None:
        return None
    case = parted[0].case
    for count, small in enumerate(small_cases(case, first.called)):
        if count > MOST_CALLS:
            break
        answers = (first.called(small), second.called(small))
        if Pair(small, answers, min(digits, 20)).part(digits):
            return (
                as_python(first.own, first.called, small, answers[0]),
                as_python(second.own, second.called, small, answers[1]),
            )
    return None


def small_cases(case: Case, caller: Caller) -> Iterator[Case]:
    """Yield small cases of the same kind, with rows that see no key if the case has such rows."""
    if case.rung == EMPTY_ROWS:
        small = small_case(case, (1, 1, 2, 2, 1), caller.request, 1)
        yield masked(small, np.array([[True, True], [False, False]]))
    yield from smaller(case, caller)
