"""The recorder of each library, and the arrays in whatever a call returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from attn_exp.diagnosis.observe.trace import Trace

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
