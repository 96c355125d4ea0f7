"""Checks one function: a ladder of questions, the name of the mistake, and the smallest input that still fails."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from time import perf_counter

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis import inner, other_words, ways_to_call, ways_to_mask
from attn_exp.diagnosis.answers import LARGE, OVERFLOWS, SINGLE, Answers, small_logits
from attn_exp.diagnosis.behaviour import IN_THREADS, TWICE, behaviours, gradients, remarks
from attn_exp.diagnosis.bits import SILENT, bits_to_judge_by
from attn_exp.diagnosis.bound import Bound
from attn_exp.diagnosis.branches import LEFT_OUT, with_left_out
from attn_exp.diagnosis.call import Caller
from attn_exp.diagnosis.candidates import Explained, everywhere, what_a_setting_computes, what_mistakes_compute
from attn_exp.diagnosis.case import Answer, Case, differs, expected, predicted, same_numbers
from attn_exp.diagnosis.chance import without_chance
from attn_exp.diagnosis.clipped import clipped_at
from attn_exp.diagnosis.clock import ASKING_MORE, is_over, running, while_there_is_time
from attn_exp.diagnosis.explanations import explained
from attn_exp.diagnosis.idle import NO_OUTPUT, UNUSED
from attn_exp.diagnosis.inside_functions import scaled_twice, seen_inside
from attn_exp.diagnosis.layouts import axes
from attn_exp.diagnosis.libraries import DIGITS, replaced_in_numpy
from attn_exp.diagnosis.located import located
from attn_exp.diagnosis.masking import PADDINGS, WORDS
from attn_exp.diagnosis.modes import in_both_modes
from attn_exp.diagnosis.other_masks import as_meant, of_other_masks, without_its_mask
from attn_exp.diagnosis.plain_layers import PlainLayer
from attn_exp.diagnosis.precision import error
from attn_exp.diagnosis.questions import ABOUT_MASKS, CROSS, MASKS_OF_MORE, WIDTH, layer_cases
from attn_exp.diagnosis.read_layers import no_queries, positive_values, with_matrices
from attn_exp.diagnosis.request import Request
from attn_exp.diagnosis.smallest import fresh, shown, smallest_wrong
from attn_exp.diagnosis.told_sizes import may_be_causal, may_share_heads
from attn_exp.diagnosis.unasked import unasked
from attn_exp.diagnosis.unused import all_one_head, first_of_several, unused
from attn_exp.diagnosis.ways_to_call import Seen, Tried, failing
from attn_exp.errors import HERE, FaultError, UserError, fault_line, way_of
from attn_exp.experiment.verdict import (
    ABSENT,
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
from attn_exp.forms.pipeline import Recipe
from attn_exp.mistakes import mistake
from attn_exp.own_code import OwnFunction, error_line, held
from attn_exp.rules.masks.array import Allowed

Tell = Callable[[str], None]
Pair = tuple[Case, Answer]
SMALL_FILL, MULTIPLIED, IGNORED, VALUES = "mask_small_fill", "mask_multiplied", "mask_ignored", "values"
ONE_MAXIMUM = "one_maximum"


def check(own: OwnFunction, request: Request, quick: bool = False, tell: Tell = lambda rung: None) -> Verdict:
    """Ask a function every question, and return what became of it; `tell` hears what is being asked.

    Raises:
        UserError: what it takes is not known, or settings that cannot be asked of it.
        FaultError: an error of our own.
    """
    with held(), running() as clock, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # what the function warns of is its own affair; what it answers is ours
        fault: Exception | None = None
        try:
            verdict = with_shared_heads(own, request, check_in_layouts(own, request, quick, tell), tell)
            verdict = beside_chance(own, request, verdict, quick, tell)
        except UserError:
            raise
        except Exception as error:
            fault = error
        replaced = replaced_in_numpy()
        if replaced:
            said = f"replaced {', '.join(replaced)}, so that nothing right can be computed beside it"
            return unfinished(own.name, said, request.words, CHECKED)
        if fault is None:
            left = tuple(f"{what} (it took {seconds:g} s until then)" for what, seconds in clock.left_out.items())
            return replace(verdict, not_asked=(*verdict.not_asked, *left)) if not verdict.passed else verdict
        if isinstance(fault, MemoryError | RecursionError) or is_theirs(fault, own):
            return unfinished(own.name, f"could not be checked: {error_line(fault)}", request.words, CHECKED)
        raise FaultError(f"{own.name} could not be checked ({fault_line(fault)})") from fault


def is_theirs(error: BaseException, own: OwnFunction) -> bool:
    """Say whether an error was raised in a function's file, or one beside it: as what it returned was read."""
    place = [path for path, _ in way_of(error)][-1]
    return place.is_relative_to(Path(own.file).parent) and not place.is_relative_to(HERE)


