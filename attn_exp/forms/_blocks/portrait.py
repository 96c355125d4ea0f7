"""Summaries of the weights of a block, accumulated while they are computed; the full matrix is never formed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms._blocks.block import Sums, divided, forbid, logits, mix, nothing, summed, weighed, whole_logits
from attn_exp.forms._blocks.operands import Block
from attn_exp.forms._blocks.tasks import Run, Shape, Task, runs
from attn_exp.forms.trace import Summary, entropy

CELLS = 128
"""Rows and columns of a heat map: the resolution of a page-wide figure."""


class Portrait(NamedTuple):
    """Statistics of each row `[b g r t]`, and `cells` `[b g r t c]`: its weights summed over runs of keys."""

    entropy: Array
    largest: Array
    sink: Array
    cells: Array


def summary_of(weights: Array, most: int) -> Summary:
    """Return the summary of a full array of weights `[... h t s]`."""
    rows, keys = (edges(size, most) for size in weights.shape[-2:])
    sums = np.add.reduceat(np.add.reduceat(weights, rows[:-1], axis=-2), keys[:-1], axis=-1)
    entropies = entropy(np.where(weights > 0, weights, 0))
    return Summary(
        entropy=entropies,
        effective_keys=np.exp(entropies),
        largest_weight=weights.max(axis=-1, initial=0),
        sink_mass=weights[..., :1].sum(axis=-1),
        heat=sums / (np.diff(rows)[:, None] * np.diff(keys)),
        row_edges=rows,
        key_edges=keys,
    )


def edges(size: int, most: int) -> Array:
    """Return the edges of at most `most` runs of nearly equal length."""
    count = min(size, most)
    return np.arange(count + 1) * size // max(1, count)


def portray(block: Block, marks: Array) -> tuple[Sums, Portrait]:
    """Return the sums of a block, as `block.safe` does, and the portrait of its weights.

    With `x_j = logit_j - anchor` the entropy is `log(total) - sum_j p_j x_j / total`, so that besides the sums only
    `sum_j p_j x_j` is accumulated, and rescaled with them as the anchor grows.
    """
    if block.whole.entire:
        return portray_whole(block, marks)
    context, total, anchor, extra = nothing(block)
    moment, first = total, total
    coarse = np.zeros((*total.shape, len(marks) - 1), total.dtype)
    for run in runs(block.span, block.whole.shape.tile_keys):
        tile = logits(block, run)
        forbid(block, run, tile)
        old, anchor = anchor, np.maximum(anchor, tile.max(axis=-2))
        level = np.where(np.isneginf(anchor), 0, anchor)
        tile -= level[..., None, :]
        powers, step = np.exp(tile), np.maximum(old - level, np.finfo(tile.dtype).min)
        faded = np.exp(step)
        np.maximum(tile, np.finfo(tile.dtype).min, out=tile)  # -inf times a power of 0 would be NaN
        tile *= powers
        moment = faded * (moment + step * total) + tile.sum(axis=-2)
        total = total * faded + powers.sum(axis=-2)
        context = context * faded[..., None] + mix(powers, block.v[..., run.start : run.stop, :])
        first = first * faded + (powers[..., 0, :] if run.start == 0 else 0)
        coarse = coarse * faded[..., None] + bin_powers(powers, run, marks)
    sums = Sums(context, total, anchor, extra)
    portrait = divide_by_total(sums, moment, first, coarse)
    return sums if np.isfinite(context).all() else divided(block), portrait


def divide_by_total(sums: Sums, moment: Array, first: Array, coarse: Array) -> Portrait:
    level = np.where(np.isneginf(sums.anchor), 0, sums.anchor)
    top = level if sums.extra is None else np.maximum(sums.anchor, sums.extra)
    step = np.maximum(sums.anchor - top, np.finfo(moment.dtype).min)
    faded = np.exp(step)
    total = sums.total * faded
    whole = np.where(total == 0, 1, total) if sums.extra is None else total + np.exp(sums.extra - top)
    entropy = (np.log(whole) * total - faded * (moment + step * sums.total)) / whole
    largest = np.where(sums.total == 0, 0, faded / whole)
    return Portrait(entropy, largest, first * faded / whole, coarse * faded[..., None] / whole[..., None])


def bin_powers(powers: Array, run: Run, marks: Array) -> Array:
    """Sum powers `[b g r s t]` over each run of keys between edges, `[b g r t c]`."""
    coarse = np.zeros((*powers.shape[:-2], powers.shape[-1], len(marks) - 1), powers.dtype)
    for cell in range(np.searchsorted(marks, run.start, "right") - 1, np.searchsorted(marks, run.stop)):
        inside = slice(max(marks[cell] - run.start, 0), marks[cell + 1] - run.start)
        coarse[..., cell] = powers[..., inside, :].sum(axis=-2)
    return coarse


def portray_whole(block: Block, marks: Array) -> tuple[Sums, Portrait]:
    masked = whole_logits(block)
    weights = weighed(block, masked)
    context = mix(weights.mT, block.v)
    portrait = Portrait(
        entropy=entropy(weights),
        largest=weights.max(axis=-1, initial=0),
        sink=weights[..., :1].sum(axis=-1),
        cells=bin_powers(weights.mT, Run(0, block.whole.shape.keys), marks),
    )
    return summed(block, masked, context), portrait


class Gallery:
    """The portraits of all blocks; threads write disjoint parts."""

    def __init__(self, shape: Shape, most: int, dtype: np.dtype[Any]) -> None:
        self.heads = (shape.batches, shape.groups, shape.members)
        self.rows, self.keys = edges(shape.rows, most), edges(shape.keys, most)
        self.entropy, self.largest, self.sink = (np.empty((*self.heads, shape.rows), dtype) for _ in range(3))
        self.parts: list[tuple[Task, Array]] = []

    def hang(self, task: Task, portrait: Portrait) -> None:
        self.entropy[task], self.largest[task], self.sink[task] = portrait[:3]
        starts = np.maximum(self.rows[self.touched(task)] - task.rows.start, 0)
        self.parts.append((task, np.add.reduceat(portrait.cells.astype(np.float64), starts, axis=-2)))

    def touched(self, task: Task) -> slice:
        rows = task.rows
        return slice(np.searchsorted(self.rows, rows.start, "right") - 1, np.searchsorted(self.rows, rows.stop))

    def heat(self) -> Array:
        """Return the mean weight of every cell `[b g r a c]`.

        Parts are added in row order, so the result does not depend on thread timing.
        """
        heat = np.zeros((*self.heads, len(self.rows) - 1, len(self.keys) - 1))
        for task, part in sorted(self.parts, key=lambda pair: pair[0].rows.start):
            heat[(*task[:3], self.touched(task))] += part
        return np.asarray(heat / (np.diff(self.rows)[:, None] * np.diff(self.keys)))

    def summary(self, heads: tuple[int, ...]) -> Summary:
        """Return the summary with the caller's head axes, `[... h]`."""
        entropy, largest, sink = (
            array.reshape(*heads, array.shape[-1]) for array in (self.entropy, self.largest, self.sink)
        )
        heat = self.heat()
        return Summary(
            entropy=entropy,
            effective_keys=np.exp(entropy),
            largest_weight=largest,
            sink_mass=sink,
            heat=heat.reshape(*heads, *heat.shape[-2:]),
            row_edges=self.rows,
            key_edges=self.keys,
        )
