"""Judge a function with a known calling convention: run all cases, choose a precision, and explain the answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from attn_exp.diagnosis.asking.case import Answer, Asked, Case, Seen, differs, expected, predicted, same_answer
from attn_exp.diagnosis.asking.libraries import DIGITS
from attn_exp.diagnosis.asking.offer import PADDINGS, WORDS, axes
from attn_exp.diagnosis.asking.questions import ABOUT_MASKS, MASKS_OF_MORE, WIDTH
from attn_exp.diagnosis.calling import conventions, ways_to_call
from attn_exp.diagnosis.calling.behaviour import IN_THREADS, Found, behaviours, gradients, remarks
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.calling.ways_to_call import Tried, digits_of, failing
from attn_exp.diagnosis.explaining.answers import LARGE, OVERFLOWS, SINGLE, located, representable
from attn_exp.diagnosis.explaining.smallest import evidence_of, shown, smallest_wrong
from attn_exp.diagnosis.judging.parting import first_missing_stage
from attn_exp.diagnosis.judging.unasked import unasked, unverified
from attn_exp.diagnosis.recipes.candidates import (
    Explained,
    explained,
    what_a_setting_computes,
    what_mistakes_compute,
)
from attn_exp.diagnosis.recipes.combinations import is_clipped
from attn_exp.experiment.verdict import ABSENT, BROKEN, CALLED, HELD, REMARK, Finding, Verdict
from attn_exp.mistakes import mistake
from attn_exp.own_code import OwnFunction


def only_rounded(seen: Seen, digits: int) -> bool:
    for case, answer in seen:
        if answer.output is None:
            continue
        right = expected(case)["output"]
        if right.shape != answer.output.shape:
            return False
        if not np.allclose(answer.output, right, rtol=0.75 * 2.0 ** (1 - digits), atol=1e-7, equal_nan=True):
            return False
    return True


def error(output: np.ndarray | None, case: Case) -> float:
    """Return `max |output - expected| / max |expected|`, or 1 if the shapes differ."""
    right = expected(case)["output"]
    if output is None or output.shape != right.shape:
        return 1.0
    gap = np.nan_to_num(np.abs(output - right), nan=1.0, posinf=1.0)
    return float(gap.max(initial=0.0) / max(np.abs(np.nan_to_num(right)).max(initial=0.0), 1e-30))


FLOAT64 = DIGITS["float64"]
ALIKE, ROUNDING = 1e-14, 2.0**-24
"""Relative bounds on the difference between proportional rows, and on the rounding error of float32."""
FAR = 2.0**-18
"""A relative error too large for a softmax in float32."""
BESIDE = "a small number is added to the softmax sums: weights sum to slightly less than 1"
SHARES = "its softmax runs in float32: weights are rounded, values are not"
HABIT = "it computes in float32; set dtype=float32 if that is intended"
SILENT = "it returns float64, but computes in float32; set dtype=float32 if that is intended"


def bits_to_judge_by(caller: Caller, seen: Seen) -> tuple[int, str]:
    """Return how many bits of the answers to compare, and a note on rounding.

    Cases that the function need not support are ignored.
    """
    seen = [pair for pair in seen if not pair[0].unpromised or pair[1].output is None] or seen
    digits = min(digits_of(caller, answer) for _, answer in seen if answer.output is not None)
    kept = next(answer.dtype for _, answer in seen if answer.output is not None)
    if digits < FLOAT64:
        return digits, "" if digits == SINGLE and caller.dtype == "float32" else f"it returns {kept}"
    seen = without_what_masks_break(seen)
    wrong = failing(seen, digits)
    if wrong and not failing(seen, SINGLE):
        short = shortfall(wrong)
        if short:
            return (digits, "") if short > ROUNDING else (SINGLE, BESIDE)
        of_softmax = only_shares_are_rounded(seen, digits) and is_exact_in_scores(caller, seen[0][0])
        # float32 is the default of PyTorch and JAX if the user names no dtype; NumPy never rounds by itself
        of_habit = caller.library.name != "numpy" and not caller.request.dtype
        return SINGLE, SHARES if of_softmax else HABIT if of_habit else SILENT
    kind = representable([answer for _, answer in seen[:4]])
    if kind and failing(seen, digits) and only_rounded(seen, DIGITS[kind]):
        return DIGITS[kind], f"its answers are rounded to {kind}"
    return digits, ""


def without_what_masks_break(seen: Seen) -> Seen:
    """Leave out cases with additional masks if only these are wrong by more than float32 rounding (`FAR`)."""
    asked = seen[0][0].recipe.rules.masks
    lost = [(case, answer) for case, answer in failing(seen, FLOAT64) if error(answer.output, case) > FAR]
    if not lost or any(case.recipe.rules.masks == asked for case, _ in lost):
        return seen
    return [pair for pair in seen if pair[0].recipe.rules.masks == asked]


def only_shares_are_rounded(seen: Seen, digits: int) -> bool:
    """Return whether answers are exact where all weights are 1, 1/2, 1/4 or 1/8, which float32 represents exactly."""
    exact = [pair for pair in seen if expected(pair[0])["weights"].shape[-1] in (1, 2, 4, 8)]
    held = [pair for pair in exact if is_shared_evenly(pair[0])]
    return bool(held) and not failing(held, digits)


def is_shared_evenly(case: Case) -> bool:
    weights = expected(case)["weights"]
    return bool((weights == weights.ravel()[0]).all())


def is_exact_in_scores(caller: Caller, case: Case) -> bool:
    """Return whether a function computes scores in float64, by passing queries and keys whose product float32 loses.

    With `q = (1 + e, 1, 0, ...)` and `k = (a / e, -a / e, 0, ...)` the score is a, but 0 if e is rounded away.
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
    """Return the largest fraction by which the norm of an output row is too small; 0 if rows differ in any other way.

    Dividing a row by slightly too much only shrinks it; rounding would also change its direction.
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


# The verdict

IGNORED, VALUES = "mask_ignored", "values"
ONE_MAXIMUM = "one_maximum"


def verdict_on_answers(
    own: OwnFunction, caller: Caller, tried: Tried, quick: bool, known: Explained | None = None
) -> Verdict:
    """Run all cases and return the verdict; `tried` contains the first answer, `known` is an earlier explanation."""
    function = tried.function
    seen = ways_to_call.ask_every_question(caller, function, quick)
    if all(answer.output is None for _, answer in seen):  # only the first case was answered, or none now
        seen = [(ways_to_call.rounded(tried.case, caller), tried.answer), *seen]
    digits, rounding = bits_to_judge_by(caller, seen)
    lenient = function.inside is not None  # we, not the author, made the module float64
    wrong = failing(seen, digits)
    seen, wrong, overflows = without_overflow(seen, wrong, digits)
    behaved = list(behaviours(caller, ways_to_call.rounded(tried.case, caller), digits))
    if function.inside is not None:
        behaved = [soften_thread_failure(*pair) for pair in behaved]
    learned = gradients(caller, tried.case, digits)
    edges = list(remarks(caller, tried.case))
    edges += [(Finding(LARGE, REMARK, FITS.format(caller.dtype)), "")] if overflows else []
    again = repeat_first_cases(caller, seen)
    broken = tuple(dict.fromkeys(name for finding, name in (*behaved, learned) if finding.state == BROKEN and name))
    lost = {case for case, _ in wrong}
    right = [pair for pair in seen if pair[0] not in lost]
    small = smallest_wrong(caller, function, wrong, digits) if wrong else None

    evidence = evidence_of(caller, tried, seen, wrong, digits=digits, broken=broken, small=small)
    if meant := explain_as_meant(wrong, digits, evidence.ask):
        edges.append((Finding(wrong[0][0].rung, REMARK, meant), ""))
        seen, wrong, small = right, [], None
    found = (known or explained(evidence)) if wrong else Explained()
    found = found if conventions.may_be_made(found.names, caller) else Explained()
    if wrong and is_of_own_axes(wrong, found, [one for one in right if one[0].rung == "masks"]):
        seen = [(case, MADE_OF_IT if case in lost else answer) for case, answer in seen]
        wrong, found, small = [], Explained(), None
    besides = (*(finding for finding, _ in behaved), again, learned[0], *report_answer_axes(seen))
    harmless = explain_as_harmless(wrong, found, digits, besides)
    if harmless and rounding != SILENT:
        edges.insert(0, (Finding(wrong[0][0].rung, REMARK, harmless.format(caller.dtype)), "".join(found.names)))
        rungs = {case.rung for case in lost}
        wrong, found, small, seen = [], Explained(), None, [pair for pair in right if pair[0].rung not in rungs]
    findings = (
        Finding(CALLED, HELD, describe_caller(caller)),
        *findings_of_questions(seen, wrong),
        *report_answer_axes(seen),
        *(() if wrong else (report_accuracy(seen, digits, rounding, lenient),)),
        *(finding for finding, _ in behaved),
        again,
        *(finding for finding, _ in edges),
        learned[0],
    )
    failed = [finding.rung for finding in findings if finding.state == BROKEN]
    passed = not failed
    names = pick_remark(edges) if passed else join_mistakes(found, broken)
    told = located(seen, wrong) if wrong and not found.names and not found.setting else None
    if told is not None and told.stage not in ("masked", "weights"):  # which cases are wrong tells these
        missing = first_missing_stage(caller, wrong[0][0])
        missing = "logits" if missing == "scores" else missing  # queries and keys may be cut into the wrong heads
        told = told._replace(stage=missing or told.stage)
    if wrong or passed:
        computes = describe_computation(found, bool(wrong)) if told is None else told.said
    else:
        computes = f"the right numbers, but look at: {', '.join(names or failed)}"
    smallest = shown(own, caller, *small, found.change, digits) if small else None
    of_masks = "masked" if failed and not names and set(failed) <= {*ABOUT_MASKS, *MASKS_OF_MORE} else ""
    return Verdict(
        name=own.name, passed=passed, mistakes=names, computes=computes, findings=findings,
        asked=caller.request.words, alike=found.alike, smallest=smallest,
        not_asked=unasked(caller, function, seen), unexplained=told is not None,
        stage=of_masks if told is None else told.stage, not_verified=unverified(caller, function, seen),
    )  # fmt: skip


def without_overflow(seen: Seen, wrong: Seen, digits: int) -> tuple[Seen, Seen, bool]:
    """Leave out cases whose large logits overflow if other answers are wrong too, and return whether any were left out.

    Overflow alone is only a remark.
    """
    over = [case for case, answer in wrong if case.rung == LARGE and answer.output is not None
            and not np.isfinite(answer.output).all() and np.isfinite(expected(case)["output"]).all()]  # fmt: skip
    if digits < SINGLE or not over or all(case.rung == LARGE for case, _ in wrong):
        return seen, wrong, False
    kept, lost = ([pair for pair in pairs if pair[0] not in over] for pairs in (seen, wrong))
    return kept, lost, True


def join_mistakes(found: Explained, broken: Sequence[str]) -> tuple[str, ...]:
    if broken and found.names in ((), OVERFLOWS):
        return tuple(broken)
    return (*found.names, *(name for name in broken if name in OF_NO_OTHER and name not in found.names))


OF_NO_OTHER = ("changes_inputs", "reuses_output")
"""Behavioural mistakes that no other mistake can cause."""


def soften_thread_failure(finding: Finding, name: str) -> Found:
    """Turn a failure in two threads into a remark.

    A layer may keep state for its backward pass, or a KV cache for decoding.
    """
    if finding.rung != IN_THREADS or finding.state != BROKEN:
        return finding, name
    return replace(finding, state=REMARK), name


FITS = "right as long as exp(logit) fits in {}"


def explain_as_harmless(wrong: Seen, found: Explained, digits: int, besides: Iterable[Finding]) -> str:
    """Return why the mistakes are harmless, or an empty string.

    Overflow is harmless if the dtype is wide enough for all realistic logits.
    """
    if not wrong or any(finding.state == BROKEN for finding in besides):
        return ""
    overflows = digits >= SINGLE and found.names in (OVERFLOWS, (ONE_MAXIMUM,))
    return FITS if overflows and all(case.rung == LARGE for case, _ in wrong) else ""


def explain_as_meant(wrong: Seen, digits: int, ask: Callable[[], Seen]) -> str:
    """Return why wrong answers may be intended (clipped scores or another head size), or an empty string.

    A function of x and matrices may use the width of x divided by the number of heads as its head size.
    """
    rungs = {case.rung for case, _ in wrong}
    if rungs == {LARGE}:
        return CLIPPED if is_clipped(wrong, digits, ask) else ""
    for case, answer in wrong:
        width = len(case.given.arrays["W_q"]) if case.rung == WIDTH else 0
        scale = max(width // case.recipe.heads, 1) ** -0.5
        stages = predicted(case.recipe.with_rules(scale=scale), case.given)
        if not width or answer.output is None or stages is None or differs(answer.output, stages, digits):
            return ""
    return SHARES_OF_X if wrong else ""


CLIPPED = "scores are clipped, but only far above usual values"
SHARES_OF_X = "right if all heads together are as wide as x: it uses x's width / heads as head size"


def is_of_own_axes(wrong: Seen, found: Explained, masked: Seen) -> bool:
    """Return whether all wrong answers are for masks with axes that the function need not support.

    Mistakes in these masks are not excused, unless the function ignores them but applies plain masks (`masked`).
    """
    own = all(case.unpromised and case.rung in MASKS_OF_MORE for case, _ in wrong)
    left_out = any(answer.output is not None for _, answer in masked) and found.names == (IGNORED,)
    return own and (left_out or not any(mistake(name).group == "masks" for name in found.names))


MADE_OF_IT = Answer(None, error="it answers, but interprets such a mask differently")


def describe_computation(found: Explained, is_wrong: bool) -> str:
    if not is_wrong:
        return "attention as requested"
    if found.setting:
        return what_a_setting_computes(found.setting)
    return what_mistakes_compute(found.names, found.said)


def pick_remark(findings: Sequence[Found]) -> tuple[str, ...]:
    said = {name for finding, name in findings if name and finding.state == REMARK}
    return tuple(name for name in REMARKS if name in said)[:1]


REMARKS = ("dropout_on", *OVERFLOWS, ONE_MAXIMUM, "empty_row_nan", "nan_leaks")


def describe_caller(caller: Caller) -> str:
    what = f"q, k, v [{axes(caller.layout)}]" if caller.offer.core else "x and a layer's matrices"
    masking = str(caller.masking) if caller.offer.takes("mask") else ""
    kind = "" if caller.padding.kind == "booleans" else f" {WORDS[caller.padding.kind].removeprefix('masks ')}"
    padding = f"masks of keys{kind} [{caller.padding.axes}]" if caller.padding != PADDINGS[0] else ""
    masks = "".join(f", {said}" for said in (masking, padding) if said)
    given = f", {caller.offer.said}" if caller.offer.said else ""
    back = f", and returns [{axes(caller.returns)}]" if caller.returns else ""
    back += f" as result {caller.part.removeprefix('returned ')} (from 0)" if caller.part.startswith("returned") else ""
    return f"with {what}{given}, {caller.library.name}, {caller.dtype}{masks}{back}{describe_overrides(caller)}"


def report_answer_axes(seen: Seen) -> Iterator[Finding]:
    said = next((answer.axes for _, answer in seen if answer.axes), "")
    if said:
        yield Finding("the axes of its answer", BROKEN, said)


def describe_overrides(caller: Caller) -> str:
    words = {role: caller.offer.defaults.get(role) for role in ("causal", "dropout")}
    said = [f"{caller.offer.parameters[role]}={value}" for role, value in words.items() if value]
    return f"; its default {' and '.join(said)} is kept only where a case asks for it" if said else ""


def findings_of_questions(seen: Seen, wrong: Seen) -> Iterator[Finding]:
    lost = {case for case, _ in wrong}
    for rung in dict.fromkeys(case.rung for case, _ in seen):
        questions = [pair for pair in seen if pair[0].rung == rung]
        refused = [answer.error for _, answer in questions if answer.output is None]
        failed = [answer for case, answer in questions if answer.output is None and not case.optional]
        bad = [(case, answer) for case, answer in questions if case in lost]
        if bad:
            yield Finding(rung, BROKEN, describe_error(bad[0]))
        elif any(not answer.refused for answer in failed):
            yield Finding(rung, BROKEN, refused[0])
        elif refused:
            yield Finding(rung, ABSENT, refused[0])
        else:
            yield Finding(rung, HELD)


def describe_error(pair: Asked) -> str:
    case, answer = pair
    right = expected(case)["output"]
    assert answer.output is not None
    if answer.output.shape != right.shape:
        return f"shape {list(answer.output.shape)}, expected {list(right.shape)}"
    return f"off by up to {error(answer.output, case):.2g} of the largest number"


def report_accuracy(seen: Seen, digits: int, rounding: str, lenient: bool) -> Finding:
    """Report the accuracy in units in the last place, or a loss of precision."""
    if rounding:
        return Finding("accuracy", BROKEN if rounding == SILENT and not lenient else REMARK, rounding)
    errors = [error(answer.output, case) for case, answer in seen if answer.output is not None and case.rung != LARGE]
    units = max(errors) * 2.0 ** (digits - 1)
    return Finding("accuracy", HELD, f"within {units:.2g} units in the last place of the largest number")


def repeat_first_cases(caller: Caller, seen: Seen) -> Finding:
    rung = "the same after many calls"
    for case, answer in seen[:3]:
        later = ways_to_call.of_kept_queries(caller, case, caller(case))
        if answer.output is not None and not same_answer(answer, later, case, ROUGH):
            return Finding(rung, BROKEN, "its first answer was different")
    return Finding(rung, HELD)


ROUGH = DIGITS["float16"]


# Mask conventions of a function that is wrong even without a mask


def with_masks_beside_a_mistake(own: OwnFunction, caller: Caller, tried: Tried, quick: bool) -> Verdict:
    """Run all cases; if the mask format may have been misdetected, detect it again and run them once more.

    A mistake that shows without a mask also changes the output to expect with a mask.
    """
    verdict = verdict_on_answers(own, caller, tried, quick)
    masks = [role for role in ("mask", "padding") if caller.offer.takes(role)]
    if verdict.passed or not masks or not may_be_written_otherwise(verdict):
        return verdict
    known = mistake_without_masks(caller, tried, masks)
    if known is None or known.change is None:
        return verdict
    masked = conventions.with_its_mask(caller, tried.function, known.change)
    is_less = caller.offer.takes("mask") and not masked.offer.takes("mask")  # just a padding mask tells less
    if verdict.mistakes and (masked == caller or is_less):
        return verdict
    again = verdict_on_answers(own, masked, tried, quick)
    is_better = again.mistakes and (not verdict.mistakes or set(again.mistakes) < set(verdict.mistakes))
    return again if is_better else verdict


def may_be_written_otherwise(verdict: Verdict) -> bool:
    """Return whether the mask format may have been misdetected.

    This is possible if no mistake was found, or if a mask mistake was found along with others: adding booleans looks
    like filling with a small number.
    """
    if not verdict.mistakes:
        return True
    of_masks = {name for name in verdict.mistakes if mistake(name).group == "masks"}
    return bool(of_masks) and of_masks != set(verdict.mistakes)


def mistake_without_masks(caller: Caller, tried: Tried, masks: Collection[str]) -> Explained | None:
    """Return the mistakes that show without a mask (or with one that hides nothing, if it is required), or None."""
    needed = {role for role in masks if role not in caller.offer.defaults}
    parameters = {role: word for role, word in caller.offer.parameters.items() if role in needed or role not in masks}
    bare = replace(caller, offer=replace(caller.offer, parameters=parameters))
    asked = ways_to_call.ask_every_question(bare, tried.function, quick=True)
    seen = [(case, answer) for case, answer in asked if not needed or not case.recipe.rules.masks]
    if all(answer.output is None for _, answer in seen):
        return None
    digits, _ = bits_to_judge_by(bare, seen)
    wrong = failing(seen, digits)
    found = explained(evidence_of(bare, tried, seen, wrong, digits=digits)) if wrong else Explained()
    return found if found.names else None
