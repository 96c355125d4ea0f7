"""One block of the output: logits of some queries and runs of keys, their exponentials, and weighted sums of values.

Tiles of logits are stored keys first, `[b g r s t]`: the BLAS computes `k q^T` faster than `q k^T` if the
head size is small, and sums and maxima over keys run along contiguous rows of memory.

Normalizers other than softmax, and a softmax rounded to its own dtype, need blocks of whole rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms._blocks.operands import (
    Block,
    Operands,
    Scratch,
    compute_allowed,
    compute_bias,
    compute_extra_logits,
    find_span,
    get_mask_pattern,
    join_columns,
    merge_extra_logits,
    split_columns,
)
from attn_exp.forms._blocks.plain import all_finite, keeps_precision
from attn_exp.forms._blocks.tasks import LEAST_ROWS, Run, Shape, Task, cut_runs
from attn_exp.forms.steps import weighted_sums
from attn_exp.forms.trace import Summary, entropy, make_summary, split_evenly
from attn_exp.rules.masks.mask import Span, intersect_spans
from attn_exp.rules.scores.score import Score

PIECE = 1 << 17
"""Number of logits transformed at a time, so that a rule's temporaries stay in the cache."""


class Sums(NamedTuple):
    """Running sums of a block over the powers `p_ij = exp(logit_ij - anchor_i)`.

    - `context`: `sum_j p_ij v_j`, `[b g r t e]`.
    - `total`: `sum_j p_ij`, `[b g r t]`.
    - `anchor`: what is subtracted from the logits of each row, `[b g r t]`. It is None if all anchors are 0 and no
      total is 0.
    - `extra`: the logit without a key, `[g r 1]`, which the sums exclude; None if there is none.
    """

    context: Array
    total: Array
    anchor: Any
    extra: Any = None


def cut_block(operands: Operands, task: Task, scratch: Scratch, keys: slice | None = None) -> Block:
    """Return the part of the operands that a task needs, restricted to `keys` if given."""
    queries = operands.q[task]
    # several query heads share the keys, and the task has all of their few queries
    joined = queries.shape[2] > 1 and queries.shape[3] == operands.shape.rows <= LEAST_ROWS
    q = scale_queries(queries, operands.rules.scale, joined, scratch)
    span = find_span(operands, task)
    span = span if keys is None else intersect_spans([span, Span(keys.start, keys.stop, keys.start, keys.stop)])
    return Block(operands, task, q, operands.k[task[:2]], operands.v[task[:2]], span, scratch, joined)


def scale_queries(queries: Array, scale: float, joined: bool, scratch: Scratch) -> Array:
    """Return scaled queries `[b g r d t]`; few queries get the memory order that is fastest for the BLAS."""
    # in memory: [b g d r t] if joined, [b g r d t] for few queries, otherwise [b g r t d]
    order = (0, 1, 4, 2, 3) if joined else (0, 1, 2, 4, 3) if queries.shape[3] <= LEAST_ROWS else (0, 1, 2, 3, 4)
    transposed = queries.transpose(order)
    q = scratch.memory.array(transposed.shape, queries.dtype)
    np.multiply(transposed, queries.dtype.type(scale), out=q)
    return q.swapaxes(2, 3) if joined else q if queries.shape[3] <= LEAST_ROWS else q.mT


def compute_logits(block: Block, run: Run, after: Callable[..., Array] | None = None) -> Array:
    """Return the scaled logits of a run of keys `[b g r s t]`, after score rules, in the scratch tile.

    `after` is a last elementwise step, such as `np.exp`. If rules bend logits and none adds a bias, it is applied piece
    by piece, while a piece is still in the cache.
    """
    shape = (*block.q.shape[:-2], run.stop - run.start, block.q.shape[-1])
    flat, keys = block.scratch.tile[: prod(shape)], block.k[..., run.start : run.stop, :]
    if block.joined:
        q = join_columns(block.q)
        tile = split_columns(np.matmul(keys, q, out=flat.reshape(*shape[:2], 1, shape[3], q.shape[-1])), shape[2])
    else:
        tile = np.matmul(keys, block.q, out=flat.reshape(shape))
    bends = [rule.bend for rule in block.whole.rules.scores if type(rule).bend is not Score.bend]
    biases = [bias for rule in block.whole.rules.scores if (bias := compute_bias(rule, block, run)) is not None]
    if bends:
        bend(flat, bends, after if not biases else None)
    for bias in biases:
        tile += bias
    if after is not None and (biases or not bends):
        after(flat, out=flat)
    return tile


