"""Find the layout, library and dtype that a function accepts, and run every case on it.

1. `how_to_call` tries the ways to call the function on the first case, the likeliest first. It returns the first way
   that gives the right answer, or else the one with the best answer.
2. `with_its_scale` and `with_its_window` adjust how the scale and the window are passed.
3. `ask_every_question` runs all cases.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, product
from time import process_time
from typing import Any

import numpy as np

from attn_exp.arrays import Array, Shape
from attn_exp.diagnosis.asking.case import Answer, Case, CaseAnswer, Seen, differs, expected, predicted
from attn_exp.diagnosis.asking.libraries import DIGITS, DTYPES, Library, list_likely_libraries, load_library
from attn_exp.diagnosis.asking.offer import (
    AXES,
    KEYS_WITH_OWN,
    KNOWN_LAYOUTS,
    LAYOUTS,
    MASKINGS,
    PADDINGS,
    RARE_LAYOUTS,
    WIDE_LAYOUT,
    WINDOWS,
    Offer,
    attribute_of,
    cuts_heads,
    find_visible_keys,
    has_heads,
    layouts_of_answer,
    setup_of,
)
from attn_exp.diagnosis.asking.questions import PADDED, SIZE, core_cases, layer_cases
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.calling.call import Bound, Caller
from attn_exp.diagnosis.calling.signatures import read_signature
from attn_exp.errors import UncalledError, UserError, unknown
from attn_exp.mistakes import mistake
from attn_exp.own_code import OwnFunction, unreadable
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.window import Window

MOST_COMPILING = 6.0
"""Seconds after which optional cases are skipped with JAX, which compiles for each size."""
LOST_BITS = 2
"""Bits that an answer loses when logits of about 6 are rounded to half precision."""
ABOUT_DTYPE = r"(?i)float|dtype|double|half|precision|scalar type|datatype|Error$|not implemented|\bbits?\b"
"""Pattern of error messages after which another dtype is tried."""
FIRST_FEW = 5
"""Number of cases that decide between settings that fit the first answer."""
WITHOUT_BATCH = ("htd", "td")
"""Layouts without a batch axis."""
RIGHT, NEARLY_RIGHT, RIGHT_SHAPE, WRONG_SHAPE, TRIVIAL, NO_ANSWER = 0, 4, 5, 7, 8, 9
"""Ranks of the answer to the first case, best first; see `Tried.rank`."""
DIVIDES = "scores are divided by its scale argument"
STORED_OTHERWISE = "its argument names do not say how its matrices are stored"
"""For example, the columns of one matrix may be stored head by head."""
NO_SHARED_HEADS = "it does not support fewer key/value heads than query heads"
SHARED_WRONGLY = ("kv_heads_tiled", "kv_heads_first")
"""Mistakes in the order in which query heads share key/value heads."""


@dataclass(frozen=True)
class Tried:
    """One way to call a function or a layer, and the answer to the first case."""

    function: Bound
    caller: Caller
    case: Case
    answer: Answer

    @cached_property
    def rank(self) -> int:
        """The rank of the answer; smaller is better.

        - `RIGHT`: the answer is right.
        - From 1 to `NEARLY_RIGHT`: right except for axes of length 1 (1), a causal mask (2), the scale (3) or all
          masks (4).
        - `RIGHT_SHAPE`: wrong numbers; one more if axes of length 1 had to be added or removed.
        - `WRONG_SHAPE`: another shape.
        - `TRIVIAL`: all zeros, or one of the inputs.
        - `NO_ANSWER`: the call failed, or the answer is wrong and names do not tell which arguments are the arrays.
        """
        answer, masks = self.answer, self.case.recipe.rules.masks
        if answer.output is None:
            return NO_ANSWER
        assumed: list[dict[str, Any]] = [{}, {"masks": (*masks, Causal())}, {"scale": 1.0}, {"masks": ()}]
        for index, rules in enumerate(assumed):
            if is_right(self, **rules):
                return index + bool(index or answer.axes)
        if self.caller.offer.only_if_right:
            return NO_ANSWER
        if is_trivial(self.case, answer.output):
            return TRIVIAL
        return RIGHT_SHAPE + bool(answer.axes) if has_right_shape(answer, self.case) else WRONG_SHAPE


def try_layouts(own: OwnFunction, request: Request, function: Bound) -> Iterator[Tried]:
    """Call a function with each library and layout that it may expect, in every dtype until it accepts one."""
    with unreadable(own.name):
        names = (request.takes,) if request.takes else list_likely_libraries(function.origin)
    for name in names:
        arrays = load_library(name, request.device)
        for layout in list_layouts(request, function.offer, function):
            yield from try_dtypes(function, Caller(function.call, function.offer, arrays, request, layout))


def try_dtypes(function: Bound, caller: Caller) -> Iterator[Tried]:
    """Call a function in each dtype until it accepts one, and with each mask format if it may need a mask."""
    case = next(list_cases(caller, function, quick=True))
    for dtype in list_dtypes(caller.request, caller.library):
        other = replace(caller, dtype=dtype)
        tried = Tried(function, other, case, other(case))
        yield tried
        refuses_mask = tried.answer.output is None and case.recipe.rules.masks and caller.offer.takes("mask")
        if (needs_mask(caller.offer) or refuses_mask) and dtype == caller.library.widest and not is_right(tried):
            yield from with_other_masks(tried)
        if tried.answer.output is not None or not re.search(ABOUT_DTYPE, tried.answer.error):
            return


def with_other_masks(first: Tried) -> Iterator[Tried]:
    """Repeat a call with other formats of its mask, or of its padding mask if that is the only one."""
    role, formats = ("masking", MASKINGS) if first.caller.offer.takes("mask") else ("padding", PADDINGS)
    usual = replace(getattr(first.caller, role), attribute=attribute_of(first.answer.error))
    others = [usual, *(replace(usual, neutral=neutral) for neutral in ("none", "turned"))]
    others += [masking.like(usual) for masking in formats]
    callers = [replace(first.caller, **{role: masking}) for masking in others]
    if role == "masking" and needs_mask(first.caller.offer):
        of_keys = replace(first.caller, offer=first.caller.offer.as_padding())
        callers += [replace(of_keys, padding=padding) for padding in PADDINGS]
    yield from (
        replace(first, caller=caller, answer=caller(first.case)) for caller in callers if caller != first.caller
    )


def needs_mask(offer: Offer) -> bool:
    return any(offer.takes(role) and role not in offer.defaults for role in ("mask", "padding"))


def count_first_failures(tried: Tried, request: Request, digits: int) -> int:
    """Return how many of the first few cases of another request get a wrong answer."""
    caller = replace(tried.caller, request=request)
    first = [round_inputs(case, caller) for case in islice(list_cases(caller, tried.function, quick=True), FIRST_FEW)]
    return len(failing([(case, caller(case)) for case in first], digits))


def run_longest_case(tried: Tried, request: Request) -> CaseAnswer | None:
    """Return the longest case of another request and its answer; None if there is no long case, or the call fails."""
    caller = replace(tried.caller, request=request)
    long_cases = [case for case in list_cases(caller, tried.function, quick=False) if case.question == "off the block"]
    if not long_cases:
        return None
    case = round_inputs(max(long_cases, key=lambda case: case.given.keys), caller)
    answer = caller(case)
    return None if answer.output is None else (case, answer)


def list_dtypes(request: Request, arrays: Library) -> tuple[str, ...]:
    if request.dtype and request.dtype not in DTYPES:
        raise UserError(unknown(request.dtype, DTYPES, "dtype"))
    return (request.dtype,) if request.dtype else DTYPES[DTYPES.index(arrays.widest) :]


def list_layouts(request: Request, offer: Offer, function: Bound) -> Sequence[str]:
    """Return the layouts to try, the likeliest first.

    Raises:
        UserError: the requested layout does not exist, or functions of x cannot have it.
    """
    if request.layout and request.layout not in KNOWN_LAYOUTS:
        raise UserError(unknown(request.layout, KNOWN_LAYOUTS, "layout"))
    if not offer.core:
        if request.layout.startswith("tb") and function.inside is None:
            raise UserError(f"layout={request.layout}: functions of x take [b t m] or [t m]; write a factory")
        has_batch = function.inside is not None or request.batch > 1 or request.layout == "bhtd"
        return ("bhtd",) if has_batch else ("td", "bhtd")
    if request.layout:
        return (request.layout,)
    has_many_heads = request.kv_head is not None or (request.head or 1) > 1
    unfit = ("htd", "td") if request.batch > 1 else ("td",) if has_many_heads else ()
    usual = [layout for layout in LAYOUTS if layout not in (WIDE_LAYOUT, *unfit)]
    has_batch = offer.takes("lengths") or offer.takes("padding") or bool(offer.description)
    if has_batch and "htd" in usual:  # a batch, but maybe no heads
        usual.insert(usual.index("htd"), "btd")
    return [WIDE_LAYOUT, *usual] if offer.takes("heads") else usual


def list_cases(caller: Caller, function: Bound, quick: bool) -> Iterator[Case]:
    """Yield the cases that suit the function's arguments, in fewer sizes for JAX, which compiles for each size."""
    if caller.offer.core:
        few = caller.library.name == "jax" and not is_half(caller)
        request = replace(caller.request, few=few)
        size = (caller.fixed_head_size or SIZE) if caller.is_object else 0
        return core_cases(request, caller.offer, caller.layout, quick, returns=caller.returns, only_head_size=size)
    return layer_cases(caller.request, caller.offer, quick, function.inside)


