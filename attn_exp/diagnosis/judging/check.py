"""Check one function or layer: call it, run its cases, and name the mistake.

`check` takes a function and the user's request, and returns a verdict. A wrong function is checked again under settings
that the request does not contain, because its author may have intended them: settings that fit its first answer (such
as `mask=causal`), masks in which True hides, and conventions of a checkpoint or library (such as the pairing of RoPE).
"""

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
from attn_exp.diagnosis.asking.questions import ABOUT_MASKS, INDIVIDUAL_MASKS
from attn_exp.diagnosis.asking.request import Request, with_settings
from attn_exp.diagnosis.bind.sizes import sizes_of_file
from attn_exp.diagnosis.calling import conventions, ways_to_call
from attn_exp.diagnosis.calling.call import Bound, Caller
from attn_exp.diagnosis.calling.ways_to_call import Tried
from attn_exp.diagnosis.explaining.answers import SINGLE
from attn_exp.diagnosis.judging.check_layer import check_layer, is_layer
from attn_exp.diagnosis.judging.judge_answers import (
    VALUES,
    describe_caller,
    judge_answers,
    judge_answers_and_mask_format,
)
from attn_exp.diagnosis.judging.layer_passes import with_findings
from attn_exp.diagnosis.judging.unasked import with_outcome
from attn_exp.diagnosis.recipes.candidates import Explained, everywhere, reproduces
from attn_exp.diagnosis.recipes.combinations import MAX_SECONDS, start_clock
from attn_exp.errors import HERE, FaultError, UserError, fault_line, list_frames
from attn_exp.experiment.verdict import (
    ANSWERED,
    BROKEN,
    CALLED,
    CHECKED,
    HELD,
    REMARK,
    Finding,
    Verdict,
    make_unfinished,
)
from attn_exp.mistakes import mistake
from attn_exp.own_code import OwnFunction, error_line, guard_process

CONVENTIONS = {
    "rope_pairing": (conventions.NEIGHBOURS, "neighbouring dimensions rotate together"),
    "causal_bottom_right": (conventions.BOTTOM_RIGHT, "the last query is aligned with the last key"),
}
"""Mistakes that may be conventions of a checkpoint or library, with the setting for each and what it means."""
FOR_MASKS = {True: {"bhtd": "btd", "bthd": "btd"}, False: {"td": "bhtd"}}
"""Layouts that fail only with masks, and what to try instead, for functions of q, k and v (True) or of x (False)."""


def check(own: OwnFunction, request: Request, quick: bool = False) -> Verdict:
    """Run all cases on a function and return the verdict.

    Raises:
        UserError: the arguments of the function are unknown, or a setting does not apply to it.
        FaultError: attn_exp itself raised an error.
    """
    with guard_process(), start_clock() as clock, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # ignore the function's warnings and judge only its output
        fault = None
        start = perf_counter()
        try:
            verdict = check_with_conventions(own, request, quick)
        except UserError:
            raise
        except Exception as error:
            fault = error
        replaced = replaced_in_numpy()
        if replaced:
            return make_unfinished(
                own.name, f"it replaced {', '.join(replaced)}, so the right answer cannot be computed",
                request.words, CHECKED,
            )  # fmt: skip
        if fault is not None:
            return report_fault(own, request, fault)
        if clock.was_over and not verdict.passed:
            skipped = f"combinations of mistakes (the search was stopped after {MAX_SECONDS:g} s)"
            verdict = replace(verdict, not_asked=(*verdict.not_asked, skipped))
        return replace(with_outcome(verdict, own, request), seconds=perf_counter() - start)


def report_fault(own: OwnFunction, request: Request, fault: Exception) -> Verdict:
    """Return the verdict "not verified" if the user's code is to blame for an error; otherwise raise a FaultError."""
    place = [path for path, _ in list_frames(fault)][-1]
    is_theirs = place.is_relative_to(Path(own.file).parent) and not place.is_relative_to(HERE)
    if is_theirs or isinstance(fault, MemoryError | RecursionError):
        return make_unfinished(own.name, f"it could not be checked: {error_line(fault)}", request.words, CHECKED)
    raise FaultError(f"{own.name} could not be checked ({fault_line(fault)})") from fault


