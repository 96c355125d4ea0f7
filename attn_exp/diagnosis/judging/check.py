"""Check one function: run its cases, name the mistake, and find the smallest failing input."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np

from attn_exp.diagnosis.asking.libraries import replaced_in_numpy
from attn_exp.diagnosis.asking.questions import ABOUT_MASKS, MASKS_OF_MORE
from attn_exp.diagnosis.asking.request import Request, with_words
from attn_exp.diagnosis.bind.sizes import sizes_of_file
from attn_exp.diagnosis.calling import conventions, ways_to_call
from attn_exp.diagnosis.calling.call import Bound, Caller
from attn_exp.diagnosis.calling.ways_to_call import Tried
from attn_exp.diagnosis.explaining.answers import SINGLE
from attn_exp.diagnosis.judging.check_layer import check_layer, is_layer
from attn_exp.diagnosis.judging.judge_answers import (
    VALUES,
    describe_caller,
    verdict_on_answers,
    with_masks_beside_a_mistake,
)
from attn_exp.diagnosis.judging.unasked import with_outcome
from attn_exp.diagnosis.recipes.candidates import Explained, everywhere, gives
from attn_exp.diagnosis.recipes.combinations import EXPLAINING, start_clock
from attn_exp.errors import HERE, FaultError, UserError, fault_line, way_of
from attn_exp.experiment.verdict import (
    ANSWERED,
    BROKEN,
    CALLED,
    CHECKED,
    HELD,
    REMARK,
    Finding,
    Verdict,
    unfinished,
)
from attn_exp.mistakes import mistake
from attn_exp.own_code import OwnFunction, error_line, held


def check(own: OwnFunction, request: Request, quick: bool = False) -> Verdict:
    """Run all cases on a function and return the verdict.

    Raises:
        UserError: the arguments of the function are unknown, or a setting does not apply to it.
        FaultError: attn_exp itself raised an error.
    """
    with held(), start_clock() as clock, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # ignore the function's warnings and judge only its output
        fault = None
        start = perf_counter()
        try:
            verdict = check_in_all_ways(own, request, quick)
        except UserError:
            raise
        except Exception as error:
            fault = error
        replaced = replaced_in_numpy()
        if replaced:
            said = f"it replaced {', '.join(replaced)}, so the right answer cannot be computed"
            return unfinished(own.name, said, request.words, CHECKED)
        if fault is None:
            if clock.was_over and not verdict.passed:
                left = f"combinations of mistakes (the search was stopped after {EXPLAINING:g} s)"
                verdict = replace(verdict, not_asked=(*verdict.not_asked, left))
            return replace(with_outcome(verdict, own, request), seconds=perf_counter() - start)
        if isinstance(fault, MemoryError | RecursionError) or is_raised_by_user_code(fault, own):
            return unfinished(own.name, f"it could not be checked: {error_line(fault)}", request.words, CHECKED)
        raise FaultError(f"{own.name} could not be checked ({fault_line(fault)})") from fault


def check_in_all_ways(own: OwnFunction, request: Request, quick: bool) -> Verdict:
    """Check a function or a layer; if the mistake may be a convention, check again under that convention."""

    def ask(bound: Bound, asked: Request) -> Verdict:
        return check_called(own, ways_to_call.how_to_call(own, asked, bound), quick)

    def judge(asked: Request) -> Verdict:
        if is_layer(own.function):
            return check_layer(own, asked, ask)
        heads = sizes_of_file(own.function).get("h") if asked.head is None else None
        return check_function(own, with_words(asked, f"head={heads}") if heads else asked, quick)

    verdict = judge(request)
    words, said = CONVENTIONS.get(" ".join(verdict.mistakes), ("", ""))
    is_open = words.partition("=")[0] not in request.said and (words != conventions.NEIGHBOURS or request.positions)
    if words and is_open:
        other = judge(with_words(request, words))
        if other.passed or (other.right_under and not other.mistakes):  # with one more convention
            under, alike = other.right_under or words, (verdict.mistakes, *other.alike)
            if words == conventions.NEIGHBOURS and other.passed and names_neighbours(own):
                return conventions.under(other, request, words)
            said = f"attention with {under}: {said}"
            return replace(other, passed=False, mistakes=(), alike=alike, right_under=under, computes=said)
    return judge_neighbours(own, verdict, request, judge)


def names_neighbours(own: OwnFunction) -> bool:
    """Return whether a function's file names its rotary tables like Llama's own code, which rotates neighbours."""
    source = Path(own.file).read_text(encoding="utf-8", errors="replace") if own.file else ""
    return bool(re.search(r"\bfreqs_(cis|cos)\b", source)) and "rotate_half" not in source


def judge_neighbours(
    own: OwnFunction, verdict: Verdict, request: Request, judge: Callable[[Request], Verdict]
) -> Verdict:  # fmt: skip
    """Check again with RoPE on neighbouring pairs if this may explain the first verdict better."""
    words = conventions.NEIGHBOURS
    of_positions = {name for name in verdict.mistakes if mistake(name).group == "positions"}
    is_open = (
        verdict.unexplained
        or of_positions > {"rope_pairing"}
        or ("rope_pairing" in of_positions and names_neighbours(own))
    )
    if not is_open or not request.positions or words.partition("=")[0] in request.said:
        return verdict
    other = judge(with_words(request, words))
    return verdict if other.unexplained or not other.mistakes else conventions.under(other, request, words)


CONVENTIONS = {
    "rope_pairing": (conventions.NEIGHBOURS, "neighbouring dimensions rotate together"),
    "causal_bottom_right": (conventions.BOTTOM_RIGHT, "the last query is aligned with the last key"),
}
"""Mistakes that may be conventions of a checkpoint or library, with the setting for each and what it means."""


def is_raised_by_user_code(error: BaseException, own: OwnFunction) -> bool:
    place = [path for path, _ in way_of(error)][-1]
    return place.is_relative_to(Path(own.file).parent) and not place.is_relative_to(HERE)


def check_function(own: OwnFunction, request: Request, quick: bool) -> Verdict:
    """Check a function in the likeliest layout; if only cases with masks raise errors, try a layout made for masks."""
    tried = ways_to_call.how_to_call(own, request)
    verdict = check_called(own, tried, quick)
    broken = [one for one in verdict.findings if one.state == BROKEN]
    only_masks_fail = all(one.rung in ABOUT_MASKS and re.match(r"\w*Error: ", one.said) for one in broken)
    layout = FOR_MASKS[tried.caller.offer.core].get(tried.caller.layout, "")
    if layout and broken and only_masks_fail and not request.layout:
        with suppress(UserError):  # it may not accept this layout
            other = check_called(own, ways_to_call.how_to_call(own, replace(request, layout=layout)), quick)
            groups = {mistake(name).group for name in other.mistakes}
            return other if other.passed or groups == {"masks"} else verdict
    return verdict


FOR_MASKS = {True: {"bhtd": "btd", "bthd": "btd"}, False: {"td": "bhtd"}}
"""Layouts to try if the first one fails only with masks, for functions of q, k and v (True) and of x (False)."""


def fails_only_with_masks(verdict: Verdict) -> bool:
    wrong = {one.rung for one in verdict.findings if one.state == BROKEN}
    return wrong <= {*ABOUT_MASKS, *MASKS_OF_MORE}


def check_called(own: OwnFunction, tried: Tried, quick: bool) -> Verdict:
    """Check a function whose calling convention is known; warnings must already be silenced."""
    request = tried.caller.request
    offer = tried.function.offer
    if request.masks and tried.answer.output is None and offer.takes("mask") and find_built_layer(tried):
        bare = replace(tried.function, offer=offer.of_keys_alone())  # the requested mask may be built in
        given = ways_to_call.how_to_call(own, request, bare)
        tried = given if given.answer.output is not None else tried
    caller = tried.caller
    if tried.answer.output is None:
        is_called = tried.answer.reached is None
        said = f"{describe_caller(caller)}: {tried.answer.error}"
        finding = Finding(ANSWERED if is_called else CALLED, BROKEN, said)
        computes = f"something unknown: it {tried.answer.error}" if is_called else "nothing: it could not be called"
        return Verdict(own.name, False, (), computes, (finding,), request.words)
    if request.device != "cpu" and caller.library.name != "torch":
        raise UserError(
            f"device={request.device} needs a function of tensors; {own.name} takes {caller.library.name} arrays"
        )
    instead = under_other_words(own, tried, quick)
    if instead is not None:
        return instead
    caller = ways_to_call.with_its_scale(conventions.with_its_mask(caller, tried.function), tried.case)
    caller = ways_to_call.with_its_window(caller, tried.function)
    is_open = conventions.are_open(request)
    hides = is_open and conventions.hides(caller, tried.function)
    if hides and (again := check_inverted(own, tried, request, quick)).passed:  # prefer a convention to a mistake
        change = everywhere(mistake(conventions.INVERTED).changes[0])
        turned = Explained((conventions.INVERTED,), change=change)
        verdict = verdict_on_answers(own, caller, tried, quick, turned)
        return read_otherwise(verdict, tried, request, again)
    caller = conventions.with_one_opposite(caller, tried.function) if is_open else caller
    verdict = report_polarities(with_masks_beside_a_mistake(own, caller, tried, quick), caller)
    may_hide = not verdict.passed and (conventions.INVERTED in verdict.mistakes or (hides and not verdict.mistakes))
    if is_open and may_hide:  # the mistake is an inverted mask, or unknown
        again = again if hides else check_inverted(own, tried, request, quick)
        verdict = read_otherwise(verdict, tried, request, again)
    elif is_open and verdict.unexplained and fails_only_with_masks(verdict):  # a mistake may accompany that convention
        again = check_inverted(own, tried, request, quick)
        is_one = again.mistakes and HIDES_ALL not in again.mistakes  # hiding all keys does not depend on polarity
        verdict = read_otherwise(verdict, tried, request, again) if is_one else verdict
    return verdict


HIDES_ALL = "mask_hides_all"


def report_polarities(verdict: Verdict, caller: Caller) -> Verdict:
    """Report a mask and a padding mask of opposite polarity; often True means hidden only in the padding mask."""
    if caller.masking.opposite == caller.padding.opposite:
        return verdict
    hiding, other = ("padding", "mask") if caller.padding.opposite else ("mask", "padding")
    words = caller.offer.parameters
    is_usual = hiding == "padding" or "causal" in words["mask"].lower()
    said = f"True means hidden, but attend in {words[other]}" + ("" if is_usual else ": a mistake, unless intended")
    finding = Finding(f"masks as {words[hiding]}", HELD if is_usual else REMARK, said)
    return replace(verdict, findings=(*verdict.findings, finding))


def under_other_words(own: OwnFunction, tried: Tried, quick: bool) -> Verdict | None:
    """Check a function under the settings that fit its first answer; None if the answer is right or no settings fit."""
    digits = min(ways_to_call.digits_of(tried.caller, tried.answer), SINGLE)
    if not ways_to_call.failing([(tried.case, tried.answer)], digits):
        return None
    request = tried.caller.request
    heads = conventions.of_heads_inside(tried.caller, tried.case) if tried.function.inside is None else ()
    found = conventions.find_settings(tried.caller, tried.case, tried.answer, digits) or [
        words for words, recipe in heads if gives(recipe, tried.case, tried.answer, digits)
    ]
    fits = [(words, with_words(request, words)) for words in found]
    if not fits:
        return None
    words, asked = min(fits, key=lambda one: ways_to_call.failing_at_first(tried, one[1], digits))
    longest = ways_to_call.longest_question(tried, asked)
    if longest is not None:
        words = conventions.find_width(words, *longest, digits)
        asked = with_words(request, words)
    built = None if conventions.TWO_TO_THE in words else find_built_layer(tried)  # its number of heads differs
    verdict = check_called(own, ways_to_call.how_to_call(own, asked, built), quick)
    if verdict.mistakes == (conventions.INVERTED,):
        verdict = read_otherwise(verdict, tried, asked, check_inverted(own, tried, asked, quick))
    nearly = any(finding.rung == VALUES and finding.state == HELD for finding in verdict.findings)
    return conventions.under(verdict, request, words) if verdict.passed or verdict.mistakes or nearly else None


def find_built_layer(tried: Tried) -> Bound | None:
    return tried.function if tried.function.unknown is not None else None


def check_inverted(own: OwnFunction, tried: Tried, request: Request, quick: bool) -> Verdict:
    asked = with_words(request, conventions.BLOCKS)
    return check_called(own, ways_to_call.how_to_call(own, asked, find_built_layer(tried)), quick)


def read_otherwise(verdict: Verdict, tried: Tried, request: Request, again: Verdict) -> Verdict:
    """Choose between an inverted mask and the convention that True hides; `again` is the verdict under the latter."""
    if not again.passed:
        fewer = again.mistakes and set(again.mistakes) < set(verdict.mistakes)
        refuted = again.mistakes and verdict.mistakes == (conventions.INVERTED,)  # otherwise it would pass now
        if fewer or refuted or not (verdict.mistakes or again.uncalled):
            also = verdict.mistakes if fewer else (*again.mistakes, conventions.INVERTED)
            return replace(conventions.under(again, request, conventions.BLOCKS), alike=(also, *again.alike))
        return verdict
    words = " ".join(filter(None, (request.words if request.typed else "", conventions.BLOCKS)))
    dressed = tried.caller.offer.parameters.get("padding") == "key_padding_mask"
    return conventions.read_otherwise(verdict, words, passed=dressed)
