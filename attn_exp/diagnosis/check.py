"""Checks one function: a ladder of questions, the name of the mistake, and the smallest input that still fails."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np

from attn_exp.diagnosis import other_words, ways_to_call, ways_to_mask
from attn_exp.diagnosis.answers import OVERFLOWS, SINGLE, Answers, unexplained
from attn_exp.diagnosis.behaviour import behaviours, gradients, remarks
from attn_exp.diagnosis.call import Caller
from attn_exp.diagnosis.candidates import Explained, what_a_setting_computes, what_mistakes_compute
from attn_exp.diagnosis.case import Answer, Case, expected
from attn_exp.diagnosis.explanations import explained
from attn_exp.diagnosis.layouts import axes
from attn_exp.diagnosis.libraries import DIGITS, replaced_in_numpy
from attn_exp.diagnosis.masking import PADDINGS, WORDS
from attn_exp.diagnosis.precision import error, only_rounded, representable
from attn_exp.diagnosis.questions import CROSS
from attn_exp.diagnosis.request import Request
from attn_exp.diagnosis.smallest import fresh, shown, smallest_wrong
from attn_exp.diagnosis.unasked import unasked
from attn_exp.diagnosis.ways_to_call import Seen, Tried, failing
from attn_exp.diagnosis.weights_of import said_of_weights
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
from attn_exp.own_code import OwnFunction, error_line, held

Tell = Callable[[str], None]
FLOAT64 = 53
SMALL_FILL = "mask_small_fill"


def check(own: OwnFunction, request: Request, quick: bool = False, tell: Tell = lambda rung: None) -> Verdict:
    """Ask a function every question, and return what became of it; `tell` hears what is being asked.

    Raises:
        UserError: what it takes is not known, or settings that cannot be asked of it.
        FaultError: an error of our own.
    """
    with held(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # what the function warns of is its own affair; what it answers is ours
        fault: Exception | None = None
        try:
            verdict = check_in_layouts(own, request, quick, tell)
        except UserError:
            raise
        except Exception as error:
            fault = error
        replaced = replaced_in_numpy()
        if replaced:
            said = f"replaced {', '.join(replaced)}, so that nothing right can be computed beside it"
            return unfinished(own.name, said, request.words, CHECKED)
        if fault is None:
            return verdict
        if isinstance(fault, MemoryError | RecursionError) or is_theirs(fault, own):
            return unfinished(own.name, f"could not be checked: {error_line(fault)}", request.words, CHECKED)
        raise FaultError(f"{own.name} could not be checked ({fault_line(fault)})") from fault


def is_theirs(error: BaseException, own: OwnFunction) -> bool:
    """Say whether an error was raised in a function's file, or one beside it: as what it returned was read."""
    place = [path for path, _ in way_of(error)][-1]
    return place.is_relative_to(Path(own.file).parent) and not place.is_relative_to(HERE)


def check_in_layouts(own: OwnFunction, request: Request, quick: bool, tell: Tell) -> Verdict:
    """Check a function in the likeliest layout, and where the mistake has no name there, in those that are less so."""
    verdict = check_in_layout(own, request, quick, tell)
    if verdict.passed or verdict.mistakes or request.layout:
        return verdict
    offer = ways_to_call.offer_by_names(own, request)
    layouts = ("bhtd", "bthd") if offer is not None and offer.takes("heads") else ("bthd",)
    for layout in layouts if offer is not None and offer.core else ():
        other = check_in_layout(own, replace(request, layout=layout), True, tell)
        if other.mistakes:
            return other
    return verdict


def check_in_layout(own: OwnFunction, request: Request, quick: bool, tell: Tell) -> Verdict:
    """Check a function, as `check` does, with all warnings off."""
    start = perf_counter()
    tell("how it is called")
    tried = ways_to_call.how_to_call(own, request)
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
    caller = ways_to_mask.with_its_mask(caller, tried.function)
    verdict = verdict_on_answers(own, caller, tried, quick, tell)
    # booleans that are added to the logits look like a small fill beside any other mistake
    other = ways_to_mask.with_added_mask(caller, tried.function) if SMALL_FILL in verdict.mistakes else None
    if other is not None and len(verdict.mistakes) > 1:
        added = verdict_on_answers(own, other, tried, quick, tell)
        verdict = added if set(added.mistakes) == set(verdict.mistakes) - {SMALL_FILL} else verdict
    if other_words.are_open(request) and may_hide(caller, tried, verdict):
        verdict = read_otherwise(own, verdict, request, quick, tell)
    return replace(verdict, seconds=perf_counter() - start)


def may_hide(caller: Caller, tried: Tried, verdict: Verdict) -> bool:
    """Say whether True may hide in a function's mask: that is the mistake, or one of them, or none is known."""
    if verdict.passed or verdict.mistakes:
        return other_words.INVERTED in verdict.mistakes
    return ways_to_mask.hides(caller, tried.function)