def how_to_call(own: OwnFunction, request: Request, known: Bound | None = None) -> Tried:
    """Return the first way to call a function that gives the right answer, or else the one with the best answer.

    If every call fails, return the one that got furthest in the user's code. This is done only if the arguments are
    certain: those of a bound layer (`known`), or of a function whose argument names identify the arrays and that needs
    no `Adapter`.

    Raises:
        UserError: the parameters of the function are not known.
        UncalledError: names do not tell which arguments are the arrays or what a required one means, or every call
            fails and its arguments are not certain.
    """
    with unreadable(own.name):
        functions = [known] if known is not None else list(read_signature(own.function, own.name, request))
    tried = try_until_right(own, request, functions)
    best = min(tried, key=lambda attempt: attempt.rank)
    if best.rank > NEARLY_RIGHT and not request.layout:
        best = find_rare_layout(own, request, functions, tried) or best
    if known is None and best.answer.axes and not best.caller.offer.core:
        raise UncalledError(f"{own.name} returns {best.answer.axes}; {STORED_OTHERWISE}")
    if best.rank < NO_ANSWER:
        return best
    # `reached` is None if the call returned something; such a call got furthest
    furthest = max(tried, key=lambda attempt: (attempt.answer.reached is None, attempt.answer.reached or ()))
    offer = furthest.caller.offer
    is_direct = furthest.function.call is furthest.function.origin
    if known is not None or (is_direct and not offer.only_if_right):
        return furthest
    error = furthest.answer.error or "its argument names do not identify q, k and v; in this order, the answer is wrong"
    raise UncalledError(
        f"{own.name} could not be called ({f'with {offer.description}: ' if offer.description else ''}{error})"
    )


