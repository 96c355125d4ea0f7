"""Represent a call in any library as a flat list of operations on NumPy arrays, with products in standard axes.

The standard axes are `[n r k]` (left), `[n c k]` (right) and `[n r c]` (output), whatever subscripts a product uses:
for `q k^T` with `"bhtd,bhsd->bhts"`, n is (b h), r is t, c is s and k is d.

A recorder passes each operation to `Recorder.run`, which lists it for a `Trace`. `find_axes` arranges the
products of a trace, and `follow_labels` tells where the elements of an array go in later operations.
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

MAX_SIZE = 2_200_000
"""Maximum number of elements of a recorded array: larger ones are not copied and have no producer."""
MIN_PRESERVED = 0.9
"""Minimum fraction of indices that an operation must preserve to count as moving numbers."""
MIN_VARIETY = 0.3
"""Minimum fraction of distinct indices that must be preserved, so that a few repeated numbers do not suffice."""

Producer = int | str | None
"""Source of an array: the index of an operation, the name of an input, or None for parameters and constants."""
Subscripts = tuple[str, str, str]
"""The letters of a product's left input, right input and output, as in `np.einsum`."""
Redo = Callable[[Sequence[Array]], Array]
"""Applies an operation to other inputs of the same shapes."""
Call = Callable[[Mapping[str, Any]], Any]
"""The call to record: it takes arrays of its library by name, and returns anything that contains arrays."""
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""The positional and keyword arguments of an operation."""


@dataclass(frozen=True)
class Product:
    """A product of two inputs of an operation, as subscripts of `np.einsum`.

    `left` and `right` are indices into `Operation.inputs`; `subscripts` gives the letters of both and of the output.
    Letters that are in both inputs but not in the output are summed over.
    """

    left: int
    right: int
    subscripts: Subscripts


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation, its inputs at the time it read them, and the source of each.

    `redo` applies the same operation to other arrays of the same shapes, in the order of `inputs`.
    """

    name: str
    inputs: tuple[Array, ...]
    producers: tuple[Producer, ...]
    output: Array
    redo: Redo
    product: Product | None = None


@dataclass(frozen=True, eq=False)
class Trace:
    """The operations of a call in order, its named inputs, and each array that it returned."""

    operations: tuple[Operation, ...]
    inputs: Arrays
    outputs: tuple[tuple[Producer, Array], ...]


# Subscripts of `np.einsum` for products that are written in other ways