def bend(flat: Array, bends: Sequence[Callable[[Any], Any]], after: Callable[..., Array] | None) -> None:
    for start in range(0, flat.size, PIECE):
        piece = bent = flat[start : start + PIECE]
        for rule in bends:
            bent = rule(bent)
        if after is None:
            piece[...] = bent
        else:
            after(bent, out=piece)


def forbid(block: Block, run: Run, tile: Array) -> None:
    for start, stop in run.masked:
        part = tile[..., start - run.start : stop - run.start, :]
        np.copyto(part, -np.inf, where=~compute_allowed(block, Run(start, stop)))


def zero_masked(block: Block, run: Run, powers: Array) -> None:
    """Multiply a tile of powers by 0 wherever a mask hides a key.

    If a power is infinite, the product is NaN, which `compute_sums` detects.
    """
    for start, stop in run.masked:
        part = powers[..., start - run.start : stop - run.start, :]
        part *= get_mask_pattern(block, start, stop)


def sum_quickly(block: Block, context: Array) -> Sums:
    """Return the sums with all anchors 0, and write their context into `context`.

    The sums are correct if nothing overflows or underflows, which `compute_sums` checks.
    """
    total, run_context = None, None
    columns, (members, rows) = block.q.shape[-1], context.shape[2:4]
    out = context
    if block.joined:
        columns = members * rows
        out = context.reshape(*context.shape[:2], 1, columns, context.shape[-1])
    for run in cut_runs(block.span, block.whole.shape.keys_at_once(columns, block.q.shape[-2])):
        powers = compute_logits(block, run, after=np.exp)
        zero_masked(block, run, powers)
        powers = join_columns(powers) if block.joined else powers
        run_total = block.scratch.ones[: powers.shape[-2]] @ powers
        if total is None:
            total = run_total
            np.matmul(powers.mT, block.v[..., run.start : run.stop, :], out=out)
        else:
            total += run_total
            run_context = block.scratch.memory.array(out.shape, out.dtype) if run_context is None else run_context
            out += np.matmul(powers.mT, block.v[..., run.start : run.stop, :], out=run_context)
    if total is None:
        return empty_sums(block)
    return Sums(
        context,
        total.reshape(context.shape[:-1]),
        None,
        merge_extra_logits(block) if block.whole.rules.scores else None,
    )


def empty_sums(block: Block) -> Sums:
    queries = (*block.q.shape[:-2], block.q.shape[-1])
    return Sums(
        np.zeros((*queries, block.v.shape[-1]), block.q.dtype),
        np.zeros(queries, block.q.dtype),
        np.full(queries, -np.inf, block.q.dtype),
        merge_extra_logits(block),
    )


def sum_safely(block: Block) -> Sums:
    """Return the sums; neither the exponentials nor the sums of values overflow, unless the result itself does."""
    sums = sum_online(block)
    return sums if np.isfinite(sums.context).all() else sum_divided(block)


def sum_divided(block: Block) -> Sums:
    """Return sums that are already divided by their total.

    A context is an average of values, so it can be finite even if their sum is not. The values are therefore scaled
    down while they are added.
    """
    factor = block.v.dtype.type(2.0 ** -block.whole.shape.keys.bit_length())
    sums = sum_online(replace(block, v=block.v * factor))
    total = np.where(sums.total == 0, 1, sums.total)
    context = sums.context / total[..., None] / factor
    return Sums(context, np.ones_like(total), sums.anchor + np.log(total), sums.extra)


def sum_online(block: Block) -> Sums:
    """Return the sums anchored at each row's largest logit, rescaled whenever a larger one appears (online softmax).

    Source: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax".
    """
    context, total, anchor, extra = empty_sums(block)
    for run, tile, anchor, log_factor in anchor_runs(block):  # noqa: B007 - the last anchor belongs to the sums
        powers, factor = np.exp(tile, out=tile), np.exp(log_factor)
        total = total * factor + powers.sum(axis=-2)
        context = context * factor[..., None] + weighted_sums(powers.mT, block.v[..., run.start : run.stop, :])
    return Sums(context, total, anchor, extra)


