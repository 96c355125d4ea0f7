"""Judge a function with a known calling convention.

`judge_answers` runs all cases, chooses the precision to compare with, and tests what shows only across several calls.
Then `explain_wrong_answers` looks for a mistake that explains the wrong answers, and excuses answers that are harmless
or intended. `name_mistakes` writes the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from attn_exp.diagnosis.asking.case import Answer, Case, CaseAnswer, Seen, differs, expected, predicted, same_answer
from attn_exp.diagnosis.asking.libraries import DIGITS
from attn_exp.diagnosis.asking.offer import KIND_TEXTS, PADDINGS, format_axes
from attn_exp.diagnosis.asking.questions import ABOUT_MASKS, INDIVIDUAL_MASKS, TOGETHER, WIDTH
from attn_exp.diagnosis.calling import conventions, ways_to_call
from attn_exp.diagnosis.calling.behaviour import IN_THREADS, Found, check_behaviour, check_for_remarks, check_gradients
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.calling.ways_to_call import Tried, digits_of, failing
from attn_exp.diagnosis.explaining.answers import LARGE, OVERFLOWS, SINGLE, Located, find_half_dtype, locate
from attn_exp.diagnosis.explaining.smallest import collect_answers, find_smallest_wrong, show_smallest
from attn_exp.diagnosis.judging.parting import first_missing_stage
from attn_exp.diagnosis.judging.unasked import unasked, unverified
from attn_exp.diagnosis.recipes.candidates import (
    Explained,
    find_explanation,
    what_a_setting_computes,
    what_mistakes_compute,
)
from attn_exp.diagnosis.recipes.combinations import is_clipped
from attn_exp.experiment.verdict import ABSENT, BROKEN, CALLED, HELD, REMARK, Finding, Verdict
from attn_exp.mistakes import mistake
from attn_exp.own_code import OwnFunction

FLOAT64, ROUGH = DIGITS["float64"], DIGITS["float16"]
"""Bits of the most accurate answers, and bits to which a repeated call must give the same answer."""
ALIKE, ROUNDING = 1e-14, 2.0**-24
"""Relative bounds on the difference between proportional rows, and on the rounding error of float32."""
FAR = 2.0**-18
"""A relative error too large for a softmax in float32."""
ADDED_TO_SUMS = "a small number is added to the softmax sums: weights sum to slightly less than 1"
FLOAT32_INSIDE = "it returns float64, but computes in float32; set dtype=float32 if that is intended"
"""Notes on rounding: the first is a remark, the second a mistake."""
FITS = "right as long as exp(logit) fits in {}"
"""Why overflow of large logits is only a remark."""
OTHER_AXES = Answer(None, error="it answers, but interprets such a mask differently")
"""Replaces the answer to a mask whose axes the function need not support."""
VALUES, ONE_MAXIMUM = "values", "one_maximum"
REMARKS = ("dropout_on", *OVERFLOWS, ONE_MAXIMUM, "empty_row_nan", "nan_leaks")
"""Mistakes that do not make a function wrong, the most important first; the verdict names one."""


# The precision of the answers


def bits_to_judge_by(caller: Caller, answers: Seen) -> tuple[int, str]:
    """Return how many bits of the answers to compare, and a note on rounding.

    Cases that the function need not support are ignored.
    """
    answers = [pair for pair in answers if not pair[0].unpromised or pair[1].output is None] or answers
    bits = min(digits_of(caller, answer) for _, answer in answers if answer.output is not None)
    if bits < FLOAT64:
        dtype = next(answer.dtype for _, answer in answers if answer.output is not None)
        return bits, "" if bits == SINGLE and caller.dtype == "float32" else f"it returns {dtype}"
    answers = leave_out_broken_masks(answers)
    wrong = failing(answers, bits)
    if not wrong:
        return bits, ""
    if not failing(answers, SINGLE):
        return judge_float32(caller, wrong)
    dtype = find_half_dtype([answer for _, answer in answers[:4]])
    if dtype and is_only_rounded(answers, DIGITS[dtype]):
        return DIGITS[dtype], f"its answers are rounded to {dtype}"
    return bits, ""


def leave_out_broken_masks(answers: Seen) -> Seen:
    """Leave out cases with additional masks if only these are wrong by more than float32 rounding.

    Their errors count from `FAR` on, because a small fill for hidden keys changes weights only a little.
    """
    requested = answers[0][0].recipe.rules.masks
    is_far = any(relative_error(answer.output, case) > FAR for case, answer in failing(answers, FLOAT64))
    if not is_far or any(case.recipe.rules.masks == requested for case, _ in failing(answers, SINGLE)):
        return answers
    return [pair for pair in answers if pair[0].recipe.rules.masks == requested]


def judge_float32(caller: Caller, wrong: Seen) -> tuple[int, str]:
    """Return the number of bits to compare, and a note, for answers that are right only to float32 precision."""
    shortfall = find_shortfall(wrong)
    if shortfall:
        return (FLOAT64, "") if shortfall > ROUNDING else (SINGLE, ADDED_TO_SUMS)
    # float32 is the default of PyTorch and JAX if the user names no dtype; NumPy never rounds by itself
    is_default = caller.library.name != "numpy" and not caller.request.dtype
    return SINGLE, "it computes in float32; set dtype=float32 if that is intended" if is_default else FLOAT32_INSIDE


def find_shortfall(wrong: Seen) -> float:
    """Return the largest fraction by which an output row is too small; 0 if any row is wrong in another way.

    Dividing a row by slightly too much only shrinks it; rounding would also change its direction.
    """
    largest = 0.0
    for case, answer in wrong:
        right = expected(case)["output"]
        if answer.output is None or answer.output.shape != right.shape or case.given.x is not None:
            return 0.0
        norms = (right * right).sum(axis=-1, keepdims=True)
        factors = (answer.output * right).sum(axis=-1, keepdims=True) / np.maximum(norms, 1e-300)
        if np.abs(answer.output - factors * right).max() > ALIKE * np.abs(right).max() or (factors > 1 + ALIKE).any():
            return 0.0
        largest = max(largest, float((1 - factors).max()))
    return largest


def is_only_rounded(answers: Seen, bits: int) -> bool:
    pairs = [(answer.output, expected(case)["output"]) for case, answer in answers if answer.output is not None]
    tolerance = 0.75 * 2.0 ** (1 - bits)
    return all(output.shape == right.shape and np.allclose(output, right, rtol=tolerance, atol=1e-7, equal_nan=True)
               for output, right in pairs)  # fmt: skip


def relative_error(output: np.ndarray | None, case: Case) -> float:
    """Return `max |output - expected| / max |expected|`, or 1 if the shapes differ."""
    right = expected(case)["output"]
    if output is None or output.shape != right.shape:
        return 1.0
    differences = np.nan_to_num(np.abs(output - right), nan=1.0, posinf=1.0)
    return float(differences.max(initial=0.0) / max(np.abs(np.nan_to_num(right)).max(initial=0.0), 1e-30))


# The verdict


@dataclass(frozen=True, eq=False)
class Judged:
    """The answers that count, and what was found out about them.

    - `wrong`: the wrong ones among the answers.
    - `remarks`: notes that do not make the function wrong.
    - `explanation`: the mistake or setting that explains the wrong answers.
    - `smallest`: the smallest case that is wrong, with its answer.
    """

    answers: Seen
    wrong: Seen = ()
    remarks: Sequence[Found] = ()
    explanation: Explained = field(default_factory=Explained)
    smallest: CaseAnswer | None = None


def judge_answers(
    own: OwnFunction, caller: Caller, tried: Tried, quick: bool, known: Explained | None = None
) -> Verdict:
    """Run all cases and return the verdict.

    `tried` contains the answer to the first call. `known` is an explanation found before; if it is None, find one.
    """
    function = tried.function
    answers = ways_to_call.ask_every_question(caller, function, quick)
    if all(answer.output is None for _, answer in answers):  # the first call was answered, but no case now
        answers = [(ways_to_call.round_inputs(tried.case, caller), tried.answer), *answers]
    bits, rounding = bits_to_judge_by(caller, answers)
    # whether two arguments may be combined is left open, so cases that combine them do not count if they are wrong
    wrong_together = [case.question for case, _ in failing(answers, bits) if TOGETHER in case.question]
    answers = [pair for pair in answers if pair[0].question not in wrong_together]
    wrong = failing(answers, bits)
    overflows = find_overflows(wrong, bits)
    answers, wrong = ([pair for pair in pairs if pair[0] not in overflows] for pairs in (answers, wrong))
    across_calls = list(check_behaviour(caller, ways_to_call.round_inputs(tried.case, caller), bits))
    if function.inside is not None:
        across_calls = [soften_thread_failure(*found) for found in across_calls]
    gradient = check_gradients(caller, tried.case, bits)
    notes = list(check_for_remarks(caller, tried.case))
    notes += [(Finding(LARGE, REMARK, FITS.format(caller.dtype)), "")] if overflows else []
    across_calls.append((repeat_first_cases(caller, answers), ""))
    judged = Judged(answers, wrong, notes)
    if wrong:
        judged = explain_wrong_answers(caller, tried, judged, (bits, rounding), [*across_calls, gradient], known)
    findings = (
        Finding(CALLED, HELD, describe_caller(caller)),
        *summarize_cases(judged.answers, judged.wrong),
        *report_answer_axes(judged.answers),
        *(() if judged.wrong else (report_accuracy(judged.answers, bits, rounding, function.inside is not None),)),
        *(finding for finding, _ in (*across_calls, *judged.remarks, gradient)),
    )
    verdict = name_mistakes(own, caller, judged, list_broken([*across_calls, gradient]), findings)
    return replace(
        verdict,
        smallest=judged.smallest and show_smallest(own, caller, *judged.smallest, judged.explanation.change, bits),
        not_asked=unasked(caller, function, judged.answers),
        not_verified=(
            *unverified(caller, function, judged.answers),
            *(f"{question} (the numbers differ from the definition)" for question in wrong_together if not wrong),
        ),
    )


def find_overflows(wrong: Seen, bits: int) -> list[Case]:
    """Return the cases whose large logits overflow, if other answers are wrong too: overflow is then only a remark."""
    if bits < SINGLE or all(case.question == LARGE for case, _ in wrong):
        return []
    return [case for case, answer in wrong if case.question == LARGE and answer.output is not None
            and not np.isfinite(answer.output).all() and np.isfinite(expected(case)["output"]).all()]  # fmt: skip


def soften_thread_failure(finding: Finding, name: str) -> Found:
    """Turn a failure in two threads into a remark; leave other findings unchanged.

    A layer may keep state for its backward pass, or a KV cache for decoding.
    """
    is_failure = finding.question == IN_THREADS and finding.state == BROKEN
    return replace(finding, state=REMARK) if is_failure else finding, name


def repeat_first_cases(caller: Caller, answers: Seen) -> Finding:
    question = "the same after many calls"
    for case, answer in answers[:3]:
        later = ways_to_call.accept_padding_queries(caller, case, caller(case))
        if answer.output is not None and not same_answer(answer, later, case, ROUGH):
            return Finding(question, BROKEN, "its first answer was different")
    return Finding(question, HELD)


# The explanation of wrong answers, or a reason to excuse them


def explain_wrong_answers(
    caller: Caller, tried: Tried, judged: Judged, precision: tuple[int, str], behaviour: Sequence[Found],
    known: Explained | None,
) -> Judged:  # fmt: skip
    """Find the mistake that explains the wrong answers.

    If the wrong answers are intended or harmless, leave them out and add a remark instead. `precision` is the number of
    bits and the note on rounding. `behaviour` has the findings across calls.
    """
    wrong, (bits, rounding) = judged.wrong, precision
    wrong_cases, first_question = {case for case, _ in wrong}, wrong[0][0].question
    right = [(case, answer) for case, answer in judged.answers if case not in wrong_cases]
    broken = list_broken(behaviour)
    smallest = find_smallest_wrong(caller, tried.function, wrong, bits)
    evidence = collect_answers(caller, tried, judged.answers, wrong, digits=bits, broken=broken, small=smallest)
    intention = explain_intention(wrong, bits, evidence.ask)
    if intention:
        return Judged(right, remarks=[*judged.remarks, (Finding(first_question, REMARK, intention), "")])
    explanation = known or find_explanation(evidence)
    if not conventions.can_make_mistakes(explanation.names, caller):  # such as a mask mistake without a mask argument
        explanation = Explained()
    if are_excused_by_axes(wrong, explanation, [(case, answer) for case, answer in right if case.question == "masks"]):
        answers = [(case, OTHER_AXES if case in wrong_cases else answer) for case, answer in judged.answers]
        return Judged(answers, remarks=judged.remarks)
    other_findings = [*(finding for finding, _ in behaviour), *report_answer_axes(judged.answers)]
    is_else_right = rounding != FLOAT32_INSIDE and all(finding.state != BROKEN for finding in other_findings)
    is_overflow = bits >= SINGLE and explanation.names in (OVERFLOWS, (ONE_MAXIMUM,))
    # realistic logits are smaller than those at which it overflows
    if is_else_right and is_overflow and all(case.question == LARGE for case in wrong_cases):
        remark = Finding(first_question, REMARK, FITS.format(caller.dtype)), "".join(explanation.names)
        answers = [(case, answer) for case, answer in right if case.question != LARGE]
        return Judged(answers, remarks=[remark, *judged.remarks])
    return replace(judged, explanation=explanation, smallest=smallest)


def list_broken(behaviour: Sequence[Found]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for finding, name in behaviour if finding.state == BROKEN and name))


def explain_intention(wrong: Seen, bits: int, ask: Callable[[], Seen]) -> str:
    """Return why wrong answers may be intended (clipped scores or another head size), or an empty string.

    A function of x and matrices may use the width of x divided by the number of heads as its head size.
    """
    questions = {case.question for case, _ in wrong}
    if questions == {LARGE}:
        return "scores are clipped, but only far above usual values" if is_clipped(wrong, bits, ask) else ""
    if questions != {WIDTH}:
        return ""
    for case, answer in wrong:
        size = max(len(case.given.arrays["W_q"]) // case.recipe.heads, 1)
        stages = predicted(case.recipe.with_rules(scale=size**-0.5), case.given)
        if answer.output is None or stages is None or differs(answer.output, stages, bits):
            return ""
    return "right if all heads together are as wide as x: it takes x's width / heads as the head size"


def are_excused_by_axes(wrong: Seen, explanation: Explained, plain_masks: Seen) -> bool:
    """Return whether wrong answers are excused because all are for mask axes that the function need not support.

    A known mistake in masks is not excused, except `mask_ignored` if the function applies plain masks.
    """
    is_optional = all(case.unpromised and case.question in INDIVIDUAL_MASKS for case, _ in wrong)
    applies_plain = any(answer.output is not None for _, answer in plain_masks)
    is_excused = applies_plain and explanation.names == ("mask_ignored",)
    return is_optional and (is_excused or not any(mistake(name).group == "masks" for name in explanation.names))


# The verdict in names and words


def name_mistakes(
    own: OwnFunction, caller: Caller, judged: Judged, behavioural: tuple[str, ...], findings: tuple[Finding, ...]
) -> Verdict:
    """Return the verdict that the findings imply: its mistakes, what the function computes, and where it goes wrong."""
    failed = [finding.question for finding in findings if finding.state == BROKEN]
    explanation = judged.explanation
    names = join_mistakes(explanation, behavioural) if failed else pick_remark(judged.remarks)
    place = Located("masked" if not names and {*failed} <= {*ABOUT_MASKS, *INDIVIDUAL_MASKS} and failed else "")
    is_unexplained = bool(judged.wrong) and not explanation.names and not explanation.setting
    if is_unexplained:
        place = locate_difference(caller, judged)
        computes = place.message
    elif explanation.setting:
        computes = what_a_setting_computes(explanation.setting)
    elif judged.wrong:
        computes = what_mistakes_compute(explanation.names, explanation.message)
    else:
        computes = (
            f"the right numbers, but look at: {', '.join(names or failed)}" if failed else "attention as requested"
        )
    return Verdict(
        own.name, not failed, names, computes, findings, caller.request.words, explanation.alike,
        unexplained=is_unexplained, stage=place.stage,
    )  # fmt: skip


def join_mistakes(explanation: Explained, behavioural: Sequence[str]) -> tuple[str, ...]:
    if behavioural and explanation.names in ((), OVERFLOWS):
        return tuple(behavioural)
    independent = {"changes_inputs", "reuses_output"} - {*explanation.names}  # no other mistake can cause these
    return (*explanation.names, *(name for name in behavioural if name in independent))


def pick_remark(remarked: Sequence[Found]) -> tuple[str, ...]:
    names = {name for finding, name in remarked if name and finding.state == REMARK}
    return tuple(name for name in REMARKS if name in names)[:1]


def locate_difference(caller: Caller, judged: Judged) -> Located:
    """Return the first wrong stage: from the wrong cases if it is the mask or weights, else from a recorded call."""
    place = locate(judged.answers, judged.wrong)
    if place.stage in ("masked", "weights"):
        return place
    missing = first_missing_stage(caller, judged.wrong[0][0])
    # wrong scores may come from queries and keys that are split into the wrong heads
    missing = "logits" if missing == "scores" else missing
    return place._replace(stage=missing or place.stage)


def describe_caller(caller: Caller) -> str:
    inputs = f"q, k, v [{format_axes(caller.layout)}]" if caller.offer.core else "x and a layer's matrices"
    extra = f", {caller.offer.description}" if caller.offer.description else ""
    mask = str(caller.masking) if caller.offer.takes("mask") else ""
    kind = "" if caller.padding.kind == "booleans" else f" {KIND_TEXTS[caller.padding.kind].removeprefix('masks ')}"
    padding = f"masks of keys{kind} [{caller.padding.axes}]" if caller.padding != PADDINGS[0] else ""
    masks = "".join(f", {message}" for message in (mask, padding) if message)
    output = f", and returns [{format_axes(caller.returns)}]" if caller.returns else ""
    output += f" as result {caller.part[len('returned ') :]} (from 0)" if caller.part.startswith("returned") else ""
    defaults = {role: caller.offer.defaults.get(role) for role in ("causal", "dropout")}
    changed = [f"{caller.offer.parameters[role]}={value}" for role, value in defaults.items() if value]
    kept = f"; its default {' and '.join(changed)} is kept only where a case asks for it" if changed else ""
    return f"with {inputs}{extra}, {caller.library.name}, {caller.dtype}{masks}{output}{kept}"


def summarize_cases(answers: Seen, wrong: Seen) -> Iterator[Finding]:
    """Yield one finding for each row of the report, which covers one or more cases."""
    for question in dict.fromkeys(case.question for case, _ in answers):
        first_wrong = next((pair for pair in wrong if pair[0].question == question), None)
        refused = [(case, answer) for case, answer in answers if case.question == question and answer.output is None]
        is_failure = any(not case.optional and not answer.refused for case, answer in refused)
        if first_wrong is not None:
            yield Finding(question, BROKEN, describe_error(*first_wrong))
        elif refused:
            yield Finding(question, BROKEN if is_failure else ABSENT, refused[0][1].error)
        else:
            yield Finding(question, HELD)


def describe_error(case: Case, answer: Answer) -> str:
    right = expected(case)["output"]
    assert answer.output is not None
    if answer.output.shape != right.shape:
        return f"shape {list(answer.output.shape)}, expected {list(right.shape)}"
    return f"off by up to {relative_error(answer.output, case):.2g} times the largest number"


def report_answer_axes(answers: Seen) -> Iterator[Finding]:
    message = next((answer.axes for _, answer in answers if answer.axes), "")
    if message:
        yield Finding("the axes of its answer", BROKEN, message)


def report_accuracy(answers: Seen, bits: int, rounding: str, is_module: bool) -> Finding:
    """Report the accuracy in units in the last place, or a loss of precision."""
    if rounding:  # the check, not the author, converted a module to float64
        return Finding("accuracy", BROKEN if rounding == FLOAT32_INSIDE and not is_module else REMARK, rounding)
    errors = [relative_error(answer.output, case) for case, answer in answers
              if answer.output is not None and case.question != LARGE]  # fmt: skip
    units = max(errors) * 2.0 ** (bits - 1)
    return Finding("accuracy", HELD, f"within {units:.2g} units in the last place of the largest number")


# Mask formats of a function that is wrong even without a mask


def judge_answers_and_mask_format(own: OwnFunction, caller: Caller, tried: Tried, quick: bool) -> Verdict:
    """Run all cases; if the mask format may have been misdetected, detect it again and run them once more.

    A mistake that shows without a mask also changes the output to expect with a mask.
    """
    verdict = judge_answers(own, caller, tried, quick)
    roles = [role for role in ("mask", "padding") if caller.offer.takes(role)]
    if verdict.passed or not roles or not may_have_other_format(verdict):
        return verdict
    known = find_mistake_without_masks(caller, tried, roles)
    if known is None or known.change is None:
        return verdict
    detected = conventions.with_its_mask(caller, tried.function, known.change)
    is_less = caller.offer.takes("mask") and not detected.offer.takes("mask")  # a padding mask alone reveals less
    if verdict.mistakes and (detected == caller or is_less):
        return verdict
    other = judge_answers(own, detected, tried, quick)
    is_better = other.mistakes and (not verdict.mistakes or set(other.mistakes) < set(verdict.mistakes))
    return other if is_better else verdict


def may_have_other_format(verdict: Verdict) -> bool:
    """Return whether the mask format may have been misdetected.

    This is possible if no mistake was found, or if a mistake in masks was found along with others. For example, adding
    booleans to the logits looks like a small fill value.
    """
    return {mistake(name).group == "masks" for name in verdict.mistakes} in (set(), {True, False})


def find_mistake_without_masks(caller: Caller, tried: Tried, roles: Collection[str]) -> Explained | None:
    """Return the mistakes that show without masks, or with masks that hide nothing if they are required; else None."""
    optional = {role for role in roles if role in caller.offer.defaults}
    parameters = {role: name for role, name in caller.offer.parameters.items() if role not in optional}
    bare = replace(caller, offer=replace(caller.offer, parameters=parameters))
    is_required = len(optional) < len(roles)
    answers = [(case, answer) for case, answer in ways_to_call.ask_every_question(bare, tried.function, quick=True)
               if not is_required or not case.recipe.rules.masks]  # fmt: skip
    if all(answer.output is None for _, answer in answers):
        return None
    bits, _ = bits_to_judge_by(bare, answers)
    wrong = failing(answers, bits)
    explanation = find_explanation(collect_answers(bare, tried, answers, wrong, digits=bits)) if wrong else Explained()
    return explanation if explanation.names else None
