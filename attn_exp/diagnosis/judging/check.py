"""Checks one function: a ladder of questions, the name of the mistake, and the smallest input that still fails."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np

from attn_exp.diagnosis.asking.clock import ASKING_MORE, MAKING, is_over, running, while_there_is_time
from attn_exp.diagnosis.asking.questions import ABOUT_MASKS, MASKS_OF_MORE
from attn_exp.diagnosis.asking.request import Request, with_words
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.code.libraries import replaced_in_numpy
from attn_exp.diagnosis.explaining.answers import SINGLE
from attn_exp.diagnosis.finding import ways_to_call, ways_to_mask
from attn_exp.diagnosis.finding.ways_to_call import Tried
from attn_exp.diagnosis.inside import inner, other_words
from attn_exp.diagnosis.inside.sides_inside import OF_PLACES, OF_TOKENS_INSIDE
from attn_exp.diagnosis.inside.weights_inside import BY_FRAMES, OF_SCALE
from attn_exp.diagnosis.judging.judge_answers import VALUES, Tell, said_of_call, verdict_on_answers
from attn_exp.diagnosis.judging.mask_left_out import causal_mask_left_out
from attn_exp.diagnosis.judging.masks_beside_a_mistake import with_masks_beside_a_mistake
from attn_exp.diagnosis.judging.modes import in_both_modes
from attn_exp.diagnosis.judging.scales_set import said_of_scale, with_its_scale_set, words_of_cap
from attn_exp.diagnosis.making.told_sizes import is_module, may_be_causal, may_share_heads
from attn_exp.diagnosis.matrices.bound import Bound
from attn_exp.diagnosis.matrices.idle import NO_OUTPUT, UNUSED
from attn_exp.diagnosis.reading.unused import all_one_head, first_of_several, heads_never_read, unused
from attn_exp.diagnosis.recipes.candidates import Explained, everywhere
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
from attn_exp.rules.positions.rope import Rope


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
            verdict = check_in_all_ways(own, request, quick, tell)
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


def check_in_all_ways(own: OwnFunction, request: Request, quick: bool, tell: Tell) -> Verdict:
    """Check a function in the layouts that it may have, and a layer with fewer key/value heads too."""
    request = with_its_scale_set(own, of_the_size_told(own, request))
    verdict = with_shared_heads(own, request, check_in_layouts(own, request, quick, tell), tell)
    return with_more(under_its_cap(own, request, verdict, quick, tell), said_of_scale(request))


def under_its_cap(own: OwnFunction, request: Request, verdict: Verdict, quick: bool, tell: Tell) -> Verdict:
    """Return the verdict on a class whose answers no mistake explains, as right where those with the cap are that its
    configuration sets."""
    is_open = not (verdict.passed or verdict.mistakes or request.scores) and other_words.are_open(request, "position")
    words = words_of_cap(own) if is_open else ""
    if words:
        with suppress(UserError):
            capped = check_in_layouts(own, with_words(request, words), quick, tell)
            return other_words.under(capped, request, words) if capped.passed else verdict
    return verdict


def of_the_size_told(own: OwnFunction, request: Request) -> Request:
    """Return a request for heads of the size of which the words turn a part, where a layer is right with such alone.

    A class that turns a quarter of a head turns 8 numbers of 32.
    """
    turned = next((one.size for one in request.positions if isinstance(one, Rope) and one.size), 0)
    if not turned or not (inspect.isclass(own.function) and is_module(own.function)):
        return request
    several = [request, *(replace(request, size=share * turned) for share in SHARES)]
    for one in while_there_is_time(several, MAKING, "heads of which the words turn a part"):
        with suppress(UserError):
            if ways_to_call.is_right(ways_to_call.how_to_call(own, one)):
                return one
    return request


SHARES = (2, 4, 1)
"""Into how many parts of that size a head is cut."""


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
    verdict = check_called(own, tried, quick, tell)
    verdict = (looked_into(verdict, tried) if are_of_masks(verdict) else None) or verdict
    verdict = scaled_as_inside(verdict, tried)
    verdict = with_more(verdict, in_both_modes(own, tried.function, tried.caller, tried.case))
    verdict = with_more(verdict, unused(tried.function, tried.caller, tried.case))
    verdict = with_more(verdict, all_one_head(tried.function))
    verdict = with_more(verdict, heads_never_read(own, tried.function))
    verdict = with_more(verdict, first_of_several(tried.function))

    verdict = with_more(verdict, made_causal(own, request, verdict, tell))
    verdict = with_more(verdict, causal_mask_left_out(own, tried.function, tried.caller, tried.case, verdict))
    verdict = with_more(verdict, turned_by_tables(own, request, verdict, tried.function, tell))
    verdict = with_more(verdict, turned_by_its_own(request, verdict, tried.function))

    unexplained = is_unknown_at_once(verdict)  # beside matrices that nobody uses, which have a name
    if verdict.passed or (verdict.mistakes and not unexplained) or request.layout:
        return verdict
    other_axes = FOR_MASKS[tried.caller.offer.core].get(tried.caller.layout, "")
    if only_masks_fail(verdict) and other_axes:
        with suppress(UserError):  # it may take no arrays of other axes
            other = check_in_layout(own, replace(request, layout=other_axes), quick, tell)
            if other.passed or (other.mistakes and all(mistake(name).group == "masks" for name in other.mistakes)):
                return other
    inside = looked_into(verdict, tried)
    if inside is not None or verdict.mistakes:
        return inside or verdict
    offer = ways_to_call.offer_by_names(own, request)
    if offer is None and not tried.caller.offer.guessed and not tried.caller.offer.layouts:
        offer = tried.caller.offer  # its names say which is which, beside others that are given something
    layouts = ["bhtd", "bthd"] if offer is not None and offer.takes("heads") else ["bthd", "bd1t"]
    layouts = ["thd"] if tried.caller.layout == "htd" else layouts
    is_open = offer is not None and offer.core and has_wrong_values(verdict)  # else its axes lie as they were given
    others_left = layouts if is_open else []
    for layout in while_there_is_time(others_left, ASKING_MORE, "other orders of axes"):
        other = check_in_layout(own, replace(request, layout=layout), True, tell)
        if len(other.mistakes) == 1:  # of several, and of axes that nobody named, much may come out alike
            return other
    return verdict


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
            other = checked_inside(own, fewer, tell)
        except inner.UnreadError as error:
            other = error.look() or verdict
        is_more = set(other.mistakes) > set(verdict.mistakes) and not other.passed
        return other if is_more or (verdict.passed and has_mixed_tokens(other)) else verdict
    return verdict


def has_mixed_tokens(verdict: Verdict) -> bool:
    """Say whether answers that nothing explains come of what is seen inside: rows that are made of several tokens."""
    return verdict.unexplained and any(one.rung == OF_TOKENS_INSIDE and one.state == BROKEN for one in verdict.findings)


def looked_into(verdict: Verdict, tried: Tried) -> Verdict | None:
    """Return the verdict on a layer with what is seen of the attention inside, where nothing else explains it."""
    if is_unknown_at_once(verdict):
        seen = tried.function.look()
        return None if seen is None else as_seen_inside(verdict, seen, tried.caller)
    if not verdict.unexplained:
        return None
    if not are_of_masks(verdict):  # other sizes alone are wrong: that has a name, or none, or they have more frames
        seen = tried.function.look()
        by_frames = seen is not None and any(one.rung == BY_FRAMES for one in seen.findings)
        is_told = seen is not None and (seen.mistakes or (seen.passed and by_frames))
        return as_seen_inside(verdict, seen, tried.caller) if seen is not None and is_told else None
    seen = tried.function.look()  # masks alone are wrong, in a way that answers do not show
    names = set(() if seen is None else seen.mistakes) - NEVER_USED
    if seen is None or not names or any(mistake(name).group != "masks" for name in names):
        return None
    findings = (*verdict.findings, *(one for one in seen.findings if one.state == BROKEN))
    explained_now = replace(verdict, unexplained=False, stage="")
    return replace(explained_now, mistakes=seen.mistakes, computes=seen.computes, findings=findings)


def scaled_as_inside(verdict: Verdict, tried: Tried) -> Verdict:
    """Return the verdict on a layer, or what is seen inside where scores are scaled as heads inside it want it.

    Other inputs may fill a part of each head, so that it is larger than those of x.
    """
    is_open = verdict.mistakes == ("scale_other",) and tried.function.layer is not None
    seen = tried.function.look() if is_open else None
    if seen is None or not seen.passed:
        return verdict
    return seen if any(one.rung == OF_SCALE and one.state == HELD for one in seen.findings) else verdict


NEVER_USED = {NO_OUTPUT, UNUSED}
"""What answers do not show, as the matrix is no part of them."""


def are_of_masks(verdict: Verdict) -> bool:
    """Say whether all that is wrong in a function's answers is wrong where a mask is given."""
    wrong = {one.rung for one in verdict.findings if one.state == BROKEN}
    return wrong <= {*ABOUT_MASKS, *MASKS_OF_MORE}


