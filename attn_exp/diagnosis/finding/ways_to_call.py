"""Find out how a function wants to be called, and run every case on it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from time import process_time, thread_time
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Answer, Case, differs, expected, predicted
from attn_exp.diagnosis.asking.layouts import KNOWN, LAYOUTS, RARE, WIDE, cuts_heads, has_heads, layouts_of_answer
from attn_exp.diagnosis.asking.masking import AXES, MASKINGS, PADDINGS, attribute_of
from attn_exp.diagnosis.asking.offer import Offer, at_of, kept_by, offered, parameters_of
from attn_exp.diagnosis.asking.questions import PADDED, SIZE, core_cases, layer_cases
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.calling.bound import Bound
from attn_exp.diagnosis.calling.call import TOKENS_FIRST, Caller
from attn_exp.diagnosis.code.libraries import DIGITS, DTYPES, Library, library, modules_named, wanted
from attn_exp.diagnosis.finding.adapting import adapted, is_size
from attn_exp.diagnosis.finding.other_words import gives
from attn_exp.diagnosis.recipes.candidates import every_mistake
from attn_exp.errors import UncalledError, UserError, unknown
from attn_exp.mistakes import mistake
from attn_exp.own_code import OwnFunction, unreadable
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.padding import Padding

MOST_SECONDS = 4.0
"""Time limit of the search for a way to call a function."""
MOST_COMPILING = 6.0
"""Seconds after which optional cases are skipped with JAX."""
LOGITS = 2
"""Bits that an answer loses if logits of about 6 are rounded to a half type."""
Seen = list[tuple[Case, Answer]]


@dataclass(frozen=True)
class Tried:
    """One way to call a function, or a module as one, and the result of its first case."""

    function: Bound
    caller: Caller
    case: Case
    answer: Answer


def ways(own: OwnFunction, request: Request, function: Bound) -> Iterator[Tried]:
    """Yield every way to call a function, the likeliest first: libraries, layouts and dtypes."""
    offer = offer_of(own, function)
    with unreadable(own.name):
        names = (request.takes,) if request.takes else wanted(function.origin)
        if function.offer is not None and modules_named(function.origin):
            names = names[:1]  # there are many ways to call it, and its code names its library
    for name in names:
        lent = library(name, request.device)
        for layout in layouts(request, offer, function):
            caller = Caller(function.call, offer, lent, request, layout)
            case = next(cases(caller, function, quick=True))
            for dtype in types(request, lent):
                tried = Tried(function, replace(caller, dtype=dtype), case, replace(caller, dtype=dtype)(case))
                yield tried
                if (needs_mask(offer) or refused_with_mask(tried)) and dtype == lent.widest and not is_right(tried):
                    yield from with_other_masks(tried)
                if tried.answer.output is not None or not about_type(tried.answer.error):
                    break


def with_other_masks(first: Tried) -> Iterator[Tried]:
    """Yield the same call with its mask written in other ways, as long as that changes the error."""
    role = "masking" if first.caller.offer.takes("mask") else "padding"
    usual = replace(getattr(first.caller, role), attribute=attribute_of(first.answer.error))
    ways = MASKINGS[1:] if role == "masking" else PADDINGS[1:]
    others = [usual] if usual.attribute else []
    others += [replace(usual, neutral=neutral) for neutral in AT_ONCE]
    others += [one.like(usual) for one in sorted(ways, key=lambda one: one.axes != "b 1 t s")]
    errors, answered = {first.answer.error}, False
    for place, masking in enumerate(others):
        caller = replace(first.caller, **{role: masking})
        tried = replace(first, caller=caller, answer=caller(first.case))
        errors.add(tried.answer.error)
        yield tried
        if place == FEW_MASKS and len(errors) == 1:
            return  # the error does not depend on the mask
        answered |= tried.answer.output is not None
    if role == "masking" and not answered and needs_mask(first.caller.offer):
        caller = replace(first.caller, offer=first.caller.offer.of_keys_alone())
        of_keys = replace(first, caller=caller, answer=caller(first.case))
        yield of_keys
        yield from with_other_masks(of_keys) if of_keys.answer.output is None else ()


AT_ONCE, FEW_MASKS = ("none", "turned"), 5


def about_type(error: str) -> bool:
    """Return whether an error may be about a dtype: it mentions one, or has no message."""
    words = r"(?i)float|dtype|double|half|precision|scalar type|datatype|Error$|not implemented|\bbits?\b"
    return bool(re.search(words, error))


def is_named(own: OwnFunction, function: Bound) -> bool:
    """Return whether the names of a function's parameters say how to call it."""
    try:
        return bool(offer_of(own, function))
    except UserError:
        return False