def check_in_layouts(own: OwnFunction, request: Request, quick: bool, tell: Tell) -> Verdict:
    """Check a function in the likeliest layout, and where the mistake has no name there, in those that are less so."""
    tell("how it is called")
    try:
        tried = ways_to_call.how_to_call(own, request)
    except inner.UnreadError as error:
        seen = error.look()
        if seen is None:
            raise
        return seen
    verdict = as_meant(check_called(own, tried, quick, tell), tried.caller.offer)
    verdict = (looked_into(verdict, tried) if are_of_masks(verdict) else None) or verdict
    verdict = with_more(verdict, in_both_modes(own, tried.function, tried.caller, tried.case))
    verdict = with_more(verdict, unused(tried.function, tried.caller, tried.case))
    verdict = with_more(verdict, all_one_head(tried.function))
    verdict = with_more(verdict, first_of_several(tried.function))
    others = of_other_masks(tried.function, verdict, lambda one: check_in_layout(own, request, True, tell, one))
    verdict = with_more(verdict, others)
    verdict = with_more(verdict, made_causal(own, request, verdict, tell))
    given = tried.caller.offer
    verdict = with_more(verdict, without_its_mask(given, verdict, lambda other: check_in_layout(
        own, replace(request, layout=tried.caller.layout), True, tell, replace(tried.function, offer=other)
    )))  # fmt: skip
    unexplained = is_unknown_at_once(verdict)  # beside matrices that nobody uses, which have a name
    if verdict.passed or (verdict.mistakes and not unexplained) or request.layout:
        return verdict
    if only_masks_fail(verdict) and tried.caller.layout in WITH_HEADS:
        with suppress(UserError):  # it may take no arrays of fewer axes
            other = check_in_layout(own, replace(request, layout=WITHOUT_HEADS), quick, tell)
            if other.passed:
                return other
    inside = looked_into(verdict, tried) or with_its_surroundings(own, request, verdict, tried, tell)
    if inside is not None or verdict.mistakes:
        return inside or verdict
    offer = ways_to_call.offer_by_names(own, request)
    layouts = ["bhtd", "bthd"] if offer is not None and offer.takes("heads") else ["bthd", "bd1t"]
    layouts = ["thd"] if tried.caller.layout == "htd" else layouts
    is_open = offer is not None and offer.core and has_wrong_values(verdict)  # else its axes lie as they were given
    others_left = layouts if is_open else []
    for layout in while_there_is_time(others_left, ASKING_MORE, "other orders of axes"):
        other = check_in_layout(own, replace(request, layout=layout), True, tell)
        if other.mistakes:
            return other
    return verdict


def beside_chance(own: OwnFunction, request: Request, verdict: Verdict, quick: bool, tell: Tell) -> Verdict:
    """Return the verdict on a function that answers otherwise in each call, with what else is wrong.

    That shows once chance is stopped: of answers that are others each time no numbers tell anything.
    """
    twice = [one for one in verdict.findings if one.rung == TWICE and one.state == BROKEN]
    by_chance = tuple(name for name in verdict.mistakes if name in BY_CHANCE)
    if not twice or not by_chance:
        return verdict
    with suppress(UserError), without_chance():
        again = with_shared_heads(own, request, check_in_layouts(own, request, quick, tell), tell)
        if again.right_under and not again.mistakes:
            changed = other_words.under(replace(verdict, mistakes=by_chance), request, again.right_under)
            return replace(changed, alike=tuple((*by_chance, *names) for names in again.alike))
        more = [name for name in again.mistakes if name not in by_chance and not mistake(name).remark]
        if more and not again.passed:
            names = (*by_chance, *more)
            return replace(again, mistakes=names, findings=(*twice, *again.findings), unexplained=False, stage="",
                           computes=f"attention with {' and '.join(names)}")  # fmt: skip
    return verdict


BY_CHANCE = ("dropout_on", "not_deterministic")


def with_shared_heads(own: OwnFunction, request: Request, verdict: Verdict, tell: Tell) -> Verdict:
    """Return the verdict on a layer, or on it made with fewer key/value heads than heads, where more is wrong then.

    With as many of both, nothing tells in which order they are shared out.
    """
    is_known = verdict.passed or verdict.right_under or verdict.mistakes
    if not is_known or request.kv_head is not None or request.head is not None or not may_share_heads(own):
        return verdict
    if is_over(ASKING_MORE, "fewer key/value heads"):
        return verdict
    fewer = replace(request, head=4, kv_head=2, typed=request.typed | {"head=4", "kv_head=2"})
    with suppress(UserError):
        try:
            tried = ways_to_call.how_to_call(own, fewer)
            other = check_called(own, tried, True, tell)
            other = looked_into(other, tried) or other
        except inner.UnreadError as error:
            other = error.look() or verdict
        return other if set(other.mistakes) > set(verdict.mistakes) and not other.passed else verdict
    return verdict


def looked_into(verdict: Verdict, tried: Tried) -> Verdict | None:
    """Return the verdict on a layer with what is seen of the attention inside, where nothing else explains it."""
    if is_unknown_at_once(verdict):
        seen = tried.function.look()
        return None if seen is None else as_seen_inside(verdict, seen, tried.caller)
    if not verdict.unexplained or not are_of_masks(verdict):
        return None
    seen = tried.function.look()  # masks alone are wrong, in a way that answers do not show
    names = set(() if seen is None else seen.mistakes) - NEVER_USED
    if seen is None or not names or any(mistake(name).group != "masks" for name in names):
        return None
    findings = (*verdict.findings, *(one for one in seen.findings if one.state == BROKEN))
    explained_now = replace(verdict, unexplained=False, stage="")
    return replace(explained_now, mistakes=seen.mistakes, computes=seen.computes, findings=findings)


NEVER_USED = {NO_OUTPUT, UNUSED}
"""What answers do not show, as the matrix is no part of them."""


def are_of_masks(verdict: Verdict) -> bool:
    """Say whether all that is wrong in a function's answers is wrong where a mask is given."""
    wrong = {one.rung for one in verdict.findings if one.state == BROKEN}
    return wrong <= {*ABOUT_MASKS, *MASKS_OF_MORE}


def with_its_surroundings(
    own: OwnFunction, request: Request, verdict: Verdict, tried: Tried, tell: Tell
) -> Verdict | None:  # fmt: skip
    """Return the verdict on a function of x and matrices as a layer, where nothing explains its answers else.

    A norm, a residual or an MLP may stand around attention then.
    """
    if not is_unknown_at_once(verdict) or tried.function.inside is not None:
        return None
    with suppress(UserError):  # it may be no layer that is read
        for other in ways_to_call.as_a_layer(own, request, None):
            if other.function.inside is not None and other.function.inside.around is not None:
                seen = check_called(own, other, True, tell)
                return seen if seen.passed or seen.mistakes or seen.right_under else None
    return None