def check_with_conventions(own: OwnFunction, request: Request, quick: bool) -> Verdict:
    """Check a function or a layer; if the mistake may be a convention, check again under that convention."""

    def judge(assumed: Request) -> Verdict:
        if is_layer(own.function):
            return check_layer(own, assumed, lambda bound, asked: call_and_check(own, asked, quick, bound))
        heads = sizes_of_file(own.function).get("h") if assumed.head is None else None
        return check_function(own, with_settings(assumed, f"head={heads}") if heads else assumed, quick)

    verdict = judge(request)
    return judge_convention(own, verdict, request, judge) or judge_neighbours(own, verdict, request, judge)


def judge_convention(
    own: OwnFunction, verdict: Verdict, request: Request, judge: Callable[[Request], Verdict]
) -> Verdict | None:
    """Check again under the convention that the mistake may be; None if the function is not right under it either."""
    setting, meaning = CONVENTIONS.get(" ".join(verdict.mistakes), ("", ""))
    is_unused = setting == conventions.NEIGHBOURS and not request.positions
    if not setting or is_unused or setting.partition("=")[0] in request.names_typed:
        return None
    other = judge(with_settings(request, setting))
    if not other.passed and (other.mistakes or not other.right_under):  # it may be right with one more convention
        return None
    if setting == conventions.NEIGHBOURS and other.passed and names_neighbours(own):
        return conventions.report_under(other, request, setting)
    settings, alike = other.right_under or setting, (verdict.mistakes, *other.alike)
    return replace(other, passed=False, mistakes=(), alike=alike, right_under=settings,
                   computes=f"attention with {settings}: {meaning}")  # fmt: skip


def judge_neighbours(
    own: OwnFunction, verdict: Verdict, request: Request, judge: Callable[[Request], Verdict]
) -> Verdict:
    """Check again with RoPE on neighbouring pairs if this may explain the first verdict better."""
    setting = conventions.NEIGHBOURS
    about_positions = {name for name in verdict.mistakes if mistake(name).group == "positions"}
    may_explain = (
        verdict.unexplained
        or about_positions > {"rope_pairing"}
        or ("rope_pairing" in about_positions and names_neighbours(own))
    )
    if not may_explain or not request.positions or setting.partition("=")[0] in request.names_typed:
        return verdict
    other = judge(with_settings(request, setting))
    return verdict if other.unexplained or not other.mistakes else conventions.report_under(other, request, setting)


def names_neighbours(own: OwnFunction) -> bool:
    """Return whether a function's file names its rotary tables like Llama's own code, which rotates neighbours."""
    source = Path(own.file).read_text(encoding="utf-8", errors="replace") if own.file else ""
    return bool(re.search(r"\bfreqs_(cis|cos)\b", source)) and "rotate_half" not in source


def check_function(own: OwnFunction, request: Request, quick: bool) -> Verdict:
    """Check a function in the likeliest layout; if only cases with masks raise errors, try a layout made for masks."""
    tried = ways_to_call.how_to_call(own, request)
    verdict = check_called(own, tried, quick)
    broken = [finding for finding in verdict.findings if finding.state == BROKEN]
    only_masks_raise = all(
        finding.question in ABOUT_MASKS and re.match(r"\w*Error: ", finding.message) for finding in broken
    )
    layout = FOR_MASKS[tried.caller.offer.core].get(tried.caller.layout, "")
    if layout and broken and only_masks_raise and not request.layout:
        with suppress(UserError):  # it may not accept this layout
            other = call_and_check(own, replace(request, layout=layout), quick)
            groups = {mistake(name).group for name in other.mistakes}
            return other if other.passed or groups == {"masks"} else verdict
    return verdict


