"""Compare two implementations: where they agree, where they first differ, and why.

Each is first checked against the definition, so that its mistakes are known. Then both run the same cases, each with
its own library, layout, argument names and mask convention. `parting.py` explains where their answers differ.
Modules get the same weights. If weights cannot be exchanged, or one function takes q, k, v and the other x, each is
compared with the definition on its own input.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from time import perf_counter

import numpy as np

from attn_exp.diagnosis.asking.case import Case
from attn_exp.diagnosis.asking.offer import WIDE, Offer, at_of, axes, has_batch, has_heads, is_joined
from attn_exp.diagnosis.asking.questions import HeadsMaker, LayerMaker, core_cases, layer_cases
from attn_exp.diagnosis.asking.request import Request, with_words
from attn_exp.diagnosis.calling import conventions, ways_to_call
from attn_exp.diagnosis.calling.behaviour import masked
from attn_exp.diagnosis.calling.call import Bound, Caller
from attn_exp.diagnosis.explaining.answers import SINGLE
from attn_exp.diagnosis.explaining.smallest import MOST_CALLS, as_python, small_case, smaller
from attn_exp.diagnosis.judging.check import check
from attn_exp.diagnosis.judging.check_layer import bind_readable_layer, is_layer
from attn_exp.diagnosis.judging.parting import EMPTY_ROWS, FOLLOWS, Pair, compare_traces, find_causes
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
from attn_exp.rules.masks.causal import Causal

OFFERS = {"mask": "a mask", "added": "an additive bias", "padding": "a padding mask",
          "lengths": "lengths", "causal": "a causal flag", "window": "a window", "scale": "a scale",
          "softcap": "a logit cap", "alibi": "ALiBi slopes", "sinks": "sinks", "W_o": "W_o",
          "b_q": "biases"}  # fmt: skip
"""How the report names an argument that only one of the two functions takes."""
OWN = ("convention", "layout", "dtype", "takes", "device")
"""Settings that describe a function's input format, not what it computes; the two functions may differ in these."""
BY_MASK = ("causal", "window", "padding", "lengths")
"""Roles that a mask can replace if a function has no argument for them."""


@dataclass(frozen=True, eq=False)
class Implementation:
    """One of the two functions: its name, its verdict, and how to call it.

    `rules` are settings that the user did not request, but under which the function is right.
    """

    own: OwnFunction
    name: str
    verdict: Verdict
    function: Bound
    caller: Caller

    @property
    def rules(self) -> list[str]:
        return [word for word in self.verdict.right_under.split() if word.partition("=")[0] not in OWN]

    def takes(self, role: str) -> bool:
        offer = self.caller.offer
        return offer.takes(role) or (role in BY_MASK and offer.takes("mask"))


Both = tuple[Implementation, Implementation]