def needs_mask(offer: Offer) -> bool:
    """Return whether a function has a required mask argument."""
    return any(offer.takes(role) and role not in offer.defaults for role in ("mask", "padding"))


def refused_with_mask(tried: Tried) -> bool:
    """Return whether a call with a mask argument gave no answer."""
    offer = tried.caller.offer
    return bool(tried.answer.output is None and tried.case.recipe.rules.masks and offer.takes("mask"))


def functions(own: OwnFunction, known: Bound | None) -> Iterator[Bound]:
    """Yield what to call: the function by the names of its parameters, and every adapted form of it.

    Raises:
        UserError: its parameters cannot be read.
    """
    if known is not None:
        yield known
        return
    first, ways = Bound(own.function, own.function), adapted(own.function, own.name)
    if takes_size(own.function, own.name):
        yield from ways
    if is_named(own, first):
        yield first
    yield from ways


def takes_size(function: Any, name: str) -> bool:
    """Return whether a function has a default head size or width, which a call should override."""
    try:
        return any(map(is_size, parameters_of(function, name)))
    except UserError:
        return False


def offer_by_names(own: OwnFunction) -> Offer | None:
    """Return what a function takes according to the names of its parameters; None if they do not say."""
    function = Bound(own.function, own.function)
    return offer_of(own, function) if is_named(own, function) else None


FIRST_FEW, FEWER = 5, ("htd", "td")


def failing_at_first(tried: Tried, request: Request, digits: int) -> int:
    """Return how many of the first cases of another request fail if the function is called the same way."""
    caller = replace(tried.caller, request=request)
    asked = (rounded(case, caller) for case in islice(cases(caller, tried.function, quick=True), FIRST_FEW))
    return len(failing([(case, caller(case)) for case in asked], digits))


def longest_question(tried: Tried, request: Request) -> tuple[Case, Answer] | None:
    """Return the longest case of another request and its answer; None if it is not answered."""
    caller = replace(tried.caller, request=request)
    asked = [case for case in cases(caller, tried.function, quick=False) if case.rung == "off the block"]
    case = max(asked, key=lambda one: one.given.keys, default=None)
    answer = None if case is None else caller(rounded(case, caller))
    return None if case is None or answer is None or answer.output is None else (rounded(case, caller), answer)


def offer_of(own: OwnFunction, function: Bound) -> Offer:
    """Return what a function takes."""
    with unreadable(own.name):
        return offered(function.call, own.name) if function.offer is None else function.offer


def types(request: Request, lent: Library) -> tuple[str, ...]:
    """Return the dtypes to try: the requested one, else the library's widest and all below it."""
    if request.dtype and request.dtype not in DTYPES:
        raise UserError(unknown(request.dtype, DTYPES, "dtype"))
    return (request.dtype,) if request.dtype else DTYPES[DTYPES.index(lent.widest) :]


def layouts(request: Request, offer: Offer, function: Bound) -> tuple[str, ...]:
    """Return the layouts to try."""
    if request.layout and request.layout not in KNOWN:
        raise UserError(unknown(request.layout, KNOWN, "layout"))
    if not offer.core:
        several = function.inside is not None or request.entries > 1 or request.layout == "bhtd"
        return ("bhtd",) if several else ("td", "bhtd")
    if request.layout:
        return (request.layout,) if request.layout in (offer.layouts or KNOWN) else ()
    if offer.layouts:
        return offer.layouts
    many = request.kv_head is not None or (request.head or 1) > 1
    alone = ("htd", "td") if request.entries > 1 else ("td",) if many else ()
    usual = tuple(layout for layout in LAYOUTS if layout != WIDE and layout not in alone)
    if offer.takes("lengths") or offer.takes("padding"):  # these imply a batch, but maybe no heads
        usual = tuple(one for layout in usual for one in (("btd", layout) if layout == "htd" else (layout,)))
    return (WIDE, *usual) if offer.takes("heads") else usual