def made_causal(own: OwnFunction, request: Request, verdict: Verdict, tell: Tell) -> Iterator[tuple[Finding, str]]:
    """Yield what is to be said of a layer whose class is told that it is causal, where as it was made it is not."""
    is_known = verdict.passed or bool(verdict.mistakes)
    if not is_known or request.masks or other_words.CAUSAL in verdict.right_under or not may_be_causal(own):
        return
    with suppress(UserError):  # it may not be made so
        other = check_in_layout(own, other_words.with_words(request, other_words.CAUSAL), True, tell)
        names = [name for name in other.mistakes if name not in verdict.mistakes]
        if names and all(mistake(name).group == "masks" for name in names):
            yield from ((Finding(MADE_CAUSAL, BROKEN, mistake(name).says), name) for name in names)
        elif other.passed or other.mistakes:
            yield Finding(MADE_CAUSAL, HELD if not names else ABSENT), ""


MADE_CAUSAL = "made causal"
WITH_HEADS, WITHOUT_HEADS = ("bhtd", "bthd"), "btd"


def only_masks_fail(verdict: Verdict) -> bool:
    """Say whether nothing is wrong but that masks raise an error: they may be meant for arrays without heads."""
    broken = [one for one in verdict.findings if one.state == BROKEN]
    return bool(broken) and all(one.rung in ABOUT_MASKS and re.match(r"\w*Error: ", one.said) for one in broken)


def is_unknown_at_once(verdict: Verdict) -> bool:
    """Say whether the first answer is wrong already, without masks, and no mistake or setting explains it."""
    return has_wrong_values(verdict) and verdict.unexplained


def has_wrong_values(verdict: Verdict) -> bool:
    """Say whether the first answer is wrong already, without masks."""
    return any(one.rung == VALUES and one.state == BROKEN for one in verdict.findings)


def as_seen_inside(verdict: Verdict, seen: Verdict, caller: Caller) -> Verdict:
    """Return the verdict on a layer whose answers nothing explains, with what is seen of the attention inside.

    What is right inside is right where its masks were asked, or where a layer has no word for them.
    """
    masked = caller.offer.takes("mask") or caller.offer.takes("padding")
    if (
        seen.mistakes
        or seen.right_under
        or (seen.passed and not (masked and inner.UNREAD_WITH_MASKS in seen.not_asked))
    ):
        names = tuple(dict.fromkeys((*seen.mistakes, *verdict.mistakes)))
        passed, under = (seen.passed, seen.right_under) if names == seen.mistakes else (False, "")
        return replace(seen, seconds=verdict.seconds, mistakes=names, passed=passed, right_under=under)
    first = next((f"{one.rung}: {one.said}" for one in seen.findings if one.state == BROKEN), "")
    said = f"Inside, {first}" if first else "Inside, q, k and v are multiplied, weighed and mixed as they should be"
    findings = (*verdict.findings, *(one for one in seen.findings if one.rung != CALLED))
    return replace(verdict, computes=f"{verdict.computes.rstrip('.')}. {said}", stage=seen.stage, findings=findings)


def with_more(verdict: Verdict, more: Iterable[tuple[Finding, str]]) -> Verdict:
    """Return a verdict with what is to be said beside its answers: of its modes, or of matrices that nobody uses."""
    said = list(more)
    names = tuple(name for finding, name in said if name and finding.state == BROKEN and name not in verdict.mistakes)
    verdict = replace(verdict, findings=(*verdict.findings, *(finding for finding, _ in said)))
    if not names:
        return verdict
    if not verdict.passed and not verdict.right_under:
        return replace(verdict, mistakes=(*verdict.mistakes, *names))
    computes = f"{verdict.computes}, but look at: {', '.join(names)}"
    return replace(verdict, passed=False, mistakes=names, computes=computes, right_under="")


def check_in_layout(
    own: OwnFunction, request: Request, quick: bool, tell: Tell, known: Bound | None = None
) -> Verdict:  # fmt: skip
    """Check a function under a request, in its one layout or the likeliest; `known` was understood already."""
    tell("how it is called")
    return check_called(own, ways_to_call.how_to_call(own, request, known), quick, tell)


def check_called(own: OwnFunction, tried: Tried, quick: bool, tell: Tell) -> Verdict:
    """Check a function that is called as was found out, as `check` does, with all warnings off."""
    start, request = perf_counter(), tried.caller.request
    if request.blocks and understood(tried) and ways_to_call.is_right(tried, causal=True):
        given = ways_to_call.how_to_call(own, request, ways_to_mask.always_given(tried.function))
        tried = given if ways_to_call.is_right(given) else tried
    bare = ways_to_mask.of_padding_alone(tried.function) if request.masks and tried.answer.output is None else None
    if bare is not None and understood(tried):  # the mask that is asked for may be inside
        given = ways_to_call.how_to_call(own, request, bare)
        tried = given if given.answer.output is not None else tried
    caller = tried.caller
    if tried.answer.output is None:
        is_called = tried.answer.reached is None
        said, seconds = f"{said_of_call(caller)}: {tried.answer.error}", perf_counter() - start
        finding = Finding(ANSWERED if is_called else CALLED, BROKEN, said)
        computes = f"nothing that is known: it {tried.answer.error}" if is_called else "nothing: it could not be called"
        return Verdict(own.name, False, (), computes, (finding,), request.words, seconds=seconds)
    if request.device != "cpu" and caller.library.name != "torch":
        raise UserError(
            f"device={request.device} is for functions of tensors; {own.name} takes {caller.library.name} arrays"
        )
    instead = (
        if_it_mixes(own, tried, quick, tell)
        or as_its_names_say(own, tried, quick, tell)
        or under_other_words(own, tried, quick, tell)
    )
    if instead is not None:
        return replace(instead, seconds=perf_counter() - start)
    caller = ways_to_call.with_its_scale(ways_to_mask.with_its_mask(caller, tried.function), tried.case)
    is_open = other_words.are_open(request)
    hides = is_open and ways_to_mask.hides(caller, tried.function)
    if hides and (again := hiding(own, tried, request, quick, tell)).passed:  # a convention comes before a mistake
        change = everywhere(mistake(other_words.INVERTED).changes[0])
        turned = Explained((other_words.INVERTED,), change=change)
        verdict = verdict_on_answers(own, caller, tried, quick, tell, turned)
        return replace(read_otherwise(verdict, tried, request, again), seconds=perf_counter() - start)
    verdict = with_masks_beside_a_mistake(own, caller, tried, quick, tell)
    may_hide = not verdict.passed and (other_words.INVERTED in verdict.mistakes or (hides and not verdict.mistakes))
    if is_open and may_hide:  # that is the mistake, or one of them, or none is known
        again = again if hides else hiding(own, tried, request, quick, tell)
        verdict = read_otherwise(verdict, tried, request, again)
    return replace(verdict, seconds=perf_counter() - start)


