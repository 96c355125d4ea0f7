"""Record a JAX call: the operations of its jaxpr, run in NumPy in float64."""

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
from attn_exp.diagnosis.asking.libraries import parts_of
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
    array: Any
    producer: Producer = None


def run_step(operations: list[Operation], step: Any, name: str, values: Sequence[Value]) -> list[Value]:
    arrays, producers = tuple(one.array for one in values), tuple(one.producer for one in values)
    results = run_equation(step, name, arrays)
    if all(one is None for one in producers) or not all(map(is_array, (*arrays, *results))):
        return [Value(one) for one in results]
    inputs, outputs = tuple(map(np.asarray, arrays)), list[Value]()
    for index, output in enumerate(map(np.asarray, results)):
        is_large, again = output.size > MAX_SIZE, partial(redo, step, name, inputs, index)
        outputs.append(Value(output, None if is_large else len(operations)))
        operations += [] if is_large else [
            Operation(name, inputs, producers, output, again, find_product(step, name, inputs))
        ]  # fmt: skip
    return outputs


def record(call: Call, inputs: Mapping[str, Any], cache: dict[Any, Any] | None = None) -> Trace:
    """Record the call of a JAX function; see `record_with`.

    A loop or a condition is one operation. If the call needs the values of its inputs, which JAX does not know while
    tracing, the trace has no operations.
    """
    cache = {} if cache is None else cache
    key = tuple((name, array.shape, str(array.dtype)) for name, array in inputs.items())
    if key not in cache:
        cache[key] = make_jaxpr(call, inputs)
    arrays = {name: jaxprs.wide(array) for name, array in inputs.items()}
    if cache[key] is None:
        return Trace((), arrays, tuple((None, jaxprs.wide(one)) for one in parts_of(call(inputs)).values()))
    jaxpr, constants = cache[key]
    operations: list[Operation] = []
    given = [Value(array, name if array.size <= MAX_SIZE else None) for name, array in arrays.items()]
    outputs = jaxprs.run_jaxpr(jaxpr, constants, given, partial(run_step, operations), hold)
    return Trace(tuple(operations), arrays, tuple(
        (one.producer, np.asarray(one.array)) for one in outputs if is_array(one.array)
    ))  # fmt: skip


def make_jaxpr(call: Call, inputs: Mapping[str, Any]) -> Any:
    def find_all(context: Callable[[], Any], *arrays: Any) -> list[Any]:
        with context():
            return list(parts_of(call(dict(zip(inputs, arrays, strict=True)))).values())

    for context in (nullcontext, jax.ensure_compile_time_eval):
        try:
            closed = jax.make_jaxpr(partial(find_all, context))(*inputs.values())
        except Exception as error:
            if not is_about_values(error):
                raise
        else:
            return closed.jaxpr, list(map(hold, closed.consts))
    return None


def hold(constant: Any) -> Value:
    return constant if isinstance(constant, Value) else Value(jaxprs.wide(constant))


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic)


def run_equation(step: Any, name: str, arrays: Sequence[Any]) -> list[Any]:
    """Run one equation of a jaxpr in float64; integers in floating-point outputs are converted."""
    return [
        np.asarray(one, np.float64)
        if jaxprs.is_float(out.aval.dtype) and is_array(one) and one.dtype.kind in "biu"
        else one
        for one, out in zip(jaxprs.in_float64(step, name, arrays), step.outvars, strict=True)
    ]


def redo(step: Any, name: str, before: Sequence[Array], index: int, arrays: Sequence[Array]) -> Array:
    """Run an equation again; operations that only move numbers keep the dtype, because the numbers may be labels."""
    new = [np.asarray(one) for one in arrays]
    rule = jaxprs.rule_of(name, step.params, new) if name in jaxprs.MOVES and name != "convert_element_type" else None
    try:
        moved = NotImplemented if rule is None else rule(*new)
        results = run_equation(step, name, new) if moved is NotImplemented else moved
    except (TypeError, ValueError, IndexError):  # floats instead of integers or booleans
        results = run_equation(step, name, [one.astype(old.dtype) for one, old in zip(new, before, strict=True)])
    return np.asarray(results[index] if isinstance(results, list) else results)


def find_product(step: Any, name: str, inputs: Sequence[Array]) -> Product | None:
    ndims, numbers = [one.ndim for one in inputs], step.params.get("dimension_numbers")
    return Product(0, 1, contract_axes(ndims, *numbers)) if name == "dot_general" else None