def cases(caller: Caller, function: Bound, quick: bool) -> Iterator[Case]:
    """Yield the cases that fit what the function takes; JAX compiles each size anew, so it gets fewer sizes."""
    if caller.offer.core:
        few = caller.library.name == "jax" and not is_half(caller)
        request, size = replace(caller.request, few=few), (caller.size_held or SIZE) if caller.is_made else 0
        return core_cases(request, caller.offer, caller.layout, quick, returns=caller.returns, one_size=size)
    return layer_cases(caller.request, caller.offer, quick, function.inside)


def how_to_call(own: OwnFunction, request: Request, known: Bound | None = None) -> Tried:
    """Return the first way of calling that gives the right answer, else the right shape, else any answer.

    Right numbers with an extra or missing axis rank between the first two. If every call fails, return the one that got
    furthest in the function: an early error means that an array was of the wrong kind.

    `known`: what to call, if that is more than what the user named.

    Raises:
        UserError: the function could not be called.
    """
    nearly, shaped, spoke, silent = list[Tried](), list[Tried](), list[Tried](), list[Tried]()
    causal, unscaled, unmasked, idle = list[Tried](), list[Tried](), list[Tried](), list[Tried]()
    start = thread_time()
    with unreadable(own.name):
        several = list(functions(own, known))
    for function in several:
        is_late = bool(shaped or spoke or silent) and thread_time() - start > MOST_SECONDS
        if is_late or not may_tell_more(function, shaped):
            continue
        for tried in ways(own, request, function):
            output = tried.answer.output
            if output is None or says_nothing(tried.case, output):
                (silent if output is None else idle).append(tried)
                continue
            if hides_mistakes(tried, shaped):
                continue
            others = [one for one in other_readings(tried) if one.answer.output is not None]
            right = next((one for one in (tried, *others) if is_right(one)), None)
            if right is not None and not right.answer.axes:
                return right
            nearly += [] if right is None else [right]
            causal += [one for one in (tried, *others) if is_right(one, causal=True)]
            unscaled += [one for one in (tried, *others) if is_right(one, unscaled=True)]
            unmasked += [one for one in (tried, *others) if is_right(one, unmasked=True)]
            if not tried.caller.offer.only_if_right:
                shaped += [tried, *others] if has_right_shape(tried) else others
                spoke.append(tried)
    shaped.sort(key=lambda one: bool(one.answer.axes))  # those with an axis more or fewer come last
    is_usual = nearly or causal or unmasked or request.layout
    is_only = not shaped and (not spoke or speaks_of_heads(own.function))
    rare = [] if is_usual else in_rare_layouts(own, request, several, as_many_axes(shaped), is_only)
    first = silent[0].function if silent else None
    is_meant = first and (known is not None or first.offer is None or first.inside is not None)
    last = [max(silent, key=lambda tried: furthest(tried.answer))] if is_meant else []
    alike = nearly or rare or causal or unscaled or unmasked
    likeliest = [] if alike else as_a_mistake_shows(whatever_the_width(shaped))
    found = alike or likeliest or spoke or meant(idle) or last
    if found:
        return with_tokens_first(found[0])
    raise unfit(own, silent)


def hides_mistakes(tried: Tried, before: Sequence[Tried]) -> bool:
    """Return whether a call has fewer axes or heads than one `before` that gave the right shape.

    Fewer axes hide mistakes: they are for functions that take no more. Merging several heads into one does not count.
    """
    layout = tried.caller.layout
    if not tried.caller.offer.core or (has_heads(layout) and layout not in FEWER):
        return False
    if layout in FEWER:
        return any(one.caller.layout not in FEWER for one in before)
    return any(one.caller.layout == WIDE and not has_one_mistake(one, "single_head") for one in before)