def if_it_mixes(own: OwnFunction, tried: Tried, quick: bool, tell: Tell) -> Verdict | None:
    """Check a module that is not right with the matrices that it has if it mixes tokens with heads; None if not."""
    digits = min(ways_to_call.digits_of(tried.caller, tried.answer), SINGLE)
    other = tried.function.mixed() if ways_to_call.failing([(tried.case, tried.answer)], digits) else None
    if other is None:
        return None
    if not has_mixed_rows(tried.function.look()):
        other = replace(other, look=tried.function.look)
    called = ways_to_call.how_to_call(own, tried.caller.request, other)
    verdict = check_called(own, called, quick, tell)
    return verdict if verdict.mistakes else None


def has_mixed_rows(seen: Verdict | None) -> bool:
    """Say whether nothing is seen inside, or rows of several tokens, which may hide what else is done to them."""
    return seen is None or "heads_not_transposed" in seen.mistakes


def as_its_names_say(own: OwnFunction, tried: Tried, quick: bool, tell: Tell) -> Verdict | None:
    """Check a module with the matrices that its names say, where what it computes says others; None where that is well.

    Whatever is made of matrices is attention of some others: what parts the two is a mistake, if it has a name.
    """
    function = tried.function
    if function.named is None:
        return None

    def again() -> Bound | None:
        other = function.again()
        return None if other is None else replace(other, inside=other.named)

    as_named = replace(function, inside=function.named, named=None, again=again)
    called = ways_to_call.how_to_call(own, tried.caller.request, as_named)
    if called.answer.output is None:
        return None
    usual = ways_to_mask.with_its_mask(tried.caller, function)  # masks are found where all else is right
    caller = replace(called.caller, masking=usual.masking, padding=usual.padding)
    verdict = under_other_words(own, called, quick, tell)
    verdict = verdict or with_masks_beside_a_mistake(own, caller, called, quick, tell)
    if other_words.INVERTED in verdict.mistakes and len(verdict.mistakes) > 1:  # a convention, beside a mistake
        request = tried.caller.request
        other = hiding(own, called, request, quick, tell) if other_words.are_open(request) else verdict
        verdict = read_otherwise(verdict, called, request, other)
    verdict = looked_into(verdict, called) or verdict
    return verdict if verdict.mistakes and not verdict.passed else None


def under_other_words(own: OwnFunction, tried: Tried, quick: bool, tell: Tell) -> Verdict | None:
    """Check a function under the words that fit its first answers best; None where the first is right as it is."""
    digits = min(ways_to_call.digits_of(tried.caller, tried.answer), SINGLE)
    if not ways_to_call.failing([(tried.case, tried.answer)], digits):
        return None
    request = tried.caller.request
    found = other_words.that_fit(tried.caller, tried.case, tried.answer, digits)
    found = found or other_words.that_turn(tried.caller, tried.case, tried.answer, digits)
    found = found or [
        words for words, recipe in heads_inside(tried) if other_words.gives(recipe, tried.case, tried.answer, digits)
    ]
    fits = [(words, other_words.with_words(request, words)) for words in found]
    if not fits:
        return beside_a_mistake(own, tried, quick, tell, digits)
    words, asked = min(fits, key=lambda one: ways_to_call.failing_at_first(tried, one[1], digits))
    longest = ways_to_call.longest_question(tried, asked)
    if longest is not None:
        words = other_words.with_its_window(words, *longest, digits)
        asked = other_words.with_words(request, words)
    as_it_is = None if other_words.TWO_TO_THE in words else understood(tried)  # it is made with other heads
    verdict = check_in_layout(own, asked, quick, tell, as_it_is)
    if verdict.mistakes == (other_words.INVERTED,):
        verdict = read_otherwise(verdict, tried, asked, hiding(own, tried, asked, quick, tell))
    nearly = any(finding.rung == VALUES and finding.state == HELD for finding in verdict.findings)
    return other_words.under(verdict, request, words) if verdict.passed or verdict.mistakes or nearly else None


def heads_inside(tried: Tried) -> list[tuple[str, Recipe]]:
    """Return the words of heads that a function may count by itself; those of a module are known."""
    return list(other_words.of_heads_inside(tried.caller, tried.case)) if tried.function.inside is None else []


def understood(tried: Tried) -> Bound | None:
    """Return a module whose matrices are known, which need not be found again under other words."""
    return tried.function if tried.function.inside is not None else None


def hiding(own: OwnFunction, tried: Tried, request: Request, quick: bool, tell: Tell) -> Verdict:
    """Check a function whose masks may be inverted under the convention that has them so."""
    asked = other_words.with_words(request, other_words.BLOCKS)
    return check_in_layout(own, asked, quick, tell, understood(tried))


