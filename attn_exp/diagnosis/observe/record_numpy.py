"""Record NumPy functions through an array subclass, to which NumPy passes each call.

The function gets `Tracked` arrays. NumPy calls their `__array_ufunc__` and `__array_function__`, which call `perform`:
it runs the NumPy function on plain arrays, records it, and wraps the results again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.jaxprs import is_half, is_number
from attn_exp.diagnosis.asking.libraries import collect_arrays
from attn_exp.diagnosis.observe.trace import (
    MAX_SIZE,
    Call,
    Location,
    Product,
    Recorder,
    Subscripts,
    Trace,
    contract_axes,
    map_arrays,
    resolve_subscripts,
)

TRACKED_METHODS = tuple(
    """
    __copy__ __deepcopy__ __getitem__ all any argmax argmin argsort astype choose clip compress conj copy cumprod
    cumsum diagonal dot flatten max mean min prod ravel repeat reshape round searchsorted squeeze std sum swapaxes
    take trace transpose var view
    """.split()
)
"""Methods of arrays that NumPy does not pass on, so `Tracked` overrides them."""
WRITING_METHODS = ("__setitem__", "fill", "partition", "put", "sort")
"""Methods that write into their array."""
WRITING_FUNCTIONS = ("copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask")
"""Functions that write into their first argument."""
CREATORS = ("array", "asanyarray", "asarray", "ascontiguousarray", "asfortranarray", "empty", "full", "ones", "zeros")
"""Functions that NumPy does not pass on to tracked arrays; while recording, patched versions return tracked arrays."""

active_recorder: ContextVar[Recorder | None] = ContextVar("active_recorder", default=None)
"""The recorder of the current call. It is None inside a NumPy function, whose own calls are not recorded."""


def record(call: Call, inputs: Mapping[str, Any], cache: dict[Any, Any] | None = None) -> Trace:
    """Record the call of a NumPy function; see `record_with`.

    During the call, array constructors such as `np.zeros` return tracked arrays.
    """
    recorder = Recorder(is_array, locate_array, copy_array, np.array)
    tracked = {name: np.array(array).view(Tracked) for name, array in inputs.items()}
    recorder.add_inputs(tracked)
    originals = {name: getattr(np, name) for name in CREATORS}
    vars(np).update({name: make_creator(name, function) for name, function in originals.items()})
    token = active_recorder.set(recorder)
    try:
        outputs = collect_arrays(call(tracked)).values()
    finally:
        active_recorder.reset(token)
        vars(np).update(originals)
    return recorder.make_trace(outputs)


def make_creator(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that replaces `np.<name>` while a call is recorded."""
    return wraps(function)(lambda *args, **kwargs: perform(name, function, args, kwargs))


class Dispatch:
    """Methods that NumPy calls instead of its own functions if an argument is a tracked array or number."""

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        return perform(name, getattr(ufunc, method), args, kwargs, is_writer=method == "at")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name = function.__name__
        return perform(name, function, args, kwargs, is_writer=name in WRITING_FUNCTIONS)


class Tracked(Dispatch, np.ndarray[Any, Any]):
    """An array whose operations are recorded."""

    T = property(lambda self: self.transpose())
    mT = property(lambda self: self.swapaxes(-1, -2))  # noqa: N815 - NumPy's name

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))


class TrackedNumber(np.float64):
    """A NumPy scalar whose operations are recorded; like other scalars, it is immutable."""


def make_method(name: str) -> Callable[..., Any]:
    function, is_writer = getattr(np.ndarray, name), name in WRITING_METHODS
    return lambda self, *args, **kwargs: perform(name.strip("_"), function, (self, *args), kwargs, is_writer=is_writer)


for _name in (*TRACKED_METHODS, *WRITING_METHODS):
    setattr(Tracked, _name, make_method(_name))
for _name, _method in (*vars(NDArrayOperatorsMixin).items(), *vars(Dispatch).items()):
    if callable(_method) and not _name.startswith("__i"):  # a number has no in-place operators
        setattr(TrackedNumber, _name, _method)


