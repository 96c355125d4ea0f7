"""What one call cannot show: the same answer twice, inputs left alone, entries of a batch and threads kept apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.alike import equal, other_data, same
from attn_exp.diagnosis.call import Caller
from attn_exp.diagnosis.case import Answer, Case, expected, predicted
from attn_exp.diagnosis.memory import first_answer_kept, one_changed, same_address
from attn_exp.experiment.verdict import ABSENT, BROKEN, HELD, REMARK, Finding
from attn_exp.forms.pipeline import Given


def behaviours(caller: Caller, case: Case, digits: int) -> Iterator[tuple[Finding, str]]:
    """Yield a finding for each way to behave, with the name of the mistake where one is broken."""
    yield same_twice(caller, case, digits)
    yield inputs_unchanged(caller, case)
    yield first_answer_kept(caller, case)
    yield same_address(caller, case, digits)
    yield one_changed(caller, case, digits)
    yield batch_apart(caller, case, digits)
    yield odd_memory(caller, case, digits)
    yield in_threads(caller, case, digits)


def same_twice(caller: Caller, case: Case, digits: int) -> tuple[Finding, str]:
    rung = "the same answer twice"
    answers = [caller(case) for _ in range(3)]
    if all(equal(answers[0].output, other.output) for other in answers[1:]):
        return Finding(rung, HELD), ""
    if all(same(answers[0], other, case, digits) for other in answers[1:]):
        return Finding(rung, BROKEN, "the last digits differ from call to call"), "not_deterministic"
    name = "dropout_on" if dropped(caller, case) else "not_deterministic"
    return Finding(rung, BROKEN, "the same call gave different answers"), name


def dropped(caller: Caller, case: Case) -> bool:
    """Say whether some weights are zero and all others too large by one factor.

    Of one token the only weight is 1, so the answer is its value times what dropout makes of it: 0, or one factor.
    """
    alone = one_token(case)
    if alone is None:
        return False
    answers = [caller(alone).output for _ in range(CALLS)]
    factors = [factor for answer in answers if answer is not None for factor in values_kept(answer, alone)]
    kept = [factor for factor in factors if abs(factor) > 1e-6]
    return 0 < len(kept) < len(factors) and max(kept) - min(kept) < 0.02 and min(kept) > 1.01


def one_token(case: Case) -> Case | None:
    """Return the case cut to one query and one key that it may see."""
    given = case.given
    if given.x is not None:
        cut = replace(given, x=given.x[:, :1])
    else:
        assert given.q is not None and given.k is not None and given.v is not None
        cut = Given(given.q[:, :, :1], given.k[:, :, :1], given.v[:, :, :1])
    alone = replace(case, given=cut, recipe=case.recipe.with_rules(masks=(), offset=0))
    return alone if predicted(alone.recipe, cut) is not None else None


def values_kept(answer: Array, alone: Case) -> list[float]:
    """Return by what each value was multiplied."""
    right = expected(alone)
    weight = alone.given.arrays.get("W_o")
    if alone.given.x is None or weight is None:
        context, values = answer, right["output"]
    elif weight.shape[0] == weight.shape[1]:
        bias = alone.given.arrays.get("b_o", 0.0)
        context, values = (np.linalg.solve(weight.T, (side - bias)[:, 0].T) for side in (answer, right["output"]))
    else:
        return []
    return [float(factor) for factor in (context / values).ravel()] if context.shape == values.shape else []


CALLS = 100
"""Of one token, so that even one head with one weight in ten dropped shows it."""


def inputs_unchanged(caller: Caller, case: Case) -> tuple[Finding, str]:
    arguments = caller.arguments(case)
    before = copies(caller, arguments)
    answer = caller.answer(arguments, case)
    changed = [role for role, array in copies(caller, arguments).items() if not equal(array, before[role])]
    if changed:
        return Finding("inputs unchanged", BROKEN, f"it changed {', '.join(changed)}"), "changes_inputs"
    return Finding("inputs unchanged", HELD if answer.output is not None else ABSENT), ""


def copies(caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Array]:
    """Return copies of the arrays among some arguments."""
    return {role: np.array(caller.library.back(value)) for role, value in arguments.items() if hasattr(value, "shape")}


def batch_apart(caller: Caller, case: Case, digits: int) -> tuple[Finding, str]:
    rung = "batch entries independent"
    whole = caller(case).output
    if whole is None or len(whole) < 2:
        return Finding(rung, ABSENT), ""
    for entry in range(len(whole)):
        alone_case = entry_of(case, entry)
        alone = caller(alone_case)
        if alone.output is None:
            return Finding(rung, ABSENT, alone.error), ""
        if not same(alone, Answer(whole[entry : entry + 1]), alone_case, digits):
            said = f"entry {entry + 1} is another alone than in its batch"
            return Finding(rung, BROKEN, said), "batch_mixed" if far(alone.output, whole[entry : entry + 1]) else ""
    return Finding(rung, HELD), ""


def far(one: Array, other: Array) -> bool:
    """Say whether two answers differ by more than what a step of rounding does that is chosen for a whole batch."""
    with np.errstate(all="ignore"):
        gap = np.nan_to_num(np.abs(one - other), nan=np.inf) if one.shape == other.shape else np.array(np.inf)
    return bool(gap.max(initial=0.0) > A_STEP * np.nan_to_num(np.abs(other)).max(initial=0.0))


A_STEP = 0.05
"""Of the largest number."""


def entry_of(case: Case, entry: int) -> Case:
    """Return one entry of a case's batch."""
    given = case.given
    one = slice(entry, entry + 1)
    cut = {name: array[one] for name in ("q", "k", "v", "x") if (array := getattr(given, name)) is not None}
    masks = tuple(mask_of(mask, entry) for mask in case.recipe.rules.masks)
    return replace(case, given=replace(given, **cut), recipe=case.recipe.with_rules(masks=masks))