def with_tokens_first(tried: Tried) -> Tried:
    """Put tokens before the batch in x, if entries are independent only then; for functions of x and matrices.

    What is wrong in one order may be right in the other.
    """
    caller, x = tried.caller, tried.case.given.x
    is_open = x is not None and tried.function.inside is None and caller.layout == "bhtd" and not is_right(tried)
    if not is_open or tried.answer.output is None or x is None:
        return tried
    several = np.concatenate([x, x[:, ::-1]])
    pairs = [
        replace(tried.case, given=replace(tried.case.given, x=pair)) for pair in (several, several * [[[1.0]], [[0.5]]])
    ]

    def mixes(one: Caller) -> bool:
        before, after = (one(case).output for case in pairs)
        return before is None or after is None or not np.allclose(before[0], after[0])

    other = replace(caller, layout=TOKENS_FIRST)
    return replace(tried, caller=other, answer=other(tried.case)) if mixes(caller) and not mixes(other) else tried


def says_nothing(case: Case, output: Array) -> bool:
    """Return whether an output is all zeros or equal to an input: a flag may be the reason."""
    inputs = (case.given.q, case.given.k, case.given.v, case.given.x)
    return not output.any() or any(np.array_equal(output, one) for one in inputs if one is not None)


def meant(several: Sequence[Tried]) -> list[Tried]:
    """Return the ways to call that count even if the answer is wrong."""
    return [tried for tried in several if not tried.caller.offer.only_if_right]


def whatever_the_width(shaped: Sequence[Tried]) -> Sequence[Tried]:
    """Return the ways to pass a layer's matrices that also work for another width of x, if any do.

    Square matrices give an output of the same shape if they are transposed.
    """
    is_open = any(one.caller.offer.guessed for one in shaped)
    if not shaped or shaped[0].caller.offer.core or not is_open:
        return shaped
    tried = shaped[0]
    wider = next((one for one in cases(tried.caller, tried.function, True) if one.rung == "another width"), None)
    if wider is None:
        return shaped
    shape = expected(wider)["output"].shape
    fitting = [one for one in shaped if (said := one.caller(wider).output) is not None and said.shape == shape]
    return fitting or shaped


def as_a_mistake_shows(shaped: Sequence[Tried]) -> Sequence[Tried]:
    """Return the ways to pass a layer's matrices, first the one whose answer a single mistake explains.

    The likeliest stays first if a mistake explains it, or none of them: square matrices that are transposed, or stored
    head by head, give an output of the same shape.
    """
    is_open = bool(shaped) and not shaped[0].caller.offer.core and shaped[0].caller.offer.guessed
    if not is_open or has_one_mistake(shaped[0]):
        return shaped
    found = next((one for one in shaped[1:] if has_one_mistake(one)), None)
    return shaped if found is None else [found, *(one for one in shaped if one is not found)]


def has_one_mistake(tried: Tried, only: str = "") -> bool:
    """Return whether one mistake, or one whose name or group is `only`, gives the first answer, maybe if causal."""
    digits = min(digits_of(tried.caller, tried.answer), 24)
    asked = [tried.case, tried.case.with_masks((*tried.case.recipe.rules.masks, Causal()))]
    known = ((case, one) for case in asked for one in every_mistake([case])
             if not only or only in (*one.names, mistake(one.names[0]).group))  # fmt: skip
    return any(gives(one.change(case), case, tried.answer, digits) for case, one in known)


def is_turned(function: Bound) -> bool:
    """Return whether a function takes a layer's matrices as `nn.Linear` stores them."""
    return function.offer is not None and function.offer.turned


def as_many_axes(shaped: Sequence[Tried]) -> tuple[str, ...]:
    """Return the rare layouts in which a function may still be right.

    Fewer axes hide mistakes: if a function gives the right shape, others must have as many axes, unless its softmax
    runs over a fixed axis, which is the key axis in a layout with fewer axes.
    """
    core = [tried for tried in shaped if tried.caller.offer.core]
    if not core or any(is_near(one.caller, one.answer, made) for one in core[:1] for made in over_other_axes(one.case)):
        return RARE
    usual = core[0].caller.layout
    many = has_heads(usual)
    return tuple(one for one in RARE if len(one) >= len(usual) and (has_heads(one) >= many or "1" in one))


def over_other_axes(case: Case) -> Iterator[Mapping[str, Any]]:
    """Yield the stages of a case with the softmax over heads, or over queries."""
    for name in ("softmax_over_heads", "softmax_over_queries"):
        for change in mistake(name).changes:
            if made := predicted(change(case.recipe), case.given):
                yield made