def anchor_runs(block: Block) -> Iterator[tuple[Run, Array, Array, Array]]:
    """Yield each run of keys, its masked logits minus the anchor, the anchor, and the log of a factor.

    The anchor is the largest logit of each row so far. If it is -inf, 0 is subtracted instead. The factor rescales the
    sums over earlier runs to the new anchor.
    """
    anchor = empty_sums(block).anchor
    for run in cut_runs(block.span, block.whole.shape.tile_keys):
        tile = compute_logits(block, run)
        forbid(block, run, tile)
        earlier_anchor, anchor = anchor, np.maximum(anchor, tile.max(axis=-2))
        subtracted = np.where(np.isneginf(anchor), 0, anchor)
        tile -= subtracted[..., None, :]
        yield run, tile, anchor, earlier_anchor - subtracted


def compute_sums(block: Block, context: Array) -> Sums:
    """Return the sums, computed quickly, or safely if precision was lost; `context` is memory for the quick context."""
    sums = sum_quickly(block, context)
    return sums if keeps_precision(sums.total) and all_finite(sums.context) else sum_safely(block)


def compute_whole_logits(block: Block) -> Array:
    """Return the masked logits of whole rows `[b g r t s]`, in the dtype that the rules set."""
    keys = block.whole.shape.keys
    run = Run(0, keys, ((0, keys),))
    tile = compute_logits(block, run)
    forbid(block, run, tile)
    return tile.mT.astype(block.whole.softmax_dtype, copy=False)


def weigh(block: Block, masked: Array) -> Array:
    """Return the weights of masked logits, for any normalizer."""
    extra = compute_extra_logits(block)
    extra_logits = None if extra is None else extra.astype(masked.dtype)
    return block.whole.rules.normalizer.weigh(masked, extra_logits).astype(block.q.dtype, copy=False)


def compute_whole_rows(block: Block) -> tuple[Array, Sums]:
    """Return the weights of whole rows, and sums that are already divided by their total."""
    masked = compute_whole_logits(block)
    weights = weigh(block, masked)
    return weights, make_finished_sums(block, masked, weighted_sums(weights, block.v))


def make_finished_sums(block: Block, masked: Array, context: Array) -> Sums:
    """Return a finished context as sums with a total of 1; for softmax the anchor is the log-sum-exp."""
    total = np.ones(context.shape[:-1], context.dtype)
    if not block.whole.rules.normalizer.exponential:
        return Sums(context, total, None)
    top = masked.max(axis=-1, initial=-np.inf)
    powers = np.exp(masked - np.where(np.isneginf(top), 0, top)[..., None])
    return Sums(context, total, np.log(powers.sum(axis=-1)) + top)


class RowStatistics(NamedTuple):
    """Statistics of the weights of each row.

    - `entropy`: in nats, `[b g r t]`.
    - `largest`: the largest weight, `[b g r t]`.
    - `sink`: the weight of key 0, `[b g r t]`.
    - `cells`: the weights summed over each run of keys of the heat map, `[b g r t c]`.
    """

    entropy: Array
    largest: Array
    sink: Array
    cells: Array


def summarize_block(block: Block, key_edges: Array) -> tuple[Sums, RowStatistics]:
    """Return the sums of a block, as `sum_safely` does, and the statistics of its weights.

    With `x_j = logit_j - anchor`, the entropy is `log(total) - sum_j p_j x_j / total`. So the moment `sum_j p_j x_j` is
    summed too. Like the other sums, it is rescaled when the anchor grows.
    """
    if block.whole.entire:
        weights, sums = compute_whole_rows(block)
        cells = bin_powers(weights.mT, Run(0, block.whole.shape.keys), key_edges)
        return sums, RowStatistics(
            entropy(weights), weights.max(axis=-1, initial=0), weights[..., :1].sum(axis=-1), cells
        )
    context, total, anchor, extra = empty_sums(block)
    moment, first_key = total, total
    cells_so_far = np.zeros((*total.shape, len(key_edges) - 1), total.dtype)
    for run, tile, anchor, log_factor in anchor_runs(block):  # noqa: B007 - the last anchor belongs to the sums
        powers, finite_log_factor = np.exp(tile), np.maximum(log_factor, np.finfo(tile.dtype).min)
        factor = np.exp(finite_log_factor)
        np.maximum(tile, np.finfo(tile.dtype).min, out=tile)  # -inf times a power of 0 would be NaN
        np.multiply(tile, powers, out=tile)
        moment = factor * (moment + finite_log_factor * total) + tile.sum(axis=-2)
        total = total * factor + powers.sum(axis=-2)
        context = context * factor[..., None] + weighted_sums(powers.mT, block.v[..., run.start : run.stop, :])
        first_key = first_key * factor + (powers[..., 0, :] if run.start == 0 else 0)
        cells_so_far = cells_so_far * factor[..., None] + bin_powers(powers, run, key_edges)
    sums = Sums(context, total, anchor, extra)
    row_statistics = divide_by_total(sums, moment, first_key, cells_so_far)
    return sums if np.isfinite(context).all() else sum_divided(block), row_statistics


