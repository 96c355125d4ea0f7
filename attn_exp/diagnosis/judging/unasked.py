"""List what a check could not run or verify, with reasons, and decide the outcome."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from inspect import isroutine
from typing import Any

from attn_exp.diagnosis.asking import names
from attn_exp.diagnosis.asking.case import Seen
from attn_exp.diagnosis.asking.names import (
    is_starred,
    parameters_of,
    plain,
    role_of,
    source_of,
    words_in,
    words_set_aside,
)
from attn_exp.diagnosis.asking.offer import BEFORE, has_batch, has_heads
from attn_exp.diagnosis.asking.questions import ABOUT_MASKS, ADDED, CROSS, MASKS_OF_MORE, ZEROS
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.bind.arguments import role_of_argument
from attn_exp.diagnosis.bind.factory import is_factory
from attn_exp.diagnosis.calling import conventions
from attn_exp.diagnosis.calling.call import Bound, Caller
from attn_exp.diagnosis.calling.ways_to_call import is_near
from attn_exp.errors import NOT_VERIFIED, UserError
from attn_exp.experiment.verdict import ABSENT, ANSWERED, BROKEN, REMARK, Finding, Verdict, decide
from attn_exp.own_code import OwnFunction

POINTS = ("projections", "scores", "sizes", "zeros", "dropout")
"""Open points that are no arguments; `ignore` takes them too."""
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


def unasked(caller: Caller, function: Bound, seen: Seen) -> tuple[str, ...]:
    """Return what could not be checked, as phrases such as `cross attention (it takes one input)`."""
    every = (find_unsupported(caller, function), list_refused(seen), never_read(function))
    return tuple(dict.fromkeys(said for some in every for said in some))


OF_LAYERS = ("call", "forward", "__call__")


def never_read(function: Bound) -> Iterator[str]:
    with suppress(UserError):  # its signature is not known
        made = find_routine(function.origin)
        yield from (f"{word} (its code never reads it)" for word in words_set_aside(made))


def find_routine(made: Any) -> Any:
    return (
        made
        if isroutine(made) or isinstance(made, partial)
        else next((one for word in OF_LAYERS if isroutine(one := getattr(made, word, None))), made)
    )


def arguments_of(function: Any) -> list[str]:
    with suppress(UserError):
        given = parameters_of(find_routine(function), "")
        return [one.name for one in given if not is_starred(one) and one.name != "self"]
    return []


def unverified(caller: Caller, function: Bound, seen: Seen) -> tuple[str, ...]:
    made = find_routine(function.origin)
    offer, left = caller.offer, list[str]()
    with suppress(UserError):
        optional = [one.name for one in parameters_of(made, "") if not is_starred(one) and one.default is not one.empty]
        known = {*offer.parameters.values(), *names.never_read(made, optional), *getattr(made, "keywords", {})}
        known |= set() if function.unknown is None else {*optional} - {*function.unknown}
        said = {one.partition("=")[0] for one in offer.said.split(", ")}
        known |= {word for word in optional if word in said or HARMLESS & {plain(word), *words_in(word)}}
        options = {one.name: one.default for one in parameters_of(made, "") if one.name not in known}
        open_words = [word for word in optional if word not in known and not (
            type(options[word]) in (bool, int) and offer.core and is_right_otherwise(caller, word, options[word], seen)
        )]  # fmt: skip
        left += [f"cache `{word}` (never passed)" if CACHES & {*words_in(word)} else
                 f"argument `{word}` ({'never passed' if role_of_argument(word) else UNKNOWN})" for word in open_words
                 ]  # fmt: skip
        required = [word for word in function.unknown or () if word not in optional]
        left += [f"argument `{word}` (only one value passed)" for word in required]
    if offer.takes("window") and offer.counted == BEFORE and caller.request.is_causal:
        left.append(f"window `{offer.parameters['window']}` (right if it counts the keys before the query, wrong if it "
                    "counts the query too)")  # fmt: skip
    for rung, role in REFUSED.items():
        errors = [answer.error for case, answer in seen if case.rung == rung and answer.output is None]
        answered = any(case.rung == rung and answer.output is not None for case, answer in seen)
        if offer.takes(role) and errors and not answered and not errors[0].startswith("NotImplementedError"):
            kind = "argument" if rung == ADDED else "mask"
            left.append(f"{kind} `{offer.parameters[role]}` ({shortened(errors[0])})")
    if offer.takes("mask") and OF_COLUMNS.search(source_of(type(function.origin))):
        left.append(f"mask `{offer.parameters['mask']}` (comments in the code say that it has one entry per query)")
    return tuple(left)


OF_COLUMNS = re.compile(r"\bmask\b[^\n]*(#|shape)[^\n]*,\s*1\s*[\])]")
"""Matches a comment or docstring that gives a mask the shape `[..., 1]`."""


def is_right_otherwise(caller: Caller, word: str, default: bool | int, seen: Seen) -> bool:
    value = not default if isinstance(default, bool) else 1
    other = replace(caller, function=partial(caller.function, **{word: value}))
    first = {case.rung: case for case, answer in reversed(seen) if is_near(caller, answer, case.right)}
    asked = [case for rung, case in first.items() if rung in OF_OPTIONS]
    return bool(asked) and all(is_near(other, other(case), case.right) for case in asked)


UNKNOWN = "its meaning is not known"
OF_OPTIONS = ("values", "unequal lengths", "masks", "causal", "padding")
REFUSED = {"masks": "mask", "padding": "padding", "causal": "causal", ADDED: "added"}
CACHES = {"past", "cache", "caches", "cached"}
HARMLESS = frozenset(
    """
    return output outputs weights need verbose training train deterministic dropout eps epsilon block chunk tile
    dtype device precision backend rng rngs generator out name interpret implementation flash inference warps
    stages inplace debug
    """.split()
)
"""Words in the names of arguments that affect extra outputs, numerics, placement or speed, but not the result."""


def with_outcome(verdict: Verdict, own: OwnFunction, request: Request) -> Verdict:
    """Decide the outcome of a verdict, and leave out the open points that the user chose to ignore."""
    if verdict.outcome == NOT_VERIFIED:
        return verdict
    if verdict.uncalled:
        return decide(verdict, reason=f"it could not be called {verdict.uncalled}")
    broken = broken_of(verdict)
    if broken and all(OUTSIDE.search(one.said) for one in broken):
        said = [one.said.partition(": ")[2] if one.rung == ANSWERED else f"{one.rung}: {one.said}" for one in broken]
        return decide(with_state(verdict, NOT_VERIFIED), reason="; ".join(said))
    for one in (leave_sizes_open, leave_cases_open, leave_masks_open, leave_polarity_open):
        verdict = one(verdict, own)
    verdict, meanings = leave_convention_open(verdict, own)
    kept = tuple(one for one in verdict.not_verified if not any(f"`{word}`" in one for word in request.ignore))
    return decide(replace(verdict, not_verified=kept), reason=f"It is {meanings}." if meanings and kept else "")


def broken_of(verdict: Verdict) -> list[Finding]:
    return [one for one in verdict.findings if one.state == BROKEN]


def with_state(verdict: Verdict, state: str, *left: str) -> Verdict:
    """Change the state of broken findings, and add open points to the verdict."""
    findings = tuple(replace(one, state=state) if one.state == BROKEN else one for one in verdict.findings)
    return replace(verdict, findings=findings, not_verified=(*verdict.not_verified, *left))


def leave_sizes_open(verdict: Verdict, own: OwnFunction) -> Verdict:
    broken = broken_of(verdict)
    if not (broken and is_factory(own.function) and all(ERROR.match(one.said) for one in broken)):
        return verdict
    verdict = with_state(verdict, ABSENT, f"inputs of other `sizes` ({shortened(broken[0].said)})")
    return replace(verdict, passed=True, smallest=None, computes=AS_ASKED)


def leave_cases_open(verdict: Verdict, own: OwnFunction) -> Verdict:
    """Leave tokens of zeros (they may mean padding) and additive biases open if only cases with these are wrong."""
    broken = broken_of(verdict)
    if verdict.mistakes or not broken or not {one.rung for one in broken} <= {ZEROS, ADDED}:
        return verdict
    words = {
        ZEROS: "zeros",
        ADDED: next((word for word in arguments_of(own.function) if role_of(word) == "added"), ADDED),
    }
    left = [f"`{words[one.rung]}` ({one.rung} gives different numbers: {one.said})" for one in broken]
    verdict = with_state(verdict, NOT_VERIFIED, *left)
    return replace(verdict, passed=True, unexplained=False, stage="", smallest=None, computes=AS_ASKED)


def leave_masks_open(verdict: Verdict, own: OwnFunction) -> Verdict:
    """Leave masks open if only they are wrong and nothing explains how: their format may be unknown."""
    broken = broken_of(verdict)
    if not broken or verdict.mistakes or verdict.right_under or verdict.alike:
        return verdict
    if any(one.rung not in OF_MASKS or "Error" in one.said for one in broken):
        return verdict
    word = next((f" `{word}`" for word in mask_arguments(own)), "")
    left = f"mask{word} (no known mask format gives the right numbers: {broken[0].said})"
    return replace(with_state(verdict, NOT_VERIFIED, left), passed=True, unexplained=False, stage="", smallest=None,
                   computes="attention as requested, except for its masks")  # fmt: skip


def leave_polarity_open(verdict: Verdict, own: OwnFunction) -> Verdict:
    remarks = [one for one in verdict.findings if one.state == REMARK and one.rung.startswith("masks as ")]
    left = [f"what True means in `{one.rung.removeprefix('masks as ')}` ({one.said})" for one in remarks]
    return replace(verdict, not_verified=(*verdict.not_verified, *left))


def leave_convention_open(verdict: Verdict, own: OwnFunction) -> tuple[Verdict, str]:
    """Leave open the convention under which a function is right; also return what each convention would mean."""
    if verdict.passed or verdict.mistakes or not (verdict.right_under and verdict.alike):
        return verdict, ""
    what, meanings = next((said for words, said in MEANINGS.items() if words in verdict.right_under), ("", ""))
    masks = " and ".join(f"`{word}`" for word in mask_arguments(own))
    what = what or f"what True means in {masks or 'its mask'}"
    left = f"{what} ({meanings})"
    return replace(with_state(verdict, REMARK, left), passed=True, smallest=None), meanings


def mask_arguments(own: OwnFunction) -> list[str]:
    return [word for word in arguments_of(own.function) if role_of(word) in ("mask", "padding")]


ERROR, AS_ASKED = re.compile(r"\w*Error: "), "attention as requested"
OF_MASKS = {*ABOUT_MASKS, *MASKS_OF_MORE} - {"causal", "window"}
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


def find_unsupported(caller: Caller, function: Bound) -> Iterator[str]:
    offer, layout = caller.offer, caller.layout
    if not offer.core and not offer.takes("memory"):
        yield "cross attention (it takes one input)"
    takes_any = any(offer.takes(role) for role in ("mask", "padding", "causal", "lengths"))
    if not takes_any:
        yield "other masks (it takes no mask argument)" if caller.request.masks else "masks (it takes no mask argument)"
    if offer.core and not has_heads(layout):
        yield "several heads (it takes one)"
    if offer.core and not has_batch(layout):
        yield "a batch (it takes a single example)"
    if offer.core and caller.is_made:
        yield "another head size (it is built for one)"
    if not offer.core and function.inside is not None:
        yield "other matrix sizes (it has its own matrices)"


def list_refused(seen: Seen) -> Iterator[str]:
    answered = {case.rung for case, answer in seen if answer.output is not None}
    for case, answer in seen:
        what = OF_ANOTHER_LENGTH if case.rung == CROSS and case.rung in answered else ASKED.get(case.rung, "")
        if answer.output is None and what and (case.rung not in answered or what == OF_ANOTHER_LENGTH):
            yield f"{what} ({shortened(answer.error)})"


def shortened(error: str) -> str:
    return error if len(error) <= MOST else f"{error[:MOST].rstrip()} ..."


OF_ANOTHER_LENGTH = "keys of a different length"
"""The case that a function refuses if its memory must be as long as x."""