def resolve_subscripts(subscripts: str, ndims: Sequence[int]) -> Subscripts:
    """Replace `...` with letters in the subscripts of two arrays of `ndims` axes, and add an implicit output."""
    operands, arrow, output = subscripts.replace(" ", "").partition("->")
    if not arrow:
        output = "..." + "".join(letter for letter in sorted(set(operands) - set(",.")) if operands.count(letter) == 1)
    terms = operands.split(",")
    hidden_axes = [ndim - len(term) + 3 if "..." in term else 0 for term, ndim in zip(terms, ndims, strict=True)]
    unused = [letter for letter in string.ascii_letters if letter not in subscripts]
    dots = "".join(unused[: max(hidden_axes)])  # arrays with fewer hidden axes use the last of these letters
    left, right, output = (
        term.replace("...", dots[len(dots) - count :])
        for term, count in zip((*terms, output), (*hidden_axes, len(dots)), strict=True)
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
    free = [letter for letter in left if letter not in right] + [letter for letter in right if letter not in left]
    return "".join(left), "".join(right), "".join([*(left[axis] for axis in batch[0]), *free])


# The recorder of each library


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


class Location(NamedTuple):
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
    """Runs operations, and records them as the parts of a `Trace`.

    - `copy`: converts an array of the library to NumPy. `restore` converts it back.
    - `arrays_seen`: each array with its producer, by location. Keeping the arrays ensures that no address is reused.
    """

    is_array: Callable[[Any], bool]
    locate: Callable[[Any], Location]
    copy: Callable[[Any], Array]
    restore: Callable[[Array], Any]
    operations: list[Operation] = field(default_factory=list)
    arrays_seen: dict[Location, tuple[Any, Producer]] = field(default_factory=dict)
    inputs: dict[str, Array] = field(default_factory=dict)

    def add_inputs(self, arrays: Mapping[str, Any]) -> None:
        for name, array in arrays.items():
            self.inputs[name] = np.array(self.copy(array))
            self.arrays_seen[self.locate(array)] = array, None if self.inputs[name].size > MAX_SIZE else name

    def make_trace(self, outputs: Iterable[Any]) -> Trace:
        return Trace(tuple(self.operations), self.inputs, tuple(
            (self.find_producer(output), self.copy(output)) if self.is_array(output) else (None, np.asarray(output))
            for output in outputs
        ))  # fmt: skip

    def find_producer(self, array: Any) -> Producer:
        return self.arrays_seen.setdefault(self.locate(array), (array, None))[1]

    def collect(self, value: Any) -> list[Any]:
        found: list[Any] = []
        map_arrays(value, self.is_array, found.append)
        return found

    def run(
        self, name: str, function: Callable[..., Any], arguments: Arguments, *, writes: Sequence[Any] = (),
        reads: bool = True, rerun: Callable[..., Any] | None = None, product: Product | None = None,
    ) -> Any:  # fmt: skip
        """Call a function, and record an operation for each array that it returns.

        Args:
            name: the name of the operations.
            function: what to call.
            arguments: its positional and keyword arguments.
            writes: the arrays that it overwrites and returns.
            reads: whether its result depends on the arrays among the arguments; if not, it is a constant.
            rerun: what to call to redo the operation, if not the function itself.
            product: the product that the function computes, if any.
        """
        inputs = self.collect(arguments)
        producers = tuple(self.find_producer(array) for array in inputs)
        overwritten = [(target, view) for target in writes for view in self.find_overlapping(target)]
        views = [view for _, view in overwritten]
        args, kwargs = arguments
        if not reads or all(self.find_producer(array) is None for array in (*inputs, *views)):
            returned = function(*args, **kwargs)
            self.arrays_seen |= {self.locate(array): (array, None) for array in (*self.collect(returned), *views)}
            return returned
        before = tuple(map(self.copy, inputs))
        views_before = [self.copy(view) for view in views]
        returned = function(*args, **kwargs)
        outputs = self.collect(returned)
        for index, output in enumerate(outputs):
            redo = self.make_redo(rerun or function, arguments, before, index)
            if name == "as_strided":  # depends on strides, which copies do not keep
                redo = make_scatter(self.locate(output), self.locate(inputs[0]))
            self.add(Operation(name, before, producers, self.copy(output), redo, product), output)
        for (target, view), old in zip(overwritten, views_before, strict=True):
            if self.locate(view) not in map(self.locate, outputs):
                self.add_write(target, view, old)
        return returned

    def add(self, operation: Operation, output: Any) -> None:
        is_large = operation.output.size > MAX_SIZE
        self.arrays_seen[self.locate(output)] = output, None if is_large else len(self.operations)
        self.operations += [] if is_large else [operation]

    def add_write(self, target: Any, view: Any, old: Array) -> None:
        """Record that a write into `target` changed `view`, which shares its memory and contained `old` before."""
        source, location = self.locate(target), self.locate(view)
        if source.kind != location.kind:  # bytes of another dtype: what they mean is unknown
            self.arrays_seen[location] = view, None
            return
        producers = (self.find_producer(view), self.find_producer(target))
        redo = make_scatter(location, source)
        self.add(Operation("write", (old, self.copy(target)), producers, self.copy(view), redo), view)

    def find_overlapping(self, target: Any) -> list[Any]:
        """Return the arrays seen so far that have an element in common with `target`."""
        location = self.locate(target)
        addresses = find_addresses(location)
        return [array for other, (array, _) in self.arrays_seen.items()
                if other.owner == location.owner and np.isin(find_addresses(other), addresses).any()]  # fmt: skip

    def make_redo(
        self, function: Callable[..., Any], arguments: Arguments, before: Sequence[Array], index: int
    ) -> Redo:
        """Return a function that repeats a call with other arrays in place of `before`, and returns output `index`."""

        def call_with(arrays: Sequence[Array]) -> Array:
            remaining = iter(arrays)
            args, kwargs = map_arrays(arguments, self.is_array, lambda _: self.restore(next(remaining)))
            return self.copy(self.collect(function(*args, **kwargs))[index])

        def redo(arrays: Sequence[Array]) -> Array:
            with np.errstate(all="ignore"):
                try:
                    return call_with(arrays)
                except (TypeError, ValueError, IndexError, RuntimeError):  # it needs integers or booleans, not floats
                    return call_with([np.asarray(new, old.dtype) for new, old in zip(arrays, before, strict=True)])

        return redo


def map_arrays(value: Any, is_array: Callable[[Any], bool], change: Callable[[Any], Any]) -> Any:
    """Change every array in nested tuples, lists and dictionaries, from left to right."""
    if is_array(value):
        return change(value)
    if type(value) in (tuple, list):
        return type(value)([map_arrays(item, is_array, change) for item in value])
    if type(value) is dict:
        return {name: map_arrays(item, is_array, change) for name, item in value.items()}
    return value


def find_addresses(location: Location) -> Array:
    """Return the address of each element, in the shape of the array."""
    addresses = np.full(location.shape, location.address)
    for axis, (length, stride) in enumerate(zip(location.shape, location.strides, strict=True)):
        addresses += (np.arange(length) * stride).reshape(-1, *[1] * (len(location.shape) - axis - 1))
    return addresses


def make_scatter(location: Location, source: Location) -> Redo:
    """Return a function that writes its last array (at `source`) into its first (at `location`) where they overlap.

    With only one array, the function writes it into zeros.
    """
    addresses, source_addresses = find_addresses(location), find_addresses(source).ravel()
    order = np.argsort(source_addresses)
    # the index of the nearest source address at or above each address; if it is not equal, the source lacks the address
    nearest = order[np.minimum(np.searchsorted(source_addresses, addresses, sorter=order), source_addresses.size - 1)]
    is_shared = np.asarray(source_addresses[nearest] == addresses)

    def redo(arrays: Sequence[Array]) -> Array:
        base = arrays[0] if len(arrays) > 1 else np.zeros(location.shape, arrays[0].dtype)
        result = np.array(base, np.result_type(*arrays))
        result[is_shared] = np.ravel(arrays[-1])[nearest[is_shared]]
        return result

    return redo


# Products in standard axes


@dataclass(frozen=True, eq=False)
class Axes:
    """The letters of a product's subscripts, sorted into the groups n, r, c and k of the standard axes.

    - `batch` (n): letters in both inputs and the output.
    - `rows` (r): letters in the left input and the output only.
    - `columns` (c): letters in the right input and the output only.
    - `summed` (k): letters in both inputs, but not in the output.

    Letters of axes of length 1 in one input only, such as those of a 1x1 convolution, are left out.
    """

    operation: Operation
    product: Product
    batch: str
    rows: str
    columns: str
    summed: str

    @cached_property
    def lengths(self) -> dict[str, int]:
        """The length of each letter's axis; an axis of length 1 is broadcast to that of the other input."""
        lengths: dict[str, int] = {}
        for input_index, letters in zip(self.input_indices, self.product.subscripts, strict=False):
            for letter, length in zip(letters, self.operation.inputs[input_index].shape, strict=True):
                lengths[letter] = max(lengths.get(letter, 1), length)
        return lengths

    def arrange(self, array: Array, letters: str, groups: tuple[str, ...]) -> Array:
        """Return an array with one axis per group of letters.

        `letters` are those of its present axes; letters of the groups that it lacks are broadcast.
        """
        order = "".join(groups)
        array = np.asarray(array)[tuple(slice(None) if letter in order else 0 for letter in letters)]
        letters = "".join(letter for letter in letters if letter in order)
        present = [letter for letter in order if letter in letters]
        transposed = array.transpose([letters.index(letter) for letter in present])
        lengths = dict(zip(present, transposed.shape, strict=True))
        full = np.broadcast_to(
            transposed.reshape([lengths.get(letter, 1) for letter in order]), [self.lengths[letter] for letter in order]
        )
        return full.reshape([prod(self.lengths[letter] for letter in group) for group in groups])

    @property
    def input_indices(self) -> tuple[int, int]:
        """The indices of the left and right factors among the operation's inputs."""
        return self.product.left, self.product.right

    def arrange_side(self, array: Array, side: int) -> Array:
        """Arrange an array with the axes of the left input (side 0) as `[n r k]`, or of the right one as `[n c k]`."""
        letters = (self.rows, self.columns)[side]
        return self.arrange(array, self.product.subscripts[side], (self.batch, letters, self.summed))

    def arrange_output(self, array: Array) -> Array:
        """Arrange an array with the axes of the output as `[n r c]`."""
        return self.arrange(array, self.product.subscripts[2], (self.batch, self.rows, self.columns))


def find_axes(operation: Operation) -> Axes | None:
    """Return the axes of a product; None for other operations, and for products that do not fit standard axes.

    A product does not fit if a letter occurs twice in one array, or if it sums over an axis that only one input has.
    """
    if operation.product is None:
        return None
    left, right, output = operation.product.subscripts
    batch = "".join(letter for letter in output if letter in left and letter in right)
    rows = "".join(letter for letter in output if letter in left and letter not in right)
    columns = "".join(letter for letter in output if letter in right and letter not in left)
    summed = "".join(letter for letter in left if letter in right and letter not in output)
    is_plain = all(len(set(letters)) == len(letters) for letters in (left, right, output))
    axes = Axes(operation, operation.product, batch, rows, columns, summed)
    unsorted = {*left, *right} - {*batch, *rows, *columns, *summed}
    return axes if is_plain and all(axes.lengths[letter] == 1 for letter in unsorted) else None


def find_ancestors(trace: Trace, producers: tuple[Producer, ...]) -> set[int]:
    """Return the indices of all operations that contribute to arrays with these producers."""
    ancestors, pending = set[int](), list(producers)
    while pending:
        producer = pending.pop()
        if isinstance(producer, int) and producer not in ancestors:
            ancestors.add(producer)
            pending += trace.operations[producer].producers
    return ancestors


# Track where numbers move, by applying each operation to indices instead of numbers


def follow_labels(trace: Trace, source: int, labels: Array, end: int) -> dict[int, Array]:
    """Propagate integer labels of one operation's output through the later operations before `end`.

    Returns:
        labels of each output that has any, by operation; -1 marks elements without a label.
    """
    labels_of = {source: labels}
    for index in range(source + 1, end):
        operation = trace.operations[index]
        producer_labels = [
            labels_of.get(producer) if isinstance(producer, int) else None for producer in operation.producers
        ]
        input_labels = [known if known is not None and known.shape == array.shape else None
                        for known, array in zip(producer_labels, operation.inputs, strict=True)]  # fmt: skip
        if any(known is not None for known in input_labels):
            output_labels = find_output_labels(operation, input_labels)
            if output_labels is not None and (output_labels >= 0).any():
                labels_of[index] = output_labels
    return labels_of


def find_output_labels(operation: Operation, labels: Sequence[Array | None]) -> Array | None:
    """Return the labels of an output, given those of the inputs; None if numbers are combined.

    If the operation only moves numbers, the labels move with them. If it changes numbers in place, such as a scale, a
    softmax or a mask, the labels of the input apply to the output.
    """
    if operation.product is not None:
        return None
    moved = move_labels(operation, labels)
    if moved is not None:
        return moved
    for known_labels in labels:
        if known_labels is not None and known_labels.ndim and operation.output.ndim >= known_labels.ndim:
            try:
                return np.broadcast_to(known_labels, operation.output.shape).copy()
            except ValueError:
                continue
    return None


def move_labels(operation: Operation, labels: Sequence[Array | None]) -> Array | None:
    """Return the labels of the output if the operation only moves numbers of its inputs, else None.

    The operation is applied to indices. An element was moved if the result is an index there, and the element with that
    index equals the output.
    """
    inputs, label_at, number_at = number_elements(operation, labels)
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(operation.redo(inputs), float)
    except Exception:  # whatever an operation raises on such numbers
        return None
    if result.shape != operation.output.shape or not result.size:
        return None
    is_index = np.isfinite(result) & (result == np.round(result)) & (result >= 1) & (result < label_at.size)
    index = np.where(is_index, result, 0).astype(int)
    number, output = number_at[index], np.asarray(operation.output, float)
    is_moved = is_index & ((number == output) | (np.isnan(number) & np.isnan(output)))
    if not is_moved.any() or is_moved.sum() < MIN_PRESERVED * is_index.sum() or (
        len(np.unique(index[is_moved])) < MIN_VARIETY * len(np.unique(index[is_index]))
    ):  # fmt: skip
        return None
    for known_labels, array in zip(labels, operation.inputs, strict=True):
        if known_labels is not None and array.shape == operation.output.shape:  # such as the input of a masked fill
            return np.where(is_moved, label_at[index], known_labels)
    return np.where(is_moved, label_at[index], -1)


def number_elements(operation: Operation, labels: Sequence[Array | None]) -> tuple[list[Array], Array, Array]:
    """Return the inputs with indices 1, 2, ... instead of labelled numbers, and the label and number at each index.

    Index 0 stands for everything else: label -1, number NaN.
    """
    inputs, start = list(operation.inputs), 1
    label_at, number_at = [np.array([-1])], [np.array([np.nan])]
    for input_index, (array, known_labels) in enumerate(zip(operation.inputs, labels, strict=True)):
        if known_labels is not None:
            inputs[input_index] = np.arange(start, start + array.size, dtype=float).reshape(array.shape)
            label_at.append(known_labels.ravel())
            number_at.append(np.asarray(array, float).ravel())
            start += array.size
    return inputs, np.concatenate(label_at), np.concatenate(number_at)


def invert_order(indices: Array) -> Array:
    """Return the position of each of the numbers 0, 1, ... in `indices`, a permutation of these numbers."""
    positions = np.empty(indices.size, int)
    positions[indices.ravel()] = np.arange(indices.size)
    return positions


def scatter_by_labels(array: Array, labels: Array, shape: Shape) -> Array:
    """Write each element of an array to the flat index given by its label, with NaN elsewhere."""
    scattered = np.full(shape, np.nan)
    is_labelled = labels >= 0
    scattered.reshape(-1)[labels[is_labelled]] = np.asarray(array, float)[is_labelled]
    return scattered
