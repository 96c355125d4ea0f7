"""Compare two implementations: where they agree, where they first differ, and why.

In: two functions and the user's settings. Out: one verdict, such as "They differ under a causal mask, where t and s
differ: a aligns causal masks top left; b follows the definition".

1. `check` compares each with the definition, so that its mistakes are known.
2. `find_calls` finds how to call each: its library, layout, argument names and mask convention.
3. `share_weights` copies the weights of one module to the other.
4. `ask_both` runs the same cases on both, and `parting.py` explains where their answers differ.

Steps 3 and 4 need weights that can be exchanged, and functions that both take q, k and v or both take x. Without these,
each function is compared with the definition on its own input.
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
from attn_exp.diagnosis.asking.offer import WIDE_LAYOUT, Offer, format_axes, has_batch, has_heads, is_joined, setup_of
from attn_exp.diagnosis.asking.questions import HeadsMaker, LayerMaker, core_cases, layer_cases
from attn_exp.diagnosis.asking.request import Request, with_settings
from attn_exp.diagnosis.calling import conventions, ways_to_call
from attn_exp.diagnosis.calling.behaviour import with_mask
from attn_exp.diagnosis.calling.call import Bound, Caller
from attn_exp.diagnosis.explaining.answers import SINGLE
from attn_exp.diagnosis.explaining.smallest import MAX_CALLS, format_call, list_smaller_cases, make_small_case
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
from attn_exp.own_code import OwnFunction, guard_process
from attn_exp.rules.masks.causal import Causal

ARGUMENT_NAMES = {"mask": "a mask", "added": "an additive bias", "padding": "a padding mask",
          "lengths": "lengths", "causal": "a causal flag", "window": "a window", "scale": "a scale",
          "softcap": "a logit cap", "alibi": "ALiBi slopes", "sinks": "sinks", "W_o": "W_o",
          "b_q": "biases"}  # fmt: skip
"""How the report names an argument that only one of the two functions takes."""
FORMAT_SETTINGS = ("convention", "layout", "dtype", "takes", "device")
"""Settings that describe a function's input format, not what it computes; the two functions may differ in these."""
REPLACED_BY_MASK = ("causal", "window", "padding", "lengths")
"""Roles that a mask can replace if a function has no argument for them."""


@dataclass(frozen=True, eq=False)
class Implementation:
    """One of the two functions, with its name in the report, its own verdict, and how to call it."""

    target: OwnFunction
    name: str
    verdict: Verdict
    function: Bound
    caller: Caller

    @property
    def rules(self) -> list[str]:
        """Settings that the user did not request, but under which the function is right, such as `mask=causal`."""
        return [
            setting for setting in self.verdict.right_under.split() if setting.partition("=")[0] not in FORMAT_SETTINGS
        ]

    def takes(self, role: str) -> bool:
        """Return whether the function can be given an argument of this role, perhaps as a mask."""
        offer = self.caller.offer
        return offer.takes(role) or (role in REPLACED_BY_MASK and offer.takes("mask"))


Both = tuple[Implementation, Implementation]


def against(one: OwnFunction, other: OwnFunction, request: Request, quick: bool = False) -> Verdict:
    """Run the same cases on two functions; return where they agree and what makes them differ.

    Raises:
        UserError: the arguments of a function are unknown, or a setting does not apply to it.
    """
    start, names = perf_counter(), choose_names(one, other)
    targets, verdicts = (copy_module(one), copy_module(other)), list[Verdict]()
    for target, name in zip(targets, names, strict=True):
        verdicts.append(check(target, request, quick))
        if verdicts[-1].uncalled:
            return replace(verdicts[-1], name=name)
    silent = [
        f"{name} gives no answer: {verdict.computes.rstrip('.')}"
        for name, verdict in zip(names, verdicts, strict=True)
        if has_no_answer(verdict)
    ]
    if silent:
        reason = f"{'. '.join(silent)}."
        verdict = decide(replace(conclude(names, verdicts, request, [], []), computes=reason), (), reason)
    else:
        with guard_process(), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            verdict = compare(targets, names, verdicts, request, quick)
    return replace(verdict, seconds=perf_counter() - start)


