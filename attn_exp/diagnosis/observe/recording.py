"""Record a layer on random tokens, and again with half of the tokens changed.

The runs in which a row of an array changes tell which token the row depends on. Each token has a number, and for each
bit of that number there are two runs: one changes the tokens with that bit set, the other changes all other tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attn_exp.arrays import Array, Arrays
from attn_exp.diagnosis.bind.layer import Layer
from attn_exp.diagnosis.observe.record_numpy import is_result, track
from attn_exp.diagnosis.observe.trace import Trace, find_axes, record_with
from attn_exp.own_code import held

FINE, COARSE = 1e-9, 1e-5
"""Relative rounding error of float64, and of narrower dtypes."""
NONE, SEVERAL = -1, -2
"""Used in place of a token's number if a row depends on no token, or on several."""
GRID = 2
"""Number of rows when tokens are arranged as an image."""


@dataclass(frozen=True, eq=False)
class Recording:
    """Traces of a layer on inputs of one shape.

    `given` holds the inputs of each trace by role, `[b t m]`. The first trace is the baseline; two more follow for each
    of the `bits` bits of a token's number. `tokens` lists the role, example and position of each token by number.
    """

    layer: Layer
    traces: Sequence[Trace]
    given: Sequence[Arrays]
    bits: int
    tokens: Sequence[tuple[str, int, int]]

    @property
    def first(self) -> Trace:
        return self.traces[0]

    @property
    def exact(self) -> float:
        """Rounding tolerance of the coarsest dtype among the operations."""
        kinds = [one.output.dtype for one in self.first.operations if one.output.dtype.kind == "f"]
        return FINE if all(kind.itemsize >= np.dtype(np.float64).itemsize for kind in kinds) else COARSE

    def inputs(self, operation: int, place: int) -> list[Array]:
        return [one.operations[operation].inputs[place] for one in self.traces]

    def is_live(self, operation: int, place: int) -> bool:
        first, *others = self.inputs(operation, place)[:3]
        return any(not np.array_equal(one, first, equal_nan=True) for one in others)

    def sides(self, operation: int, side: int) -> list[Array] | None:
        """Return one input of a product (0: left) in standard axes in each run; None for other operations."""
        axes = find_axes(self.first.operations[operation])
        return None if axes is None else [axes.side(one, side) for one in self.inputs(operation, axes.places[side])]

    def find_tokens(self, rows: Sequence[Array]) -> Array | None:
        """Return the number of the token on which each row depends, given the rows `[... k]` in each run."""
        base, *others = rows[: 2 * self.bits + 1]
        if any(one.shape != base.shape for one in others):
            return None
        changed = [np.any((one != base) & ~(np.isnan(one) & np.isnan(base)), axis=-1) for one in others]
        first, second = np.array(changed[::2]), np.array(changed[1::2])
        numbers = np.array((first * 2 ** np.arange(self.bits).reshape(-1, *[1] * (first.ndim - 1))).sum(axis=0))
        numbers[~(first ^ second).all(axis=0)] = SEVERAL
        numbers[~(first | second).any(axis=0)] = NONE
        return numbers


class DifferentPathsError(Exception):
    """The layer runs different operations for different input values."""


def record_layer(
    layer: Layer, batch: int, length: int, keys: int, keywords: Mapping[str, Any], *, seed: int = 0
) -> Recording:  # fmt: skip
    """Record a layer on `length` tokens, and on `keys` tokens of a memory or of separate keys.

    Raises:
        DifferentPathsError: the operations depend on the input values.
        Exception: whatever the layer raises.
    """
    rng = np.random.default_rng([seed, 46])
    batch = batch if "b" in next(iter(layer.inputs.values())) else 1
    lengths = {role: length if role in ("x", "q") else keys for role in layer.inputs}
    tokens = [(role, entry, at) for role, count in lengths.items() for entry in range(batch) for at in range(count)]
    bits = max(1, int(np.ceil(np.log2(len(tokens)))))

    def draw() -> dict[str, Array]:
        widths = {role: layer.widths.get(role, layer.sizes["m"]) for role in lengths}
        return {role: rng.standard_normal((batch, count, widths[role])) for role, count in lengths.items()}

    base, given = draw(), list[dict[str, Array]]()
    for bit in range(bits):
        numbers = np.arange(len(tokens)) >> bit & 1
        given += [mix(base, draw(), numbers == one) for one in (1, 0)]
    given = [base, *given]
    cache = dict[Any, Any]()
    traces = [record_once(layer, one, keywords, cache) for one in given]
    paths = {tuple(each.name for each in one.operations) for one in traces}
    if len(paths) > 1:
        raise DifferentPathsError
    return Recording(layer, traces, given, bits, tokens)


