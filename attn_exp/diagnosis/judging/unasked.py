"""List what a check could not run or verify, with reasons, and decide the outcome.

In: the cases with their answers, and later the verdict on them. Out: phrases such as `cross attention (it takes one
input)`, and the verdict with its outcome: right, wrong, or not verified.

- `unasked` lists unsupported features; a function without them can still be right.
- `unverified` lists open points: arguments that may change the result but were not checked. With an open point, the
  outcome cannot be right.
- `with_outcome` turns findings that may not be mistakes into open points too, and decides the outcome.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from inspect import isroutine
from typing import Any

from attn_exp.diagnosis.asking import names
from attn_exp.diagnosis.asking.case import Case, Seen
from attn_exp.diagnosis.asking.libraries import DIGITS
from attn_exp.diagnosis.asking.names import (
    is_starred,
    names_of_unread_masks,
    parameters_of,
    plain,
    role_of,
    words_in,
)
from attn_exp.diagnosis.asking.offer import KEYS_ON_EACH_SIDE, has_heads
from attn_exp.diagnosis.asking.questions import ABOUT_MASKS, ADDED, CROSS, INDIVIDUAL_MASKS, SHARED, ZERO_TOKEN
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.bind.arguments import role_of_argument
from attn_exp.diagnosis.bind.factory import is_factory
from attn_exp.diagnosis.calling import conventions
from attn_exp.diagnosis.calling.call import Bound, Caller
from attn_exp.diagnosis.calling.ways_to_call import failing, is_near
from attn_exp.errors import NOT_VERIFIED, UserError
from attn_exp.experiment.verdict import ABSENT, ANSWERED, BROKEN, REMARK, Finding, Verdict, decide
from attn_exp.own_code import OwnFunction

POINTS = ("projections", "scores", "sizes", "zeros", "dropout", "positions", "logit_bias", "context", "heads")
"""Open points that are not arguments; `ignore` accepts them too."""
MOST = 90
"""Maximum length of a quoted error."""
ASKED = {
    "unequal lengths": "different numbers of queries and keys",
    "another head size": "another head size",
    "fewer key/value heads": "fewer key/value heads",
    "shared heads": "fewer key/value heads",
    CROSS: "cross attention",
    "a mask for each example": "a mask for each example",
    "a mask for each head": "a mask for each head",
    "masks": "masks",
    "padding": "padding",
    "causal": "causal masks",
}
"""Kinds of cases that the report lists if they could not be run, and their names in the report."""
METHODS = ("call", "forward", "__call__")
"""Methods of a layer that may compute attention, in the order in which they are looked up."""
OPTION_CASES = (
    "values",
    "unequal lengths",
    "masks",
    "causal",
    "padding",
    "scale",
    "window",
    "softcap",
    "alibi",
    "sinks",
)
"""Kinds of cases that are run again with another value of an option."""
MASK_CASES = {"masks": "mask", "padding": "padding", "causal": "causal", ADDED: "added"}
"""Kinds of cases that pass a mask or bias, and the role of its argument."""
CACHES = {"past", "cache", "caches", "cached"}
"""Words in the names of arguments that take a KV cache."""
HARMLESS = frozenset(
    """
    return output outputs weights need verbose training train deterministic dropout eps epsilon block chunk tile
    dtype device precision backend rng rngs generator out name interpret implementation flash inference warps
    stages inplace debug
    """.split()
)
"""Words in the names of arguments that affect extra outputs, numerics, placement or speed, but not the result."""
ERROR = re.compile(r"\w*Error: ")
AS_REQUESTED = "attention as requested"
FORMAT_CASES = {*ABOUT_MASKS, *INDIVIDUAL_MASKS} - {"causal", "window"}
"""Kinds of cases that are wrong if the check passes masks in a format that the function does not expect."""
OUTSIDE = re.compile(r"ended without an answer|ModuleNotFoundError|ImportError|MemoryError|CUDA|NVIDIA|No GPU")
"""Errors caused by this machine or its installation rather than by the function."""
MEANINGS = {
    conventions.BLOCKS: (
        "",
        f"right if True hides and wrong if True attends: pass {conventions.BLOCKS} or convention=none",
    ),
    conventions.NEIGHBOURS: (
        "which dimensions rotate together",
        f"right if neighbours 2i, 2i+1 rotate together, wrong if i, i + d/2 do: pass {conventions.NEIGHBOURS} or false",
    ),
    conventions.BOTTOM_RIGHT: (
        "how its causal mask is aligned",
        f"right if the last query sees the last key, wrong if it does not: pass {conventions.BOTTOM_RIGHT} or top_left",
    ),
}
"""For each convention under which a function may be right: the open question, and what each answer would mean."""


def unasked(caller: Caller, function: Bound, seen: Seen) -> tuple[str, ...]:
    """Return the features that could not be checked, as phrases such as `cross attention (it takes one input)`."""
    return tuple(
        dict.fromkeys((*find_unsupported(caller, function), *list_refused(seen), *list_unread_masks(function)))
    )


def list_unread_masks(function: Bound) -> Iterator[str]:
    with suppress(UserError):  # its signature is not known
        for parameter_name in names_of_unread_masks(find_routine(function.origin)):
            yield f"{parameter_name} (its code never reads it)"


def find_routine(target: Any) -> Any:
    """Return the function or method that computes attention, or the object itself if it has no such method."""
    if isroutine(target) or isinstance(target, partial):
        return target
    return next(filter(isroutine, (getattr(target, name, None) for name in METHODS)), target)


def arguments_of(function: Any) -> list[str]:
    with suppress(UserError):
        return [
            given.name
            for given in parameters_of(find_routine(function), "")
            if not is_starred(given) and given.name != "self"
        ]
    return []


def unverified(caller: Caller, function: Bound, seen: Seen) -> tuple[str, ...]:
    """Return arguments that may change the result but were not checked, as phrases."""
    offer, open_points = caller.offer, list[str]()
    with suppress(UserError):  # its signature is not known
        open_points += list_open_arguments(caller, function, seen)
    if offer.takes("window") and offer.counted == KEYS_ON_EACH_SIDE and caller.request.is_causal:
        open_points.append(f"window `{offer.parameters['window']}` (right if it counts the keys before the query, "
                           "wrong if it counts the query too)")  # fmt: skip
    if any(case.question == SHARED and is_near(caller, answer, case.right) for case, answer in seen):
        answers = [(case, caller(case)) for case in map(share_keys, list_right_cases(caller, seen))]
        open_points += [f"`{case.question}` together with {SHARED} (the numbers differ from the definition)"
                        for case, _ in failing(answers, DIGITS["float32"])]  # fmt: skip
    open_points += list_refused_masks(caller, seen)
    return tuple(open_points)


def list_open_arguments(caller: Caller, function: Bound, seen: Seen) -> list[str]:
    """Return phrases about arguments that were not checked.

    These are optional arguments that no case passed, required arguments that always got the same value, and `**kwargs`
    that the code reads.

    Raises:
        UserError: the parameters cannot be determined.
    """
    routine, offer = find_routine(function.origin), caller.offer
    defaults = {
        given.name: given.default
        for given in parameters_of(routine, "")
        if not is_starred(given) and given.default is not given.empty
    }
    # the description names extra arguments that were passed, as in "name=value, ..."
    passed = {*offer.parameters.values(), *(text.partition("=")[0] for text in offer.description.split(", "))}
    # a layer lists the arguments that no case sets, so all others were passed
    passed |= set() if function.unknown is None else {*defaults} - {*function.unknown}
    unread = {*names.find_never_read(routine, [*defaults]), *getattr(routine, "keywords", {})}
    phrases = list[str]()
    for name, default in defaults.items():
        words = {*words_in(name)}
        is_harmless = bool(HARMLESS & {plain(name), *words})
        # an option with such a default can be tried with another value, for functions of q, k and v
        is_tried = type(default) in (bool, int) and offer.core
        if name in passed | unread or (is_harmless and not is_tried):
            continue
        if is_tried and is_right_otherwise(caller, name, default, seen, may_fail=is_harmless):
            continue
        is_cache = bool(CACHES & words)
        why = "right only with its default" if is_tried else "its meaning is not known"
        why = "never passed" if is_cache or role_of_argument(name) else why
        phrases.append(f"{'cache' if is_cache else 'argument'} `{name}` ({why})")
    required = [name for name in function.unknown or () if name not in defaults]
    starred = [given.name for given in parameters_of(routine, "") if given.kind is given.VAR_KEYWORD]
    phrases += [f"argument `{name}` (its code reads it by key)" for name in starred
                if re.search(rf"\b{name}(\.(get|pop)\(|\[)", names.source_of(routine))]  # fmt: skip
    return phrases + [f"argument `{name}` (only one value passed)" for name in required]


def list_refused_masks(caller: Caller, seen: Seen) -> Iterator[str]:
    """Yield each mask argument with which every call failed, and the error; NotImplementedError does not count."""
    for question, role in MASK_CASES.items():
        answers = [answer for case, answer in seen if case.question == question]
        if not caller.offer.takes(role) or not answers or any(answer.output is not None for answer in answers):
            continue
        error, kind = answers[0].error, "argument" if question == ADDED else "mask"
        if not error.startswith("NotImplementedError"):
            yield f"{kind} `{caller.offer.parameters[role]}` ({shorten(error)})"


def list_right_cases(caller: Caller, seen: Seen) -> list[Case]:
    """Return one case of each kind in OPTION_CASES that was answered right."""
    right = {case.question: case for case, answer in reversed(seen) if is_near(caller, answer, case.right)}
    return [case for question, case in right.items() if question in OPTION_CASES]


def share_keys(case: Case) -> Case:
    """Return the case with the first two key/value heads alone, each shared by several query heads."""
    shared = {side: getattr(case.given, side)[:, :2] for side in ("k", "v")}
    return replace(case, recipe=replace(case.recipe, groups=2), given=replace(case.given, **shared))


def is_right_otherwise(
    caller: Caller, option: str, default: bool | int, seen: Seen, may_fail: bool
) -> bool:  # fmt: skip
    """Return whether right answers stay right with another value of an option, tested on one case of each kind.

    With `may_fail`, the function may also fail with that value.
    """
    value = not default if isinstance(default, bool) else 2 if default == 1 else 1
    other = replace(caller, function=partial(caller.function, **{option: value}))
    answers = [(other(case), case) for case in list_right_cases(caller, seen)]
    return (may_fail or bool(answers)) and all(
        is_near(other, answer, case.right) or (may_fail and answer.output is None) for answer, case in answers
    )


def with_outcome(verdict: Verdict, own: OwnFunction, request: Request) -> Verdict:
    """Decide the outcome of a verdict, and leave out the open points that the user chose to ignore."""
    if verdict.outcome == NOT_VERIFIED:
        return verdict
    if verdict.uncalled:
        return decide(verdict, reason=f"it could not be called {verdict.uncalled}")
    broken = broken_of(verdict)
    cause = ERROR if any(finding.question == "values" for finding in broken) else OUTSIDE
    if broken and all(cause.search(finding.message) for finding in broken):
        errors = [
            finding.message.partition(": ")[2]
            if finding.question == ANSWERED
            else f"{finding.question}: {finding.message}"
            for finding in broken
        ]
        return decide(with_state(verdict, NOT_VERIFIED), reason="; ".join(errors))
    for leave_open in (leave_errors_open, leave_cases_open, leave_masks_open, leave_polarity_open):
        verdict = leave_open(verdict, own)
    verdict, meanings = leave_convention_open(verdict, own)
    ignored = [f"`{name}`" for name in request.ignore]
    kept = tuple(point for point in verdict.not_verified if not any(name in point for name in ignored))
    return decide(replace(verdict, not_verified=kept), reason=f"It is {meanings}." if meanings and kept else "")


def broken_of(verdict: Verdict) -> list[Finding]:
    return [finding for finding in verdict.findings if finding.state == BROKEN]


def with_state(verdict: Verdict, state: str, *open_points: str) -> Verdict:
    """Change the state of broken findings, and add open points to the verdict."""
    findings = tuple(
        replace(finding, state=state) if finding.state == BROKEN else finding for finding in verdict.findings
    )
    return replace(verdict, findings=findings, not_verified=(*verdict.not_verified, *open_points))


def pass_with_open_points(verdict: Verdict, state: str, *open_points: str, computes: str = AS_REQUESTED) -> Verdict:
    """Return the verdict as passed, because its broken findings are only open points; `state` is their new state."""
    return replace(
        with_state(verdict, state, *open_points),
        passed=True, unexplained=False, stage="", smallest=None, computes=computes,
    )  # fmt: skip


def leave_errors_open(verdict: Verdict, own: OwnFunction) -> Verdict:
    """Leave cases open if all that is wrong with a function are errors in these cases.

    For a factory, leave the sizes of inputs open: its function may be built for one size.
    """
    broken = broken_of(verdict)
    if verdict.mistakes or not (broken and all(ERROR.search(finding.message) for finding in broken)):
        return verdict
    points = [f"{finding.question} ({shorten(finding.message)})" for finding in broken]
    if is_factory(own.function):
        points = [f"inputs of other `sizes` ({shorten(broken[0].message)})"]
    return pass_with_open_points(verdict, ABSENT, *points)


def leave_cases_open(verdict: Verdict, own: OwnFunction) -> Verdict:
    """Leave tokens of zeros (they may mean padding) and additive biases open, if only cases with these are wrong."""
    broken = broken_of(verdict)
    if verdict.mistakes or not broken or not {finding.question for finding in broken} <= {ZERO_TOKEN, ADDED}:
        return verdict
    bias = next((name for name in arguments_of(own.function) if role_of(name) == "added"), ADDED)
    open_points = [
        f"`{'zeros' if finding.question == ZERO_TOKEN else bias}` "
        f"({finding.question} gives different numbers: {finding.message})"
        for finding in broken
    ]
    return pass_with_open_points(verdict, NOT_VERIFIED, *open_points)


def leave_masks_open(verdict: Verdict, own: OwnFunction) -> Verdict:
    """Leave masks open if only they are wrong and nothing explains how: their format may be unknown."""
    broken = broken_of(verdict)
    is_told = verdict.mistakes or verdict.right_under or verdict.alike
    if (
        not broken
        or is_told
        or any(finding.question not in FORMAT_CASES or "Error" in finding.message for finding in broken)
    ):
        return verdict
    mask = next((f" `{name}`" for name in mask_arguments(own)), "")
    return pass_with_open_points(
        verdict,
        NOT_VERIFIED,
        f"mask{mask} (no known mask format gives the right numbers: {broken[0].message})",
        computes=f"{AS_REQUESTED}, except for its masks",
    )


def leave_polarity_open(verdict: Verdict, own: OwnFunction) -> Verdict:
    """Leave open what True means in each mask argument that is named in a remark `masks as NAME`."""
    remarks = {finding.question: finding.message for finding in verdict.findings if finding.state == REMARK}
    points = (
        f"what True means in `{name.removeprefix('masks as ')}` ({message})"
        for name, message in remarks.items()
        if "masks as " in name
    )
    return replace(verdict, not_verified=(*verdict.not_verified, *points))


def leave_convention_open(verdict: Verdict, own: OwnFunction) -> tuple[Verdict, str]:
    """Leave open the convention under which a function is right; also return what each convention would mean."""
    if verdict.passed or verdict.mistakes or not (verdict.right_under and verdict.alike):
        return verdict, ""
    question, meanings = next(
        (texts for setting, texts in MEANINGS.items() if setting in verdict.right_under), ("", "")
    )
    masks = " and ".join(f"`{name}`" for name in mask_arguments(own))
    question = question or f"what True means in {masks or 'its mask'}"
    return replace(with_state(verdict, REMARK, f"{question} ({meanings})"), passed=True, smallest=None), meanings


def mask_arguments(own: OwnFunction) -> list[str]:
    return [name for name in arguments_of(own.function) if role_of(name) in ("mask", "padding")]


def find_unsupported(caller: Caller, function: Bound) -> Iterator[str]:
    """Yield the features that the arguments and layout of a function rule out."""
    offer, layout = caller.offer, caller.layout
    if not offer.core and not offer.takes("memory"):
        yield "cross attention (it takes one input)"
    if not any(offer.takes(role) for role in ("mask", "padding", "causal", "lengths")):
        yield "other masks (it takes no mask argument)" if caller.request.masks else "masks (it takes no mask argument)"
    if offer.core and not has_heads(layout):
        yield "several heads (it takes one)"
    if not offer.core and function.inside is not None:
        yield "other matrix sizes (it has its own matrices)"


def list_refused(seen: Seen) -> Iterator[str]:
    """Yield the kinds of cases that were never answered, with the error of each case."""
    answered = {case.question for case, answer in seen if answer.output is not None}
    for case, answer in seen:
        if answer.output is not None:
            continue
        # a memory as long as x may work although one of a different length does not
        phrase = ({CROSS: "keys of a different length"} if case.question in answered else ASKED).get(case.question, "")
        if phrase:
            yield f"{phrase} ({shorten(answer.error)})"


def shorten(error: str) -> str:
    return error if len(error) <= MOST else f"{error[:MOST].rstrip()} ..."