def choose_names(one: OwnFunction, other: OwnFunction) -> tuple[str, str]:
    """Return two distinct names for the report: the function names, else file:function, else with "(first)"."""
    paths = [function.target or f"{function.file}:{function.name}" for function in (one, other)]
    for first, second in ((one.name, other.name), paths):
        if first != second:
            return first, second
    return f"{one.name} (first)", f"{other.name} (second)"


def copy_module(target: OwnFunction) -> OwnFunction:
    """Copy a module instance, so that weights can be written into it; return other functions unchanged."""
    if not hasattr(target.function, "state_dict") or inspect.isclass(target.function):
        return target
    return replace(target, function=copy.deepcopy(target.function))


def has_no_answer(verdict: Verdict) -> bool:
    return any(
        (finding.question, finding.state) == (ANSWERED, BROKEN) or finding.state == NOT_VERIFIED
        for finding in verdict.findings
    )


# The same cases and weights for both


def find_calls(
    targets: Sequence[OwnFunction], names: Sequence[str], verdicts: Sequence[Verdict], common: Request
) -> Both:
    both = list[Implementation]()
    for target, name, verdict in zip(targets, names, verdicts, strict=True):
        formats = [setting for setting in verdict.right_under.split() if setting.partition("=")[0] in FORMAT_SETTINGS]
        request = with_settings(common, " ".join(formats)) if formats else common
        call = ways_to_call.how_to_call(
            target, request, bind_readable_layer(target, request) if is_layer(target.function) else None
        )
        caller = conventions.with_its_mask(call.caller, call.function)
        both.append(Implementation(target, name, verdict, call.function, caller))
    return both[0], both[1]


def choose_common_request(both: Both, request: Request) -> Request:
    """Return the request for both functions: the user's settings, plus the rules under which one function is right.

    The rules are added only if both functions follow them or take them as arguments.
    """
    rules = list(dict.fromkeys([*both[0].rules, *both[1].rules]))
    if not rules or any(rule.partition("=")[0].split(".")[0] in request.names_typed for rule in rules):
        return request
    by_flag = rules == ["mask=causal"]
    can_follow = all(set(rules) <= {*side.rules} or (by_flag and side.takes("causal")) for side in both)
    return with_settings(request, " ".join(rules)) if can_follow else request


def share_weights(both: Both) -> str | None:
    """Copy the first module's weights to the second, and return a phrase for the report.

    The phrase is empty if the functions have no weights; None means that they cannot run the same cases.
    """
    first, second = (side.function for side in both)
    if not takes_same_input(both) or (first.inside is None) != (second.inside is None):
        return None
    if first.inside is None:
        return ""
    with suppress(RuntimeError, ValueError, AttributeError):  # names or shapes differ, or they are not PyTorch modules
        if parameters := first.origin.state_dict():  # a module in a plain list has none
            second.origin.load_state_dict(parameters)
            return f"with the parameters of {both[0].name} in both"
    return None


def takes_same_input(both: Both) -> bool:
    """Return whether both take q, k and v, or both take x."""
    return both[0].caller.offer.core == both[1].caller.offer.core


def ask_both(both: Both, common: Request, quick: bool) -> Iterator[Pair]:
    """Run each case on both, with inputs rounded to both dtypes; yield the cases that at least one answered."""
    for exact_case in make_common_cases(both, common, quick):
        case = ways_to_call.round_inputs(ways_to_call.round_inputs(exact_case, both[0].caller), both[1].caller)
        if not any(ways_to_call.is_beyond_dtype(side.caller, case) for side in both):
            answers = (both[0].caller(case), both[1].caller(case))
            bits = [ways_to_call.digits_of(side.caller, answer) for side, answer in zip(both, answers, strict=True)]
            if any(answer.output is not None for answer in answers):
                yield Pair(case, answers, min(bits))


