"""Keys or queries past the last whole block that are left out, whatever the block is for each length."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from attn_exp.diagnosis.case import Answer, Case, differs, expected, predicted
from attn_exp.mistakes.behaviour import first_keys


def tail_dropped(seen: Sequence[tuple[Case, Answer]], digits: int) -> bool:
    """Say whether every answer is right, or right for the first keys or the first queries alone."""
    most = 0
    for case, answer in seen:
        if answer.output is None or not differs(answer.output, expected(case), digits):
            continue
        kept = max(keys_kept(case, answer, digits), queries_kept(case, answer, digits))
        if kept < 0:
            return False
        most = max(most, kept)
    return most > 0


def keys_kept(case: Case, answer: Answer, digits: int) -> int:
    """Return to how many of the first keys this is the answer: 0 where it is nothing at all, -1 where to none."""
    assert answer.output is not None
    keys = expected(case)["masked"].shape[-1]
    for count in range(keys - 1, -1, -1):
        stages = predicted(first_keys(partial(min, count))(case.recipe), case.given)
        nothing = count == 0 and not np.nan_to_num(answer.output).any()
        if nothing or (stages is not None and not differs(answer.output, stages, digits)):
            return count
    return -1


def queries_kept(case: Case, answer: Answer, digits: int) -> int:
    """Return how many of the first queries are right, where the others are one number, such as 0; -1 where none is."""
    right, output = expected(case), answer.output
    assert output is not None
    if output.shape != right["output"].shape:
        return -1
    for count in range(output.shape[-2] - 1, 0, -1):
        rest = output[..., count:, :]
        same = np.isnan(rest).all() or (rest == rest.ravel()[0]).all()
        first = {**right, "output": right["output"][..., :count, :]}
        if same and not differs(output[..., :count, :], first, digits):
            return count
    return -1
