"""Represent a call in any library as a flat list of operations on NumPy arrays, with products in standard axes.

The standard axes are `[n r k]` (left), `[n c k]` (right) and `[n r c]` (output), whatever subscripts a product uses.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from math import prod
from typing import Any, NamedTuple

import numpy as np

from attn_exp.arrays import Array, Arrays, Shape

Producer = int | str | None
"""Source of an array: the index of an operation, the name of an input, or None for parameters and constants."""


@dataclass(frozen=True)
class Product:
    """A product of two inputs of an operation, as subscripts of `np.einsum`.

    `left` and `right` are indices into `Operation.inputs`; `subscripts` gives the letters of both and of the output.
    Letters that are in both inputs but not in the output are summed over.
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
    """Replace `...` with letters in the subscripts of two arrays of `ndims` axes, and add an implicit output."""
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
    """Return subscripts of a sum over pairs of axes; the output has the batch axes, then each array's other axes."""
    letters = iter(string.ascii_letters)
    left, right = ([next(letters) for _ in range(ndim)] for ndim in ndims)
    for axis, other in zip((*summed[0], *batch[0]), (*summed[1], *batch[1]), strict=True):
        right[other] = left[axis]
    free = [one for one in left if one not in right] + [one for one in right if one not in left]
    return "".join(left), "".join(right), "".join([*(left[axis] for axis in batch[0]), *free])


# The recorder of each library

LARGEST = 2_200_000
"""Maximum number of elements of a recorded array: larger ones are not copied and have no producer."""

Call = Callable[[Mapping[str, Any]], Any]
"""The call to record: it takes arrays of its library by name, and returns anything that contains arrays."""


def record_with(
    library: str, call: Call, inputs: Mapping[str, Any], cache: dict[Any, Any] | None = None
) -> Trace:  # fmt: skip
    """Record one call and return the operations that depend on an input; every other result counts as a constant.

    Args:
        library: torch, numpy or jax.
        call: the function to record, which takes arrays of the library by name.
        inputs: the arrays by name. The call gets copies, so it may overwrite them.
        cache: where JAX keeps the jaxpr for each set of shapes and types. Use a separate one for each function.
    """
    trace: Trace = import_module(f"attn_exp.diagnosis.observe.record_{library}").record(call, inputs, cache)
    return trace


# Operations on arrays that may share memory, as those of PyTorch and NumPy do

Redo = Callable[[Sequence[Array]], Array]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Place(NamedTuple):
    """The location of an array in memory: allocation, first address, shape, strides in bytes, and dtype.

    Two arrays in the same place contain the same numbers, so they have the same producer.
    """

    owner: int
    address: int
    shape: Shape
    strides: Shape
    kind: str


