"""What a function keeps between calls: its answers, where its inputs lay, and what they held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attn_exp.diagnosis.alike import equal, other_data, same
from attn_exp.diagnosis.call import Caller, called, parts_of
from attn_exp.diagnosis.case import Case, differs, expected
from attn_exp.experiment.verdict import ABSENT, BROKEN, HELD, Finding

LATER = 4
"""So many more calls may not touch a first answer: some use a few buffers in turn."""


def first_answer_kept(caller: Caller, case: Case) -> tuple[Finding, str]:
    try:
        first = next(iter(parts_of(called(caller.function, caller.offer, caller.arguments(case))).values()), None)
        before = None if first is None else np.array(caller.library.back(first))
        for _ in range(LATER):
            caller(other_data(case))
        after = None if first is None else np.array(caller.library.back(first))
    except Exception:
        return Finding("a first answer is kept", ABSENT), ""
    if before is not None and not equal(before, after):
        return Finding("a first answer is kept", BROKEN, "a later call overwrote it"), "reuses_output"
    return Finding("a first answer is kept", HELD), ""


def same_address(caller: Caller, case: Case, digits: int) -> tuple[Finding, str]:
    """Write new numbers where the old ones were: a function that remembers addresses gives its old answer."""
    rung = "fresh data at the same address"
    new = other_data(case)
    arguments, fresh = caller.arguments(case), caller.arguments(new)
    if caller.library.name == "jax":
        return Finding(rung, ABSENT, "arrays of JAX cannot be written to"), ""
    caller.answer(arguments, case)
    apart = caller.answer(fresh, new)
    for role, value in arguments.items():
        if hasattr(value, "shape"):
            value[...] = caller.arguments(new)[role]
    if same(caller.answer(arguments, new), apart, new, digits):
        return Finding(rung, HELD), ""
    return Finding(rung, BROKEN, "it remembers where its inputs lay, and gives an old answer"), ""


def one_changed(caller: Caller, case: Case, digits: int) -> tuple[Finding, str]:
    """Change the end of one input alone: a function that remembers the others, or the beginning, gives its old answer.

    Only a function that was right before is asked.
    """
    rung = "one input changed alone"
    before = caller(case).output
    if before is None or differs(before, expected(case), digits):
        return Finding(rung, ABSENT), ""
    for side, changed in one_side(case):
        after = caller(changed).output
        if after is None or differs(after, expected(changed), digits):
            return Finding(rung, BROKEN, f"another {side}, but not another answer"), ""
    return Finding(rung, HELD), ""


def one_side(case: Case) -> Iterator[tuple[str, Case]]:
    """Yield the case with the last numbers of one input changed."""
    for side in ("q", "k", "v") if case.given.x is None else ("x",):
        array = getattr(case.given, side).copy()
        array[..., -1, -1] = 0.25 - array[..., -1, -1]
        yield side, replace(case, given=replace(case.given, **{side: array}))
