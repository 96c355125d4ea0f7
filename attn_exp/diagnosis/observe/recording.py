"""Record a layer on random tokens, and again with half of the tokens changed.

The runs in which a row of an array changes tell which token the row depends on. Each token has a number, and for each
bit of that number there are two runs: one changes the tokens with that bit set, the other changes all other tokens.
With tokens 0 to 3, a row that changes in the runs "bit 0 set" and "bit 1 clear", and in no others, depends on token 1.
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
from attn_exp.own_code import guard_process

FINE, COARSE = 1e-9, 1e-5
"""Relative rounding error of float64, and of narrower dtypes."""
NONE, SEVERAL = -1, -2
"""What replaces the number of the token if a row depends on no token, or on several."""
GRID = 2
"""Number of rows when tokens are arranged as an image."""


@dataclass(frozen=True, eq=False)
class Recording:
    """Traces of a layer on inputs of one shape.

    - `traces`: the first is the baseline. Two more follow for each bit of a token's number: in one, the tokens with
      this bit set are changed, in the other all other tokens.
    - `inputs_by_run`: the inputs `[b t m]` of each trace, by role (x, q, k, v or memory).
    - `bits`: the number of bits of a token's number.
    - `tokens`: the role, example and position of each token, by its number.
    """

    layer: Layer
    traces: Sequence[Trace]
    inputs_by_run: Sequence[Arrays]
    bits: int
    tokens: Sequence[tuple[str, int, int]]

    @property
    def first(self) -> Trace:
        return self.traces[0]

    @property
    def query_role(self) -> str:
        return "x" if "x" in self.layer.inputs else "q"

    @property
    def tolerance(self) -> float:
        """Relative rounding error of the coarsest dtype among the operations."""
        dtypes = [operation.output.dtype for operation in self.first.operations]
        is_fine = all(dtype.itemsize >= np.dtype(np.float64).itemsize for dtype in dtypes if dtype.kind == "f")
        return FINE if is_fine else COARSE

    def read_inputs(self, operation: int, input_index: int) -> list[Array]:
        """Return one input of an operation in each run."""
        return [trace.operations[operation].inputs[input_index] for trace in self.traces]

    def is_live(self, operation: int, input_index: int) -> bool:
        """Return whether an input of an operation depends on any token: two of the runs together change all tokens."""
        baseline, *changed = self.read_inputs(operation, input_index)[:3]
        return any(not np.array_equal(array, baseline, equal_nan=True) for array in changed)

    def read_sides(self, operation: int, side: int) -> list[Array] | None:
        """Return one input of a product (0: left) in standard axes in each run; None for other operations."""
        axes = find_axes(self.first.operations[operation])
        return (
            None
            if axes is None
            else [axes.arrange_side(array, side) for array in self.read_inputs(operation, axes.input_indices[side])]
        )

    def find_tokens(self, rows: Sequence[Array]) -> Array | None:
        """Return the index of the token that each row depends on, given the rows `[... k]` in each run."""
        baseline, *others = rows[: 2 * self.bits + 1]
        if any(array.shape != baseline.shape for array in others):
            return None
        changed = np.array([
            np.any((array != baseline) & ~(np.isnan(array) & np.isnan(baseline)), axis=-1) for array in others
        ])  # fmt: skip
        # [bits ...]: whether a row changed with the tokens whose number has this bit set, and with the others
        if_set, if_clear = changed[::2], changed[1::2]
        numbers = np.tensordot(2 ** np.arange(self.bits), if_set, axes=1)
        numbers[~(if_set ^ if_clear).all(axis=0)] = SEVERAL
        numbers[~(if_set | if_clear).any(axis=0)] = NONE
        return numbers


class DifferentPathsError(Exception):
    """The layer runs different operations for different input values."""


def record_layer(
    layer: Layer, batch: int, length: int, key_count: int, keywords: Mapping[str, Any], *, seed: int = 0
) -> Recording:  # fmt: skip
    """Record a layer on `length` tokens, and on `key_count` tokens of a memory or of separate keys.

    Raises:
        DifferentPathsError: the operations depend on the input values.
        Exception: whatever the layer raises.
    """
    rng = np.random.default_rng([seed, 46])
    batch = batch if "b" in next(iter(layer.inputs.values())) else 1
    lengths = {role: length if role in ("x", "q") else key_count for role in layer.inputs}
    tokens = [(role, *position) for role, count in lengths.items() for position in np.ndindex(batch, count)]
    bits = max(1, int(np.ceil(np.log2(len(tokens)))))

    def draw() -> dict[str, Array]:
        widths = {role: layer.widths.get(role, layer.sizes["m"]) for role in lengths}
        return {role: rng.standard_normal((batch, count, widths[role])) for role, count in lengths.items()}

    inputs_by_run = [draw()]
    for bit in range(bits):
        is_set = (np.arange(len(tokens)) >> bit & 1).astype(bool)
        inputs_by_run += [replace_tokens(inputs_by_run[0], draw(), is_changed) for is_changed in (is_set, ~is_set)]
    cache = dict[Any, Any]()
    traces = [record_once(layer, run_inputs, keywords, cache) for run_inputs in inputs_by_run]
    paths = {tuple(operation.name for operation in trace.operations) for trace in traces}
    if len(paths) > 1:
        raise DifferentPathsError
    return Recording(layer, traces, inputs_by_run, bits, tokens)


def replace_tokens(base: Arrays, other: Arrays, is_changed: Array) -> dict[str, Array]:
    """Return the inputs `base` by role, with some tokens replaced by those of `other`.

    `is_changed` has a boolean for each token, in the order of the token numbers.
    """
    counts = [array.shape[0] * array.shape[1] for array in base.values()]
    parts = zip(base.items(), np.split(is_changed, np.cumsum(counts)), strict=False)  # the last part is empty
    return {role: np.where(part.reshape(*array.shape[:2], 1), other[role], array) for (role, array), part in parts}


def record_once(layer: Layer, inputs: Arrays, keywords: Mapping[str, Any], cache: dict[Any, Any]) -> Trace:
    arrays = {role: layer.convert(to_axes(array, layer.inputs[role], find_height(layer, array.shape[1])))
              for role, array in inputs.items()}  # fmt: skip
    fields = getattr(layer.target, "__dict__", {}) if layer.library == "numpy" else {}
    # a layer may write keys and values into its own cache; untracked arrays would forget where they come from
    fields.update({name: track(value) for name, value in fields.items() if "cache" in name and is_result(value)})
    with guard_process(), np.errstate(all="ignore"):
        return record_with(layer.library, lambda tracked: layer.call(tracked, keywords), arrays, cache)


def find_height(layer: Layer, length: int) -> int:
    """Return the height of the image that a layer requires for this number of tokens; 0 if it requires none."""
    return layer.lengths.get("h", 0) if length == layer.lengths.get("t") else 0


def to_axes(rows: Any, axes: str, height: int = 0) -> Any:
    """Convert tokens `[b t m]` of any library to the layout of a layer: `btm`, `tbm`, `bmt`, or that of an image.

    A layout without b gets only the first example. c means the same as m, and s the same as t. `height` is the height
    of an image, if it is known.
    """
    axes = axes.replace("s", "t").replace("c", "m")
    if "b" not in axes:
        return to_axes(rows[:1], f"b{axes}", height)[0]
    batch, length, width = rows.shape
    height = height or (GRID if length % GRID == 0 else 1)
    layouts = {
        "btm": lambda: rows,
        "tbm": lambda: rows.swapaxes(0, 1),
        "bmt": lambda: rows.swapaxes(1, 2),
        "bhwm": lambda: rows.reshape(batch, height, length // height, width),
        "bmhw": lambda: rows.swapaxes(1, 2).reshape(batch, width, height, length // height),
    }
    return layouts[axes]()


def from_axes(array: Any, axes: str) -> Any:
    """Return a layer's output as `[b t n]`; unchanged if it has a different number of axes."""
    axes = axes.replace("s", "t").replace("c", "m")
    if len(array.shape) != len(axes):
        return array
    if "b" not in axes:
        return from_axes(array[None], f"b{axes}")
    layouts = {
        "btm": lambda: array,
        "tbm": lambda: array.swapaxes(0, 1),
        "bmt": lambda: array.swapaxes(1, 2),
        "bhwm": lambda: array.reshape(array.shape[0], -1, array.shape[-1]),
        "bmhw": lambda: array.reshape(*array.shape[:2], -1).swapaxes(1, 2),
    }
    return layouts[axes]()


def stack_tokens(recording: Recording) -> Array:
    """Return the tokens of all inputs in each run, `[runs tokens m]`; narrower ones are padded with zeros."""
    axes, runs = recording.layer.inputs, list[Array]()
    for trace in recording.traces:
        inputs = [from_axes(array, axes[role]) for role, array in trace.inputs.items()]
        rows = [array.reshape(-1, array.shape[-1]) for array in inputs]
        widest = max(array.shape[1] for array in rows)
        runs.append(np.concatenate([np.pad(array, ((0, 0), (0, widest - array.shape[1]))) for array in rows]))
    return np.array(runs)