def made_causal(own: OwnFunction, request: Request, verdict: Verdict, tell: Tell) -> Iterator[tuple[Finding, str]]:
    """Yield what is to be said of a layer whose class is told that it is causal, where as it was made it is not."""
    is_known = verdict.passed or bool(verdict.mistakes)
    if not is_known or request.masks or other_words.CAUSAL in verdict.right_under or not may_be_causal(own):
        return
    with suppress(UserError):  # it may not be made so
        other = checked_inside(own, with_words(request, other_words.CAUSAL), tell)
        told = {*verdict.mistakes, *(name for names in verdict.alike for name in names if name == other_words.INVERTED)}
        names = [name for name in other.mistakes if name not in told]  # one is told as a convention
        if names and all(mistake(name).group == "masks" for name in names):
            states = {name: REMARK if name in ALIGNED else BROKEN for name in names}
            yield from ((Finding(MADE_CAUSAL, state, mistake(name).says), name) for name, state in states.items())
        elif other.passed or other.mistakes:
            yield Finding(MADE_CAUSAL, HELD if not names else ABSENT), ""


MADE_CAUSAL = "made causal"
ALIGNED = {"causal_top_left", "causal_bottom_right"}
"""How causal masks lie where nobody asked for one: every library has its own way."""


def turned_by_tables(
    own: OwnFunction, request: Request, verdict: Verdict, function: Bound, tell: Tell
) -> Iterator[tuple[Finding, str]]:  # fmt: skip
    """Yield what is to be said of a layer that takes the angles of rotary positions, once they turn something."""
    if not function.has_tables or request.positions or not (verdict.passed or verdict.right_under):
        return
    asked = {words: with_words(request, f"{words} {verdict.right_under}") for words in ROTARY}
    turned = list[Tried]()
    with suppress(UserError):
        for words, one in asked.items():
            tried = ways_to_call.how_to_call(own, one)
            if ways_to_call.is_right(tried):
                yield Finding(TURNED, HELD, words), ""
                return
            turned += [tried] if tried.function.has_tables else []  # a way without them, or none in time, is no answer
        turned = [one for one in turned if ways_to_call.has_one_mistake(one, "positions")]
        for tried in while_there_is_time(turned, ASKING_MORE, "what its tables turn otherwise"):
            names = called_inside(own, without_words_for_masks(tried), tell).mistakes
            if names and all(mistake(name).group == "positions" for name in names) and "rope_pairing" not in names:
                yield from ((Finding(TURNED, BROKEN, mistake(name).says), name) for name in names)
                return