def beside_a_mistake(own: OwnFunction, tried: Tried, quick: bool, tell: Tell, digits: int) -> Verdict | None:
    """Check a function under the words beside which one mistake gives its first answer, where none does without.

    No words give what is another answer in each call.
    """
    if not same_numbers(tried.caller(tried.case).output, tried.answer.output):
        return None
    found = other_words.that_fit_beside_a_mistake(
        tried.caller, tried.case, tried.answer, digits, more=heads_inside(tried),
        is_seen=lambda: inner.tells_all(tried.function.look()), watch=partial(seen_inside, tried.caller),
    )  # fmt: skip
    for words in found[:MOST_WORDS]:
        as_it_is = None if other_words.TWO_TO_THE in words else understood(tried)
        asked = other_words.with_words(tried.caller.request, words)
        verdict = check_in_layout(own, asked, quick, tell, as_it_is)
        if verdict.mistakes:
            return other_words.under(verdict, tried.caller.request, words)
    return None


MOST_WORDS = 2
"""So many words are tried: each is a check of its own."""


def read_otherwise(verdict: Verdict, tried: Tried, request: Request, again: Verdict) -> Verdict:
    """Return the verdict on a function whose masks are inverted, where `again` is that under the other convention."""
    if not again.passed:
        fewer = again.mistakes and set(again.mistakes) < set(verdict.mistakes)
        if fewer or not (verdict.mistakes or again.uncalled):
            also = verdict.mistakes or (*again.mistakes, other_words.INVERTED)
            return replace(other_words.under(again, request, other_words.BLOCKS), alike=(also, *again.alike))
        return verdict
    words = " ".join(filter(None, (request.words if request.typed else "", other_words.BLOCKS)))
    dressed = tried.caller.offer.parameters.get("padding") == "key_padding_mask"
    return other_words.read_otherwise(verdict, words, passed=dressed)


def with_masks_beside_a_mistake(own: OwnFunction, caller: Caller, tried: Tried, quick: bool, tell: Tell) -> Verdict:
    """Ask a function every question; where nothing explains its answers, find out how it wants its mask anew.

    A mistake that shows without a mask changes what is right with one.
    """
    verdict = verdict_on_answers(own, caller, tried, quick, tell)
    masks = [role for role in ("mask", "padding") if caller.offer.takes(role)]
    if verdict.passed or not masks or not may_be_written_otherwise(verdict, tried.function):
        return verdict
    known = mistake_without_masks(caller, tried, masks)
    if known is None or known.change is None:
        return verdict
    masked = ways_to_mask.with_its_mask(caller, tried.function, known.change)
    is_less = caller.offer.takes("mask") and not masked.offer.takes("mask")  # a mask of keys alone tells less
    if verdict.mistakes and (masked == caller or is_less):
        return verdict
    request = caller.request
    words = other_words.BLOCKS if other_words.are_open(request) and ways_to_mask.hides(
        masked, tried.function, known.change
    ) else ""  # fmt: skip
    if words:
        masked = replace(masked, request=other_words.with_words(request, words))
    again = verdict_on_answers(own, masked, tried, quick, tell)
    if not again.mistakes or (verdict.mistakes and not set(again.mistakes) < set(verdict.mistakes)):
        return verdict
    if not words:
        return again
    inverted = (*again.mistakes, other_words.INVERTED)
    return replace(other_words.under(again, request, words), alike=(inverted, *again.alike))


def may_be_written_otherwise(verdict: Verdict, function: Bound) -> bool:
    """Say whether how a function wants its mask may not have been seen: nothing is named, or masks beside others.

    Booleans that are added to the logits look like a small fill beside any other mistake.
    """
    if not verdict.mistakes:
        return not inner.tells_all(function.look())
    of_masks = {name for name in verdict.mistakes if mistake(name).group == "masks"}
    return bool(of_masks) and of_masks != set(verdict.mistakes)


def mistake_without_masks(caller: Caller, tried: Tried, masks: Collection[str]) -> Explained | None:
    """Return what explains the answers of a function that is given no mask, if mistakes do."""
    parameters = {role: word for role, word in caller.offer.parameters.items() if role not in masks}
    bare = replace(caller, offer=replace(caller.offer, parameters=parameters))
    if any(role not in caller.offer.defaults for role in masks):
        return None
    seen = ways_to_call.ask_every_question(bare, tried.function, quick=True)
    digits, _ = bits_to_judge_by(bare, seen)
    wrong = failing(seen, digits)
    if not wrong:
        return None
    right = [pair for pair in seen if pair not in wrong]
    asked = promised(wrong)
    found = explained(
        Answers(
            asked + right, digits, DIGITS[bare.dtype], ask=lambda: fresh(bare, tried.function, of_one_input(asked)),
            ask_equal=lambda: of_equal_scores(
                bare, tried.function, ways_to_call.rounded(tried.case, bare), seen
            ),
        )
    )  # fmt: skip
    return found if found.names else None


