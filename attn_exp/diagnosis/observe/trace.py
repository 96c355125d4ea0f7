"""One call as a flat list of operations on NumPy arrays, whichever library ran it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from attn_exp.arrays import Array

Producer = int | str | None
"""Where an array comes from: the index of an operation, the name of an input, or None for parameters and constants."""


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
    """One operation: its inputs as they were when it read them, and where each comes from.

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
    """The operations of a call in their order, the named inputs, and each array that the call returned."""

    operations: tuple[Operation, ...]
    inputs: Mapping[str, Array]
    outputs: tuple[tuple[Producer, Array], ...]