def without_words_for_masks(tried: Tried) -> Tried:
    """Return the same call of a function that is given no mask, where it can do without."""
    offer = tried.caller.offer
    words = {role: word for role, word in offer.parameters.items()
             if role not in ("mask", "padding") or role not in offer.defaults}  # fmt: skip
    return replace(tried, caller=replace(tried.caller, offer=replace(offer, parameters=words)))


def turned_by_its_own(request: Request, verdict: Verdict, function: Bound) -> Iterator[tuple[Finding, str]]:
    """Yield what is to be said of how a layer turns queries, keys and values by numbers that were set to 0 meanwhile.

    With them it was right; inside they are as they were at first.
    """
    layer, roles = function.layer, function.roles
    if layer is None or roles is None or request.positions or not (verdict.passed or verdict.right_under):
        return
    several = (array for name, array in roles.neutral.items() if name not in layer.of_norms and array.size > 1)
    if all(map(np.any, several)):
        return
    seen = function.look()
    broken = [] if seen is None else [one for one in seen.findings if (one.rung, one.state) == (OF_PLACES, BROKEN)]
    names = [] if seen is None else [name for name in seen.mistakes if mistake(name).group == "positions"]
    yield from zip(broken, names, strict=False)


TURNED = "turned by its tables"
ROTARY = ("position=rope", "position=rope position.rope.interleaved=true")
FOR_MASKS = {True: {"bhtd": "btd", "bthd": "btd"}, False: {"td": "bhtd"}}
"""In which axes a function of q, k and v, or one of x, may be meant that takes others too, but no mask beside them."""