def call_and_check(own: OwnFunction, request: Request, quick: bool, bound: Bound | None = None) -> Verdict:
    """Find out how to call a function (or the `bound` layer) under these settings, and check it."""
    return check_called(own, ways_to_call.how_to_call(own, request, bound), quick)


def check_called(own: OwnFunction, tried: Tried, quick: bool) -> Verdict:
    """Check a function whose calling convention is known; warnings must already be silenced.

    If its first answer is wrong but fits other settings, check it under those settings instead. Otherwise, detect the
    mask format, the scale and the window that the function expects, and run all cases.
    """
    request = tried.caller.request
    tried = leave_out_built_in_mask(own, tried)
    if tried.answer.output is None:
        return report_failed_call(own, tried)
    library = tried.caller.library.name
    if request.device != "cpu" and library != "torch":
        raise UserError(f"device={request.device} needs a function of tensors; {own.name} takes {library} arrays")
    verdict = check_under_fitting_settings(own, tried, quick)
    if verdict is not None:
        return verdict
    caller = conventions.with_its_mask(tried.caller, tried.function)
    caller = ways_to_call.with_its_window(ways_to_call.with_its_scale(caller, tried.case), tried.function)
    if conventions.are_open(request):
        return check_both_polarities(own, caller, tried, request, quick)
    return report_polarities(judge_answers_and_mask_format(own, caller, tried, quick), caller)


def leave_out_built_in_mask(own: OwnFunction, tried: Tried) -> Tried:
    """If a layer fails with the requested mask, call it again without the mask, which may be built in."""
    request, offer = tried.caller.request, tried.function.offer
    if tried.answer.output is not None or not (request.masks and offer.takes("mask") and find_built_layer(tried)):
        return tried
    without_mask = ways_to_call.how_to_call(own, request, replace(tried.function, offer=offer.as_padding()))
    return tried if without_mask.answer.output is None else without_mask


def report_failed_call(own: OwnFunction, tried: Tried) -> Verdict:
    """Report a first call that raised an error (`reached` is then known) or returned no numbers."""
    error, returned = tried.answer.error, tried.answer.reached is None
    finding = Finding(ANSWERED if returned else CALLED, BROKEN, f"{describe_caller(tried.caller)}: {error}")
    computes = f"something unknown: it {error}" if returned else "nothing: it could not be called"
    return Verdict(own.name, False, (), computes, (finding,), tried.caller.request.words)


def check_under_fitting_settings(own: OwnFunction, tried: Tried, quick: bool) -> Verdict | None:
    """Check a function under settings that fit its first answer.

    None if the answer is right, if no settings fit, or if the verdict under them is unexplained. Numbers of heads are
    tried only if nothing else fits.
    """
    digits = min(ways_to_call.digits_of(tried.caller, tried.answer), SINGLE)
    if not ways_to_call.failing([(tried.case, tried.answer)], digits):
        return None
    request, case, answer = tried.caller.request, tried.case, tried.answer
    heads = conventions.list_inner_heads(tried.caller, case) if tried.function.inside is None else ()
    fitting = conventions.find_settings(tried.caller, case, answer, digits) or [
        words for words, recipe in heads if reproduces(recipe, case, answer, digits)
    ]
    if not fitting:
        return None
    settings = min(
        fitting, key=lambda words: ways_to_call.count_first_failures(tried, with_settings(request, words), digits)
    )
    longest = ways_to_call.run_longest_case(tried, with_settings(request, settings))
    if longest is not None:
        settings = conventions.find_width(settings, *longest, digits)
    assumed = with_settings(request, settings)
    is_smaller = conventions.TWO_TO_THE in settings  # its number of heads differs from that of the layer
    verdict = call_and_check(own, assumed, quick, None if is_smaller else find_built_layer(tried))
    if verdict.mistakes == (conventions.INVERTED,):
        verdict = choose_polarity(verdict, tried, assumed, check_inverted(own, tried, assumed, quick))
    are_values_right = any(finding.question == VALUES and finding.state == HELD for finding in verdict.findings)
    is_explained = verdict.passed or verdict.mistakes or are_values_right
    return conventions.report_under(verdict, request, settings) if is_explained else None


