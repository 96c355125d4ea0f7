"""Finds out how a function wants to be called, and asks it every question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from attn_exp.diagnosis.call import LAYOUTS, MASKINGS, WIDE, Caller
from attn_exp.diagnosis.case import Answer, Case, differs, expected, predicted
from attn_exp.diagnosis.libraries import DIGITS, DTYPES, Library, library, wanted
from attn_exp.diagnosis.modules import Bound, bound
from attn_exp.diagnosis.offer import Offer, offered
from attn_exp.diagnosis.questions import core_cases, layer_cases
from attn_exp.diagnosis.request import Request
from attn_exp.errors import UserError, unknown
from attn_exp.own_code import OwnFunction, unreadable

LOGITS = 2
"""Bits that logits of about 6 take from an answer where they are rounded to a half type."""
Seen = list[tuple[Case, Answer]]


@dataclass(frozen=True)
class Tried:
    """One way to call a function, or a module as one, and what came of its first question."""

    function: Bound
    caller: Caller
    case: Case
    answer: Answer


def ways(own: OwnFunction, request: Request, function: Bound) -> Iterator[Tried]:
    """Yield every way to call a function, the likeliest first: libraries, layouts and types."""
    offer = offer_of(own, function)
    with unreadable(own.name):
        names = (request.takes,) if request.takes else wanted(function.origin)
    for name in names:
        lent = library(name, request.device)
        for layout in layouts(request, offer, function):
            for dtype in types(request, lent):
                caller = Caller(function.call, offer, lent, request, layout, dtype)
                case = next(cases(caller, function, quick=True))
                answer = caller(case)
                yield Tried(function, caller, case, answer)
                if answer.output is not None:
                    break


def offer_of(own: OwnFunction, function: Bound) -> Offer:
    """Return what a function takes."""
    with unreadable(own.name):
        return offered(function.call, own.name) if function.offer is None else function.offer


def types(request: Request, lent: Library) -> tuple[str, ...]:
    """Return the types to try: the one that was asked for, else the library's widest and those below it."""
    if request.dtype and request.dtype not in DTYPES:
        raise UserError(unknown(request.dtype, DTYPES, "dtype"))
    return (request.dtype,) if request.dtype else DTYPES[DTYPES.index(lent.widest) :]


def layouts(request: Request, offer: Offer, function: Bound) -> tuple[str, ...]:
    """Return the layouts to try."""
    if request.layout and request.layout not in LAYOUTS:
        raise UserError(unknown(request.layout, LAYOUTS, "layout"))
    if not offer.core:
        return ("bhtd",) if function.inside is not None or request.entries > 1 else ("td", "bhtd")
    if request.layout:
        return (request.layout,)
    many = request.kv_head is not None or (request.head or 1) > 1
    alone = ("htd", "td") if request.entries > 1 else ("td",) if many else ()
    usual = tuple(layout for layout in LAYOUTS if layout != WIDE and layout not in alone)
    return (WIDE, *usual) if offer.takes("heads") else usual


def cases(caller: Caller, function: Bound, quick: bool) -> Iterator[Case]:
    """Yield the questions that fit what the function takes."""
    if caller.offer.core:
        return core_cases(caller.request, caller.offer, caller.layout, quick)
    return layer_cases(caller.request, caller.offer, quick, function.inside)


def how_to_call(own: OwnFunction, request: Request, known: Bound | None = None) -> Tried:
    """Return the first way of calling that gives the right answer, else the right shape, else any answer at all.

    Where all are errors it is the one that came furthest in the function: what fails at once was no array of its kind.

    `known`: what is to be called, where that is more than what the user named.

    Raises:
        UserError: what the function takes is not known.
    """
    with unreadable(own.name):
        function = known or bound(own, request)
    shaped: list[Tried] = []
    spoke: list[Tried] = []
    silent: list[Tried] = []
    for tried in ways(own, request, function):
        if tried.answer.output is None:
            silent.append(tried)
        if tried.answer.output is None or (shaped and tried.caller.layout in ("htd", "td") and tried.caller.offer.core):
            continue  # with fewer axes, mistakes hide: they are for those who take no more
        stages = expected(tried.case)
        if tried.answer.output.shape == stages["output"].shape:
            if not differs(tried.answer.output, stages, min(digits_of(tried.caller, tried.answer), 24)):
                return tried
            shaped.append(tried)
        spoke.append(tried)
    return (shaped or spoke or [max(silent, key=lambda tried: furthest(tried.answer))])[0]