@dataclass(eq=False)
class Recorder:
    """The operations recorded so far.

    `copy` converts an array of the library to NumPy, and `restore` converts it back. `known` keeps each array that was
    seen, so that no address is reused, together with its producer.
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

    def make_trace(self, outputs: Iterable[Any]) -> Trace:
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
            again: what to call to redo the operation, if not the function itself.
            product: the product that the function computes, if any.
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
        redo = make_scatter(place, source)
        producers = (self.find_producer(other), self.find_producer(target))
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
    """Return a function that writes the last array into the first one, or into zeros, where addresses coincide."""
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


# Products in standard axes


@dataclass(frozen=True, eq=False)
class Axes:
    """The sorted subscripts of a product: `batch` n is in both inputs and the output, `summed` k in both inputs only.

    `rows` r come from the left input, `columns` c from the right one. Axes of length 1 in only one input, such as those
    of a 1x1 convolution, are left out.
    """

    operation: Operation
    product: Product
    batch: str
    rows: str
    columns: str
    summed: str

    @cached_property
    def lengths(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for place, letters in zip(self.places, self.product.subscripts, strict=False):
            for letter, length in zip(letters, self.operation.inputs[place].shape, strict=True):
                found[letter] = max(found.get(letter, 1), length)
        return found

    def arrange(self, array: Array, letters: str, groups: tuple[str, ...]) -> Array:
        order = [letter for group in groups for letter in group]
        kept = [letter for letter in order if letter in letters]
        array = np.asarray(array)[tuple(slice(None) if letter in order else 0 for letter in letters)]
        letters = "".join(letter for letter in letters if letter in order)
        turned = array.transpose([letters.index(letter) for letter in kept])
        wide = turned.reshape([turned.shape[kept.index(letter)] if letter in kept else 1 for letter in order])
        full = np.broadcast_to(wide, [self.lengths[letter] for letter in order])
        return full.reshape([prod(self.lengths[letter] for letter in group) for group in groups])

    @property
    def places(self) -> tuple[int, int]:
        return self.product.left, self.product.right

    def side(self, array: Array, side: int) -> Array:
        """Arrange an array like the left input (side 0) as `[n r k]`, or like the right one as `[n c k]`."""
        letters = (self.rows, self.columns)[side]
        return self.arrange(array, self.product.subscripts[side], (self.batch, letters, self.summed))

    def output(self, array: Array) -> Array:
        return self.arrange(array, self.product.subscripts[2], (self.batch, self.rows, self.columns))


def find_axes(operation: Operation) -> Axes | None:
    """Return the axes of a product; None if it is another operation, or a letter repeats or is summed in one input."""
    if operation.product is None:
        return None
    left, right, output = operation.product.subscripts
    batch = "".join(letter for letter in output if letter in left and letter in right)
    rows = "".join(letter for letter in output if letter in left and letter not in right)
    columns = "".join(letter for letter in output if letter in right and letter not in left)
    summed = "".join(letter for letter in left if letter in right and letter not in output)
    is_plain = all(len(set(letters)) == len(letters) for letters in (left, right, output))
    found = Axes(operation, operation.product, batch, rows, columns, summed)
    rest = {*left, *right} - {*batch, *rows, *columns, *summed}
    return found if is_plain and all(found.lengths[letter] == 1 for letter in rest) else None


def find_ancestors(trace: Trace, producers: tuple[Producer, ...]) -> set[int]:
    found, ahead = set[int](), [one for one in producers if isinstance(one, int)]
    while ahead:
        one = ahead.pop()
        if one not in found:
            found.add(one)
            ahead += [before for before in trace.operations[one].producers if isinstance(before, int)]
    return found


# Track where numbers move, by applying each operation to indices instead of numbers

MOST = 0.9
"""Minimum fraction of indices that an operation must preserve to count as moving numbers."""


def follow(trace: Trace, source: int, labels: Array, last: int) -> dict[int, Array]:
    """Propagate labels of one output through later operations; -1 marks elements without a label."""
    found = {source: labels}
    for place in range(source + 1, last):
        operation = trace.operations[place]
        known = [found.get(one) if isinstance(one, int) else None for one in operation.producers]
        fitting = [one if one is not None and one.shape == given.shape else None
                   for one, given in zip(known, operation.inputs, strict=True)]  # fmt: skip
        if any(one is not None for one in fitting):
            made = move_labels(operation, fitting)
            if made is not None and (made >= 0).any():
                found[place] = made
    return found


def move_labels(operation: Operation, labels: Sequence[Array | None]) -> Array | None:
    """Return the labels of an output, given those of the inputs; None if numbers are combined.

    An operation that moves numbers is applied to their indices; one that keeps the shape of an input, such as a scale,
    a softmax or a mask, keeps its labels.
    """
    if operation.product is not None:
        return None
    moved = move_places(operation, labels)
    if moved is not None:
        return moved
    for known in labels:
        if known is not None and known.ndim and operation.output.ndim >= known.ndim:
            try:
                return np.broadcast_to(known, operation.output.shape).copy()
            except ValueError:
                continue
    return None


def move_places(operation: Operation, labels: Sequence[Array | None]) -> Array | None:
    """Return the labels of the output if the operation only moves numbers of its inputs, else None."""
    given = list(operation.inputs)
    table, numbers, start = [np.array([-1])], [np.array([np.nan])], 1
    for place, known in enumerate(labels):
        if known is not None:
            size = operation.inputs[place].size
            given[place] = np.arange(start, start + size, dtype=float).reshape(operation.inputs[place].shape)
            table.append(known.ravel())
            numbers.append(np.asarray(operation.inputs[place], float).ravel())
            start += size
    try:
        with np.errstate(all="ignore"):
            places = np.asarray(operation.redo(given), float)
    except Exception:  # whatever an operation raises on such numbers
        return None
    if places.shape != operation.output.shape or not places.size:
        return None
    whole = np.isfinite(places) & (places == np.round(places)) & (places >= 1) & (places < start)
    at = np.where(whole, places, 0).astype(int)
    read, output = np.concatenate(numbers)[at], np.asarray(operation.output, float)
    same = whole & ((read == output) | (np.isnan(read) & np.isnan(output)))
    if not same.any() or same.sum() < MOST * whole.sum() or len(np.unique(at[same])) < 0.3 * len(np.unique(at[whole])):
        return None
    made = np.where(same, np.concatenate(table)[at], -1)
    for known, array in zip(labels, operation.inputs, strict=True):
        if known is not None and array.shape == operation.output.shape:  # such as the input of a masked fill
            return np.where(same, made, known)
    return made


def spread_labels(axes_output: Array, size: int) -> Array:
    """Label an array's elements by their index in standard axes, in the array's own layout.

    `axes_output` contains the flat indices of the array, in standard axes.
    """
    labels = np.empty(size, int)
    labels[axes_output.ravel()] = np.arange(size)
    return labels


def take_labelled(array: Array, labels: Array, shape: Shape) -> Array:
    """Scatter an array to the positions given by its labels, with NaN elsewhere."""
    made = np.full(shape, np.nan)
    known = labels >= 0
    made.reshape(-1)[labels[known]] = np.asarray(array, float)[known]
    return made