def mix(base: Arrays, other: Arrays, is_changed: Array) -> dict[str, Array]:
    made, start = dict[str, Array](), 0
    for role, array in base.items():
        count = array.shape[0] * array.shape[1]
        chosen = is_changed[start : start + count].reshape(*array.shape[:2], 1)
        made[role], start = np.where(chosen, other[role], array), start + count
    return made


def record_once(layer: Layer, given: Arrays, keywords: Mapping[str, Any], cache: dict[Any, Any]) -> Trace:
    arrays = {role: layer.convert(lay(array, layer.inputs[role], find_height(layer, array.shape[1])))
              for role, array in given.items()}  # fmt: skip
    fields = getattr(layer.target, "__dict__", {}) if layer.library == "numpy" else {}
    fields.update({name: track(value) for name, value in fields.items() if "cache" in name and is_result(value)})
    with held(), np.errstate(all="ignore"):
        return record_with(layer.library, lambda tracked: layer.call(tracked, keywords), arrays, cache)


def find_height(layer: Layer, length: int) -> int:
    return layer.lengths.get("h", 0) if length == layer.lengths.get("t") else 0


def lay(rows: Any, axes: str, height: int = 0) -> Any:
    """Convert tokens `[b t m]` of any library to the layout of a layer: `btm`, `tbm`, `bmt`, or that of an image.

    A layout without b gets only the first example. c means the same as m, and s the same as t. `height` is the height
    of an image, if it is known.
    """
    axes = axes.replace("s", "t").replace("c", "m")
    if "b" not in axes:
        return lay(rows[:1], f"b{axes}", height)[0]
    batch, length, width = rows.shape
    height = height or (GRID if length % GRID == 0 else 1)
    if axes == "bhwm":
        return rows.reshape(batch, height, length // height, width)
    if axes == "bmhw":
        return rows.swapaxes(1, 2).reshape(batch, width, height, length // height)
    return {"btm": rows, "tbm": rows.swapaxes(0, 1), "bmt": rows.swapaxes(1, 2)}[axes]


def unlay(array: Any, axes: str) -> Any:
    """Return a layer's output as `[b t n]`; unchanged if it has a different number of axes."""
    axes = axes.replace("s", "t").replace("c", "m")
    if len(array.shape) != len(axes):
        return array
    if "b" not in axes:
        return unlay(array[None], f"b{axes}")
    if axes == "bhwm":
        return array.reshape(array.shape[0], -1, array.shape[-1])
    if axes == "bmhw":
        return array.reshape(array.shape[0], array.shape[1], -1).swapaxes(1, 2)
    return {"btm": array, "tbm": array.swapaxes(0, 1), "bmt": array.swapaxes(1, 2)}[axes]


def tokens_given(recording: Recording) -> Array:
    axes, made = recording.layer.inputs, list[Array]()
    for one in recording.traces:
        several = [unlay(array, axes[role]) for role, array in one.inputs.items()]
        widest = max(rows.shape[-1] for rows in several)
        flat = (rows.reshape(-1, rows.shape[-1]) for rows in several)
        made.append(np.concatenate([np.pad(rows, ((0, 0), (0, widest - rows.shape[1]))) for rows in flat]))
    return np.array(made)
