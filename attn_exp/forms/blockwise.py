"""Attention by blocks of queries, on several threads, without ever forming the whole matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from attn_exp.engine import block, plan
from attn_exp.engine.summary import Gallery, portrait_of
from attn_exp.engine.threads import default_threads, one_blas_thread, together
from attn_exp.forms.matrix import mix  # noqa: F401 - where a problem starts at its weights there are no blocks
from attn_exp.rules.rule import Array, Rules, Score
from attn_exp.stages import Trace

CELLS = 128
"""Rows and columns of a heat map: what a picture of a page's width can show."""

WORTH = 1 << 16
"""Logits that are worth a thread of their own."""


def attend(
    q: Array,
    k: Array,
    v: Array | None,
    rules: Rules,
    *,
    threads: int | None = None,
    rows: int | None = None,
    cells: int | None = None,
) -> Trace:
    """Compute the same function as `matrix`; only the context and, for softmax, the log-sum-exp are formed.

    `q` `[... h t d]`, `k` `[... g s d]`, `v` `[... g s e]`, with or without a batch axis. `threads` is the number
    of threads, by default the usable cores where the problem is worth them; `rows` the most queries in a block, by
    default fewer where a mask lets blocks skip keys. `cells` asks for the summary of the weights as well, with a heat
    map of at most `cells` by `cells`. Half precision is computed in float32 and rounded once.

    Source: Rabe and Staats 2021, "Self-attention Does Not Need O(n^2) Memory"; Dao et al. 2022, "FlashAttention".
    """
    values = np.empty((*k.shape[:-1], 0), k.dtype) if v is None else v
    whole = operands(q, k, values, rules)
    shape, soft, bounded = whole.shape, rules.normalizer == "softmax", block.bounded(whole)
    context = np.empty((*whole.q.shape[:-1], values.shape[-1]), whole.q.dtype)
    lse = np.empty(whole.q.shape[:-1], whole.q.dtype)
    gallery = None if cells is None else Gallery(shape, cells, lse.dtype)

    def work(tasks: Iterator[plan.Task]) -> None:
        scratch = block.room(whole, entire=not soft)
        for task in tasks:
            if gallery is None:
                sums = block.solve(whole, task, scratch, context[task], bounded)
            else:
                sums, portrait = portrait_of(block.cut(block.natural(whole), task, scratch), gallery.keys)
                gallery.hang(task, portrait)
            finish(sums, context[task], lse[task])

    spread(work, shape, threads, block.rows_per_task(whole) if rows is None else rows, entire=not soft)
    dtype = np.result_type(q, k, values)
    return Trace(
        q=q,
        k=k,
        v=v,
        lse=lse.reshape(q.shape[:-1]).astype(dtype, copy=False) if soft else None,
        context=None if v is None else context.reshape(*q.shape[:-1], v.shape[-1]).astype(dtype, copy=False),
        summary=None if gallery is None else gallery.summary(q.shape[:-2]),
    )


def summarize(q: Array, k: Array, v: Array | None, rules: Rules) -> Trace:
    """Compute the same with the summary of the weights, its heat map of at most `CELLS` by `CELLS`."""
    return attend(q, k, v, rules, cells=CELLS)


def operands(q: Array, k: Array, v: Array, rules: Rules) -> block.Operands:
    """Cut the heads of `q` into groups that share a key/value head."""
    dtype = np.result_type(q, k, v, rules.softmax_dtype or np.float32, np.float32)
    batches, heads, groups = (q.shape[0] if q.ndim == 4 else 1), q.shape[-3], k.shape[-3]
    changed = any(type(rule).bend is not Score.bend or type(rule).bias is not Score.bias for rule in rules.scores)
    return block.Operands(
        q=q.reshape(batches, groups, heads // groups, *q.shape[-2:]).astype(dtype, copy=False),
        k=k.reshape(batches, groups, 1, *k.shape[-2:]).astype(dtype, copy=False),
        v=v.reshape(batches, groups, 1, *v.shape[-2:]).astype(dtype, copy=False),
        rules=rules,
        shape=plan.Shape(batches, groups, heads // groups, q.shape[-2], k.shape[-2]),
        unit=1.0 if changed else float(np.log2(np.e)),
        power=np.exp if changed else np.exp2,
    )


def spread(
    work: Callable[[Iterator[plan.Task]], None], shape: plan.Shape, threads: int | None, rows: int, entire: bool
) -> None:
    """Cut a problem into tasks and work on them with several threads; small problems stay on the caller's."""
    wanted = min(default_threads(), max(1, shape.places // WORTH)) if threads is None else threads

    def quietly(tasks: Iterator[plan.Task]) -> None:
        with np.errstate(all="ignore"):  # each thread starts with NumPy's defaults
            work(tasks)

    if threads is None and shape.places < 2 * WORTH:  # products so small that the BLAS needs no holding
        return quietly(iter(plan.tasks(shape, 1, rows, entire)))
    parts = wanted if rows >= plan.ROWS else 2 * wanted  # blocks that skip keys have unequal work
    with one_blas_thread(wanted, insist=threads is not None) as granted:
        return together(quietly, plan.tasks(shape, parts, rows, entire), granted)


def finish(sums: block.Sums, context: Array, lse: Array) -> None:
    """Write a block's part of the answer: `context / total` and `anchor + log(total)`."""
    np.divide(sums.context, np.maximum(sums.total, np.finfo(lse.dtype).tiny)[..., None], out=context)
    np.log(sums.total, out=lse)
    lse += sums.anchor