def in_rare_layouts(
    own: OwnFunction, request: Request, several: Sequence[Bound], rare: Sequence[str], is_only: bool
) -> list[Tried]:
    """Return the first call that is right in a rare layout, maybe as it is causal, in a list; else an empty one.

    With `is_only`, no other layout gave an answer, so the first one with the right shape is enough. If a docstring says
    that the function takes heads, prefer layouts with heads: fewer axes may hide its mistakes.
    """
    start, shaped, of_heads = thread_time(), list[Tried](), list[Tried]()
    is_told = speaks_of_heads(own.function)
    many = request.kv_head is not None or (request.head or 1) > 1
    rare = [layout for layout in rare if has_heads(layout) or not many]
    for function in several:
        offer = offer_of(own, function)
        if not offer.core or offer.layouts or offer.only_if_right or thread_time() - start > MOST_SECONDS / 2:
            continue
        for layout in rare if request.entries <= 1 else ():
            for tried in ways(own, replace(request, layout=layout), function):
                readings = (tried, *other_readings(tried))
                found = [one for one in readings if is_right(one) or is_right(one, causal=True)]
                if found and not (is_told and of_heads and len(layout) < len(of_heads[0].caller.layout)):
                    return found[:1]
                shaped += [tried] if has_right_shape(tried) else []
                of_heads += filter(has_right_shape, readings if len(layout) == len("bhtd") else ())
    likely = of_heads + shaped if is_told else shaped + of_heads
    return likely[:1] if is_only else []


def speaks_of_heads(function: Any) -> bool:
    """Return whether the docstrings of a function, or of its class, list four axes, the second of them heads."""
    with suppress(Exception):
        made = function if inspect.isroutine(function) or inspect.isclass(function) else type(function)
        texts = [inspect.getdoc(one) or "" for one in (made, getattr(made, "forward", None), made.__call__)]
        return any(is_of_heads(one) for text in texts for one in AXES_IN_WORDS.findall(text))
    return False


AXES_IN_WORDS = re.compile(r"[(\[]([^()\[\]]*)[)\]]")


def is_of_heads(words: str) -> bool:
    """Return whether a list of words has four axes, the second of them heads."""
    axes = [one.strip().lower() for one in words.split(",")] if "," in words else words.lower().split()
    return len(axes) == len("bhtd") and bool(re.fullmatch(r"h|nh|.*head.*", axes[1]))


def has_right_shape(tried: Tried) -> bool:
    output = tried.answer.output
    return output is not None and output.shape == expected(tried.case)["output"].shape


def unfit(own: OwnFunction, silent: Sequence[Tried]) -> UserError:
    """Return the error for a function that cannot be called: what is unknown, and its own error in the best attempt."""
    said = f"{own.name} could not be called"
    try:
        offered(own.function, own.name)
    except UserError as error:
        said = str(error)
    if not silent:
        return UncalledError(said)
    last = max(silent, key=lambda tried: furthest(tried.answer))
    given = f"with {last.caller.offer.said}: " if last.caller.offer.said else ""
    return UncalledError(f"{said} ({given}{last.answer.error})")


def is_sure(tried: Tried) -> bool:
    """Return whether the names of the parameters say how to call, so that no other way has to be tried."""
    return not tried.caller.offer.guessed


def may_tell_more(function: Bound, shaped: Sequence[Tried]) -> bool:
    """Return whether to try a way to call in addition to those that gave the right shape.

    If names say all, only matrices as `nn.Linear` stores them are left to try. An output with an extra or missing axis
    leaves everything open.
    """
    if not shaped or function.call is shaped[0].function.call or not is_sure(shaped[0]) or shaped[0].answer.axes:
        return True
    return is_turned(function) and not is_turned(shaped[-1].function)


def is_right(tried: Tried, causal: bool = False, unscaled: bool = False, unmasked: bool = False) -> bool:
    """Return whether the answer is right, to float32 at most; or right with a causal mask, no scale or no masks."""
    case, answer = tried.case, tried.answer
    if unmasked and not case.recipe.rules.masks:
        return False
    case = case.with_masks((*case.recipe.rules.masks, Causal())) if causal else case
    case = case.with_masks(()) if unmasked else case
    case = replace(case, recipe=case.recipe.with_rules(scale=1.0)) if unscaled else case
    stages = expected(case)
    if answer.output is None or answer.output.shape != stages["output"].shape:
        return False
    return not differs(answer.output, stages, min(digits_of(tried.caller, answer), 24))