def furthest(answer: Answer) -> tuple[bool, tuple[int, ...]]:
    """Return how far a call came that gave no answer, as something to compare: one that returned came to the end."""
    return answer.reached is None, answer.reached or ()


def with_its_mask(caller: Caller, function: Bound) -> Caller:
    """Return the caller that writes masks as the function wants them.

    Booleans, where it answers to them; numbers to add, where it adds those booleans to its logits; else, where booleans
    are an error, the first way that gives the right answer, or any at all.
    """
    case = mask_case(caller, function)
    if case is None:
        return caller
    answer = caller(case)
    if answer.output is not None:
        added = replace(caller, masking=replace(caller.masking, kind="added"))
        adding = predicted(replace(case.recipe, forbid=lambda at, logits, allowed: logits + allowed), case.given)
        return added if adding and near(caller, answer, adding) else caller
    others = [replace(caller, masking=masking) for masking in MASKINGS[1:]]
    answers = [(other, other(case)) for other in others]
    right = next((other for other, answer in answers if near(other, answer, expected(case))), None)
    return right or next((other for other, answer in answers if answer.output is not None), caller)


def near(caller: Caller, answer: Answer, stages: Mapping[str, Any]) -> bool:
    """Say whether an answer is that of these stages, to float32 at most."""
    digits = min(digits_of(caller, answer), DIGITS["float32"])
    return answer.output is not None and not differs(answer.output, stages, digits)


def with_added_mask(caller: Caller, function: Bound) -> Caller | None:
    """Return the caller that gives masks to be added, where the function answers to them and was given booleans."""
    case = mask_case(caller, function)
    if case is None or caller.masking.kind == "added":
        return None
    other = replace(caller, masking=replace(caller.masking, kind="added"))
    return other if other(case).output is not None else None


def mask_case(caller: Caller, function: Bound) -> Case | None:
    """Return the first question with a mask, where the function takes one and its polarity is not known."""
    if not caller.offer.takes("mask") or caller.request.blocks:
        return None
    masked = next((case for case in cases(caller, function, quick=True) if case.rung == "masks"), None)
    return None if masked is None else rounded(masked, caller)


def digits_of(caller: Caller, answer: Answer) -> int:
    """Return how many bits an answer can hold: the fewest of what was given, what came back, and what was asked.

    Two less where a half type was given: logits of about 6 are rounded too, and weights move by as much.
    """
    given = DIGITS[caller.dtype] - (LOGITS if is_half(caller) else 0)
    return min(DIGITS.get(answer.dtype, 53), given, caller.request.digits)


def is_half(caller: Caller) -> bool:
    return DIGITS[caller.dtype] < DIGITS["float32"]


def ask_every_question(caller: Caller, function: Bound, quick: bool) -> Seen:
    """Return every question that the function's type can tell, with its answer; inputs are what the type holds."""
    fitting = (case for case in cases(caller, function, quick) if not beyond(caller, case))
    return [(case, caller(case)) for case in (rounded(case, caller) for case in fitting)]


def beyond(caller: Caller, case: Case) -> bool:
    """Say whether a half type rounds a case by several units: large logits, and in float16 tiny x, below 6e-5."""
    tiny = case.rung == "tiny inputs" and case.given.x is not None and caller.dtype == "float16"
    return tiny or (case.rung == "large inputs" and is_half(caller))


def rounded(case: Case, caller: Caller) -> Case:
    """Return the case with inputs that the caller's type holds exactly: all are judged on the same numbers."""
    if caller.dtype == "float64":
        return case
    into, back = caller.library.into, caller.library.back
    held: dict[str, Any] = {
        name: back(into(array, caller.dtype))
        for name in ("q", "k", "v", "x", "memory")
        if (array := getattr(case.given, name)) is not None
    }
    arrays = {name: back(into(array, caller.dtype)) for name, array in case.given.arrays.items()}
    return replace(case, given=replace(case.given, **held, arrays=arrays))


def failing(seen: Sequence[tuple[Case, Answer]], digits: int) -> Seen:
    """Return the questions that were answered wrongly."""
    return [
        (case, answer)
        for case, answer in seen
        if answer.output is not None and differs(answer.output, expected(case), digits)
    ]
