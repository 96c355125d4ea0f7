"""Few queries over many keys: the keys are shared out among threads, and the parts merged by their log-sum-exps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms._blocks import block
from attn_exp.forms._blocks.block import Sums
from attn_exp.forms._blocks.memory import lent
from attn_exp.forms._blocks.operands import Operands, reach, room
from attn_exp.forms._blocks.plain import finite
from attn_exp.forms._blocks.tasks import LEAST, Task, cuts

PIECES = 16
"""How many pieces few queries are cut into, whatever the number of threads: the answer does not depend on it."""

LONG = 1 << 13
"""The fewest keys of a piece, those of all its heads together: fewer are read before another thread has woken."""


class Job(NamedTuple):
    """A task and the keys of its that are looked at; all where None."""

    number: int
    task: Task
    keys: slice | None


def jobs(tasks: Sequence[Task], pieces: Sequence[slice | None] = (None,)) -> list[Job]:
    """Return a job for each piece of each task, those of a task in a row."""
    pairs = [(task, keys) for task in tasks for keys in pieces]
    return [Job(number, *pair) for number, pair in enumerate(pairs)]


def pieces(whole: Operands) -> Sequence[slice | None]:
    """Return the runs of keys that are worth a job of their own; one None where cutting heads and queries is enough."""
    shape, heads = whole.shape, max(1, whole.shape.batches * whole.shape.groups)
    if heads >= PIECES or not 0 < shape.rows <= LEAST or shape.keys * heads < 2 * LONG or whole.entire:
        return (None,)
    every = slice(0, shape.batches)
    seen = reach(whole, Task(every, slice(0, shape.groups), slice(0, shape.members), slice(0, shape.rows)))
    length = seen.some_stop - seen.some_start
    count = min(-(-PIECES // heads), length * heads // LONG)
    if count < 2:
        return (None,)
    size = -(-length // count)
    return [slice(seen.some_start + cut.start, seen.some_start + cut.stop) for cut in cuts(length, size)]


def merged(parts: Sequence[Sums]) -> Sums:
    """Return the sums over all keys from sums over some of them, `sum_i exp(anchor_i - top) sums_i`."""
    if all(part.anchor is None for part in parts):
        return Sums(
            added([part.context for part in parts]), added([part.total for part in parts]), None, parts[0].extra
        )
    anchors = [np.zeros_like(part.total) if part.anchor is None else part.anchor for part in parts]
    top = np.maximum.reduce(anchors)
    level = np.where(np.isneginf(top), 0, top)
    faded = [np.exp(anchor - level) for anchor in anchors]
    total = added([part.total * share for part, share in zip(parts, faded, strict=True)])
    context = added([part.context * share[..., None] for part, share in zip(parts, faded, strict=True)])
    return Sums(context, total, top, parts[0].extra)


def added(arrays: Sequence[Array]) -> Array:
    """Return the sum of arrays, from first to last."""
    return np.asarray(np.add.reduce(arrays))


def gather(whole: Operands, tasks: Sequence[Task], parts: Sequence[Sums], context: Array, lse: Array) -> None:
    """Write the answer of tasks whose keys were worked on in pieces, `parts` in the order of `jobs`.

    Where parts that are finite come to a sum that is not, the task is done again as one.
    """
    count = len(parts) // len(tasks)
    with np.errstate(all="ignore"):
        for number, task in enumerate(tasks):
            sums = merged(parts[number * count : (number + 1) * count])
            if not finite(sums.context):
                with lent() as memory:
                    sums = block.safe(block.cut(whole, task, room(whole, memory)))
            finish(sums, context[task], lse[task])


def finish(sums: Sums, context: Array, lse: Array) -> None:
    """Write a block's part of the answer: `context / total` and `anchor + log(total)`.

    A logit without a key has its share of the total, and none of the log-sum-exp.
    """
    np.log(sums.total, out=lse)
    if sums.anchor is None:
        total = sums.total if sums.extra is None else sums.total + np.exp(sums.extra)
        np.divide(sums.context, total[..., None], out=context)
        return
    lse += sums.anchor
    if sums.extra is None:
        np.divide(sums.context, np.maximum(sums.total, np.finfo(lse.dtype).tiny)[..., None], out=context)
        return
    top = np.maximum(sums.anchor, sums.extra)
    faded = np.exp(sums.anchor - top)
    np.multiply(sums.context, (faded / (sums.total * faded + np.exp(sums.extra - top)))[..., None], out=context)
