"""One call as a flat list of operations on NumPy arrays, for any library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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