def as_its_names_say(own: OwnFunction, tried: Tried, quick: bool, tell: Tell) -> Verdict | None:
    """Check a module with the matrices that its names say, where what it computes says others; None where that is well.

    Whatever is made of matrices is attention of some others: what parts the two is a mistake, if it has a name.
    """
    function = tried.function
    if function.named is None:
        return None
    called = ways_to_call.how_to_call(own, tried.caller.request, replace(function, inside=function.named, named=None))
    if called.answer.output is None:
        return None
    usual = ways_to_mask.with_its_mask(tried.caller, function)  # masks are found where all else is right
    caller = replace(called.caller, masking=usual.masking, padding=usual.padding)
    verdict = verdict_on_answers(own, caller, called, quick, tell)
    return verdict if verdict.mistakes and not verdict.passed else None


def under_other_words(own: OwnFunction, tried: Tried, quick: bool, tell: Tell) -> Verdict | None:
    """Check a function under the words that fit its first answers best; None where the first is right as it is."""
    digits = min(ways_to_call.digits_of(tried.caller, tried.answer), SINGLE)
    if not ways_to_call.failing([(tried.case, tried.answer)], digits):
        return None
    request = tried.caller.request
    fits = [
        (words, other_words.with_words(request, words))
        for words in other_words.that_fit(tried.caller, tried.case, tried.answer, digits)
    ]
    if not fits:
        return None
    words, asked = min(fits, key=lambda one: ways_to_call.failing_at_first(tried, one[1], digits))
    verdict = check_in_layout(own, asked, quick, tell)
    if verdict.mistakes == (other_words.INVERTED,):
        verdict = read_otherwise(own, verdict, asked, quick, tell)
    return other_words.under(verdict, request, words) if verdict.passed or verdict.mistakes else None


def read_otherwise(own: OwnFunction, verdict: Verdict, request: Request, quick: bool, tell: Tell) -> Verdict:
    """Check a function whose masks are inverted under the convention that has them so: it comes before a mistake."""
    again = check_in_layout(own, other_words.with_words(request, other_words.BLOCKS), quick, tell)
    if not again.passed:
        fewer = again.mistakes and set(again.mistakes) < set(verdict.mistakes)
        if fewer or not (verdict.mistakes or again.uncalled):
            also = (verdict.mistakes,) if verdict.mistakes else ()
            return replace(other_words.under(again, request, other_words.BLOCKS), alike=(*also, *again.alike))
        return verdict
    offer = ways_to_call.how_to_call(own, request).caller.offer
    words = " ".join(filter(None, (request.words if request.typed else "", other_words.BLOCKS)))
    dressed = offer.parameters.get("padding") == "key_padding_mask"
    return other_words.read_otherwise(verdict, words, passed=dressed)


def verdict_on_answers(own: OwnFunction, caller: Caller, tried: Tried, quick: bool, tell: Tell) -> Verdict:
    """Ask a function every question, called in this way, of which `tried` was the first answer."""
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
    edges = list(remarks(caller, tried.case))
    again = asked_again(caller, seen, wrong)
    broken = tuple(dict.fromkeys(name for finding, name in behaved if finding.state == BROKEN and name))
    tell("which mistake it is")
    lost = {case for case, _ in wrong}
    right = [pair for pair in seen if pair[0] not in lost]
    small = smallest_wrong(caller, function, wrong, digits) if wrong else None

    def ask() -> Seen:
        return [*fresh(caller, function, of_one_input(wrong)), *([small] if small else [])]

    def ask_right() -> Seen:
        return fresh(caller, function, [pair for pair in right if pair[1].output is not None])

    evidence = Answers(promised(wrong) + right, digits, DIGITS[caller.dtype], broken, ask=ask, ask_right=ask_right)
    found = explained(evidence) if wrong else Explained()
    findings = (
        Finding(CALLED, HELD, said_of_call(caller)),
        *findings_of_questions(seen, wrong, caller, digits),
        *axes_of_answers(seen),
        *(() if wrong else (accuracy(seen, digits, rounding, lenient),)),
        *(finding for finding, _ in behaved),
        again,
        *(finding for finding, _ in edges),
        gradients(caller, tried.case, digits),
    )
    failed = [finding.rung for finding in findings if finding.state == BROKEN]
    passed = not failed
    named = broken if broken and found.names in ((), OVERFLOWS) else found.names
    names = remarked(edges) if passed else named
    if wrong or passed:
        computes = what_it_computes(found, seen, wrong)
        computes += "" if found.names or found.setting or not wrong else said_of_weights(caller, seen, wrong)
    else:
        computes = f"the right numbers, but look at: {', '.join(names or failed)}"
    smallest = shown(own, caller, *small, found.change, digits) if small else None
    tell("")
    return Verdict(
        name=own.name, passed=passed, mistakes=names, computes=computes, findings=findings,
        asked=caller.request.words, alike=found.alike, smallest=smallest, where=found.where,
        not_asked=unasked(caller, function, seen),
    )  # fmt: skip