def only_masks_fail(verdict: Verdict) -> bool:
    """Say whether nothing is wrong but that masks raise an error: they may be meant for arrays of other axes."""
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

    What is right inside is right where its masks were asked, or where a layer has no word for them and nobody asked for
    one.
    """
    masked = caller.offer.takes("mask") or caller.offer.takes("padding")
    is_right = seen.passed and not caller.request.masks and not (masked and inner.UNREAD_WITH_MASKS in seen.not_asked)
    if seen.mistakes or seen.right_under or is_right:
        names = tuple(dict.fromkeys((*seen.mistakes, *verdict.mistakes)))
        passed, under = (seen.passed, seen.right_under) if names == seen.mistakes else (False, "")
        return replace(seen, seconds=verdict.seconds, mistakes=names, passed=passed, right_under=under)
    first = next((f"{one.rung}: {one.said}" for one in seen.findings if one.state == BROKEN), "")
    said = f"Inside, {first}" if first else "Inside, q, k and v are multiplied, weighed and mixed as they should be"
    findings = (*verdict.findings, *(one for one in seen.findings if one.rung != CALLED))
    behind = "output" if verdict.stage == "context" and not first else verdict.stage  # what is mixed is right inside
    return replace(
        verdict,
        computes=f"{verdict.computes.rstrip('.')}. {said}",
        stage=seen.stage or behind,
        findings=findings,
    )


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


def checked_inside(own: OwnFunction, request: Request, tell: Tell) -> Verdict:
    """Check a function under a request in a few questions, and look inside where nothing explains its answers."""
    return called_inside(own, ways_to_call.how_to_call(own, request), tell)


def called_inside(own: OwnFunction, tried: Tried, tell: Tell) -> Verdict:
    """Check a function that is called as was found out, as `checked_inside` does."""
    verdict = check_called(own, tried, True, tell)
    return looked_into(verdict, tried) or verdict


def check_called(own: OwnFunction, tried: Tried, quick: bool, tell: Tell) -> Verdict:
    """Check a function that is called as was found out, as `check` does, with all warnings off."""
    start, request = perf_counter(), tried.caller.request
    if request.blocks and understood(tried) and ways_to_call.is_right(tried, causal=True):
        given = ways_to_call.how_to_call(own, request, ways_to_mask.always_given(tried.function))
        tried = given if ways_to_call.is_right(given) else tried
    offer = tried.function.offer
    if (
        request.masks
        and tried.answer.output is None
        and offer is not None
        and offer.takes("mask")
        and understood(tried)
    ):
        bare = replace(tried.function, offer=offer.of_keys_alone())  # the mask that is asked for may be inside
        given = ways_to_call.how_to_call(own, request, bare)
        tried = given if given.answer.output is not None else tried
    tried = with_its_own_mask(own, tried)
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
    instead = as_its_names_say(own, tried, quick, tell) or under_other_words(own, tried, quick, tell)
    if instead is not None:
        return replace(instead, seconds=perf_counter() - start)
    caller = ways_to_call.with_its_scale(ways_to_mask.with_its_mask(caller, tried.function), tried.case)
    is_open = other_words.are_open(request)
    caller = ways_to_mask.with_one_opposite(caller, tried.function) if is_open else caller
    hides = is_open and ways_to_mask.hides(caller, tried.function)
    if hides and (again := hiding(own, tried, request, quick, tell)).passed:  # a convention comes before a mistake
        change = everywhere(mistake(other_words.INVERTED).changes[0])
        turned = Explained((other_words.INVERTED,), change=change)
        verdict = verdict_on_answers(own, caller, tried, quick, tell, turned)
        return replace(read_otherwise(verdict, tried, request, again), seconds=perf_counter() - start)
    verdict = with_masks_beside_a_mistake(own, caller, tried, quick, tell)
    if is_open and ways_to_mask.has_two_masks(caller):
        verdict = with_each_convention(own, caller, tried, verdict, quick=quick, tell=tell)
    may_hide = not verdict.passed and (other_words.INVERTED in verdict.mistakes or (hides and not verdict.mistakes))
    if is_open and may_hide:  # that is the mistake, or one of them, or none is known
        again = again if hides else hiding(own, tried, request, quick, tell)
        verdict = read_otherwise(verdict, tried, request, again)
    elif is_open and verdict.unexplained and are_of_masks(verdict):  # one mistake may stand beside that convention
        again = hiding(own, tried, request, quick, tell)
        is_one = again.mistakes and HIDES_ALL not in again.mistakes  # what hides all does so whatever True means
        verdict = read_otherwise(verdict, tried, request, again) if is_one else verdict
    return replace(verdict, seconds=perf_counter() - start)


HIDES_ALL = "mask_hides_all"


def with_each_convention(
    own: OwnFunction, caller: Caller, tried: Tried, verdict: Verdict, *, quick: bool, tell: Tell
) -> Verdict:  # fmt: skip
    """Return the verdict on a function of two masks with what True means in each, where that is not the same in both.

    What is wrong with one of them has its name where the other one is written as the function wants it.
    """
    is_open = other_words.INVERTED in verdict.mistakes or (verdict.unexplained and are_of_masks(verdict))
    for name in ("padding", "masking") if is_open and not said_of_masks(caller) else ():
        other = ways_to_mask.opposite(caller, name)
        again = verdict_on_answers(own, other, tried, quick, tell)
        is_plainer = again.mistakes and other_words.INVERTED not in again.mistakes
        if again.passed or (is_plainer and len(again.mistakes) <= len(verdict.mistakes or again.mistakes)):
            return with_more(again, said_of_masks(other))
    return with_more(verdict, said_of_masks(caller))


def said_of_masks(caller: Caller) -> list[tuple[Finding, str]]:
    """Return what is to be said of two masks of which True hides in one alone: of padding, every library means so."""
    if caller.masking.opposite == caller.padding.opposite:
        return []
    hiding, other = ("padding", "mask") if caller.padding.opposite else ("mask", "padding")
    words = caller.offer.parameters
    is_usual = hiding == "padding" or "causal" in words["mask"].lower()
    said = f"True in it hides, and in {words[other]} it is seen" + ("" if is_usual else ": a mistake, if not meant")
    return [(Finding(f"masks as {words[hiding]}", HELD if is_usual else REMARK, said), "")]


def with_its_own_mask(own: OwnFunction, tried: Tried) -> Tried:
    """Return how a function is called without a mask, where one that is given takes the place of what it adds itself.

    Scores that are asked for may stand in its own mask, as those of ALiBi do beside a causal one.
    """
    offer, request = tried.caller.offer, tried.caller.request
    is_open = request.scores and offer.takes("mask") and "mask" in offer.defaults and tried.answer.output is not None
    if not is_open or ways_to_call.is_right(tried) or ways_to_call.has_one_mistake(tried):
        return tried
    said = "; ".join(filter(None, (offer.said, "no mask, as one that is given takes the place of its own")))
    bare = replace(tried.function, offer=replace(offer.without("mask"), said=said))
    with suppress(UserError):
        other = ways_to_call.how_to_call(own, request, bare)
        return other if ways_to_call.is_right(other) or ways_to_call.has_one_mistake(other) else tried
    return tried


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

    found = found or [
        words for words, recipe in heads_inside(tried) if other_words.gives(recipe, tried.case, tried.answer, digits)
    ]
    fits = [(words, with_words(request, words)) for words in found]
    if not fits:
        return None
    words, asked = min(fits, key=lambda one: ways_to_call.failing_at_first(tried, one[1], digits))
    longest = ways_to_call.longest_question(tried, asked)
    if longest is not None:
        words = other_words.with_its_window(words, *longest, digits)
        asked = with_words(request, words)
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
    asked = with_words(request, other_words.BLOCKS)
    return check_in_layout(own, asked, quick, tell, understood(tried))


def read_otherwise(verdict: Verdict, tried: Tried, request: Request, again: Verdict) -> Verdict:
    """Return the verdict on a function whose masks are inverted, where `again` is that under the other convention."""
    if not again.passed:
        fewer = again.mistakes and set(again.mistakes) < set(verdict.mistakes)
        refuted = again.mistakes and verdict.mistakes == (other_words.INVERTED,)  # else it would pass now
        if fewer or refuted or not (verdict.mistakes or again.uncalled):
            also = verdict.mistakes if fewer else (*again.mistakes, other_words.INVERTED)
            return replace(other_words.under(again, request, other_words.BLOCKS), alike=(also, *again.alike))
        return verdict
    words = " ".join(filter(None, (request.words if request.typed else "", other_words.BLOCKS)))
    dressed = tried.caller.offer.parameters.get("padding") == "key_padding_mask"
    return other_words.read_otherwise(verdict, words, passed=dressed)
