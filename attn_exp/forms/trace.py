"""The named stages of one attention computation, or of a stack of them along a first axis."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_exp.arrays import widen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attn_exp.arrays import Array


class CannotStackError(Exception):
    """Problems cannot be stacked, so they must be computed one by one."""


@dataclass(frozen=True)
class Summary:
    """A summary of the weights, from a form that never has all of them in memory.

    - `entropy`: the entropy of each row, in nats, `[h t]`.
    - `effective_keys`: `exp(entropy)`, `[h t]`.
    - `largest_weight`: the largest weight of each row, `[h t]`.
    - `sink_mass`: the weight of key 0 in each row, `[h t]`.
    - `heat`: the mean weight in each cell of a coarse grid, `[h a c]`.
    - `row_edges`, `key_edges`: the queries and the keys at which the cells begin and end, `[a+1]` and `[c+1]`.
    """

    entropy: Array
    effective_keys: Array
    largest_weight: Array
    sink_mass: Array
    heat: Array
    row_edges: Array
    key_edges: Array


def entropy(weights: Array) -> Array:
    """Return `-sum_j w_j ln w_j` of each row `[... t s] -> [... t]`, in nats, with `0 ln 0 = 0`.

    Source: Shannon 1948; for attention rows, Clark et al. 2019, "What Does BERT Look At?", section 3.3.
    """
    weights = widen(weights)
    logs = np.log(weights, where=weights > 0, out=np.zeros_like(weights))
    return np.asarray(-(weights * logs).sum(axis=-1))


CELLS = 128
"""Rows and columns of a heat map: the resolution of a page-wide figure."""


def summarize_weights(weights: Array, cells: int) -> Summary:
    """Return the summary of a full array of weights `[... h t s]`."""
    rows, keys = (split_evenly(size, cells) for size in weights.shape[-2:])
    sums = np.add.reduceat(np.add.reduceat(weights, rows[:-1], axis=-2), keys[:-1], axis=-1)
    entropies = entropy(np.where(weights > 0, weights, 0))
    return make_summary(entropies, weights.max(axis=-1, initial=0), weights[..., :1].sum(axis=-1), sums, rows, keys)


def make_summary(entropies: Array, largest: Array, sink: Array, sums: Array, rows: Array, keys: Array) -> Summary:
    """Make a summary from statistics of each row, and from the total weight in each cell of the grid, `sums`."""
    heat = sums / (np.diff(rows)[:, None] * np.diff(keys))
    return Summary(entropies, np.exp(entropies), largest, sink, heat, rows, keys)


def split_evenly(size: int, limit: int) -> Array:
    """Return the edges of at most `limit` runs of nearly equal length."""
    count = min(size, limit)
    return np.arange(count + 1) * size // max(1, count)


@dataclass(frozen=True)
class Trace:
    """Every stage of one computation, in order; a stage that a form never computes is None.

    | stage | shape | meaning |
    | --- | --- | --- |
    | `q`, `k`, `v` | `[h t d]`, `[g s d]`, `[g s e]` | queries, keys, values, split into heads |
    | `scores` | `[h t s]` | `q k^T` |
    | `logits` | `[h t s]` | scores times the scale |
    | `capped` | `[h t s]` | logits after elementwise score rules, such as a soft-cap |
    | `masked` | `[h t s]` | capped plus biases, -inf for masked keys |
    | `weights` | `[h t s]` | the normalized logits; a row sums to 1, or to 0 if all keys are masked |
    | `lse` | `[h t]` | `log(sum_j exp(masked_j))`, needed to merge partial results |
    | `context` | `[h t e]` | `weights v`, per head |
    | `output` | `[t m]` | the heads side by side, times W_o if the variant has one |
    | `summary` | | a summary of the weights, from a form that never has all of them in memory |

    All stages may have a batch axis in front.
    """

    q: Array | None = None
    k: Array | None = None
    v: Array | None = None
    scores: Array | None = None
    logits: Array | None = None
    capped: Array | None = None
    masked: Array | None = None
    weights: Array | None = None
    lse: Array | None = None
    context: Array | None = None
    output: Array | None = None
    summary: Summary | None = None

    def replace(self, **stages: Any) -> Trace:
        return replace(self, **stages)

    def stages(self) -> Iterator[tuple[str, Array]]:
        """Yield the name and array of each stage that is present, in order."""
        for stage in fields(self):
            array = getattr(self, stage.name)
            if array is not None and stage.name != "summary":
                yield stage.name, array

    def as_stack(self) -> Trace:
        """Return this trace as a stack of one, every array `[1 ...]`."""
        return stack_traces([self])


def stack_traces(traces: Sequence[Trace]) -> Trace:
    names = {name for trace in traces for name, _ in trace.stages()}
    trace = Trace(**{name: stack_arrays([getattr(trace, name) for trace in traces]) for name in names})
    summaries = [trace.summary for trace in traces if trace.summary is not None]
    if not summaries:
        return trace
    arrays = {
        field.name: stack_arrays([getattr(summary, field.name) for summary in summaries]) for field in fields(Summary)
    }
    return trace.replace(summary=Summary(**arrays))


def stack_arrays(arrays: Sequence[Array | None]) -> Any:
    """Stack arrays of one shape; return None if there are none.

    Each array keeps its memory order. NumPy sums in this order, so it affects rounding.

    Raises:
        CannotStackError: the arrays differ in shape, dtype or strides.
    """
    present = [array for array in arrays if array is not None]
    if not present:
        return None
    if len(present) < len(arrays) or len({(array.shape, array.dtype, array.strides) for array in present}) > 1:
        raise CannotStackError
    if len(present) == 1:
        return present[0][None]
    order = order_in_memory(present[0])
    return np.stack([array.transpose(order) for array in present]).transpose(0, *(1 + np.argsort(order)))


def flatten_in_memory_order(arrays: Array) -> Array:
    """Flatten each array of a stack in memory order, `[n ...] -> [n k]`."""
    return arrays.transpose(0, *(1 + axis for axis in order_in_memory(arrays[0]))).reshape(len(arrays), -1)


def order_in_memory(array: Array) -> list[int]:
    return sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
