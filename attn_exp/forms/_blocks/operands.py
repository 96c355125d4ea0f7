"""The arrays that a thread works on: a problem cut into heads, one task's part, and the rules evaluated on it.

The rules determine which keys a block sees, what is added to its logits, and which logits are masked.
"""

from __future__ import annotations

import functools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from attn_exp import arrays
from attn_exp.arrays import Array
from attn_exp.errors import UserError, given
from attn_exp.forms._blocks.tasks import LEAST_ROWS, ROWS, Run, Shape, Task, join_spans
from attn_exp.forms.form import coarser
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks.mask import AllOf, Mask, Span
from attn_exp.rules.rules import Rules, part_grid
from attn_exp.rules.scores.score import Score

LINE = 64
"""Size of a cache line in bytes; every array is aligned to it."""


class Memory:
    """The working memory of one call, allocated from front to back; its thread keeps it for the next call.

    The C library may return freed memory to the system. If it does, the next call waits until the system has cleared
    the pages that it gets back; with 64 tokens, this took two thirds of the time. Arrays that live no longer than a
    call are therefore cut from a buffer that stays with the thread. Results are always newly allocated. A nested call,
    from a rule or from `tell`, gets another buffer.

    - `most`: the number of bytes that a thread may keep; `keep_memory` changes it.
    - `idle`: the kept buffers of each thread.
    - `used`: the bytes of this call's arrays.
    - `wanted`: the largest number of bytes that any call needed.
    """

    most: ClassVar[int] = 8 << 20
    idle: ClassVar[defaultdict[int, list[Memory]]] = defaultdict(list)

    def __init__(self) -> None:
        self.bytes = aligned_bytes(0)
        self.used = self.wanted = 0

    def array(self, shape: arrays.Shape, dtype: np.dtype[Any]) -> Array:
        """Return an uninitialized array from the kept bytes, or a newly allocated one if it does not fit."""
        start, size = self.used, -(-prod(shape) * dtype.itemsize // LINE) * LINE
        if start + size > Memory.most:
            return np.empty(shape, dtype)
        self.used = start + size
        self.wanted = max(self.wanted, self.used)
        return np.empty(shape, dtype) if self.used > len(self.bytes) else np.ndarray(shape, dtype, self.bytes, start)

    def begin(self) -> None:
        """Release all arrays, and grow to the size that earlier calls needed."""
        self.used = 0
        if self.wanted > len(self.bytes):
            self.bytes = aligned_bytes(self.wanted)


@contextmanager
def lend_memory() -> Iterator[Memory]:
    """Lend memory to one call. When the call ends, even with an exception, its thread keeps the memory for the next."""
    idle = Memory.idle[threading.get_ident()]
    memory = idle.pop() if idle else Memory()
    memory.begin()
    try:
        yield memory
    finally:
        if memory.wanted + sum(other.wanted for other in idle) <= Memory.most:
            idle.append(memory)


def aligned_bytes(size: int) -> Array:
    spare = np.empty(size + LINE, np.uint8)
    start = -spare.ctypes.data % LINE
    return spare[start : start + size]


def keep_memory(most: int) -> int:
    """Set how many bytes of working memory each thread keeps between calls of `attention`, and return the old limit.

    The idle memory of all threads is freed at once; 0 keeps nothing from then on. The default is 8 MiB.

    Raises:
        UserError: `most` is not a whole number, or is negative.
    """
    if isinstance(most, bool) or not isinstance(most, (int, np.integer)) or most < 0:  # type: ignore[redundant-expr] # callers pass anything
        raise UserError(f"most is {given(most)}; expected a whole number of bytes, 0 or more")
    old_most, Memory.most = Memory.most, most
    Memory.idle.clear()
    return old_most


@dataclass(frozen=True)
class Scratch:
    """The buffers of one thread.

    - `tile`: room for a tile of logits.
    - `ones`: a vector of ones; sums over keys are products with it.
    - `memory`: further working memory.
    - `patterns`: cached mask patterns. The key is the position of their keys relative to the queries, the number of
      keys, and the number of queries.
    """

    tile: Array
    ones: Array
    memory: Memory
    patterns: dict[tuple[int, int, int], Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Operands:
    """A whole problem, cut into heads: `q` `[b g r t d]`, `k` `[b g 1 s d]`, `v` `[b g 1 s e]`."""

    q: Array
    k: Array
    v: Array
    rules: Rules
    shape: Shape

    @property
    def entire(self) -> bool:
        """Whether whole rows of logits are needed: for normalizers other than softmax, or to round the softmax."""
        return not self.rules.normalizer.exponential or self.softmax_dtype != self.q.dtype

    @property
    def softmax_dtype(self) -> np.dtype[Any]:
        """The dtype of the normalizer: that of the rules if it is coarser than the dtype of q, otherwise that of q."""
        wanted = self.rules.softmax_dtype
        return self.q.dtype if wanted is None else coarser(self.q.dtype, np.dtype(wanted))


@dataclass(frozen=True)
class Block:
    """One task's part of the operands.

    - `whole`, `task`: the operands of the whole problem, and the task.
    - `q`: the queries, scaled and transposed, `[b g r d t]`.
    - `k`, `v`: the keys and values, as in `Operands`.
    - `span`: the keys that some query of the block may see.
    - `joined`: whether the query heads that share a key/value head are put side by side, so that a single product
      multiplies all of them by its keys. This is faster for few queries.
    """

    whole: Operands
    task: Task
    q: Array
    k: Array
    v: Array
    span: Span
    scratch: Scratch
    joined: bool = False


def join_columns(array: Array) -> Array:
    """Reshape `[b g r s t]` to `[b g 1 s r*t]`, with the heads side by side."""
    b, g, r, s, t = array.shape
    return array.swapaxes(2, 3).reshape(b, g, 1, s, r * t)


def split_columns(array: Array, members: int) -> Array:
    """Reshape `[b g 1 s r*t]` to `[b g r s t]`."""
    b, g, _, s, columns = array.shape
    return array.reshape(b, g, s, members, columns // members).swapaxes(2, 3)


def allocate_scratch(operands: Operands, memory: Memory, entire: bool = False) -> Scratch:
    """Allocate one thread's buffers; with `entire`, the tile has room for whole rows of logits."""
    shape, dtype = operands.shape, operands.q.dtype
    size = min(shape.logits, max(shape.tile_logits, shape.keys if entire or operands.entire else 0))
    return Scratch(memory.array((size,), dtype), np.ones(min(shape.keys, shape.tile_keys), dtype), memory)


RELATIVE_FROM = 1 << 16
"""With at least this many logits, it is faster to evaluate a relative rule once per difference `key - query`."""

MOST_PATTERNS = 4
"""Number of mask patterns that a thread caches, each no larger than a tile."""


def find_span(operands: Operands, task: Task) -> Span:
    keys, masks, offset = operands.shape.keys, operands.rules.masks, np.asarray(operands.rules.offset)
    if not masks or not operands.shape.batches:
        return Span(0, keys, 0, keys)
    spans = []
    for batch in range(*task.batches.indices(operands.shape.batches)):
        first_position = task.rows.start + int(offset[batch] if offset.ndim else offset)
        last_position = first_position + task.rows.stop - task.rows.start - 1
        spans.append(AllOf(masks).span(batch, first_position, last_position, keys))
    return join_spans(spans)


def rows_per_task(operands: Operands) -> int:
    """Return the number of queries per task: fewer if masks show different keys to the first and the last queries."""
    rows, all_batches = operands.shape.rows, slice(0, operands.shape.batches)
    halves = slice(0, rows // 2), slice(rows // 2, rows)
    if not operands.rules.masks or rows <= LEAST_ROWS:
        return ROWS
    first, second = (find_span(operands, Task(all_batches, slice(None), slice(None), half)) for half in halves)
    return ROWS if first == second else min(ROWS // 2, max(LEAST_ROWS, rows // 4))


def evaluate_rule(evaluate: Callable[[Grid], Any], rule: Mask | Score, block: Block, run: Run) -> Any:
    """Return what `evaluate` gives for the grid of a run of keys.

    If it is faster, a relative rule is evaluated only once per difference `key - query`: for the first query, and keys
    from the last one down. Query i then sees key j as the first query sees key `j - i`.
    """
    offset, queries = np.asarray(block.whole.rules.offset), block.q.shape[-1]
    rows = block.task.rows
    if not rule.relative or offset.ndim or queries * (run.stop - run.start) < RELATIVE_FROM:
        return evaluate(make_grid(block, np.arange(run.start, run.stop)[:, None], np.arange(rows.start, rows.stop)))
    first_position = rows.start + int(offset)
    diagonal = make_grid(block, np.arange(run.stop - 1, run.start - queries, -1), np.zeros(1, int))
    values = evaluate(replace(diagonal, query=first_position))
    if np.ndim(values) == 0 or values.shape[-1] == 1:
        return values
    values = values[..., 0, :] if values.ndim > 1 else values
    return sliding_window_view(values, queries, axis=-1)[..., ::-1, :]


def make_grid(block: Block, key: Array, row: Array) -> Grid:
    shape, task = block.whole.shape, block.task
    heads = np.arange(shape.groups * shape.members).reshape(shape.groups, shape.members, 1, 1)
    batch = np.arange(*task.batches.indices(shape.batches))[:, None, None, None, None]
    sizes = shape.groups * shape.members, shape.rows, shape.keys
    return part_grid(block.whole.rules, batch, heads[task.groups, task.members], row, key, sizes)


def compute_bias(rule: Score, block: Block, run: Run) -> Array | None:
    def evaluate_bias(grid: Grid) -> Array | None:
        bias = rule.bias(grid)
        return None if bias is None else np.asarray(bias).astype(block.q.dtype, copy=False)

    return None if type(rule).bias is Score.bias else evaluate_rule(evaluate_bias, rule, block, run)


def compute_extra_logits(block: Block) -> Array | None:
    """Return the concatenated extra logits of all score rules, `[g r 1 n]`, or None if there are none."""
    heads = make_grid(block, np.zeros(1, int), np.zeros(1, int)).head
    logits = [extra for rule in block.whole.rules.scores if (extra := rule.extra(heads)) is not None]
    return np.concatenate(logits, axis=-1) if logits else None


def merge_extra_logits(block: Block) -> Array | None:
    """Return one extra logit that has the effect of all, `[g r 1]`: their log-sum-exp; None if there are none."""
    logits = compute_extra_logits(block)
    return None if logits is None else np.logaddexp.reduce(logits, axis=-1)


def compute_allowed(block: Block, run: Run) -> Array:
    """Return whether all masks allow each query-key pair of a run; the booleans broadcast to `[b g r s t]`."""
    answers = [evaluate_rule(mask.allows, mask, block, run) for mask in block.whole.rules.masks]
    return np.asarray(functools.reduce(np.logical_and, answers)) if answers else np.ones((1, 1), bool)


def get_mask_pattern(block: Block, start: int, stop: int) -> Array:
    """Return 1 for query-key pairs that all masks allow, and 0 elsewhere; patterns of relative masks are cached."""
    rules, queries = block.whole.rules, block.q.shape[-1]
    if np.ndim(rules.offset) or not all(mask.relative for mask in rules.masks):
        return compute_allowed(block, Run(start, stop)).astype(block.q.dtype)
    patterns, key = block.scratch.patterns, (start - block.task.rows.start, stop - start, queries)
    if key not in patterns:
        if len(patterns) == MOST_PATTERNS:
            patterns.clear()
        patterns[key] = compute_allowed(block, Run(start, stop)).astype(block.q.dtype)
    return patterns[key]