def try_until_right(own: OwnFunction, request: Request, functions: Sequence[Bound]) -> list[Tried]:
    """Try the ways to call the functions until one gives the right answer, and return all attempts.

    Each returned value is also read in other ways, which count as attempts of their own.
    """
    tried = list[Tried]()
    for function in functions:
        for attempt in try_layouts(own, request, function):
            if may_hide_mistakes(attempt, tried):
                continue
            for reading in (attempt, *read_otherwise(attempt)):
                tried.append(reading)
                if reading.rank == RIGHT:
                    return tried
    return tried


def has_right_shape(answer: Answer, case: Case) -> bool:
    return answer.output is not None and answer.output.shape == expected(case)["output"].shape


def may_hide_mistakes(tried: Tried, before: Sequence[Tried]) -> bool:
    """Return whether a call has no batch or head axis, although an earlier one with this axis gave the right shape.

    Without these axes, mistakes can go unnoticed, so such a call counts only if the function does not accept the axes.
    """
    layout = tried.caller.layout
    if not tried.caller.offer.core or (has_heads(layout) and layout not in WITHOUT_BATCH):
        return False
    accepted = (earlier.caller.layout for earlier in before if has_right_shape(earlier.answer, earlier.case))
    return any(other not in WITHOUT_BATCH for other in accepted) if layout in WITHOUT_BATCH else WIDE_LAYOUT in accepted