def make_common_cases(both: Both, common: Request, quick: bool) -> Iterator[Case]:
    offer, layout, inside = join_offers(both), join_layouts(both), both[0].function.inside
    maker: HeadsMaker | LayerMaker
    if offer.core:
        maker = HeadsMaker(common, offer, layout, layout, only_head_size=0)
        questions = list(core_cases(common, offer, layout, quick))
        yield from questions
        yield from make_ambiguous_cases(both, common, maker, {case.question for case in questions})
    else:
        maker = LayerMaker(common, offer, inside)
        yield from layer_cases(common, offer, quick, inside)
    if offer.takes("mask"):
        yield hide_one_row(maker.case(EMPTY_ROWS, 6, 6))


def make_ambiguous_cases(both: Both, common: Request, maker: HeadsMaker, questions: set[str]) -> Iterator[Case]:
    """Yield cases with more than one right answer: how causal masks are aligned, and how key/value heads are shared."""
    can_align = all(side.caller.offer.takes("causal") or not side.caller.offer.takes("mask") for side in both)
    if (common.is_causal or maker.offer.takes("causal")) and can_align:
        masks = common.masks if common.is_causal else (*common.masks, Causal())
        for rows, keys in ((5, 9), (9, 5)):
            yield maker.case("causal, unequal lengths", rows, keys, masks=masks, optional=True)
    if maker.heads > 1 and common.kv_head is None and "shared heads" not in questions:
        yield maker.case("shared heads", 7, 7, groups=2, optional=True)


