"""Record a JAX call: the operations of its jaxpr, run in NumPy in float64.

`record` traces the call to a jaxpr, and `run_step` runs each of its equations and lists it as an `Operation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking import jaxprs
from attn_exp.diagnosis.asking.jaxprs import is_about_values
from attn_exp.diagnosis.asking.libraries import collect_arrays
from attn_exp.diagnosis.observe.trace import (
    MAX_SIZE,
    Call,
    Operation,
    Producer,
    Product,
    Trace,
    contract_axes,
)


@dataclass(frozen=True, eq=False)
class Value:
    """An array in a jaxpr while it runs, and its source."""

    array: Any
    producer: Producer = None


def record(call: Call, inputs: Mapping[str, Any], cache: dict[Any, Any] | None = None) -> Trace:
    """Record the call of a JAX function; see `record_with`.

    A loop or a condition is one operation. If the call needs the values of its inputs, which JAX does not know while
    tracing, the trace has no operations.
    """
    cache = {} if cache is None else cache
    key = tuple((name, array.shape, str(array.dtype)) for name, array in inputs.items())
    if key not in cache:
        cache[key] = make_jaxpr(call, inputs)
    arrays = {name: jaxprs.to_float64(array) for name, array in inputs.items()}
    if cache[key] is None:
        return Trace(
            (), arrays, tuple((None, jaxprs.to_float64(output)) for output in collect_arrays(call(inputs)).values())
        )
    jaxpr, constants = cache[key]
    operations: list[Operation] = []
    values = [Value(array, name if array.size <= MAX_SIZE else None) for name, array in arrays.items()]
    results = jaxprs.run_jaxpr(jaxpr, constants, values, partial(run_step, operations), as_value)
    return Trace(tuple(operations), arrays, tuple(
        (result.producer, np.asarray(result.array)) for result in results if is_array(result.array)
    ))  # fmt: skip


def run_step(operations: list[Operation], step: Any, name: str, values: Sequence[Value]) -> list[Value]:
    """Run one equation, and add an operation for each of its outputs unless it depends on constants only."""
    arrays = tuple(value.array for value in values)
    producers = tuple(value.producer for value in values)
    results = run_equation(step, name, arrays)
    if all(producer is None for producer in producers) or not all(map(is_array, (*arrays, *results))):
        return [Value(result) for result in results]
    inputs, outputs = tuple(map(np.asarray, arrays)), list[Value]()
    for index, output in enumerate(map(np.asarray, results)):
        is_large = output.size > MAX_SIZE
        outputs.append(Value(output, None if is_large else len(operations)))
        if not is_large:
            redo = partial(redo_step, step, name, inputs, index)
            operations.append(Operation(name, inputs, producers, output, redo, find_product(step, name, inputs)))
    return outputs


def make_jaxpr(call: Call, inputs: Mapping[str, Any]) -> Any:
    """Return the jaxpr of a call and its constants, or None if the call needs the values of its inputs.

    The second attempt computes what depends on constants only, such as the size of a mask, while tracing.
    """

    def call_in_order(context: Callable[[], Any], *arrays: Any) -> list[Any]:
        with context():
            return list(collect_arrays(call(dict(zip(inputs, arrays, strict=True)))).values())

    for context in (nullcontext, jax.ensure_compile_time_eval):
        try:
            closed = jax.make_jaxpr(partial(call_in_order, context))(*inputs.values())
        except Exception as error:
            if not is_about_values(error):
                raise
        else:
            return closed.jaxpr, list(map(as_value, closed.consts))
    return None


def as_value(constant: Any) -> Value:
    return constant if isinstance(constant, Value) else Value(jaxprs.to_float64(constant))


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic)


def run_equation(step: Any, name: str, arrays: Sequence[Any]) -> list[Any]:
    """Run one equation of a jaxpr in float64; integers in floating-point outputs are converted."""
    return [
        np.asarray(result, np.float64)
        if jaxprs.is_float(variable.aval.dtype) and is_array(result) and result.dtype.kind in "biu"
        else result
        for result, variable in zip(jaxprs.run_in_float64(step, name, arrays), step.outvars, strict=True)
    ]


def redo_step(step: Any, name: str, before: Sequence[Array], index: int, arrays: Sequence[Array]) -> Array:
    """Run an equation on other arrays than `before`, and return output `index`.

    Operations that only move numbers keep the dtype, because the numbers may be labels.
    """
    arrays = [np.asarray(array) for array in arrays]
    keeps_dtype = name in jaxprs.MOVES and name != "convert_element_type"
    rule = jaxprs.rule_of(name, step.params, arrays) if keeps_dtype else None
    try:
        results = run_equation(step, name, arrays) if rule is None else rule(*arrays)
    except (TypeError, ValueError, IndexError):  # it needs integers or booleans, not floats
        restored = [array.astype(old.dtype) for array, old in zip(arrays, before, strict=True)]
        results = run_equation(step, name, restored)
    return np.asarray(results[index] if isinstance(results, list) else results)


def find_product(step: Any, name: str, inputs: Sequence[Array]) -> Product | None:
    return None if name != "dot_general" else Product(
        0, 1, contract_axes([array.ndim for array in inputs], *step.params["dimension_numbers"])
    )  # fmt: skip