def other_readings(tried: Tried) -> Iterator[Tried]:
    """Yield the same call with another returned value as its output, or with the output's axes in another order."""
    caller, case, answer = tried.caller, tried.case, tried.answer
    shape = expected(case)["output"].shape
    if answer.output is None or (answer.output.shape == shape and not (answer.stages and caller.offer.core)):
        return
    if not caller.offer.core:
        others = [replace(caller, part=part) for part in list(caller.returned(case))[1:]]
        several = (replace(tried, caller=other, answer=other(case)) for other in others)
        yield from (one for one in several if one.answer.output is not None and one.answer.output.shape == shape)
        return
    for part, array in caller.returned(case).items():
        for layout in layouts_of_answer(array, shape, caller.layout, caller.offer.guessed):
            other = replace(caller, part=part, returns="" if layout == caller.layout else layout)
            if (part, layout) != (next(iter(caller.returned(case))), caller.layout):
                cut = case.recipe.changed(wide=case.recipe.wide or cuts_heads(layout))
                yield replace(tried, caller=other, case=replace(case, recipe=cut), answer=other(case))


def furthest(answer: Answer) -> tuple[bool, tuple[int, ...]]:
    """Return a sort key for how far a failed call got; one that returned something got to the end."""
    return answer.reached is None, answer.reached or ()


def digits_of(caller: Caller, answer: Answer) -> int:
    """Return how many bits an answer can hold: the fewest of its input dtype, its output dtype and the request.

    Two less for a half type: logits of about 6 are rounded too, and weights change by as much.
    """
    given = DIGITS[caller.dtype] - (LOGITS if is_half(caller) else 0)
    return min(DIGITS.get(answer.dtype, 53), given, caller.request.digits)


def is_half(caller: Caller) -> bool:
    """Return whether the function is called in a type narrower than float32."""
    return DIGITS[caller.dtype] < DIGITS["float32"]


def ask_every_question(caller: Caller, function: Bound, quick: bool) -> Seen:
    """Run every case that the dtype can resolve, with inputs that it holds exactly, and return all answers."""
    start, seen = process_time(), list[tuple[Case, Answer]]()
    for asked in cases(caller, function, quick):
        is_dear = caller.library.name == "jax" and process_time() - start > MOST_COMPILING
        if not beyond(caller, asked) and not (asked.optional and is_dear):
            case = rounded(asked, caller)
            answer = answer_if_offered(caller, case) if case.unpromised else caller(case)
            seen.append(of_tokens_not_zero(caller, case, of_kept_queries(caller, case, answer)))
    return seen


NOT_ZERO = "equal tokens, as those of 0 count as filler"


def of_tokens_not_zero(caller: Caller, case: Case, answer: Answer) -> tuple[Case, Answer]:
    """Replace a case of zero tokens by one of equal tokens, if a layer is right only for those.

    Padding often consists of zero tokens, which some layers mask.
    """
    x, output = case.given.x, answer.output
    if x is None or x.any() or output is None or not np.isfinite(output).all() or is_near(caller, answer, case.right):
        return case, answer
    row = np.random.default_rng(83).standard_normal(x.shape[-1])
    equal = replace(case, rung=NOT_ZERO, given=replace(case.given, x=np.broadcast_to(row, x.shape).copy()))
    other = caller(rounded(equal, caller))
    return (rounded(equal, caller), other) if is_near(caller, other, equal.right) else (case, answer)


def of_kept_queries(caller: Caller, case: Case, answer: Answer) -> Answer:
    """Replace the output of padding queries by the expected one, if all other queries are right.

    In self-attention nobody uses the output of padding, and many functions hide all keys from it.
    """
    padding = next((mask for mask in case.recipe.rules.masks if isinstance(mask, Padding)), None)
    if answer.output is None or padding is None or case.rung not in PADDED:  # not for requested padding
        return answer
    right, at = expected(case), at_of(case)
    if at.rows != at.keys or answer.output.shape != right["output"].shape:
        return answer
    kept = kept_by(padding, at).reshape(at.batch, *(1,) * (answer.output.ndim - len("btm")), at.rows)
    patched = replace(answer, output=np.where(kept[..., None], answer.output, right["output"]))
    return patched if is_near(caller, patched, right) else answer


