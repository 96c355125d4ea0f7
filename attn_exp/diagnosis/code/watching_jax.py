"""What happens inside a call of JAX: its operations as `watching` has those of PyTorch, done in NumPy in float64.

What only moves numbers is no operation here, and what it returns is made by what made them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.code.jaxprs import as_matrices, done, in_float64, made_of_nothing, wide
from attn_exp.diagnosis.code.traced import of_arrays
from attn_exp.diagnosis.code.watching import Operation

VIEWS = ("broadcast_in_dim", "slice", "split", "reshape", "transpose", "squeeze", "expand_dims", "rev", "stop_gradient",
         "copy", "copy_p", "convert_element_type", "optimization_barrier", "tile")  # fmt: skip
"""Operations that return some of the numbers that they are given."""
NAMES = {"conv_general_dilated": "convolution", "reduce_window_sum": "avg_pool2d", "reduce_window": "avg_pool2d",
         "reduce_window_max": "max_pool2d_with_indices", "reduce_sum": "sum"}  # fmt: skip
"""What PyTorch calls operations of JAX that may join neighbours, and sums."""


@dataclass(frozen=True, eq=False)
class Value:
    """An array with the place of the operation that made it, and whether that was made of x.

    `single` is the one number that it holds many times, where it was spread.
    """

    array: Any
    made: int | None = None
    of_x: bool = False
    single: float | None = None


@dataclass
class Notes:
    """What is noted of the operations of calls; `instead` changes what one of them returns, by its place."""

    instead: Mapping[int, Callable[[Any], Any]]
    operations: list[Operation] = field(default_factory=list)

    def do(self, step: Any, name: str, values: Sequence[Value]) -> list[Value]:
        """Return what one operation makes of values, and note it."""
        arrays, of_x = [one.array for one in values], any(one.of_x for one in values)
        if name in VIEWS:
            said = in_float64(step, name, arrays)
            single = single_of(values[0])
            return [Value(one, values[0].made, of_x, single) for one in said]
        if name == "dot_general" and is_plain(values, step.params["dimension_numbers"]):
            (left, right), numbers = arrays, step.params["dimension_numbers"]
            said = [as_matrices(left, right, numbers, partial(self.multiplied, values))]
        else:
            said = in_float64(step, name, arrays)
            self.note(NAMES.get(name, name), values, [given_of(step, name, one) for one in values], said[0])
        return [Value(one, len(self.operations) - 1, of_x) for one in said]

    def multiplied(self, values: Sequence[Value], left: Array, right: Array) -> Any:
        """Return a product of `[n t d]` and `[n d s]`, and note it."""
        said = left @ right
        change = self.instead.get(len(self.operations))
        said = said if change is None else change(said)
        self.note("bmm", values, [left, right], said)
        return said

    def note(self, name: str, values: Sequence[Value], given: Sequence[Any], said: Any) -> None:
        """Note an operation."""
        made, of_x = tuple(one.made for one in values), tuple(one.of_x for one in values)
        said = said if isinstance(said, np.ndarray | np.generic) else np.zeros(0)  # random keys are no numbers
        self.operations.append(Operation(name, tuple(map(np.asarray, given)), made, of_x, (), np.asarray(said)))


def is_plain(values: Sequence[Value], numbers: Any) -> bool:
    """Say whether a product of two arrays that are made of x has one axis of rows or of columns: on the other side
    several heads may meet the same ones."""
    if not all(one.of_x for one in values):
        return True
    axes = zip(values, *numbers, strict=True)
    lengths = [[length for axis, length in enumerate(value.array.shape) if axis not in (*along, *batch)]
               for value, along, batch in axes]  # fmt: skip
    return any(sum(length > 1 for length in one) <= 1 for one in lengths)


def given_of(step: Any, name: str, value: Value) -> Any:
    """Return what an operation was given: of one number that was spread this alone; random keys are none."""
    if value.single is not None:
        return np.asarray(value.single)
    if name == "conv_general_dilated" and value.array is not None and not value.of_x:
        return np.transpose(value.array, step.params["dimension_numbers"].rhs_spec)
    return value.array if isinstance(value.array, np.ndarray) else np.zeros(0)


def single_of(value: Value) -> float | None:
    """Return the one number that an array holds, if nothing of x is in it."""
    if value.of_x or not isinstance(value.array, np.ndarray) or value.array.size != 1:
        return value.single
    return float(value.array.ravel()[0])


def watched(
    function: Callable[..., Any], given: Sequence[tuple[Any, bool]], notes: Notes,
    known: dict[Any, Any] | None = None, key: Any = None,
) -> Any:  # fmt: skip
    """Return what a function of JAX answers, with its operations noted; `given` says which arrays are made of x.

    It is traced once for each `key`, as `known` holds. What it makes of nothing that it is given is no operation.
    """
    import jax  # noqa: PLC0415 - the function is one of JAX

    known = {} if known is None else known
    if key not in known:
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*[array for array, _ in given])
        made = made_of_nothing(closed.jaxpr, closed.consts, Notes({}).do, of_nothing)
        known[key] = closed, shape, {one: replace(value, made=None) for one, value in made.items()}
    closed, shape, made = known[key]
    values = [Value(wide(array), None, of_x) for array, of_x in given]
    said = done(closed.jaxpr, closed.consts, values, notes.do, of_nothing, made)
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(shape), [one.array for one in said])


def of_nothing(array: Any) -> Value:
    """Return a constant with what made it, which is nothing."""
    return Value(wide(array))


def noted(
    function: Callable[..., Any], own: Any, positional: Any, named: Any, theirs: Collection[str], notes: Notes,
    known: dict[Any, Any] | None = None,
) -> Any:  # fmt: skip
    """Return what a function of what a layer holds, and of what it is given in a row and by name, answers.

    Its operations are noted; no argument of a name in `theirs` is made of x. `known` holds what it was traced as for
    others of these sizes.
    """
    import jax  # noqa: PLC0415

    of_them, arrays, key = of_arrays(function, (own, positional, named))
    named_so = [(named[name], name not in theirs) for name in sorted(named)]
    of_x = [mark for part, mark in ((own, False), (positional, True), *named_so)
            for value in jax.tree_util.tree_leaves(part) if hasattr(value, "dtype")]  # fmt: skip
    return watched(of_them, list(zip(arrays, of_x, strict=True)), notes, known, key)
