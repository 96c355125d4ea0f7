"""Products in standard axes: left `[n r k]`, right `[n c k]`, output `[n r c]`, whatever their subscripts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.observe.trace import Operation, Producer, Trace


@dataclass(frozen=True, eq=False)
class Axes:
    """The sorted subscripts of a product: `batch` n is in both inputs and the output, `summed` k in both inputs only.

    `rows` r come from the left input, `columns` c from the right one. Axes of length 1
    in only one input, such as those of a 1x1 convolution, are left out.
    """

    operation: Operation
    batch: str
    rows: str
    columns: str
    summed: str

    @cached_property
    def lengths(self) -> dict[str, int]:
        """The length of each letter; axes of length 1 are broadcast."""
        product = self.operation.product
        assert product is not None
        found: dict[str, int] = {}
        for place, letters in zip((product.left, product.right), product.subscripts, strict=False):
            for letter, length in zip(letters, self.operation.inputs[place].shape, strict=True):
                found[letter] = max(found.get(letter, 1), length)
        return found

    def arrange(self, array: Array, letters: str, groups: tuple[str, ...]) -> Array:
        """Reshape an array to one axis per group of letters."""
        order = [letter for group in groups for letter in group]
        kept = [letter for letter in order if letter in letters]
        array = np.asarray(array)[tuple(slice(None) if letter in order else 0 for letter in letters)]
        letters = "".join(letter for letter in letters if letter in order)
        turned = array.transpose([letters.index(letter) for letter in kept])
        wide = turned.reshape([turned.shape[kept.index(letter)] if letter in kept else 1 for letter in order])
        full = np.broadcast_to(wide, [self.lengths[letter] for letter in order])
        return full.reshape([prod(self.lengths[letter] for letter in group) for group in groups])

    def left(self, array: Array) -> Array:
        """Return an array like the left input as `[n r k]`."""
        assert self.operation.product is not None
        return self.arrange(array, self.operation.product.subscripts[0], (self.batch, self.rows, self.summed))

    def right(self, array: Array) -> Array:
        """Return an array like the right input as `[n c k]`."""
        assert self.operation.product is not None
        return self.arrange(array, self.operation.product.subscripts[1], (self.batch, self.columns, self.summed))

    def output(self, array: Array) -> Array:
        """Return an array like the output as `[n r c]`."""
        assert self.operation.product is not None
        return self.arrange(array, self.operation.product.subscripts[2], (self.batch, self.rows, self.columns))


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
    found = Axes(operation, batch, rows, columns, summed)
    rest = {*left, *right} - {*batch, *rows, *columns, *summed}
    return found if is_plain and all(found.lengths[letter] == 1 for letter in rest) else None


def find_ancestors(trace: Trace, producers: tuple[Producer, ...]) -> set[int]:
    """Return the operations on which some arrays depend."""
    found, ahead = set[int](), [one for one in producers if isinstance(one, int)]
    while ahead:
        one = ahead.pop()
        if one not in found:
            found.add(one)
            ahead += [before for before in trace.operations[one].producers if isinstance(before, int)]
    return found
