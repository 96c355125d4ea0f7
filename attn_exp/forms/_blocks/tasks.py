"""Split a problem into tasks, each with some heads and queries, and into runs of keys that fit the processor cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

from attn_exp.rules.masks.mask import Span

CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index2")
"""Where Linux describes the second-level cache of a core."""


def read_cache_size(folder: Path = CACHE) -> int | None:
    """Return the bytes of second-level cache per core, or None if the system does not report it."""
    try:
        size, sharing = ((folder / name).read_text(encoding="ascii").strip() for name in ("size", "shared_cpu_map"))
        return int(size.removesuffix("K")) * 1024 // int(sharing.replace(",", ""), 16).bit_count()
    except (OSError, ValueError):  # containers hide it, and other systems have no such folder
        return None


ROWS = 256
"""Queries per task: enough for the matrix product to run at full speed, few enough for causal masks to skip much."""

LEAST_ROWS = 64
"""Queries per task if masks hide many keys: larger tasks would compute more masked logits."""

LARGE = 2048
"""Maximum number of keys per tile in float32; with `ROWS` queries, such a tile of logits takes 2 MiB."""


def keys_per_tile(cache: int | None) -> int:
    """Return the number of keys in a tile of logits that takes half of a second-level cache.

    If the cache is too small for half of the largest tile, the result is `LARGE`. A tile that fits such a cache would
    slow down the products more than it speeds up reading.
    """
    keys = LARGE if cache is None else cache // 2 // (4 * ROWS)
    return LARGE if keys < LARGE // 2 else min(LARGE, 1 << keys.bit_length() - 1)


KEYS = keys_per_tile(read_cache_size())
"""Keys per tile in float32; half as many in float64."""

TILE_LOGITS = ROWS * KEYS
"""Logits per tile in float32; for short sequences, a tile holds several heads."""

MOST_UNPACKED = 10**6
"""Up to this many multiplications, OpenBLAS does not copy the operands; decoding then takes a fifth less time."""

LEAST_KEYS = 512
"""With fewer keys per product, avoiding copies is not worthwhile."""

SLIVER = 64
"""A run of keys that needs no mask, but is shorter than this, is masked along with its neighbour."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a problem.

    - `batches`: the number of examples.
    - `groups`: the number of key/value heads.
    - `members`: the number of query heads per key/value head.
    - `rows`, `keys`: the numbers of queries and of keys.
    - `itemsize`: the bytes of a number.
    """

    batches: int
    groups: int
    members: int
    rows: int
    keys: int
    itemsize: int = 4

    @property
    def tile_keys(self) -> int:
        return max(1, KEYS * 4 // self.itemsize)

    @property
    def tile_logits(self) -> int:
        return max(1, TILE_LOGITS * 4 // self.itemsize)

    def keys_at_once(self, columns: int, size: int) -> int:
        """Return the number of keys to multiply with `columns` queries in one product, if possible without copies."""
        few = MOST_UNPACKED // max(1, columns * size)
        return few if columns > 1 and LEAST_KEYS <= few < self.tile_keys else self.tile_keys

    @property
    def logits(self) -> int:
        return self.batches * self.groups * self.members * self.rows * self.keys


class Task(NamedTuple):
    """A block of the output: slices of examples, of key/value heads, of their query heads, and of queries."""

    batches: slice
    groups: slice
    members: slice
    rows: slice


class Run(NamedTuple):
    """A range of keys, and the subranges that need masking."""

    start: int
    stop: int
    masked: tuple[tuple[int, int], ...] = ()


def make_tasks(shape: Shape, parts: int, block: int = ROWS, entire: bool = False) -> list[Task]:
    """Cut the problem into tasks that fill one tile each; the tasks are smaller if there would be fewer than `parts`.

    A tile holds a run of keys, or all keys if `entire` rows are needed at once.
    """
    keys = max(1, shape.keys if entire else min(shape.keys, shape.tile_keys))
    rows = even_length(shape.rows, max(1, min(block, shape.tile_logits // keys)))
    sizes = pack_heads(shape, rows, max(1, shape.tile_logits // (max(1, rows) * keys)), parts)
    return [
        Task(*cut)
        for cut in product(
            cut_range(shape.batches, sizes[0]),
            cut_range(shape.groups, sizes[1]),
            cut_range(shape.members, sizes[2]),
            reversed(cut_range(shape.rows, rows)),  # under a causal mask the last rows have the most work
        )
    ]


def even_length(length: int, most: int) -> int:
    """Return the length of runs, at most `most`, that split `length` as evenly as possible: `9, 4 -> 3`."""
    return -(-length // max(1, -(-length // most)))


def pack_heads(shape: Shape, rows: int, blocks_per_tile: int, parts: int) -> tuple[int, int, int]:
    """Return how many examples, key/value heads and query heads share a tile; it has room for `blocks_per_tile` blocks.

    A tile holds fewer if there would otherwise be fewer than `parts` tiles.
    """
    blocks = shape.batches * shape.groups * shape.members * -(-shape.rows // max(1, rows))
    blocks_per_tile = min(blocks_per_tile, -(-blocks // parts))
    members = max(1, min(shape.members, blocks_per_tile))
    groups = max(1, min(shape.groups, blocks_per_tile // members)) if members == shape.members else 1
    batches = max(1, min(shape.batches, blocks_per_tile // (members * groups))) if groups == shape.groups else 1
    return batches, groups, members


def cut_range(length: int, size: int, first: int = 0) -> list[slice]:
    stop = first + length
    return [slice(start, min(start + size, stop)) for start in range(first, stop, max(1, size))]


def cut_runs(span: Span, most: int) -> Iterator[Run]:
    """Yield runs of at most `most` keys that some query sees; keys that every query sees need no mask."""
    start, stop, every_start, every_stop = span
    if every_stop - every_start < SLIVER:
        every_start = every_stop = stop
    for tile in cut_range(stop - start, most, start):
        first, last = tile.start, tile.stop
        outside_every = (first, min(last, every_start)), (max(first, every_stop), last)
        yield Run(first, last, tuple((left, right) for left, right in outside_every if left < right))


def join_spans(spans: Sequence[Span]) -> Span:
    """Return the span of several examples together: keys that some example may see, and keys that all examples see."""
    some_start, some_stop, every_start, every_stop = zip(*spans, strict=True)
    return Span(min(some_start), max(some_stop), max(every_start), min(every_stop))
