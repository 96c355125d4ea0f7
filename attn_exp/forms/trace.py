"""The named stages of one attention computation, or of many that stand on a first axis: a stack."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_exp.arrays import widen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attn_exp.arrays import Array


class ApartError(Exception):
    """These problems do not go together; each is computed alone."""


@dataclass(frozen=True)
class Summary:
    """What the weights look like, from a form that never has them whole.

    Of each row `[h t]`: the `entropy` in nats, `effective_keys` = exp(entropy), the `largest_weight`, and the
    `sink_mass`, which is the weight of key 0. `heat` `[h a c]` holds the mean weight of every cell of a coarse grid
    whose runs of queries and keys begin and end at `row_edges` `[a+1]` and `key_edges` `[c+1]`.
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

    Source: Shannon 1948; of attention rows, Clark et al. 2019, "What Does BERT Look At?", section 3.3.
    """
    weights = widen(weights)
    logs = np.log(weights, where=weights > 0, out=np.zeros_like(weights))
    return np.asarray(-(weights * logs).sum(axis=-1))


@dataclass(frozen=True)
class Trace:
    """Every stage of one computation, in order; None where a form never forms it.

    | stage | shape | meaning |
    | --- | --- | --- |
    | `q`, `k`, `v` | `[h t d]`, `[g s d]`, `[g s e]` | queries, keys, values, split into heads |
    | `scores` | `[h t s]` | `q k^T` |
    | `logits` | `[h t s]` | scores times the scale |
    | `capped` | `[h t s]` | logits after rules that bend each logit by itself, such as a soft-cap |
    | `masked` | `[h t s]` | capped plus biases, -inf where no query may look |
    | `weights` | `[h t s]` | the normalized logits; a row sums to 1, or to 0 where all is masked |
    | `lse` | `[h t]` | `log(sum_j exp(masked_j))`: what merges parts of an answer |
    | `context` | `[h t e]` | `weights v`, per head |
    | `output` | `[t m]` | the heads side by side, times W_o where the variant has one |
    | `summary` | | what the weights look like, where a form was asked for that instead of them |

    A leading batch axis is allowed on all of them.
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
        """Return this trace with some stages exchanged."""
        return replace(self, **stages)

    def stages(self) -> Iterator[tuple[str, Array]]:
        """Yield the name and array of each stage that was formed, in order."""
        for stage in fields(self):
            array = getattr(self, stage.name)
            if array is not None and stage.name != "summary":
                yield stage.name, array

    def as_stack(self) -> Trace:
        """Return this trace as a stack of one, every array `[1 ...]`."""
        stages = {name: array[None] for name, array in self.stages()}
        if self.summary is None:
            return self.replace(**stages)
        arrays = {field.name: getattr(self.summary, field.name)[None] for field in fields(Summary)}
        return self.replace(**stages, summary=Summary(**arrays))


def pile_traces(traces: Sequence[Trace]) -> Trace:
    """Return traces of one problem each as a stack."""
    names = {name for trace in traces for name, _ in trace.stages()}
    trace = Trace(**{name: pile([getattr(trace, name) for trace in traces]) for name in names})
    summaries = [trace.summary for trace in traces if trace.summary is not None]
    if not summaries:
        return trace
    arrays = {field.name: pile([getattr(one, field.name) for one in summaries]) for field in fields(Summary)}
    return trace.replace(summary=Summary(**arrays))


def pile(arrays: Sequence[Array | None]) -> Any:
    """Return arrays of one shape one above the other, each as it lies in memory; None where there are none.

    Sums over an array go in the order of its memory.

    Raises:
        ApartError: they have several shapes or types, or lie there in several ways.
    """
    there = [array for array in arrays if array is not None]
    if not there:
        return None
    if len(there) < len(arrays) or len({(array.shape, array.dtype, array.strides) for array in there}) > 1:
        raise ApartError
    order = order_in_memory(there[0])
    return np.stack([array.transpose(order) for array in there]).transpose(0, *(1 + np.argsort(order)))


def as_they_lie(arrays: Array) -> Array:
    """Return the numbers of each of many arrays `[n ...] -> [n k]`, in the order in which they lie in memory."""
    return arrays.transpose(0, *(1 + axis for axis in order_in_memory(arrays[0]))).reshape(len(arrays), -1)


def order_in_memory(array: Array) -> list[int]:
    """Return the axes of an array from the one of the largest steps in memory to that of the smallest."""
    return sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
