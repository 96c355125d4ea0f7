"""Choose the precision at which answers are judged.

It is that of the dtype, or lower if the function rounds; the report then says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attn_exp.diagnosis.asking.case import Answer, Case, Seen, expected
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.code.libraries import DIGITS
from attn_exp.diagnosis.finding.ways_to_call import digits_of, failing
from attn_exp.mistakes.precision import rounded


def representable(answers: Sequence[Answer]) -> str:
    """Return the half type that represents every number of the answers exactly, or an empty string."""
    for kind in ("bfloat16", "float16"):  # the coarser first: float16 represents most of its numbers too
        outputs = [answer.output for answer in answers if answer.output is not None]
        if outputs and all(np.array_equal(rounded(output, kind), output, equal_nan=True) for output in outputs):
            return kind
    return ""


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


FLOAT64, SINGLE = DIGITS["float64"], DIGITS["float32"]
ALIKE, ROUNDING = 1e-14, 2.0**-24
"""Relative bounds: for rows that are not proportional, and the rounding error of float32."""
FAR = 2.0**-18
"""Relative bound above the error of a float32 softmax."""
BESIDE = "a small number is added to the softmax sums: weights sum to slightly less than 1"
SHARES = "its softmax runs in float32: weights are rounded, values are not"
HABIT = "it computes in float32; say dtype=float32 if that is intended"
SILENT = "it returns float64, but computes in float32; say dtype=float32 if that is intended"


def bits_to_judge_by(caller: Caller, seen: Seen) -> tuple[int, str]:
    """Return how many bits of the answers to compare, and a sentence about it.

    Inputs that the function need not support are ignored.
    """
    seen = [pair for pair in seen if not pair[0].unpromised or pair[1].output is None] or seen
    digits = min(digits_of(caller, answer) for _, answer in seen if answer.output is not None)
    kept = next(answer.dtype for _, answer in seen if answer.output is not None)
    if digits < FLOAT64:
        return digits, "" if digits == SINGLE and caller.dtype == "float32" else f"it answers in {kept}"
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
    """Leave out cases with additional masks if only they are wrong by more than FAR.

    FAR lies above float32 rounding because the tolerance of a layer does.
    """
    asked = seen[0][0].recipe.rules.masks
    lost = [(case, answer) for case, answer in failing(seen, FLOAT64) if error(answer.output, case) > FAR]
    if not lost or any(case.recipe.rules.masks == asked for case, _ in lost):
        return seen
    return [pair for pair in seen if pair[0].recipe.rules.masks == asked]


def only_shares_are_rounded(seen: Seen, digits: int) -> bool:
    """Return whether answers are exact wherever float32 represents the weights exactly: 1, 1/2, 1/4 or 1/8."""
    exact = [pair for pair in seen if expected(pair[0])["weights"].shape[-1] in (1, 2, 4, 8)]
    held = [pair for pair in exact if is_shared_evenly(pair[0])]
    return bool(held) and not failing(held, digits)


def is_shared_evenly(case: Case) -> bool:
    weights = expected(case)["weights"]
    return bool((weights == weights.ravel()[0]).all())


def is_exact_in_scores(caller: Caller, case: Case) -> bool:
    """Return whether scores are computed in float64, using queries and keys whose products float32 loses.

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
    """Return the largest fraction by which rows of the answers are too short; 0 if they differ otherwise.

    This is not rounding: each row is divided by slightly too much.
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