def mask_of(mask: Any, entry: int) -> Any:
    """Return the mask of one entry of a batch, where each has its own length."""
    lengths = getattr(mask, "lengths", None)
    return type(mask)(int(lengths[entry])) if lengths is not None and len(lengths) > 1 else mask


def odd_memory(caller: Caller, case: Case, digits: int) -> tuple[Finding, str]:
    """Give arrays that are not contiguous, and in NumPy cannot be written to."""
    rung = "odd strides, read-only inputs"
    if caller.library.name == "jax":
        return Finding(rung, ABSENT), ""
    plain, arguments = caller(case), caller.arguments(case)
    for role, value in arguments.items():
        if hasattr(value, "shape") and getattr(value, "ndim", 0) >= 2:
            arguments[role] = strided(value)
    answer = caller.answer(arguments, case)
    if answer.output is None and plain.output is not None:
        return Finding(rung, REMARK, answer.error), ""
    if not same(answer, plain, case, digits):
        return Finding(rung, BROKEN, "another answer where the same numbers lie otherwise in memory"), ""
    return Finding(rung, HELD), ""


def strided(value: Any) -> Any:
    """Return the same numbers in another order of memory."""
    if isinstance(value, np.ndarray):
        turned = np.asfortranarray(value)
        turned.setflags(write=False)
        return turned
    return value.transpose(-1, -2).contiguous().transpose(-1, -2)


def in_threads(caller: Caller, case: Case, digits: int) -> tuple[Finding, str]:
    """Call from two threads at once, with different numbers."""
    rung = "two threads at once"
    cases = [case, other_data(case)] * 4
    alone = [caller(question) for question in cases[:2]] * 4
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(caller, cases))
    for answer, one, asked in zip(together, alone, cases, strict=True):
        if not same(answer, one, asked, digits):
            return Finding(rung, BROKEN, "answers got mixed up"), ""
    return Finding(rung, HELD), ""
