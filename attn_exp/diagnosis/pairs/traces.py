"""Compare the traces of two functions: up to which stage of attention both compute the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Case, expected
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.observe.recorders import record_with
from attn_exp.own_code import held

STAGES = {
    "q": "the queries", "k": "the keys", "v": "the values", "scores": "the scores q k^T", "logits": "the scaled logits",
    "capped": "the logits with their scores", "masked": "the masked logits", "weights": "the weights",
    "context": "the weights times the values",
}  # fmt: skip
"""The stages of attention in order, in words for the user."""
OF_INPUTS = ("q", "k", "v")
INPUTS = (*OF_INPUTS, "x", "memory")
LOWEST = -1e4
"""Lower logits are those of hidden keys, whatever their fill."""


def compare_traces(callers: tuple[Caller, Caller], case: Case, names: tuple[str, str]) -> str:
    """Describe up to which stage two functions agree, and the next stage that only one of them computes.

    A stage counts as computed if some operation in the trace outputs its numbers, in any order. Returns an empty string
    if the traces share no stage, as with a fused kernel.
    """
    right = distinct_stages(expected(case), callers[0].offer.core)
    computed = [find_stages(caller, case, right) for caller in callers]
    common = [stage for stage in right if all(stage in one for one in computed)]
    if not common:
        return ""
    last = common[-1]
    said = f"Their traces agree up to {'queries, keys and values' if last in OF_INPUTS else STAGES[last]}"
    rest = list(right)[list(right).index(last) + 1 :]
    if last in OF_INPUTS and (missing := [stage for stage in OF_INPUTS if stage not in common]):
        said, rest = "Their traces part at once", missing
    for stage in rest:
        holders = [name for name, one in zip(names, computed, strict=True) if stage in one]
        if len(holders) == 1:
            other = names[names[0] == holders[0]]
            return f"{said}; from there {holders[0]} computes {STAGES[stage]} of the definition, {other} does not"
    return f"{said}, and differ after that"


def distinct_stages(stages: Mapping[str, Array], are_given: bool) -> dict[str, Array]:
    """Return the stages in order as sorted numbers, skipping those equal to the one before.

    Queries, keys and values are left out if they are inputs.
    """
    made, last = dict[str, Array](), None
    for stage in STAGES if not are_given else [one for one in STAGES if one not in OF_INPUTS]:
        if last is None or not (last.shape == stages[stage].shape and np.array_equal(last, stages[stage])):
            made[stage] = sorted_numbers(stages[stage])
        last = stages[stage]
    return made


def find_stages(caller: Caller, case: Case, stages: Mapping[str, Array]) -> set[str]:
    """Return the stages whose numbers some operation outputs; empty if the function cannot be recorded."""
    arguments = caller.arguments(case)
    arrays = {role: arguments[role] for role in INPUTS if role in arguments}

    def call(tracked: Mapping[str, Any]) -> Any:
        return caller.call({**arguments, **tracked})

    try:
        with held(), np.errstate(all="ignore"):
            trace = record_with(caller.library.name, call, arrays)
    except Exception:  # whatever the function raises on recorded arrays
        return set()
    given = [sorted_numbers(one.output) for one in trace.operations if one.output.dtype.kind == "f"]
    return {stage for stage, numbers in stages.items() if any(are_same(numbers, one) for one in given)}


def sorted_numbers(array: Array) -> Array:
    """Return the sorted numbers of an array, without those of hidden keys."""
    return np.sort(array[array > LOWEST], axis=None)


def are_same(one: Array, other: Array) -> bool:
    """Return whether two sorted arrays are equal up to float32 rounding."""
    return one.shape == other.shape and one.size > 1 and np.allclose(one, other, rtol=0, atol=1e-5 * np.abs(one).max())
