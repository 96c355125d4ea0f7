"""One call as a flat list of operations on NumPy arrays, for any library."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from attn_exp.arrays import Array

Producer = int | str | None
"""Source of an array: the index of an operation, the name of an input, or None for parameters and constants."""


@dataclass(frozen=True)
class Product:
    """A product of two inputs of an operation, as subscripts of `np.einsum`.

    `left` and `right` are places in `Operation.inputs`; `subscripts` has the letters of both and of the output. A
    letter of both inputs that the output lacks is summed over.
    """

    left: int
    right: int
    subscripts: tuple[str, str, str]


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation, its inputs at the time it read them, and the source of each.

    `redo` applies the same operation to other arrays of the same shapes, in the order of `inputs`.
    """

    name: str
    inputs: tuple[Array, ...]
    producers: tuple[Producer, ...]
    output: Array
    redo: Callable[[Sequence[Array]], Array]
    product: Product | None = None


@dataclass(frozen=True, eq=False)
class Trace:
    """The operations of a call in order, its named inputs, and each array that it returned."""

    operations: tuple[Operation, ...]
    inputs: Mapping[str, Array]
    outputs: tuple[tuple[Producer, Array], ...]


# Subscripts of `np.einsum` for products that are written in other ways

Subscripts = tuple[str, str, str]


def resolve_subscripts(subscripts: str, ndims: Sequence[int]) -> Subscripts:
    """Replace `...` by letters in the subscripts of two arrays with these numbers of axes; add an implicit output."""
    operands, arrow, output = subscripts.replace(" ", "").partition("->")
    if not arrow:
        output = "..." + "".join(one for one in sorted(set(operands) - set(",.")) if operands.count(one) == 1)
    terms = operands.split(",")
    counts = [ndim - len(term) + 3 if "..." in term else 0 for term, ndim in zip(terms, ndims, strict=True)]
    unused = [one for one in string.ascii_letters if one not in subscripts]
    dots = "".join(unused[: max(counts)])
    left, right, output = (
        term.replace("...", dots[len(dots) - length :])
        for term, length in zip((*terms, output), (*counts, len(dots)), strict=True)
    )
    return left, right, output


def contract_axes(
    ndims: Sequence[int], summed: Sequence[Sequence[int]], batch: Sequence[Sequence[int]] = ((), ())
) -> Subscripts:
    """Return subscripts of the sum over pairs of axes: the output has the batch axes, then the others of each array."""
    letters = iter(string.ascii_letters)
    left, right = ([next(letters) for _ in range(ndim)] for ndim in ndims)
    for axis, other in zip((*summed[0], *batch[0]), (*summed[1], *batch[1]), strict=True):
        right[other] = left[axis]
    free = [one for one in left if one not in right] + [one for one in right if one not in left]
    return "".join(left), "".join(right), "".join([*(left[axis] for axis in batch[0]), *free])


# The recorder of each library, and the arrays in whatever a call returned

LARGEST = 2_200_000
"""Larger arrays are not copied and have no producer."""

Call = Callable[[Mapping[str, Any]], Any]
"""The call to record: it takes arrays of its library by name, and returns anything that contains arrays."""


class Recorder(Protocol):
    """Record one call.

    Args:
        call: takes arrays of the library by name.
        inputs: these arrays. The call gets copies, so it may write into them.
        cache: where JAX keeps the jaxpr of the call for each set of shapes and types. Use one for each call.

    Returns:
        The operations that depend on an input. What the call computes from constants alone is a constant.
    """

    def __call__(self, call: Call, inputs: Mapping[str, Any], cache: dict[Any, Any] | None = None) -> Trace: ...


def record_with(
    library: str, call: Call, inputs: Mapping[str, Any], cache: dict[Any, Any] | None = None
) -> Trace:  # fmt: skip
    trace: Trace = import_module(f"attn_exp.diagnosis.observe.record_{library}").record(call, inputs, cache)
    return trace


RECORDERS: dict[str, Recorder] = {library: partial(record_with, library) for library in ("torch", "numpy", "jax")}
"""The recorder of each library, imported when it is called."""


def find_outputs(value: Any, seen: set[int] | None = None) -> list[Any]:
    """Return the arrays in what a call returned, in their order.

    It looks into tuples, lists, mappings, dataclasses and objects such as `ModelOutput`, though not again into
    those whose ids are in `seen`. Nested lists of floats become one array. Anything else, such as a layer, is skipped.
    """
    seen = set() if seen is None else seen
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return [value]
    if is_list_of_floats(value):
        return [np.asarray(value)]
    parts = [] if id(value) in seen else list_parts(value)
    seen.add(id(value))
    return [output for part in parts for output in find_outputs(part, seen)]


def list_parts(value: Any) -> list[Any]:
    if isinstance(value, Mapping | list | tuple):
        return list(value.values() if isinstance(value, Mapping) else value)
    names: Any = getattr(value, "__dict__", None) or getattr(value, "__dataclass_fields__", ())
    return [] if callable(value) else [getattr(value, name, None) for name in list(names)]


def is_list_of_floats(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, float) or is_list_of_floats(v) for v in value)