def find_rare_layout(
    own: OwnFunction, request: Request, functions: Sequence[Bound], before: Sequence[Tried]
) -> Tried | None:  # fmt: skip
    """Return the first call that is right in a rare layout, perhaps with a causal mask, or None.

    If a usual layout gave the right shape, the rare one must have at least as many axes, and a head axis if the usual
    one has it.
    """
    if request.batch > 1:
        return None
    usual = next((earlier.caller.layout for earlier in before if has_right_shape(earlier.answer, earlier.case)), "")
    needs_heads = request.kv_head is not None or (request.head or 1) > 1 or has_heads(usual)
    rare = [layout for layout in RARE_LAYOUTS if len(layout) >= len(usual) and (has_heads(layout) or not needs_heads)]
    for function, layout in product((function for function in functions if function.offer.core), rare):
        for attempt in try_layouts(own, replace(request, layout=layout), function):
            for reading in (attempt, *read_otherwise(attempt)):
                if is_right(reading) or is_right(reading, masks=(*reading.case.recipe.rules.masks, Causal())):
                    return reading
    return None


def is_trivial(case: Case, output: Array) -> bool:
    """Return whether an output is all zeros, or one of the inputs."""
    inputs = (case.given.q, case.given.k, case.given.v, case.given.x)
    return not output.any() or any(np.array_equal(output, array) for array in inputs if array is not None)


def is_right(tried: Tried, **rules: Any) -> bool:
    """Return whether the answer is right to float32 precision, or would be with these rules instead of the case's."""
    case, output = tried.case, tried.answer.output
    stages = expected(replace(case, recipe=case.recipe.with_rules(**rules)) if rules else case)
    if output is None or output.shape != stages["output"].shape:
        return False
    return not differs(output, stages, min(digits_of(tried.caller, tried.answer), 24))


def read_otherwise(tried: Tried) -> Iterator[Tried]:
    """Read what a call returned in other ways: with another part of it as the output, or in another layout."""
    caller, case, output = tried.caller, tried.case, tried.answer.output
    shape = expected(case)["output"].shape
    if output is None or (output.shape == shape and not (tried.answer.stages and caller.offer.core)):
        return
    parts = caller.call_for_arrays(case)
    if caller.offer.core:
        yield from read_layouts(tried, parts, shape)
        return
    for part in list(parts)[1:]:
        other = replace(caller, part=part)
        answer = other(case)
        if has_right_shape(answer, case):
            yield replace(tried, caller=other, answer=answer)