def verdict_on_answers(
    own: OwnFunction, caller: Caller, tried: Tried, quick: bool, tell: Tell, known: Explained | None = None
) -> Verdict:
    """Ask a function every question, called in this way, of which `tried` was the first answer.

    `known` explains the answers, where that is known before.
    """
    function = tried.function
    tell("its values")
    seen = ways_to_call.ask_every_question(caller, function, quick)
    if all(answer.output is None for _, answer in seen):  # the first question alone was answered, or not at all now
        seen = [(ways_to_call.rounded(tried.case, caller), tried.answer), *seen]
    digits, rounding = bits_to_judge_by(caller, seen)
    lenient = function.inside is not None  # this check made the module's numbers float64, not its author
    wrong = failing(seen, digits)
    tell("how it behaves")
    behaved = list(behaviours(caller, ways_to_call.rounded(tried.case, caller), digits))
    if isinstance(function.layer, PlainLayer) and not inspect.isroutine(own.function):
        behaved = [as_kept_for_backward(*pair) for pair in behaved]
    learned = gradients(caller, tried.case, digits)
    edges = list(remarks(caller, tried.case))
    again = asked_again(caller, seen, wrong)
    broken = tuple(dict.fromkeys(name for finding, name in (*behaved, learned) if finding.state == BROKEN and name))
    tell("which mistake it is")
    lost = {case for case, _ in wrong}
    right = [pair for pair in seen if pair[0] not in lost]
    small = smallest_wrong(caller, function, wrong, digits) if wrong else None

    evidence = evidence_of(caller, tried, seen, wrong, digits=digits, broken=broken, small=small)
    meant = as_it_may_be_meant(caller, wrong, digits, evidence.ask)
    if meant:
        edges.append((Finding(wrong[0][0].rung, REMARK, meant), ""))
        seen, wrong, small = right, [], None
    found = (known or explained(evidence)) if wrong else Explained()
    found = as_it_is_scaled(with_left_out(evidence, found, partial(left_out, caller, function, seen)), evidence, wrong)
    found = found if other_words.may_be_made(found.names, caller) else Explained()
    if MULTIPLIED in found.names and not ways_to_mask.multiplies(caller, function):
        found = replace(found, names=tuple(SMALL_FILL if name == MULTIPLIED else name for name in found.names))
    if wrong and is_of_own_axes(wrong, found, [one for one in right if one[0].rung == "masks"]):
        seen = [(case, MADE_OF_IT if case in lost else answer) for case, answer in seen]
        wrong, found, small = [], Explained(), None
    besides = (*(finding for finding, _ in behaved), again, learned[0], *axes_of_answers(seen))
    if is_overflow_alone(wrong, found, digits, besides) and rounding != SILENT:
        edges.insert(0, (Finding(LARGE, REMARK, FITS.format(caller.dtype)), "".join(found.names)))
        wrong, found, small, seen = [], Explained(), None, small_logits(seen)
    findings = (
        Finding(CALLED, HELD, said_of_call(caller)),
        *findings_of_questions(seen, wrong, caller, digits),
        *axes_of_answers(seen),
        *(() if wrong else (accuracy(seen, digits, rounding, lenient),)),
        *(finding for finding, _ in behaved),
        again,
        *(finding for finding, _ in edges),
        learned[0],
    )
    failed = [finding.rung for finding in findings if finding.state == BROKEN]
    passed = not failed
    named = broken if broken and found.names in ((), OVERFLOWS) else found.names
    names = remarked(edges) if passed else named
    told = (
        located(caller, seen, wrong, evidence.watch)
        if wrong and not found.names and not found.setting
        else None
    )
    if wrong or passed:
        computes = what_it_computes(found, bool(wrong)) if told is None else told.said
    else:
        computes = f"the right numbers, but look at: {', '.join(names or failed)}"
    smallest = shown(own, caller, *small, found.change, digits) if small else None
    tell("")
    return Verdict(
        name=own.name, passed=passed, mistakes=names, computes=computes, findings=findings,
        asked=caller.request.words, alike=found.alike, smallest=smallest, where=found.where,
        not_asked=unasked(caller, function, seen), unexplained=told is not None,
        stage="" if told is None else told.stage,
    )  # fmt: skip


def as_it_is_scaled(found: Explained, evidence: Answers, wrong: Seen) -> Explained:
    """Return an explanation that says that scores are divided by d as scaled twice, where that is seen inside a call.

    The numbers are the same.
    """
    if BY_D not in found.names:
        return found
    case = next((case for case, _ in wrong if not case.recipe.rules.masks and case.rung != LARGE), None)
    inside = None if case is None else evidence.watch(case)
    if case is None or inside is None or not scaled_twice(inside, expected(case)["q"].shape[-1]):
        return found
    names = tuple(SCALED_TWICE if name == BY_D else name for name in found.names)
    others = (tuple(sorted(one)) for one in (found.names, *found.alike))
    return replace(found, names=names, alike=tuple(one for one in dict.fromkeys(others) if one != tuple(sorted(names))))


BY_D, SCALED_TWICE = "scale_by_d", "scale_twice"


def as_kept_for_backward(finding: Finding, name: str) -> tuple[Finding, str]:
    """Return a failure of two threads as a remark: objects that write their own backward pass keep what it needs."""
    if finding.rung != IN_THREADS or finding.state != BROKEN:
        return finding, name
    return replace(finding, state=REMARK), name


def evidence_of(
    caller: Caller, tried: Tried, seen: Seen, wrong: Seen, *, digits: int, broken: Sequence[str], small: Pair | None
) -> Answers:  # fmt: skip
    """Return the answers as evidence, with what asks fresh questions; `small` is the smallest one answered wrongly."""
    function, lost = tried.function, {case for case, _ in wrong}
    right = [pair for pair in seen if pair[0] not in lost]

    @cache  # each view of the evidence asks, and a layer would be made anew for each
    def ask() -> Seen:
        asked = of_one_input(wrong)
        others = in_other_sizes(caller, function, {case.rung for case, _ in asked})
        holes = asked_of_holes(caller, function, wrong)
        return [*fresh(caller, function, asked), *others, *([small] if small else []), *holes]

    def ask_right() -> Seen:
        return fresh(caller, function, [pair for pair in right if pair[1].output is not None])

    def ask_equal() -> Pair | None:
        return of_equal_scores(caller, function, ways_to_call.rounded(tried.case, caller), seen)

    return Answers(
        promised(wrong) + right, digits, DIGITS[caller.dtype], broken, ask=ask, ask_right=ask_right,
        ask_equal=ask_equal, is_seen=lambda: inner.tells_all(function.look()), watch=cache(partial(seen_inside, caller)),
    )  # fmt: skip