def perform(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, is_writer: bool = False
) -> Any:
    """Call a NumPy function with plain arrays, and record the call if a recorder is active.

    A writer overwrites its first argument and returns None. With `out`, the result is recorded as a new array that is
    then written into `out`. With `out` and `where`, `out` is also an input, because parts of it are kept.
    """
    recorder, out = active_recorder.get(), kwargs.get("out")
    if recorder is None:
        args, kwargs = strip((args, kwargs))
        return function(*args, **kwargs)
    outs = out if isinstance(out, tuple) else (out,)
    targets = args[:1] if is_writer else tuple(target for target in outs if isinstance(target, np.ndarray))
    rerun = run = partial(write_first if is_writer else run_plain, function)
    read_kwargs = kwargs
    if targets and not is_writer and "where" not in kwargs:  # the result does not depend on what `out` contains
        run = partial(run, out=out)
        read_kwargs = {key: value for key, value in kwargs.items() if key != "out"}
    token = active_recorder.set(None)
    try:  # `zeros_like` and similar functions read only the shape of their argument
        returned = recorder.run(
            name, run, (args, read_kwargs), writes=targets, rerun=rerun, reads=not name.endswith("_like"),
            product=find_product(name, args, kwargs),
        )  # fmt: skip
    finally:
        active_recorder.reset(token)
    if is_writer or not targets:
        return None if is_writer else returned
    return out if len(outs) > 1 else outs[0]


def run_plain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function with plain arrays, and return tracked versions of its results."""
    args, kwargs = strip((args, kwargs))
    return map_arrays(function(*args, **kwargs), is_result, track)


def write_first(function: Callable[..., Any], target: Any, *args: Any, **kwargs: Any) -> Any:
    run_plain(function, target, *args, **kwargs)
    return target


def strip(value: Any) -> Any:
    """Replace tracked arrays and numbers with plain ones, including those in nested lists and other containers."""
    return map_arrays(value, lambda item: isinstance(item, Tracked | TrackedNumber), lambda item: (
        np.ndarray.view(item, np.ndarray) if isinstance(item, Tracked) else np.float64(float(item))
    ))  # fmt: skip


def is_result(value: Any) -> bool:
    return type(value) is np.float64 or (type(value) is np.ndarray and is_number(value.dtype))


def track(value: Any) -> Any:
    return TrackedNumber(value) if isinstance(value, np.float64) else value.view(Tracked)


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | TrackedNumber) and is_number(value.dtype)


def locate_array(array: Any) -> Location:
    if isinstance(array, TrackedNumber):
        return Location(id(array), 0, (), (), "number")
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return Location(id(owner), array.__array_interface__["data"][0], array.shape, array.strides, str(array.dtype))


def copy_array(array: Any) -> Array:
    plain = np.asarray(strip(array))
    return np.array(plain, np.float32 if is_half(plain.dtype) else None, copy=True if plain.size <= MAX_SIZE else None)


def find_product(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Product | None:
    """Return the product of two arrays that a call computes, if it is one of `PRODUCTS`."""
    is_einsum = name == "einsum" and isinstance(args[0], str)
    operands = args[1:] if is_einsum else args[:2] if name != "einsum" else ()
    if (
        name not in PRODUCTS
        or len(operands) != 2
        or not all(is_array(operand) and operand.ndim for operand in operands)
    ):
        return None
    if name in ("matmul", "vecdot") and not {"axes", "axis"}.isdisjoint(kwargs):
        return None
    option = args[0] if is_einsum else kwargs.get("axes", args[2] if len(args) > 2 else 2)
    return Product(0, 1, PRODUCTS[name]((operands[0].ndim, operands[1].ndim), option))


def find_matrix_subscripts(ndims: Sequence[int], _: Any) -> Subscripts:
    rows, columns = "t" * (ndims[0] > 1), "s" * (ndims[1] > 1)
    return resolve_subscripts(f"...{rows}d,...d{columns}->...{rows}{columns}", ndims)


def find_tensordot_subscripts(ndims: Sequence[int], axes: Any) -> Subscripts:
    if isinstance(axes, int):
        axes = range(ndims[0] - axes, ndims[0]), range(axes)
    return contract_axes(ndims, [[axis] if isinstance(axis, int) else [*axis] for axis in axes])


PRODUCTS: dict[str, Callable[[Sequence[int], Any], Subscripts]] = {
    "matmul": find_matrix_subscripts,
    "vecdot": lambda ndims, _: resolve_subscripts("...d,...d->...", ndims),
    "dot": lambda ndims, _: contract_axes(ndims, ([ndims[0] - 1], [max(ndims[1] - 2, 0)])),
    "inner": lambda ndims, _: contract_axes(ndims, ([ndims[0] - 1], [ndims[1] - 1])),
    "tensordot": find_tensordot_subscripts,
    "einsum": lambda ndims, subscripts: resolve_subscripts(subscripts, ndims),
}
"""For each NumPy function that computes a product, a function that returns the product's subscripts.

It takes the numbers of axes of both arrays, and one more argument of the call, such as `axes` of `tensordot`.
"""