def hide_one_row(case: Case) -> Case:
    """Return the case with all keys hidden from the middle query."""
    sizes = setup_of(case)
    attends = np.ones((sizes.rows, sizes.keys), np.bool_)
    attends[sizes.rows // 2] = False
    return replace(with_mask(case, attends), optional=True)


def join_offers(both: Both) -> Offer:
    """Return the arguments that cases for both may use: those that both functions take, by name or as a mask."""
    first, second = both
    offer, others = first.caller.offer, second.caller.offer.parameters
    parameters = {role: name for role, name in offer.parameters.items() if second.takes(role)}
    parameters |= {role: name for role, name in others.items() if role not in parameters and first.takes(role)}
    return replace(offer, parameters=parameters, positional=(), defaults={})


def join_layouts(both: Both) -> str:
    """Return the layout of the common cases, which has a batch or heads axis only if both functions have one."""
    layouts = [side.caller.layout for side in both]
    if all(map(is_joined, layouts)):
        return WIDE_LAYOUT
    return f"{'b' * all(map(has_batch, layouts))}{'h' * all(map(has_heads, layouts))}td"


# The comparison


def compare(
    targets: Sequence[OwnFunction], names: tuple[str, str], verdicts: Sequence[Verdict], request: Request, quick: bool
) -> Verdict:
    both = find_calls(targets, names, verdicts, request)
    common = choose_common_request(both, request)
    both = both if common is request else find_calls(targets, names, verdicts, common)
    weights_note = share_weights(both)
    if weights_note is None:
        return compare_by_definition(both, request)
    pairs = list(ask_both(both, common, quick))
    digits, rounding = bits_to_judge_by(pairs)
    differing = [pair for pair in pairs if pair.differ(digits)]
    # a rule that only one of them follows by default explains every difference by itself
    unexplained = [] if both[0].rules != both[1].rules and common is request else differing
    reasons = describe_differing_rules(both)
    if reasons and common is not request and not differing:
        reasons.append(f"With {' '.join(sorted(common.typed))} they agree")
    if unexplained:
        reasons += explain_pairs(both, unexplained, pairs[0], weights_note, digits)
    findings = [
        Finding(CALLED, HELD, "; ".join(filter(None, (*map(describe_call, both), weights_note)))),
        *summarize_pairs(pairs, unexplained, names),
        *([Finding("rounding", REMARK if digits == SINGLE else HELD, rounding)] if rounding else []),
        *list_exclusive_arguments(both),
    ]
    small = find_smallest(both, differing[0].case, digits) if differing else None
    return decide(conclude(names, verdicts, request, reasons, findings, small), list_open_cases(pairs, names))


def explain_pairs(both: Both, differing: Sequence[Pair], first: Pair, weights_note: str, digits: int) -> Iterator[str]:
    names, verdicts = [side.name for side in both], [side.verdict for side in both]
    if weights_note and differing[0] is first and not any(map(is_unlike_definition, verdicts)):
        yield f"Each is right with its own matrices, but not {weights_note}: the two order their matrices differently"
    else:
        yield from find_causes(differing, verdicts, names, digits)
    yield from filter(None, [compare_traces([side.caller for side in both], differing[0].case, names)])


def list_open_cases(pairs: Sequence[Pair], names: tuple[str, str]) -> tuple[str, ...]:
    """Return the required cases that only one function answered, as phrases for the report."""
    if not any(pair.both for pair in pairs):
        return ("every case (none was answered by both)",)
    required = [pair for pair in pairs if not (pair.both or pair.case.optional)]
    return tuple(
        dict.fromkeys(f"{pair.case.question} (only {names[1 - pair.unanswered]} answers)" for pair in required)
    )


def is_unlike_definition(verdict: Verdict) -> bool:
    return verdict.is_wrong and not verdict.right_under


def bits_to_judge_by(pairs: Sequence[Pair]) -> tuple[int, str]:
    """Return how many bits of the answers to compare, and a note on rounding.

    If the first case shows that one of the two functions computes in float32, all answers are compared at that
    precision.
    """
    answered = [pair for pair in pairs if pair.both]
    finest = min((pair.digits for pair in answered), default=53)
    is_single = finest > SINGLE and answered and not answered[0].differ(SINGLE)
    digits = (
        SINGLE if is_single and any(pair.differ(finest) and not pair.differ(SINGLE) for pair in answered) else finest
    )
    units = max((pair.gap for pair in answered if not pair.differ(digits)), default=0.0) * 2.0 ** (digits - 1)
    if digits == finest:
        return finest, f"within {units:.2g} units in the last place" if answered else ""
    return digits, f"differing by up to {units:.2g} ulp of float32, the dtype in which one of them computes"


def describe_differing_rules(both: Both) -> list[str]:
    """Describe known differences: rules that only one function follows, and opposite mask polarity."""
    reasons, rules = list[str](), [(side.name, " ".join(side.rules)) for side in both]
    if both[0].rules != both[1].rules:
        phrases = [
            f"{name} follows {rule} by default" if rule else f"{name} does not"
            for name, rule in sorted(rules, key=lambda pair: not pair[1])  # the one that follows a rule first
        ]
        reasons.append(", ".join(phrases))
    inverted = [side for side in both if not side.verdict.passed and "convention=" in side.verdict.right_under]
    if len(inverted) == 1:
        name, setting = inverted[0].name, inverted[0].verdict.right_under
        reasons.append(
            f"The masks of {name} have the opposite polarity ({setting}); they were inverted before each call"
        )
    return reasons


def describe_call(side: Implementation) -> str:
    caller = side.caller
    inputs = f"q, k, v [{format_axes(caller.layout)}]" if caller.offer.core else "x"
    details = filter(None, (caller.offer.description, caller.library.name, caller.dtype, str(caller.masking)))
    under = f", under {side.verdict.right_under}" if side.verdict.right_under else ""
    return f"{side.name} with {', '.join((inputs, *details))}{under}"


def summarize_pairs(pairs: Sequence[Pair], differing: Sequence[Pair], names: tuple[str, str]) -> Iterator[Finding]:
    """Yield one finding for each kind of case: different, answered by one function only, or equal."""
    for question in dict.fromkeys(pair.case.question for pair in pairs):
        broken = next((pair for pair in differing if pair.case.question == question), None)
        single = next((pair for pair in pairs if pair.case.question == question and not pair.both), None)
        if broken:
            yield Finding(question, BROKEN, broken.describe_gap())
        elif single:
            silent = single.unanswered
            error = "" if single.case.optional else f"; {names[silent]}: {single.answers[silent].error}"
            yield Finding(question, ABSENT, f"only {names[1 - silent]} answers{error}")
        else:
            yield Finding(question, HELD)


def list_exclusive_arguments(both: Both) -> Iterator[Finding]:
    for role, phrase in ARGUMENT_NAMES.items():
        takers = [side for side in both if side.caller.offer.takes(role)]
        if len(takers) == 1:
            parameter = takers[0].caller.offer.parameters[role]
            yield Finding(phrase, ABSENT, f"only {takers[0].name} takes {phrase} ({parameter})")


def compare_by_definition(both: Both, request: Request) -> Verdict:
    """Compare two functions that cannot run the same cases, by their verdicts."""
    names, verdicts = (both[0].name, both[1].name), [side.verdict for side in both]
    why = "their matrices cannot be exchanged" if takes_same_input(both) else "one takes q, k, v and the other x"
    findings = [Finding("the same input", ABSENT, f"{why}, so each is compared with the definition on its own input")]
    reasons = describe_differing_rules(both)
    wrong = [is_unlike_definition(verdict) for verdict in verdicts]
    if any(wrong) and (not all(wrong) or verdicts[0].mistakes != verdicts[1].mistakes or not verdicts[0].mistakes):
        phrases = [
            f"{name} computes {verdict.computes.rstrip('.')}" if is_wrong else f"{name} {FOLLOWS}"
            for name, verdict, is_wrong in zip(names, verdicts, wrong, strict=True)
        ]
        reasons.append("; ".join(phrases))
    left_open = () if all(verdict.outcome == RIGHT for verdict in verdicts) else (f"the same input ({why})",)
    return decide(conclude(names, verdicts, request, reasons, findings), left_open)


def conclude(
    names: tuple[str, str], verdicts: Sequence[Verdict], request: Request, reasons: Sequence[str],
    findings: Sequence[Finding], small: tuple[Smallest, Smallest] | None = None,
) -> Verdict:  # fmt: skip
    """Return the verdict on both functions, which agree if there are no `reasons`."""
    first, second = verdicts
    computes = "They agree on all cases that both answered"
    if first.mistakes == second.mistakes and first.is_wrong:
        computes += f"; both compute {first.computes}"
    mistakes = [name for verdict in verdicts if reasons and verdict.is_wrong for name in verdict.mistakes]
    if reasons:
        computes = ". ".join(reason.rstrip(".") for reason in reasons)
    sides = tuple(
        Side(name, verdict.outcome, verdict.computes, verdict.mistakes, verdict.right_under, smallest)
        for name, verdict, smallest in zip(names, verdicts, small or (None, None), strict=True)
    )
    unique = tuple(dict.fromkeys(mistakes))
    return Verdict(
        names[0], not reasons, unique, computes, tuple(findings), request.words, against=names[1], sides=sides
    )


def find_smallest(both: Both, case: Case, digits: int) -> tuple[Smallest, Smallest] | None:
    """Return the smallest case on which the two still differ, as Python code for each; None for layers."""
    first, second = both
    if first.function.inside is not None:
        return None
    for small in islice(make_small_cases(case, first.caller), MAX_CALLS):
        answers = (first.caller(small), second.caller(small))
        if Pair(small, answers, min(digits, 20)).differ(digits):
            return format_call(first.target, first.caller, small, answers[0]), format_call(
                second.target, second.caller, small, answers[1]
            )
    return None


def make_small_cases(case: Case, caller: Caller) -> Iterator[Case]:
    if case.question == EMPTY_ROWS:
        yield with_mask(
            make_small_case(case, (1, 1, 2, 2, 1), caller.request, 1), np.array([[True, True], [False, False]])
        )
    yield from list_smaller_cases(case, caller)