def divide_by_total(sums: Sums, moment: Array, first_key: Array, cells: Array) -> RowStatistics:
    """Divide the sums of each row by its total, in which the extra logit counts if there is one."""
    anchor = np.where(np.isneginf(sums.anchor), 0, sums.anchor)
    top = anchor if sums.extra is None else np.maximum(sums.anchor, sums.extra)
    log_factor = np.maximum(sums.anchor - top, np.finfo(moment.dtype).min)
    factor = np.exp(log_factor)
    total = sums.total * factor
    whole_total = np.where(total == 0, 1, total) if sums.extra is None else total + np.exp(sums.extra - top)
    entropy = (np.log(whole_total) * total - factor * (moment + log_factor * sums.total)) / whole_total
    largest = np.where(sums.total == 0, 0, factor / whole_total)
    return RowStatistics(
        entropy, largest, first_key * factor / whole_total, cells * factor[..., None] / whole_total[..., None]
    )


def bin_powers(powers: Array, run: Run, key_edges: Array) -> Array:
    """Return the sums of powers `[b g r s t]` over the keys between neighbouring edges, `[b g r t c]`."""
    cells = np.zeros((*powers.shape[:-2], powers.shape[-1], len(key_edges) - 1), powers.dtype)
    for cell in range(np.searchsorted(key_edges, run.start, "right") - 1, np.searchsorted(key_edges, run.stop)):
        keys = slice(max(key_edges[cell] - run.start, 0), key_edges[cell + 1] - run.start)
        cells[..., cell] = powers[..., keys, :].sum(axis=-2)
    return cells


class SummaryBuilder:
    """Collects the statistics of all blocks into a summary; threads write disjoint parts."""

    def __init__(self, shape: Shape, most: int, dtype: np.dtype[Any]) -> None:
        self.heads = (shape.batches, shape.groups, shape.members)
        self.rows, self.keys = split_evenly(shape.rows, most), split_evenly(shape.keys, most)
        self.row_statistics = np.empty((3, *self.heads, shape.rows), dtype)
        self.parts: list[tuple[Task, Array]] = []

    def add(self, task: Task, statistics: RowStatistics) -> None:
        self.row_statistics[(slice(None), *task)] = statistics[:3]
        starts = np.maximum(self.rows[self.find_cells(task)] - task.rows.start, 0)
        self.parts.append((task, np.add.reduceat(statistics.cells.astype(np.float64), starts, axis=-2)))

    def find_cells(self, task: Task) -> slice:
        rows = task.rows
        return slice(np.searchsorted(self.rows, rows.start, "right") - 1, np.searchsorted(self.rows, rows.stop))

    def summary(self, heads: tuple[int, ...]) -> Summary:
        """Return the summary with the caller's head axes, `[... h]`.

        Parts are added in row order, so the result does not depend on thread timing.
        """
        sums = np.zeros((*self.heads, len(self.rows) - 1, len(self.keys) - 1))
        for task, part in sorted(self.parts, key=lambda pair: pair[0].rows.start):
            sums[(*task[:3], self.find_cells(task))] += part
        entropies, largest, sink = self.row_statistics.reshape(3, *heads, self.row_statistics.shape[-1])
        return make_summary(entropies, largest, sink, sums.reshape(*heads, *sums.shape[-2:]), self.rows, self.keys)