def left_out(caller: Caller, function: Bound, seen: Seen) -> Iterator[Pair]:
    """Yield the questions that count beside no others, with what is answered to them and to fresh ones of their kind.

    Of fewer key/value heads anything is an answer, as other mistakes may show there too. A layer is not asked: many
    take another input and make nothing of it.
    """
    cases = [case for case, _ in seen if case.rung in LEFT_OUT] if function.inside is None else []
    asked = [(case, caller(case)) for case in cases]
    asked = [pair for pair in asked if pair[1].output is not None]
    yield from asked
    yield from fresh(caller, function, asked)


FITS = "right as long as exp of the logits fits {}"


def is_overflow_alone(wrong: Seen, found: Explained, digits: int, besides: Iterable[Finding]) -> bool:
    """Say whether nothing is wrong but that large logits overflow, in a type that holds all that people have."""
    large = bool(wrong) and all(case.rung == LARGE for case, _ in wrong)
    is_known = digits >= SINGLE and found.names in (OVERFLOWS, (ONE_MAXIMUM,))
    return large and is_known and all(finding.state != BROKEN for finding in besides)


def as_it_may_be_meant(caller: Caller, wrong: Seen, digits: int, ask: Callable[[], Sequence[Pair]]) -> str:
    """Return why all that is wrong is none: scores clipped far above usual ones, or sizes that nobody promised."""
    if is_size_of_shares(wrong, digits):
        return SHARES_OF_X
    clip = clipped_at(caller, wrong, digits, ask)
    return "" if clip is None else f"scores are clipped at {clip:g}"


