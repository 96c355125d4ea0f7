"""Attention by blocks of queries, on several threads, without ever forming the whole matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import numpy as np

from attn_exp import registry
from attn_exp.forms._blocks import block, tasks
from attn_exp.forms._blocks.asked import rows_per_task
from attn_exp.forms._blocks.blas import default_threads, one_blas_thread
from attn_exp.forms._blocks.memory import lent
from attn_exp.forms._blocks.operands import Operands, room
from attn_exp.forms._blocks.portrait import CELLS, Gallery, portrait_of
from attn_exp.forms._blocks.threads import together
from attn_exp.forms.form import Form
from attn_exp.forms.trace import Trace
from attn_exp.rules.grid import Array
from attn_exp.rules.rules import Rules

Tell = Callable[[float], None] | None
"""Hears which part is done, from several threads."""

WORTH = 1 << 16
"""Logits that are worth a thread of their own."""


def attend(  # noqa: PLR0913 - four operands, and settings of their own by keyword
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

    `q` `[... h t d]`, `k` `[... g s d]`, `v` `[... g s e]`, with or without a batch axis. `threads` is the number
    of threads, by default the usable cores where the problem is worth them; `rows` the most queries in a block, by
    default fewer where a mask lets blocks skip keys. `cells` asks for the summary of the weights as well, with a heat
    map of at most `cells` by `cells`; `tell` hears which part is done. Half precision is computed in float32 and
    rounded once.

    Source: Rabe and Staats 2021, "Self-attention Does Not Need O(n^2) Memory"; Dao et al. 2022, "FlashAttention".
    """
    values = np.empty((*k.shape[:-1], 0), k.dtype) if v is None else v
    whole = operands(q, k, values, rules)
    soft, bounded = rules.normalizer.exponential, block.bounded(whole)
    context = np.empty((*whole.q.shape[:-1], values.shape[-1]), whole.q.dtype)
    lse = np.empty(whole.q.shape[:-1], whole.q.dtype)
    gallery = None if cells is None else Gallery(whole.shape, cells, lse.dtype)

    def work(tasks: Iterator[tasks.Task]) -> None:
        with lent() as memory:
            scratch = room(whole, memory)
            for task in scratch.afresh(tasks):
                if gallery is None:
                    sums = block.solve(whole, task, scratch, context[task], bounded)
                else:
                    sums, portrait = portrait_of(block.cut(whole, task, scratch), gallery.keys)
                    gallery.hang(task, portrait)
                finish(sums, context[task], lse[task])

    spread(work, whole.shape, threads, rows_per_task(whole) if rows is None else rows, whole.entire, tell)
    dtype = np.result_type(q, k, values)
    return Trace(
        q=q,
        k=k,
        v=v,
        lse=lse.reshape(q.shape[:-1]).astype(dtype, copy=False) if soft else None,
        context=None if v is None else context.reshape(*q.shape[:-1], v.shape[-1]).astype(dtype, copy=False),
        summary=None if gallery is None else gallery.summary(q.shape[:-2]),
    )


def summarize(q: Array, k: Array, v: Array | None, rules: Rules, tell: Tell = None) -> Trace:
    """Compute the same with the summary of the weights, its heat map of at most `CELLS` by `CELLS`."""
    return attend(q, k, v, rules, cells=CELLS, tell=tell)


def complete(q: Array, k: Array, v: Array | None, rules: Rules, tell: Tell = None) -> Trace:
    """Compute the same with the whole matrix of weights `[... h t s]`, a block of rows at a time."""
    whole = operands(q, k, np.empty((*k.shape[:-1], 0), k.dtype) if v is None else v, rules)
    weights = np.empty((*whole.q.shape[:-1], k.shape[-2]), whole.q.dtype)

    def work(tasks: Iterator[tasks.Task]) -> None:
        with lent() as memory:
            scratch = room(whole, memory, entire=True)
            for task in scratch.afresh(tasks):
                weights[task] = block.weigh(block.cut(whole, task, scratch))

    spread(work, whole.shape, None, tasks.ROWS, entire=True, tell=tell)
    kept = weights.reshape(*q.shape[:-1], k.shape[-2]).astype(np.result_type(q, k), copy=False)
    return attend(q, k, v, rules).replace(weights=kept)


def operands(q: Array, k: Array, v: Array, rules: Rules) -> Operands:
    """Cut the heads of `q` into groups that share a key/value head."""
    dtype = np.result_type(q, k, v, rules.softmax_dtype or np.float32, np.float32)
    batches, heads, groups = (q.shape[0] if q.ndim == 4 else 1), q.shape[-3], k.shape[-3]
    return Operands(
        q=q.reshape(batches, groups, heads // groups, *q.shape[-2:]).astype(dtype, copy=False),
        k=k.reshape(batches, groups, 1, *k.shape[-2:]).astype(dtype, copy=False),
        v=v.reshape(batches, groups, 1, *v.shape[-2:]).astype(dtype, copy=False),
        rules=rules,
        shape=tasks.Shape(batches, groups, heads // groups, q.shape[-2], k.shape[-2], dtype.itemsize),
    )


def spread(
    work: Callable[[Iterator[tasks.Task]], None],
    shape: tasks.Shape,
    threads: int | None,
    rows: int,
    entire: bool,
    tell: Tell = None,
) -> None:
    """Cut a problem into tasks and work on them with several threads; small problems stay on the caller's."""
    wanted = min(default_threads(), max(1, shape.places // WORTH)) if threads is None else threads
    parts = wanted if rows >= tasks.ROWS or wanted == 1 else 2 * wanted  # blocks that skip keys have unequal work
    cut = tasks.tasks(shape, parts, rows, entire)
    finished = count(1)

    def quietly(tasks: Iterator[tasks.Task]) -> None:
        with np.errstate(all="ignore"):  # each thread starts with NumPy's defaults
            work(tasks if tell is None else reported(tasks))

    def reported(tasks: Iterator[tasks.Task]) -> Iterator[tasks.Task]:
        for task in tasks:
            yield task
            if tell is not None:
                tell(next(finished) / len(cut))

    with one_blas_thread(wanted, insist=threads is not None) as granted:
        return together(quietly, cut, granted)


def finish(sums: block.Sums, context: Array, lse: Array) -> None:
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


def refuses(rules: Rules) -> str | None:
    """Say that scores are products here."""
    if rules.pairing is None:
        return None
    return f"blockwise multiplies queries with keys; score={registry.name_of(rules.pairing)} does something else"


FORM = Form(attend, refuses, matrices=0, takes_rows=True, divides_last=True, summarize=summarize, complete=complete)