def against(one: OwnFunction, other: OwnFunction, request: Request, quick: bool = False) -> Verdict:
    """Run the same cases on two functions; return where they agree and what makes them differ.

    Raises:
        UserError: the arguments of a function are unknown, or a setting does not apply to it.
    """
    start, names = perf_counter(), distinct_names(one, other)
    functions, verdicts = (copy_module(one), copy_module(other)), list[Verdict]()
    for own, name in zip(functions, names, strict=True):
        verdicts.append(check(own, request, quick))
        if verdicts[-1].uncalled:
            return replace(verdicts[-1], name=name)
    with held(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        silent = [
            f"{name} gives no answer: {verdict.computes.rstrip('.')}"
            for name, verdict in zip(names, verdicts, strict=True)
            if has_no_answer(verdict)
        ]
        if silent:
            reason = f"{'. '.join(silent)}."
            verdict = decide(replace(conclude(names, verdicts, request, [], []), computes=reason), (), reason)
        else:
            verdict = compare(functions, names, verdicts, request, quick)
    return replace(verdict, seconds=perf_counter() - start)


def distinct_names(one: OwnFunction, other: OwnFunction) -> tuple[str, str]:
    targets = [own.target or f"{own.file}:{own.name}" for own in (one, other)]
    for first, second in ((one.name, other.name), targets):
        if first != second:
            return first, second
    return f"{one.name} (first)", f"{other.name} (second)"


def copy_module(own: OwnFunction) -> OwnFunction:
    """Copy a module instance, so that weights can be written into it; return other functions unchanged."""
    if not hasattr(own.function, "state_dict") or inspect.isclass(own.function):
        return own
    return replace(own, function=copy.deepcopy(own.function))


def has_no_answer(verdict: Verdict) -> bool:
    return any((one.rung, one.state) == (ANSWERED, BROKEN) or one.state == NOT_VERIFIED for one in verdict.findings)


# The same cases and weights for both


def find_calls(
    functions: Sequence[OwnFunction], names: Sequence[str], verdicts: Sequence[Verdict], common: Request
) -> Both:
    made = list[Implementation]()
    for own, name, verdict in zip(functions, names, verdicts, strict=True):
        words = [word for word in verdict.right_under.split() if word.partition("=")[0] in OWN]
        request = with_words(common, " ".join(words)) if words else common
        tried = ways_to_call.how_to_call(
            own, request, bind_readable_layer(own, request) if is_layer(own.function) else None
        )
        made.append(
            Implementation(own, name, verdict, tried.function, conventions.with_its_mask(tried.caller, tried.function))
        )
    return made[0], made[1]


def common_request(both: Both, request: Request) -> Request:
    """Return the request for both functions: the user's settings, plus the rules under which one function is right.

    The rules are added only if both functions follow them or take them as arguments.
    """
    words = list(dict.fromkeys([*both[0].rules, *both[1].rules]))
    if not words or any(word.partition("=")[0].split(".")[0] in request.said for word in words):
        return request
    told = all(set(words) <= {*side.rules} or (words == ["mask=causal"] and side.takes("causal")) for side in both)
    return with_words(request, " ".join(words)) if told else request


def share_weights(both: Both) -> str | None:
    """Copy the first module's weights to the second, and return a phrase for the report.

    The phrase is empty if the functions have no weights; None means that they cannot run the same cases.
    """
    first, second = (side.function for side in both)
    alike = both[0].caller.offer.core == both[1].caller.offer.core
    if not alike or (first.inside is None) != (second.inside is None):
        return None
    if first.inside is None:
        return ""
    with suppress(RuntimeError, ValueError, AttributeError):  # names or shapes differ, or not PyTorch modules
        if parameters := first.origin.state_dict():  # a module in a plain list has none
            second.origin.load_state_dict(parameters)
            return f"with the parameters of {both[0].name} in both"
    return None


def ask_both(both: Both, common: Request, quick: bool) -> Iterator[Pair]:
    for asked in cases_of_both(both, common, quick):
        case = ways_to_call.rounded(ways_to_call.rounded(asked, both[0].caller), both[1].caller)
        if not any(ways_to_call.is_beyond_dtype(side.caller, case) for side in both):
            answers = (both[0].caller(case), both[1].caller(case))
            bits = [ways_to_call.digits_of(side.caller, answer) for side, answer in zip(both, answers, strict=True)]
            pair = Pair(case, answers, min(bits))
            yield from () if pair.silent else (pair,)


def cases_of_both(both: Both, common: Request, quick: bool) -> Iterator[Case]:
    offer, layout, inside = joint_offer(both), joint_layout(both), both[0].function.inside
    if not offer.core:
        yield from layer_cases(common, offer, quick, inside)
        if offer.takes("mask"):
            yield hide_one_row(LayerMaker(common, offer, inside).case(EMPTY_ROWS, 6, 6))
        return
    asked = list(core_cases(common, offer, layout, quick))
    yield from asked
    maker = HeadsMaker(common, offer, layout, layout, one_size=0)
    align = all(side.caller.offer.takes("causal") or not side.caller.offer.takes("mask") for side in both)
    if (common.is_causal or offer.takes("causal")) and align:
        masks = common.masks if common.is_causal else (*common.masks, Causal())
        for rows, keys in ((5, 9), (9, 5)):
            yield maker.case("causal, unequal lengths", rows, keys, masks=masks, optional=True)
    if maker.heads > 1 and common.kv_head is None and not any(case.rung == "shared heads" for case in asked):
        yield maker.case("shared heads", 7, 7, groups=2, optional=True)
    if offer.takes("mask"):
        yield hide_one_row(maker.case(EMPTY_ROWS, 6, 6))


def hide_one_row(case: Case) -> Case:
    sizes = at_of(case)
    seen = np.ones((sizes.rows, sizes.keys), np.bool_)
    seen[sizes.rows // 2] = False
    return replace(masked(case, seen), optional=True)


def joint_offer(both: Both) -> Offer:
    first, second = both
    offer, more = first.caller.offer, second.caller.offer.parameters
    roles = {role: name for role, name in offer.parameters.items() if second.takes(role)}
    roles |= {role: name for role, name in more.items() if role not in roles and first.takes(role)}
    return replace(offer, parameters=roles, positional=(), defaults={})


def joint_layout(both: Both) -> str:
    layouts = [side.caller.layout for side in both]
    if all(map(is_joined, layouts)):
        return WIDE
    with_batch, with_heads = all(map(has_batch, layouts)), all(map(has_heads, layouts))
    return ("bhtd" if with_heads else "btd") if with_batch else "htd" if with_heads else "td"


# The comparison


def compare(
    functions: Sequence[OwnFunction], names: tuple[str, str], verdicts: Sequence[Verdict], request: Request, quick: bool
) -> Verdict:
    both = find_calls(functions, names, verdicts, request)
    common = common_request(both, request)
    both = both if common is request else find_calls(functions, names, verdicts, common)
    how = share_weights(both)
    if how is None:
        return compare_by_definition(both, request)
    pairs = list(ask_both(both, common, quick))
    digits, rounding = bits_to_judge_by(pairs)
    parted = [pair for pair in pairs if pair.part(digits)]
    found, callers = differing_rules(both), [side.caller for side in both]
    if found and common is not request and not parted:
        found.append(f"With {' '.join(sorted(common.typed))} they agree")
    if both[0].rules != both[1].rules and common is request:
        parted = []  # one follows a rule unprompted that the other does not take
    elif parted and how and parted[0] is pairs[0] and not any(map(is_unlike_definition, verdicts)):
        found.append(f"Each is right with its own matrices, but not {how}: the two order their matrices differently")
    else:
        found += find_causes(parted, verdicts, names, digits)
    found += filter(None, [compare_traces(callers, parted[0].case, names)] if parted else ())
    findings = [
        Finding(CALLED, HELD, "; ".join(filter(None, (*map(describe_call, both), how)))),
        *findings_of(pairs, parted, names),
        *([Finding("rounding", REMARK if digits == SINGLE else HELD, rounding)] if rounding else []),
        *offered_by_one(both),
    ]
    lost = parted or [pair for pair in pairs if pair.part(digits)]
    small = smallest_of_both(both, lost, digits) if lost else None
    required = [pair for pair in pairs if not (pair.both or pair.case.optional)]
    alone = tuple(
        dict.fromkeys(f"{one.case.rung} (only {names[one.answers[0].output is None]} answers)" for one in required)
    )
    alone = alone if any(pair.both for pair in pairs) else ("every case (none was answered by both)",)
    return decide(conclude(names, verdicts, request, found, findings, small), alone)


def is_unlike_definition(verdict: Verdict) -> bool:
    return verdict.is_wrong and not verdict.right_under


def bits_to_judge_by(pairs: Sequence[Pair]) -> tuple[int, str]:
    """Return how many bits of the answers to compare, and a note on rounding.

    If the first case shows that one of the two functions computes in float32, all answers are compared at that
    precision.
    """
    answered = [pair for pair in pairs if pair.both]
    own = min((pair.digits for pair in answered), default=53)
    is_single = own > SINGLE and answered and not answered[0].part(SINGLE)
    digits = SINGLE if is_single and any(pair.part(own) and not pair.part(SINGLE) for pair in answered) else own
    units = max((pair.gap for pair in answered if not pair.part(digits)), default=0.0) * 2.0 ** (digits - 1)
    if digits == own:
        return own, f"within {units:.2g} units in the last place" if answered else ""
    return digits, f"differing by up to {units:.2g} ulp of float32, the dtype in which one of them computes"


def differing_rules(both: Both) -> list[str]:
    """Describe known differences: rules that only one function follows, and opposite mask polarity."""
    made, rules = list[str](), [" ".join(side.rules) for side in both]
    if rules[0] != rules[1]:
        said = [
            f"{side.name} follows {rule} unprompted" if rule else f"{side.name} does not"
            for side, rule in sorted(zip(both, rules, strict=True), key=lambda pair: not pair[1])
        ]
        made.append(", ".join(said))
    turned = [side for side in both if not side.verdict.passed and "convention=" in side.verdict.right_under]
    if len(turned) == 1:
        name, words = turned[0].name, turned[0].verdict.right_under
        made.append(f"The masks of {name} have the opposite polarity ({words}); they were inverted before each call")
    return made


def describe_call(side: Implementation) -> str:
    caller = side.caller
    what = f"q, k, v [{axes(caller.layout)}]" if caller.offer.core else "x"
    more = filter(None, (caller.offer.said, caller.library.name, caller.dtype, str(caller.masking)))
    under = f", under {side.verdict.right_under}" if side.verdict.right_under else ""
    return f"{side.name} with {', '.join((what, *more))}{under}"


def findings_of(pairs: Sequence[Pair], parted: Sequence[Pair], names: tuple[str, str]) -> Iterator[Finding]:
    for rung in dict.fromkeys(pair.case.rung for pair in pairs):
        bad = [pair for pair in parted if pair.case.rung == rung]
        alone = [pair for pair in pairs if pair.case.rung == rung and not pair.both]
        if bad:
            yield Finding(rung, BROKEN, bad[0].how_far())
        elif alone:
            mute = int(alone[0].answers[1].output is None)
            error = "" if alone[0].case.optional else f"; {names[mute]}: {alone[0].answers[mute].error}"
            yield Finding(rung, ABSENT, f"only {names[1 - mute]} answers{error}")
        else:
            yield Finding(rung, HELD)


def offered_by_one(both: Both) -> Iterator[Finding]:
    for role, words in OFFERS.items():
        takers = [side for side in both if side.caller.offer.takes(role)]
        if len(takers) == 1:
            word = takers[0].caller.offer.parameters[role]
            yield Finding(words, ABSENT, f"only {takers[0].name} takes {words} ({word})")


def compare_by_definition(both: Both, request: Request) -> Verdict:
    names, verdicts = (both[0].name, both[1].name), [side.verdict for side in both]
    first, second = ({one.rung: one.state for one in verdict.findings} for verdict in verdicts)
    alike = both[0].caller.offer.core == both[1].caller.offer.core
    why = "their matrices cannot be exchanged" if alike else "one takes q, k, v and the other x"
    findings = [Finding("the same input", ABSENT, f"{why}: each is compared with the definition on its own input")]
    for rung in first:
        states = [first[rung], second.get(rung, "")]
        if states[0] == states[1] and states[0] in (HELD, BROKEN):
            findings.append(Finding(rung, HELD, "" if states[0] == HELD else "neither follows the definition"))
        elif set(states) == {HELD, BROKEN}:
            findings.append(Finding(rung, BROKEN, f"{names[states.index(BROKEN)]} does not follow the definition"))
    found, wrong = differing_rules(both), [is_unlike_definition(verdict) for verdict in verdicts]
    if any(wrong) and (not all(wrong) or verdicts[0].mistakes != verdicts[1].mistakes or not verdicts[0].mistakes):
        said = [f"computes {one.computes.rstrip('.')}" if bad else FOLLOWS
                for one, bad in zip(verdicts, wrong, strict=True)]  # fmt: skip
        found.append(f"{names[0]} {said[0]}; {names[1]} {said[1]}")
    alone = () if all(verdict.outcome == RIGHT for verdict in verdicts) else (f"the same input ({why})",)
    return decide(conclude(names, verdicts, request, found, findings), alone)


def conclude(
    names: tuple[str, str], verdicts: Sequence[Verdict], request: Request, found: Sequence[str],
    findings: Sequence[Finding], small: tuple[Smallest, Smallest] | None = None,
) -> Verdict:  # fmt: skip
    first, second = verdicts
    is_shared = not found and first.mistakes == second.mistakes and first.is_wrong
    agree = "They agree on all cases that both answered"
    agree += f"; both compute {first.computes}" if is_shared else ""
    said = ". ".join(one.rstrip(".") for one in found) or agree
    mistakes = dict.fromkeys(name for one in verdicts if one.is_wrong for name in one.mistakes) if found else ()
    sides = tuple(
        Side(name, verdict.outcome, verdict.computes, verdict.mistakes, verdict.right_under, one)
        for name, verdict, one in zip(names, verdicts, small or (None, None), strict=True)
    )
    return Verdict(
        names[0], not found, tuple(mistakes), said, tuple(findings), request.words, against=names[1], sides=sides
    )


def smallest_of_both(both: Both, parted: Sequence[Pair], digits: int) -> tuple[Smallest, Smallest] | None:
    first, second = both
    if first.function.inside is not None:
        return None
    for small in islice(small_cases(parted[0].case, first.caller), MOST_CALLS):
        answers = (first.caller(small), second.caller(small))
        if Pair(small, answers, min(digits, 20)).part(digits):
            return as_python(first.own, first.caller, small, answers[0]), as_python(
                second.own, second.caller, small, answers[1]
            )
    return None


def small_cases(case: Case, caller: Caller) -> Iterator[Case]:
    if case.rung == EMPTY_ROWS:
        small = small_case(case, (1, 1, 2, 2, 1), caller.request, 1)
        yield masked(small, np.array([[True, True], [False, False]]))
    yield from smaller(case, caller)
