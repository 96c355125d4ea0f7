"""What is known of an answer that no mistake explains: which properties of attention it still has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attn_exp.diagnosis.case import Answer, Case, expected

NOTHING = "no known mistake explains it"
LARGE_ALONE = ". Only large logits go wrong: look at what is subtracted before exp, and at what is divided by"
LATE_MASK = (
    ". Only large logits go wrong, and only for queries whose largest logit is hidden: the maximum is taken over "
    "hidden keys too, and what is seen vanishes beside it. Put -inf where the mask forbids, then take the maximum"
)
OFF = 1e-3
"""Of the largest number: errors above are not those of rounding, in any type."""


def unexplained(seen: Sequence[tuple[Case, Answer]], wrong: Sequence[tuple[Case, Answer]]) -> str:
    """Return what fails, where nothing names the mistake: the questions, and the stage where it must lie."""
    outputs = [answer.output for _, answer in seen if answer.output is not None and answer.output.size]
    if outputs and all(not output.any() for output in outputs):
        return f"zeros, whatever it is given; {NOTHING}"
    if constant(outputs):
        return f"the same number, whatever it is given; {NOTHING}"
    rungs = list(dict.fromkeys(case.rung for case, _ in wrong))
    right = [case.rung for case, _ in seen if case.rung not in rungs]
    held = f", and right in {', '.join(dict.fromkeys(right))}" if right else ""
    return f"something else: wrong in {', '.join(rungs)}{held}; {NOTHING}{stage(seen, wrong)}"


def constant(outputs: Sequence[np.ndarray]) -> bool:
    values = [output.ravel()[0] for output in outputs]
    return len(values) > 1 and all(np.allclose(output, values[0], equal_nan=True) for output in outputs)


def stage(seen: Sequence[tuple[Case, Answer]], wrong: Sequence[tuple[Case, Answer]]) -> str:
    """Say where the mistake must lie, by which questions are answered rightly."""
    lost = {case.rung for case, _ in wrong}
    if lost == {"large inputs"}:
        return LATE_MASK if all(only_hidden_maximum(*pair) for pair in wrong) else LARGE_ALONE
    if "equal inputs" in {case.rung for case, _ in seen} and "equal inputs" not in lost:
        return ". With equal inputs it is right: values and the sums of weights are fine, so look at the logits"
    for case, answer in wrong:
        if case.rung == "equal inputs" and answer.output is not None:
            share = scale_of(answer.output, expected(case)["output"])
            if share is not None:
                return f". With equal inputs it is {share:.4g} times the right answer: the weights do not sum to 1"
            return ". With equal inputs it is wrong too: look at masks, the softmax, and how heads are put together"
    return ""


def only_hidden_maximum(case: Case, answer: Answer) -> bool:
    """Say whether just those queries are wrong whose largest logit belongs to a key that they may not see."""
    stages, output = expected(case), answer.output
    if output is None or output.shape != stages["context"].shape:
        return False
    hidden = stages["capped"].max(axis=-1) > stages["masked"].max(axis=-1)
    gap = np.nan_to_num(np.abs(output - stages["output"]), nan=np.inf).max(axis=-1)
    wrong = gap > OFF * np.abs(stages["output"]).max(initial=0.0)
    return bool(wrong.any() and not (wrong & ~hidden).any())


def scale_of(output: np.ndarray, right: np.ndarray) -> float | None:
    """Return the factor between two answers, where one number is."""
    if output.shape != right.shape or not np.isfinite(output).all():
        return None
    factor = float((output * right).sum() / max((right * right).sum(), 1e-300))
    close = np.allclose(output, factor * right, atol=1e-6 * max(np.abs(output).max(initial=0.0), 1e-30))
    return factor if close and factor else None
