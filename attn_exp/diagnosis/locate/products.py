"""Products in standard axes: left `[n r k]`, right `[n c k]`, output `[n r c]`, whatever their subscripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from attn_exp.arrays import Array, Shape
from attn_exp.diagnosis.observe.trace import Operation, Producer, Product, Trace


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
    """Return the axes of a product; None for other operations, and if a letter repeats or is summed in one input."""
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
    """Return the labels of an output that holds unchanged numbers of its inputs, else None."""
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
    made: Array = np.where(same, np.concatenate(table)[at], -1)
    for known, array in zip(labels, operation.inputs, strict=True):
        if known is not None and array.shape == operation.output.shape:  # such as the input of a masked fill
            return np.where(same, made, known)
    return made


def spread_labels(axes_output: Array, size: int) -> Array:
    """Label an array's elements by their index in standard axes, in the array's own layout.

    `axes_output` holds the flat indices of the array, in standard axes.
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
