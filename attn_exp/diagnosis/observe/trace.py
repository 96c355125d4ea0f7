"""One call as a flat list of operations on NumPy arrays, for any library."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np

from attn_exp.arrays import Array, Arrays, Shape

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
    inputs: Arrays
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
    """Return the arrays in what a call returned, in order.

    It searches tuples, lists, mappings, dataclasses and objects such as `ModelOutput`, except those whose ids are in
    `seen`. Nested lists of floats become one array. Anything else, such as a layer, is skipped.
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


# Operations on arrays that may share memory, as those of PyTorch and NumPy do

Redo = Callable[[Sequence[Array]], Array]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Place(NamedTuple):
    """The location of an array in memory: allocation, first address, shape, strides in bytes, and dtype.

    Two arrays in one place hold the same numbers, so they have the same producer.
    """

    owner: int
    address: int
    shape: Shape
    strides: Shape
    kind: str


@dataclass(eq=False)
class Recording:
    """The operations recorded so far.

    `copy` converts an array of the library to NumPy, `restore` back. `known` keeps each array seen, so that no address
    is reused, and its producer.
    """

    is_array: Callable[[Any], bool]
    locate: Callable[[Any], Place]
    copy: Callable[[Any], Array]
    restore: Callable[[Array], Any]
    operations: list[Operation] = field(default_factory=list)
    known: dict[Place, tuple[Any, Producer]] = field(default_factory=dict)
    inputs: dict[str, Array] = field(default_factory=dict)

    def add_inputs(self, arrays: Mapping[str, Any]) -> None:
        for name, array in arrays.items():
            self.inputs[name] = np.array(self.copy(array))
            self.known[self.locate(array)] = array, None if self.inputs[name].size > LARGEST else name

    def make_trace(self, outputs: Sequence[Any]) -> Trace:
        return Trace(tuple(self.operations), self.inputs, tuple(
            (self.find_producer(one), self.copy(one)) if self.is_array(one) else (None, np.asarray(one))
            for one in outputs
        ))  # fmt: skip

    def find_producer(self, array: Any) -> Producer:
        return self.known.setdefault(self.locate(array), (array, None))[1]

    def collect(self, value: Any) -> list[Any]:
        found: list[Any] = []
        map_arrays(value, self.is_array, found.append)
        return found

    def run(
        self, name: str, function: Callable[..., Any], arguments: Arguments, *, writes: Sequence[Any] = (),
        reads: bool = True, again: Callable[..., Any] | None = None, product: Product | None = None,
    ) -> Any:  # fmt: skip
        """Call a function, and record an operation for each array that it returns.

        Args:
            name: the name of the operations.
            function: what to call.
            arguments: its positional and keyword arguments.
            writes: the arrays that it overwrites and returns.
            reads: whether its result depends on the arrays among the arguments; if not, it is a constant.
            again: what to call to redo it, if that is not the function.
            product: the product that it computes.
        """
        inputs, (args, kwargs) = self.collect(arguments), arguments
        producers = tuple(self.find_producer(one) for one in inputs)
        pairs = [(target, other) for target in writes for other in self.find_overlapping(target)]
        if not reads or all(one is None for one in (*producers, *(self.find_producer(other) for _, other in pairs))):
            returned = function(*args, **kwargs)
            constants = [*self.collect(returned), *(other for _, other in pairs)]
            self.known.update({self.locate(one): (one, None) for one in constants})
            return returned
        before, stale = tuple(map(self.copy, inputs)), [self.copy(other) for _, other in pairs]
        returned = function(*args, **kwargs)
        outputs = self.collect(returned)
        for index, output in enumerate(outputs):
            redo = self.make_redo(again or function, arguments, before, index)
            if name == "as_strided":  # depends on strides, which copies do not keep
                redo = make_scatter(self.locate(output), self.locate(inputs[0]))
            self.add(Operation(name, before, producers, self.copy(output), redo, product), output)
        for (target, other), old in zip(pairs, stale, strict=True):
            if self.locate(other) not in map(self.locate, outputs):
                self.add_write(target, other, old)
        return returned

    def add(self, operation: Operation, output: Any) -> None:
        is_large = operation.output.size > LARGEST
        self.known[self.locate(output)] = output, None if is_large else len(self.operations)
        self.operations += [] if is_large else [operation]

    def add_write(self, target: Any, other: Any, old: Array) -> None:
        """Record that writing into an array changed another array that shares its memory."""
        source, place = self.locate(target), self.locate(other)
        if source.kind != place.kind:
            self.known[place] = other, None
            return
        redo, producers = make_scatter(place, source), (self.find_producer(other), self.find_producer(target))
        self.add(Operation("write", (old, self.copy(target)), producers, self.copy(other), redo), other)

    def find_overlapping(self, target: Any) -> list[Any]:
        place = self.locate(target)
        addresses = find_addresses(place)
        return [other for near, (other, _) in self.known.items() if near.owner == place.owner
                and np.isin(find_addresses(near), addresses).any()]  # fmt: skip

    def make_redo(
        self, function: Callable[..., Any], arguments: Arguments, before: Sequence[Array], index: int
    ) -> Redo:
        def call_with(arrays: Sequence[Array]) -> Array:
            new = iter(arrays)
            args, kwargs = map_arrays(arguments, self.is_array, lambda _: self.restore(next(new)))
            return self.copy(self.collect(function(*args, **kwargs))[index])

        def redo(arrays: Sequence[Array]) -> Array:
            with np.errstate(all="ignore"):
                try:
                    return call_with(arrays)
                except (TypeError, ValueError, IndexError, RuntimeError):  # floats instead of integers or booleans
                    return call_with([np.asarray(new, old.dtype) for new, old in zip(arrays, before, strict=True)])

        return redo


def map_arrays(value: Any, is_array: Callable[[Any], bool], change: Callable[[Any], Any]) -> Any:
    if is_array(value):
        return change(value)
    if type(value) in (tuple, list):
        return type(value)([map_arrays(one, is_array, change) for one in value])
    if type(value) is dict:
        return {name: map_arrays(one, is_array, change) for name, one in value.items()}
    return value


def find_addresses(place: Place) -> Array:
    addresses = np.full(place.shape, place.address)
    for axis, (length, stride) in enumerate(zip(place.shape, place.strides, strict=True)):
        addresses += (np.arange(length) * stride).reshape(-1, *[1] * (len(place.shape) - axis - 1))
    return addresses


def make_scatter(place: Place, source: Place) -> Redo:
    """Return a function that writes the last array into the first (or zeros), where addresses coincide."""
    wanted, available = find_addresses(place), find_addresses(source).ravel()
    order = np.argsort(available)
    nearest = order[np.minimum(np.searchsorted(available, wanted, sorter=order), available.size - 1)]
    is_shared = np.asarray(available[nearest] == wanted)

    def redo(arrays: Sequence[Array]) -> Array:
        base = arrays[0] if len(arrays) > 1 else np.zeros(place.shape, arrays[0].dtype)
        result = np.array(base, np.result_type(*arrays))
        result[is_shared] = np.ravel(arrays[-1])[nearest[is_shared]]
        return result

    return redo
