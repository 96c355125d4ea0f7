"""Attention in blocks of queries, on several threads, without ever forming the whole matrix."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from attn_exp import registry
from attn_exp.arrays import Array
from attn_exp.forms._blocks import block, tasks
from attn_exp.forms._blocks.block import SummaryBuilder, Sums, compute_whole_rows, summarize_block
from attn_exp.forms._blocks.operands import Operands, Scratch, allocate_scratch, find_span, lend_memory, rows_per_task
from attn_exp.forms._blocks.plain import LOGITS_PER_KEY_READ, all_finite
from attn_exp.forms._blocks.tasks import LEAST_ROWS, Task, cut_range
from attn_exp.forms._blocks.threads import default_threads, one_blas_thread, run_together
from attn_exp.forms.form import Form
from attn_exp.forms.trace import CELLS, Trace
from attn_exp.rules.rules import Rules

# `attend` cuts the problem into tasks: some heads and some queries. A job is a task with all keys, or with a run of
# keys if queries are few. Threads compute the sums of each job. The sums of a task, merged if necessary, give its part
# of the output.

Tell = Callable[[float], None] | None
"""A function that receives the fraction done; several threads call it."""

LOGITS_PER_THREAD = 1 << 16
"""If each thread had fewer logits to compute than this, fewer threads would be faster."""


def attend(  # noqa: PLR0913 - four operands, and this form's own settings by keyword
    q: Array,
    k: Array,
    v: Array | None,
    rules: Rules,
    *,
    threads: int | None = None,
    rows: int | None = None,
    cells: int | None = None,
    tell: Tell = None,
) -> Trace:
    """Compute the same function as `matrix`; only the context and, for softmax, the log-sum-exp are formed.

    `q` `[... h t d]`, `k` `[... g s d]`, `v` `[... g s e]`, with or without a batch axis. Half precision is computed in
    float32 and rounded once.

    - `threads`: the number of threads; by default, the usable cores if the problem is large enough.
    - `rows`: the maximum number of queries in a block; by default, fewer if a mask lets blocks skip keys.
    - `cells`: adds a summary of the weights, with a heat map of at most `cells` by `cells`.
    - `tell`: a function that receives the fraction done.

    Source: Rabe and Staats 2021, "Self-attention Does Not Need O(n^2) Memory"; Dao et al. 2022, "FlashAttention".
    """
    operands = make_operands(q, k, v, rules)
    is_softmax = rules.normalizer.exponential
    context = np.empty((*operands.q.shape[:-1], operands.v.shape[-1]), operands.q.dtype)
    lse = np.empty(operands.q.shape[:-1], operands.q.dtype)
    summary_builder = None if cells is None else SummaryBuilder(operands.shape, cells, lse.dtype)
    keys = split_keys(operands) if summary_builder is None else (None,)
    partials = {}

    def work(job: Job, scratch: Scratch) -> None:
        part, answer = block.cut_block(operands, job.task, scratch, job.keys), context[job.task]
        if summary_builder is not None:
            sums, row_statistics = summarize_block(part, summary_builder.keys)
            summary_builder.add(job.task, row_statistics)
        elif operands.entire:
            _, sums = compute_whole_rows(part)
        else:
            sums = block.compute_sums(part, answer if job.keys is None else np.empty_like(answer))
        if job.keys is None:
            write_output(sums, answer, lse[job.task])
        else:
            partials[job.number] = sums

    whole_tasks = cut_tasks(
        operands.shape, threads, rows_per_task(operands) if rows is None else rows, operands.entire, len(keys)
    )
    run_jobs(work, make_jobs(whole_tasks, keys), operands, threads, tell)
    if partials:
        write_merged_output(operands, whole_tasks, [partials[number] for number in range(len(partials))], context, lse)
    dtype = np.result_type(*(array for array in (q, k, v) if array is not None))
    return Trace(
        q=q,
        k=k,
        v=v,
        lse=lse.reshape(q.shape[:-1]).astype(dtype, copy=False) if is_softmax else None,
        context=None if v is None else context.reshape(*q.shape[:-1], v.shape[-1]).astype(dtype, copy=False),
        summary=None if summary_builder is None else summary_builder.summary(q.shape[:-2]),
    )


def complete(q: Array, k: Array, v: Array | None, rules: Rules, tell: Tell = None) -> Trace:
    """Compute what `attend` computes, and the full matrix of weights `[... h t s]`, a block of rows at a time."""
    operands = make_operands(q, k, v, rules)
    weights = np.empty((*operands.q.shape[:-1], k.shape[-2]), operands.q.dtype)

    def work(job: Job, scratch: Scratch) -> None:
        part = block.cut_block(operands, job.task, scratch)
        weights[job.task] = block.weigh(part, block.compute_whole_logits(part))

    jobs = make_jobs(cut_tasks(operands.shape, None, tasks.ROWS, entire=True))
    run_jobs(work, jobs, operands, None, tell, entire=True)
    full_weights = weights.reshape(*q.shape[:-1], k.shape[-2]).astype(np.result_type(q, k), copy=False)
    return attend(q, k, v, rules).replace(weights=full_weights)


def make_operands(q: Array, k: Array, v: Array | None, rules: Rules) -> Operands:
    v = np.empty((*k.shape[:-1], 0), k.dtype) if v is None else v
    dtype = np.result_type(q, k, v, rules.softmax_dtype or np.float32, np.float32)
    batches, heads, groups = (q.shape[0] if q.ndim == 4 else 1), q.shape[-3], k.shape[-3]
    shape = tasks.Shape(batches, groups, heads // groups, q.shape[-2], k.shape[-2], dtype.itemsize)

    def grouped(array: Array, members: int) -> Array:
        return array.reshape(batches, groups, members, *array.shape[-2:]).astype(dtype, copy=False)

    return Operands(grouped(q, shape.members), grouped(k, 1), grouped(v, 1), rules, shape)


def count_threads(shape: tasks.Shape, threads: int | None) -> int:
    """Return the number of threads: `threads`, or by default as many as make the computation faster.

    With few queries, reading the keys takes most of the time, so the cost includes it.
    """
    cost_in_logits = shape.logits + LOGITS_PER_KEY_READ * shape.batches * shape.groups * shape.keys
    return min(default_threads(), max(1, cost_in_logits // LOGITS_PER_THREAD)) if threads is None else threads


def cut_tasks(shape: tasks.Shape, threads: int | None, rows: int, entire: bool, pieces_per_task: int = 1) -> list[Task]:
    """Cut a problem into enough tasks to occupy all threads; each task is then split into `pieces_per_task` jobs."""
    count = count_threads(shape, threads)
    parts = count if rows >= tasks.ROWS or count == 1 else 2 * count  # blocks that skip keys have unequal work
    return tasks.make_tasks(shape, -(-parts // pieces_per_task), rows, entire)


def run_jobs(
    work: Callable[[Job, Scratch], None],
    jobs: Sequence[Job],
    operands: Operands,
    threads: int | None,
    tell: Tell = None,
    entire: bool = False,
) -> None:
    """Run jobs on several threads, each with its own buffers; with `entire`, the buffers have room for whole rows."""
    finished = count(1)

    def work_through(own_jobs: Iterator[Job]) -> None:
        with np.errstate(all="ignore"), lend_memory() as memory:  # each thread starts with NumPy's defaults
            scratch = allocate_scratch(operands, memory, entire)
            used_by_scratch = memory.used
            for job in own_jobs:
                work(job, scratch)
                memory.used = used_by_scratch
                if tell is not None:
                    tell(next(finished) / len(jobs))

    with one_blas_thread(count_threads(operands.shape, threads), insist=threads is not None) as granted:
        return run_together(work_through, jobs, granted)


# Few queries over many keys: keys are split among threads, and partial sums merged by their log-sum-exps

KEY_PIECES = 16
"""Number of runs of keys for few queries; it is fixed, so that results do not depend on the number of threads."""

LEAST_KEYS_PER_PIECE = 1 << 13
"""Minimum number of keys in a run, over all heads: reading fewer keys takes less time than waking a thread."""


class Job(NamedTuple):
    """A unit of work for one thread.

    - `number`: the index of the job.
    - `task`: the heads and queries to process.
    - `keys`: the run of keys to process; None for all keys.
    """

    number: int
    task: Task
    keys: slice | None


def make_jobs(tasks: Sequence[Task], pieces: Sequence[slice | None] = (None,)) -> list[Job]:
    pairs = [(task, keys) for task in tasks for keys in pieces]
    return [Job(number, *pair) for number, pair in enumerate(pairs)]


def split_keys(operands: Operands) -> Sequence[slice | None]:
    """Return the runs of keys that each task is split into; a single None means that no task needs to be split."""
    shape, heads = operands.shape, max(1, operands.shape.batches * operands.shape.groups)
    if (
        heads >= KEY_PIECES
        or not 0 < shape.rows <= LEAST_ROWS
        or shape.keys * heads < 2 * LEAST_KEYS_PER_PIECE
        or operands.entire
    ):
        return (None,)
    all_batches = slice(0, shape.batches)
    span = find_span(operands, Task(all_batches, slice(0, shape.groups), slice(0, shape.members), slice(0, shape.rows)))
    length = span.some_stop - span.some_start
    count = min(-(-KEY_PIECES // heads), length * heads // LEAST_KEYS_PER_PIECE)
    if count < 2:
        return (None,)
    size = -(-length // count)
    return cut_range(length, size, span.some_start)


def merge_sums(parts: Sequence[Sums]) -> Sums:
    """Return the sums over all keys from the sums over runs: `sum_i exp(anchor_i - largest_anchor) sums_i`."""
    anchors = np.stack([np.zeros_like(part.total) if part.anchor is None else part.anchor for part in parts])
    largest_anchor = anchors.max(axis=0)
    factors = np.exp(anchors - np.where(np.isneginf(largest_anchor), 0, largest_anchor))
    total = (np.stack([part.total for part in parts]) * factors).sum(axis=0)
    context = (np.stack([part.context for part in parts]) * factors[..., None]).sum(axis=0)
    return Sums(context, total, None if all(part.anchor is None for part in parts) else largest_anchor, parts[0].extra)


def write_merged_output(
    operands: Operands, tasks: Sequence[Task], parts: Sequence[Sums], context: Array, lse: Array
) -> None:
    """Write the output of tasks that were split into runs of keys; `parts` are in the order of `make_jobs`.

    If the merged sums of a task are not finite, the task is computed again in one piece, safely.
    """
    pieces_per_task = len(parts) // len(tasks)
    with np.errstate(all="ignore"):
        for number, task in enumerate(tasks):
            sums = merge_sums(parts[number * pieces_per_task : (number + 1) * pieces_per_task])
            if not all_finite(sums.context):
                with lend_memory() as memory:
                    sums = block.sum_safely(block.cut_block(operands, task, allocate_scratch(operands, memory)))
            write_output(sums, context[task], lse[task])


def write_output(sums: Sums, context: Array, lse: Array) -> None:
    """Write the context of a block, `context / total`, and its log-sum-exp, `anchor + log(total)`.

    The extra logit, which has no key, counts in the total of the context, but not in the log-sum-exp.
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
    largest = np.maximum(sums.anchor, sums.extra)
    factor = np.exp(sums.anchor - largest)
    np.multiply(sums.context, (factor / (sums.total * factor + np.exp(sums.extra - largest)))[..., None], out=context)


def refuses(rules: Rules) -> str | None:
    if rules.pairing is None:
        return None
    return f"blockwise multiplies queries by keys; score={registry.name_of(rules.pairing)} does not"


FORM = Form(
    attend,
    refuses,
    matrices=0,
    takes_rows=True,
    divides_last=True,
    summarize=functools.partial(attend, cells=CELLS),
    complete=complete,
)
