"""Operations on arrays that may share memory, as those of PyTorch and NumPy do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.observe.trace import LARGEST, Operation, Producer, Product, Trace

Redo = Callable[[Sequence[Array]], Array]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Place(NamedTuple):
    """The location of an array in memory: allocation, first address, shape, strides in bytes, and dtype.

    Two arrays in one place hold the same numbers, so they have the same producer.
    """

    owner: int
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
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
    """Replace the arrays in nested tuples, lists and dictionaries."""
    if is_array(value):
        return change(value)
    if type(value) in (tuple, list):
        return type(value)([map_arrays(one, is_array, change) for one in value])
    if type(value) is dict:
        return {name: map_arrays(one, is_array, change) for name, one in value.items()}
    return value


def find_addresses(place: Place) -> Array:
    """Return the address of each number of an array."""
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