def is_size_of_shares(wrong: Seen, digits: int) -> bool:
    """Say whether nothing is wrong but that a function of a layer's matrices scales by a share of x's width.

    Heads have another size there, and nobody promised that a width and all its heads may differ.
    """
    if not wrong or any(case.rung != WIDTH or answer.output is None for case, answer in wrong):
        return False
    made = [
        (answer.output, predicted(case.recipe.with_rules(scale=(width // case.recipe.heads) ** -0.5), case.given))
        for case, answer in wrong
        if (width := len(case.given.arrays["W_q"])) >= case.recipe.heads
    ]
    known = [(output, stages) for output, stages in made if output is not None and stages is not None]
    return len(known) == len(wrong) and not any(differs(output, stages, digits) for output, stages in known)


SHARES_OF_X = "right where all heads together are as wide as x: it takes x's width over the heads as the size of one"


def is_of_own_axes(wrong: Seen, found: Explained, masked: Seen) -> bool:
    """Say whether nothing is wrong but what a function makes of a mask with axes that nobody promised to take.

    What is wrong with masks is not excused by that, but where it does what a mask says (`masked`) it may leave out one
    with more axes.
    """
    own = all(case.unpromised and case.rung in MASKS_OF_MORE for case, _ in wrong)
    left_out = any(answer.output is not None for _, answer in masked) and found.names == (IGNORED,)
    return own and (left_out or not any(mistake(name).group == "masks" for name in found.names))


MADE_OF_IT = Answer(None, error="it answers, and makes something else of such a mask")


def in_other_sizes(caller: Caller, function: Bound, rungs: Collection[str]) -> Seen:
    """Ask these kinds of questions of a layer of the same class in other sizes, if it can be made so.

    Where names say what the matrices are in these sizes, they say it in others too.
    """
    other, inside = function.again(), function.inside
    if other is None or inside is None or other.inside is None or other.offer is None:
        return []
    is_guessed = other.roles is not None and not other.roles.sure
    found = (other.named if function.named is None and is_guessed else None) or other.inside
    if other.offer.parameters != caller.offer.parameters or bool(found.around) != bool(inside.around):
        return []
    of_other = replace(caller, function=other.call, offer=other.offer)
    cases = [case for case in layer_cases(caller.request, other.offer, True, found) if case.rung in rungs]
    return [(case, of_other(case)) for case in cases[:MOST_OTHERS]]


MOST_OTHERS = 4
"""So many questions are asked of a layer in other sizes."""


def of_equal_scores(caller: Caller, function: Bound, case: Case, seen: Seen) -> tuple[Case, Answer] | None:
    """Return a question whose scores are all equal, with its answer: equal inputs, or a layer whose W_q is 0."""
    if caller.offer.core:
        return next((pair for pair in seen if pair[0].rung == "equal inputs"), None)
    return asked_with(caller, function, case, no_queries)


def asked_of_holes(caller: Caller, function: Bound, wrong: Seen) -> Seen:
    """Ask the first question with a mask that was answered with NaN anew, so that what makes NaN shows.

    The first query sees all keys, and values and the answer of a layer are positive: infinite ones stay infinite then.
    """
    for case, answer in wrong:
        masks = case.recipe.rules.masks
        if answer.output is None or not np.isnan(answer.output).any() or not masks:
            continue
        other = case.with_masks(tuple(seeing_all(mask) if isinstance(mask, Allowed) else mask for mask in masks))
        if other.given.x is None:
            return [(other, caller(other))]
        positive = replace(other, given=replace(other.given, x=np.abs(other.given.x)))
        asked = asked_with(caller, function, positive, positive_values)
        return [asked] if asked else []
    return []


def seeing_all(mask: Allowed) -> Allowed:
    """Return a mask whose first query sees all keys."""
    values = mask.values.copy()
    values[..., 0, :] = True
    return Allowed(values)


def asked_with(
    caller: Caller, function: Bound, case: Case, change: Callable[[str, Array], Array]
) -> tuple[Case, Answer] | None:
    """Ask a layer a question with other matrices; None where those inside it cannot be others."""
    arrays = {name: change(name, array) for name, array in case.given.arrays.items()}
    other = replace(case, given=replace(case.given, arrays=arrays))
    if function.inside is None:
        return other, caller(other)
    if function.layer is None or function.roles is None:
        return None
    with with_matrices(function.layer, function.roles, change) as held_now:
        same = all(np.array_equal(array, held_now.get(name, 0.0)) for name, array in arrays.items())
        return (other, caller(other)) if same else None


def promised(wrong: Seen) -> Seen:
    """Return the wrong answers to be explained: those that nobody promised count where there are no others."""
    return [(case, answer) for case, answer in of_one_input(wrong) if not case.unpromised] or wrong


def of_one_input(wrong: Seen) -> Seen:
    """Return the wrong answers to one input, or all where there is none: many take another and make nothing of it."""
    return [(case, answer) for case, answer in wrong if case.rung != CROSS] or wrong


def what_it_computes(found: Explained, is_wrong: bool) -> str:
    """Return what a function computes, in words."""
    if not is_wrong:
        return "attention as it was asked for"
    if found.setting:
        return what_a_setting_computes(found.setting)
    return what_mistakes_compute(found.names, found.where, found.said)


def remarked(findings: Sequence[tuple[Finding, str]]) -> tuple[str, ...]:
    """Return the one remark on a function that passed, the one that readers meet first."""
    said = {name for finding, name in findings if name and finding.state == REMARK}
    return tuple(name for name in REMARKS if name in said)[:1]


REMARKS = ("dropout_on", *OVERFLOWS, ONE_MAXIMUM, "empty_row_nan", "nan_leaks")


def said_of_call(caller: Caller) -> str:
    """Say how a function is called."""
    what = f"q, k, v [{axes(caller.layout)}]" if caller.offer.core else "x and a layer's matrices"
    masking = str(caller.masking) if caller.offer.takes("mask") else ""
    kind = "" if caller.padding.kind == "booleans" else f" {WORDS[caller.padding.kind].removeprefix('masks ')}"
    padding = f"masks of keys{kind} [{caller.padding.axes}]" if caller.padding != PADDINGS[0] else ""
    masks = "".join(f", {said}" for said in (masking, padding) if said)
    given = f", {caller.offer.said}" if caller.offer.said else ""
    back = f", and returns [{axes(caller.returns)}]" if caller.returns else ""
    back += f" as what it {caller.part}" if caller.part.startswith("returned") else ""
    return f"with {what}{given}, {caller.library.name}, {caller.dtype}{masks}{back}{overridden(caller)}"


def axes_of_answers(seen: Seen) -> Iterator[Finding]:
    """Yield what is said of the first answer that has axes of length 1 more or fewer than it should."""
    said = next((answer.axes for _, answer in seen if answer.axes), "")
    if said:
        yield Finding("the axes of its answer", BROKEN, said)


def overridden(caller: Caller) -> str:
    """Say which defaults of the function were not left to it, as nobody asked for what they do."""
    words = {role: caller.offer.defaults.get(role) for role in ("causal", "dropout")}
    said = [f"{caller.offer.parameters[role]}={value}" for role, value in words.items() if value]
    return f"; its own {' and '.join(said)} only where asked for" if said else ""


def findings_of_questions(seen: Seen, wrong: Seen, caller: Caller, digits: int) -> Iterator[Finding]:
    """Yield a finding for each kind of question."""
    lost = {case for case, _ in wrong}
    for rung in dict.fromkeys(case.rung for case, _ in seen):
        questions = [pair for pair in seen if pair[0].rung == rung]
        refused = [answer.error for _, answer in questions if answer.output is None]
        failed = [answer for case, answer in questions if answer.output is None and not case.optional]
        bad = [(case, answer) for case, answer in questions if case in lost]
        if bad:
            yield Finding(rung, BROKEN, how_wrong(bad[0]))
        elif any(not answer.refused for answer in failed):
            yield Finding(rung, BROKEN, refused[0])
        elif refused:
            yield Finding(rung, ABSENT, refused[0])
        else:
            yield Finding(rung, HELD)


def how_wrong(pair: tuple[Case, Answer]) -> str:
    """Say how far an answer is from the right one."""
    case, answer = pair
    right = expected(case)["output"]
    assert answer.output is not None
    if answer.output.shape != right.shape:
        return f"shape {list(answer.output.shape)}, expected {list(right.shape)}"
    return f"off by up to {error(answer.output, case):.2g} of the largest number"


def accuracy(seen: Seen, digits: int, rounding: str, lenient: bool) -> Finding:
    """Say how exact the answers are, in units of the type's last place, or what is less exact than it looks."""
    if rounding:
        return Finding("accuracy", BROKEN if rounding == SILENT and not lenient else REMARK, rounding)
    errors = [
        error(answer.output, case) for case, answer in seen if answer.output is not None and case.rung != "large inputs"
    ]
    units = max(errors) * 2.0 ** (digits - 1)
    return Finding("accuracy", HELD, f"within {units:.2g} units in the last place of the largest number")


def asked_again(caller: Caller, seen: Seen, wrong: Seen) -> Finding:
    """Ask the first questions once more, after all the others."""
    rung = "the same after many calls"
    for case, answer in seen[:3]:
        if answer.output is None:
            continue
        again = ways_to_call.of_kept_queries(caller, case, caller(case))
        later = again.output
        if later is None:
            return Finding(rung, BROKEN, f"it gave no answer any more: {again.error}")
        if later.shape == answer.output.shape:
            gap = np.nan_to_num(np.abs(later - answer.output)).max(initial=0.0)
            if gap / max(np.nan_to_num(np.abs(answer.output)).max(initial=0.0), 1e-30) <= 1e-3:
                continue
        return Finding(rung, BROKEN, "it answered otherwise at first")
    return Finding(rung, HELD)