def read_layouts(tried: Tried, parts: Mapping[str, Array], shape: Shape) -> Iterator[Tried]:
    """Yield each part of an answer in each layout that converts to `shape`, except the first reading."""
    caller, case = tried.caller, tried.case
    usual = (next(iter(parts), ""), caller.layout)
    for part, array in parts.items():
        for layout in layouts_of_answer(array, shape, caller.layout):
            if (part, layout) != usual:
                other = replace(caller, part=part, returns="" if layout == caller.layout else layout)
                recipe = case.recipe.changed(wide=case.recipe.wide or cuts_heads(layout))
                yield replace(tried, caller=other, case=replace(case, recipe=recipe), answer=other(case))


def digits_of(caller: Caller, answer: Answer) -> int:
    """Return how many bits of an answer can be right: the minimum over its input dtype, output dtype and the request.

    For half-precision inputs, subtract two bits, which weights lose when logits of about 6 are rounded.
    """
    of_inputs = DIGITS[caller.dtype] - (LOST_BITS if is_half(caller) else 0)
    return min(DIGITS.get(answer.dtype, 53), of_inputs, caller.request.digits)


def is_half(caller: Caller) -> bool:
    return DIGITS[caller.dtype] < DIGITS["float32"]


def ask_every_question(caller: Caller, function: Bound, quick: bool) -> Seen:
    """Run every case for which the dtype is precise enough, with inputs rounded to it, and return all answers."""
    start, seen = process_time(), list[CaseAnswer]()
    for exact in list_cases(caller, function, quick):
        is_slow = caller.library.name == "jax" and process_time() - start > MOST_COMPILING
        if is_beyond_dtype(caller, exact) or (exact.optional and is_slow):
            continue
        case = round_inputs(exact, caller)
        answer = answer_if_offered(caller, case) if case.unpromised else caller(case)
        seen.append((case, accept_padding_queries(caller, case, answer)))
    return seen


def accept_padding_queries(caller: Caller, case: Case, answer: Answer) -> Answer:
    """Replace the outputs of padding queries with the expected ones, if all other queries are right.

    In self-attention these outputs are never used, and many functions hide all keys from padding queries.
    """
    padding = next((mask for mask in case.recipe.rules.masks if isinstance(mask, Padding)), None)
    if answer.output is None or padding is None or case.question not in PADDED:  # requested padding is compared in full
        return answer
    right, setup = expected(case), setup_of(case)
    if setup.rows != setup.keys or answer.output.shape != right["output"].shape:
        return answer
    head_axes = (1,) * (answer.output.ndim - len("btm"))
    is_token = find_visible_keys(padding, setup).reshape(setup.batch, *head_axes, setup.rows)
    patched = replace(answer, output=np.where(is_token[..., None], answer.output, right["output"]))
    return patched if is_near(caller, patched, right) else answer


def with_its_scale(caller: Caller, case: Case) -> Caller:
    """Return a caller that passes the scale as the function expects it: some divide by it instead of multiplying.

    A function that applies the scale twice also shows how it expects the scale.
    """
    offer = caller.offer
    if not offer.takes("scale"):
        return caller
    scaled = replace(case, recipe=case.recipe.with_rules(scale=0.3), explicit_scale=True)
    description = "; ".join(filter(None, (offer.description, DIVIDES)))
    dividing = replace(caller, offer=replace(offer, divides=True, description=description))
    (apply_twice,) = mistake("scale_twice").changes
    accepted = [expected(scaled), predicted(apply_twice(scaled.recipe), scaled.given)]
    for candidate in (caller, dividing):
        answer = candidate(scaled)
        if any(stages is not None and is_near(candidate, answer, stages) for stages in accepted):
            return candidate
    return caller


def with_its_window(caller: Caller, function: Bound) -> Caller:
    """Return a caller that passes a window as the function expects it: as a pair, or as a number of keys."""
    counts = WINDOWS if caller.offer.takes("window") else ()
    others = [replace(caller, offer=replace(caller.offer, counted=count)) for count in counts]
    answering = list[Caller]()
    for other in (caller, *others):
        case = find_window_case(other, function)
        if case is None:
            continue
        answer = other(case)
        if is_near(other, answer, case.right):
            return other
        answering += [other] if answer.output is not None else []
    return next(iter(answering), caller)