def promised(wrong: Seen) -> Seen:
    """Return the wrong answers to be explained: those that nobody promised count where there are no others."""
    return [(case, answer) for case, answer in of_one_input(wrong) if not case.unpromised] or wrong


def of_one_input(wrong: Seen) -> Seen:
    """Return the wrong answers to one input, or all where there is none: many take another and make nothing of it."""
    return [(case, answer) for case, answer in wrong if case.rung != CROSS] or wrong


def what_it_computes(found: Explained, seen: Seen, wrong: Seen) -> str:
    """Return what a function computes, in words."""
    if not wrong:
        return "attention as it was asked for"
    if found.setting:
        return what_a_setting_computes(found.setting)
    return what_mistakes_compute(found.names, found.where, found.said) if found.names else unexplained(seen, wrong)


def remarked(findings: Sequence[tuple[Finding, str]]) -> tuple[str, ...]:
    """Return the one remark on a function that passed, the one that readers meet first."""
    said = {name for finding, name in findings if name and finding.state == REMARK}
    return tuple(name for name in REMARKS if name in said)[:1]


REMARKS = ("dropout_on", "empty_row_nan", "nan_leaks")


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


def bits_to_judge_by(caller: Caller, seen: Seen) -> tuple[int, str]:
    """Return to how many bits the answers are judged, and what is to be said about it."""
    digits = min(ways_to_call.digits_of(caller, answer) for _, answer in seen if answer.output is not None)
    kept = next(answer.dtype for _, answer in seen if answer.output is not None)
    if digits < FLOAT64:
        return digits, "" if digits == SINGLE and caller.dtype == "float32" else f"it answers in {kept}"
    wrong = failing(seen, digits)
    if wrong and not failing(seen, SINGLE):
        short = shortfall(wrong)
        if short:
            return (digits, "") if short > ROUNDING else (SINGLE, BESIDE)
        of_softmax = only_shares_are_rounded(seen, digits) and is_exact_in_scores(caller, seen[0][0])
        return SINGLE, SHARES if of_softmax else SILENT
    kind = representable([answer for _, answer in seen[:4]])
    if kind and failing(seen, digits) and only_rounded(seen, DIGITS[kind]):
        return DIGITS[kind], f"its answers are rounded to {kind}"
    return digits, ""


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


def only_shares_are_rounded(seen: Seen, digits: int) -> bool:
    """Say whether answers are exact where float32 holds the weights exactly: one half, one eighth, or 1 for one key."""
    exact = [pair for pair in seen if expected(pair[0])["weights"].shape[-1] in (1, 2, 4, 8)]
    held = [pair for pair in exact if is_shared_evenly(pair[0])]
    return bool(held) and not failing(held, digits)


def is_shared_evenly(case: Case) -> bool:
    """Say whether all weights of a case are the same."""
    weights = expected(case)["weights"]
    return bool((weights == weights.ravel()[0]).all())


def is_exact_in_scores(caller: Caller, case: Case) -> bool:
    """Say whether scores are those of float64: of queries and keys whose products are lost in float32.

    With `q = (1 + e, 1, 0, ...)` and `k = (a / e, -a / e, 0, ...)` a score is a, which is 0 where e is rounded away.
    """
    q, k = case.given.q, case.given.k
    if q is None or k is None or case.recipe.positions or q.shape[-1] < len("ab"):
        return True
    q, k, small = np.zeros_like(q), np.zeros_like(k), 2.0**-26
    whole = np.arange(k[..., 0].size).reshape(k.shape[:-1]) * 5 % 13 - 6.0
    q[..., 0], q[..., 1], k[..., 0], k[..., 1] = 1 + small, 1.0, whole / small, -whole / small
    asked = replace(case, given=replace(case.given, q=q, k=k))
    return not failing([(asked, caller(asked))], SINGLE)


def shortfall(wrong: Seen) -> float:
    """Return by how much of it each row of the answers is too small at most; 0 where rows are more than just shorter.

    That is no rounding: every number of a row is divided by a little too much.
    """
    most = 0.0
    for case, answer in wrong:
        right = expected(case)["output"]
        if answer.output is None or answer.output.shape != right.shape or case.given.x is not None:
            return 0.0
        lengths = (right * right).sum(axis=-1, keepdims=True)
        share = (answer.output * right).sum(axis=-1, keepdims=True) / np.maximum(lengths, 1e-300)
        if np.abs(answer.output - share * right).max() > ALIKE * np.abs(right).max() or (share > 1 + ALIKE).any():
            return 0.0
        most = max(most, float((1 - share).max()))
    return most


ALIKE, ROUNDING = 1e-14, 2.0**-24
BESIDE = "a small number beside the sums of the softmax: weights sum to a little less than 1"
SHARES = "weights are rounded to float32, values are not: its softmax is one of float32"
SILENT = "it answers in float64, but only float32 is behind it; say dtype=float32 if that is meant"


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