DIVIDES = "what is passed as its scale divides"


def with_its_scale(caller: Caller, case: Case) -> Caller:
    """Return the caller that passes the scale as the function wants it: some divide by it instead of multiplying.

    This also shows if the function applies the scale twice.
    """
    offer = caller.offer
    if not offer.takes("scale"):
        return caller
    asked = replace(case, recipe=case.recipe.with_rules(scale=0.3), explicit_scale=True)
    said = "; ".join(filter(None, (offer.said, DIVIDES)))
    other = replace(caller, offer=replace(offer, divides=True, said=said))
    (twice,) = mistake("scale_twice").changes
    fitting = [made for made in (expected(asked), predicted(twice(asked.recipe), asked.given)) if made is not None]
    as_it_is, divided = caller(asked), other(asked)
    if any(is_near(caller, as_it_is, made) for made in fitting):
        return caller
    divides = any(is_near(other, divided, made) for made in fitting) or divides_by_default(caller, other, case)
    return other if divides else caller


def divides_by_default(caller: Caller, other: Caller, case: Case) -> bool:
    """Return whether omitting the scale equals dividing by the usual one, and differs from multiplying by it.

    This shows even if the rest of the answer is wrong.
    """
    left, told = replace(case, explicit_scale=False), replace(case, explicit_scale=True)
    unsaid, divided, multiplied = (ask(each).output for ask, each in ((caller, left), (other, told), (caller, told)))
    if unsaid is None or divided is None or multiplied is None or not np.isfinite(unsaid).all():
        return False
    is_so = unsaid.shape == divided.shape == multiplied.shape and np.allclose(unsaid, divided, rtol=1e-5)
    return bool(is_so and not np.allclose(unsaid, multiplied, rtol=1e-3))


def is_near(caller: Caller, answer: Answer, stages: Mapping[str, Any]) -> bool:
    """Return whether an answer equals these stages, to float32 at most, and has the right axes."""
    digits = min(digits_of(caller, answer), DIGITS["float32"])
    return answer.output is not None and not answer.axes and not differs(answer.output, stages, digits)


OTHERWISE = "it answers, but not of fewer key/value heads than heads"


def answer_if_offered(caller: Caller, case: Case) -> Answer:
    """Return the answer to an unpromised case; an error if the function does not offer that feature.

    A mask per entry is tried with several axis orders. Code that knows nothing of grouped key/value heads may reshape
    them into anything: only a right answer, or a known wrong way to share heads, counts.
    """
    right, first = expected(case), None
    shared = case.recipe.groups != case.recipe.heads
    own = caller.masking.axes
    if not shared and own not in AXES:
        return Answer(None, error=f"its mask is [{own}]")
    for axes in ("t s", "b 1 t s", "b t s") if own == "t s" and not shared else (own,):
        answer = replace(caller, masking=replace(caller.masking, axes=axes))(case)
        if answer.output is not None and answer.output.shape != right["output"].shape:
            answer = Answer(None, error="its answer has another shape then")
        if is_near(caller, answer, right):
            return answer
        first = answer if first is None or first.output is None else first
    assert first is not None
    if shared and first.output is not None:
        known = [change for name in SHARED_WRONGLY for change in mistake(name).changes]
        made = (predicted(change(case.recipe), case.given) for change in known)
        return first if any(one and is_near(caller, first, one) for one in made) else Answer(None, error=OTHERWISE)
    return first


SHARED_WRONGLY = ("kv_heads_tiled", "kv_heads_first")


def beyond(caller: Caller, case: Case) -> bool:
    """Return whether a half type is too coarse for a case: large logits, or in float16 tiny x, below 6e-5."""
    tiny = case.rung == "tiny inputs" and case.given.x is not None and caller.dtype == "float16"
    return tiny or (case.rung == "large inputs" and is_half(caller))


def rounded(case: Case, caller: Caller) -> Case:
    """Return the case with inputs that the caller's dtype holds exactly: all are compared on the same numbers."""
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
    """Return the cases that were answered wrongly."""
    return [
        (case, answer)
        for case, answer in seen
        if answer.output is not None and differs(answer.output, expected(case), digits)
    ]