def find_built_layer(tried: Tried) -> Bound | None:
    """Return the callable if it is a layer, which need not be built again; None for a function."""
    return tried.function if tried.function.unknown is not None else None


# Mask polarity: True may mean attend, as in the definition, or hidden


def check_both_polarities(own: OwnFunction, caller: Caller, tried: Tried, request: Request, quick: bool) -> Verdict:
    """Check with masks in which True means attend and, if the answers suggest it, with masks in which True hides."""
    hides = conventions.expects_inverted_masks(caller, tried.function)
    inverted = check_inverted(own, tried, request, quick) if hides else None
    if inverted is not None and inverted.passed:  # prefer a convention to a mistake
        change = everywhere(mistake(conventions.INVERTED).changes[0])
        verdict = judge_answers(own, caller, tried, quick, Explained((conventions.INVERTED,), change=change))
        return choose_polarity(verdict, tried, request, inverted)
    caller = conventions.with_one_opposite(caller, tried.function)
    verdict = report_polarities(judge_answers_and_mask_format(own, caller, tried, quick), caller)
    may_hide = not verdict.passed and (conventions.INVERTED in verdict.mistakes or (hides and not verdict.mistakes))
    broken = {finding.question for finding in verdict.findings if finding.state == BROKEN}
    if not may_hide and not (verdict.unexplained and broken <= {*ABOUT_MASKS, *INDIVIDUAL_MASKS}):
        return verdict
    inverted = inverted or check_inverted(own, tried, request, quick)
    if not may_hide and (not inverted.mistakes or "mask_hides_all" in inverted.mistakes):
        return verdict  # the other polarity reveals no mistake either; hiding all keys does not depend on the polarity
    return choose_polarity(verdict, tried, request, inverted)


def check_inverted(own: OwnFunction, tried: Tried, request: Request, quick: bool) -> Verdict:
    return call_and_check(own, with_settings(request, conventions.BLOCKS), quick, find_built_layer(tried))


def choose_polarity(verdict: Verdict, tried: Tried, request: Request, inverted: Verdict) -> Verdict:
    """Choose between the verdict and `inverted`, the verdict under the convention that True means hidden."""
    if inverted.passed:
        settings = " ".join(filter(None, (request.words if request.typed else "", conventions.BLOCKS)))
        is_named_as_in_torch = tried.caller.offer.parameters.get("padding") == "key_padding_mask"
        return conventions.report_inverted(verdict, settings, passed=is_named_as_in_torch)
    is_fewer = inverted.mistakes and set(inverted.mistakes) < set(verdict.mistakes)
    is_refuted = inverted.mistakes and verdict.mistakes == (conventions.INVERTED,)  # otherwise it would pass now
    if is_fewer or is_refuted or not (verdict.mistakes or inverted.uncalled):
        alike = verdict.mistakes if is_fewer else (*inverted.mistakes, conventions.INVERTED)
        return replace(conventions.report_under(inverted, request, conventions.BLOCKS), alike=(alike, *inverted.alike))
    return verdict


def report_polarities(verdict: Verdict, caller: Caller) -> Verdict:
    """Add a finding if True means hidden in only one of the mask and the padding mask.

    This is usual for a padding mask and for an argument named like a causal mask; otherwise it is a remark.
    """
    if caller.masking.opposite == caller.padding.opposite:
        return verdict
    hiding, attending = ("padding", "mask") if caller.padding.opposite else ("mask", "padding")
    names = caller.offer.parameters
    is_usual = hiding == "padding" or "causal" in names["mask"].lower()
    message = f"True means hidden, but in {names[attending]} it means attend" + (
        "" if is_usual else ": a mistake, unless intended"
    )
    return with_findings(verdict, Finding(f"masks as {names[hiding]}", HELD if is_usual else REMARK, message))