def find_window_case(caller: Caller, function: Bound) -> Case | None:
    """Return the first case whose window is on both sides of a query, or before it, as the caller counts keys."""
    both_sides = (caller.offer.counted or KEYS_WITH_OWN).both_sides
    windows = ((case, mask) for case in list_cases(caller, function, quick=True) for mask in case.recipe.rules.masks
               if isinstance(mask, Window))  # fmt: skip
    fitting = (case for case, window in windows if (window.left == window.right) is both_sides)
    return next((round_inputs(case, caller) for case in fitting), None)


def is_near(caller: Caller, answer: Answer, stages: Mapping[str, Any]) -> bool:
    digits = min(digits_of(caller, answer), DIGITS["float32"])
    return answer.output is not None and not differs(answer.output, stages, digits)


def answer_if_offered(caller: Caller, case: Case) -> Answer:
    """Return the answer to a case whose feature has no keyword, or an error if the function lacks the feature.

    A mask per example is tried with different axes.
    """
    if case.recipe.groups != case.recipe.heads:
        return answer_with_shared_heads(caller, case)
    usual = caller.masking.axes
    if usual not in AXES:
        return Answer(None, error=f"its mask has the axes [{usual}]")
    answers = list[Answer]()
    for axes in ("t s", "b 1 t s", "b t s") if usual == "t s" else (usual,):
        answer = answer_of_right_shape(replace(caller, masking=replace(caller.masking, axes=axes)), case)
        if is_near(caller, answer, expected(case)):
            return answer
        answers.append(answer)
    return next((answer for answer in answers if answer.output is not None), answers[-1])


def answer_with_shared_heads(caller: Caller, case: Case) -> Answer:
    """Return the answer with grouped key/value heads if it is right, or wrong in a known way, else an error.

    Any other answer means nothing: code that does not support grouped heads may reshape them arbitrarily.
    """
    answer = answer_of_right_shape(caller, case)
    if answer.output is None or is_near(caller, answer, expected(case)):
        return answer
    changes = [change for name in SHARED_WRONGLY for change in mistake(name).changes]
    wrong = (predicted(change(case.recipe), case.given) for change in changes)
    is_known = any(stages is not None and is_near(caller, answer, stages) for stages in wrong)
    return answer if is_known else Answer(None, error=NO_SHARED_HEADS)


def answer_of_right_shape(caller: Caller, case: Case) -> Answer:
    answer = caller(case)
    is_usable = answer.output is None or has_right_shape(answer, case)
    return answer if is_usable else Answer(None, error="the answer then has a different shape")


def is_beyond_dtype(caller: Caller, case: Case) -> bool:
    """Return whether half precision is too coarse for a case: large logits or, in float16, x below 6e-5."""
    tiny = case.question == "tiny inputs" and case.given.x is not None and caller.dtype == "float16"
    return tiny or (case.question == "large inputs" and is_half(caller))


def round_inputs(case: Case, caller: Caller) -> Case:
    """Return the case with inputs that the caller's dtype represents exactly, so that rounding them changes nothing."""
    if caller.dtype == "float64":
        return case
    into, back, dtype = caller.library.into, caller.library.back, caller.dtype
    sides = {side: getattr(case.given, side) for side in ("q", "k", "v", "x", "memory")}
    inputs: dict[str, Any] = {side: back(into(array, dtype)) for side, array in sides.items() if array is not None}
    arrays = {name: back(into(array, dtype)) for name, array in case.given.arrays.items()}
    return replace(case, given=replace(case.given, **inputs, arrays=arrays))


def failing(seen: Seen, digits: int) -> Seen:
    return [
        (case, answer)
        for case, answer in seen
        if answer.output is not None and differs(answer.output, expected(case), digits)
    ]
