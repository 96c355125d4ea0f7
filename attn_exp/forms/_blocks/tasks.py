"""How a problem is cut: tasks of some heads and some queries, and runs of keys that fit a cache of the processor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

from attn_exp.rules.masks.mask import Span

CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index2")
"""What Linux tells of the second-level cache of a core."""


def second_level(folder: Path = CACHE) -> int | None:
    """Return the bytes of second-level cache that a core has to itself, or None where the system does not tell."""
    try:
        size, sharing = ((folder / name).read_text(encoding="ascii").strip() for name in ("size", "shared_cpu_map"))
        return int(size.removesuffix("K")) * 1024 // int(sharing.replace(",", ""), 16).bit_count()
    except (OSError, ValueError):  # containers hide it, and other systems tell it otherwise
        return None


ROWS = 256
"""Queries per task: enough for the matrix product to run at full speed, few enough for causal masks to skip much."""

LEAST = 64
"""Queries per task where more would only compute what a mask forbids."""

LARGE = 2048
"""The most keys per tile in float32: with `ROWS` queries a tile of logits takes 2 MiB."""


def keys_per_tile(cache: int | None) -> int:
    """Return the keys of a tile that takes half of a second-level cache.

    A cache that holds no half of the largest tile is left out of account, being too small: a tile in it would be cut so
    often that its products and its overhead cost more than the way to the next level.
    """
    keys = LARGE if cache is None else cache // 2 // (4 * ROWS)
    return LARGE if keys < LARGE // 2 else min(LARGE, 1 << keys.bit_length() - 1)


KEYS = keys_per_tile(second_level())
"""Keys per tile in float32, half as many in float64."""

PLACES = ROWS * KEYS
"""Logits per tile in float32: short sequences put several heads into one."""

UNPACKED = 10**6
"""Up to so many multiplications, OpenBLAS makes no copies: decoding takes a fifth less time."""

LEAST_KEYS = 512
"""Fewer keys at once cost more than a copy."""

SLIVER = 64
"""A run of keys that needs no mask and is shorter than this is masked along with its neighbour."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a problem: batch entries, key/value heads, query heads that share one, queries, keys, bytes each."""

    batches: int
    groups: int
    members: int
    rows: int
    keys: int
    itemsize: int = 4

    @property
    def tile_keys(self) -> int:
        """The most keys in a tile."""
        return max(1, KEYS * 4 // self.itemsize)

    @property
    def tile_places(self) -> int:
        """The most logits in a tile."""
        return max(1, PLACES * 4 // self.itemsize)

    def keys_at_once(self, columns: int, size: int) -> int:
        """Return the most keys of products with so few queries, `columns`, that the BLAS takes keys as they lie."""
        few = UNPACKED // max(1, columns * size)
        return few if columns > 1 and LEAST_KEYS <= few < self.tile_keys else self.tile_keys

    @property
    def places(self) -> int:
        """The number of logits of all heads together."""
        return self.batches * self.groups * self.members * self.rows * self.keys


class Task(NamedTuple):
    """A block of the answer: some batch entries, some key/value heads, some of their query heads, some queries."""

    batches: slice
    groups: slice
    members: slice
    rows: slice


class Run(NamedTuple):
    """Neighbouring keys, and the stretches of them to which masks must be applied."""

    start: int
    stop: int
    masked: tuple[tuple[int, int], ...] = ()


def tasks(shape: Shape, parts: int, block: int = ROWS, entire: bool = False) -> list[Task]:
    """Cut the problem so that each task fills one tile, or less where there would be fewer than `parts`.

    A tile holds a run of keys, or all of them where `entire` rows are needed at once.
    """
    keys = max(1, shape.keys if entire else min(shape.keys, shape.tile_keys))
    rows = even(shape.rows, max(1, min(block, shape.tile_places // keys)))
    sizes = packed(shape, rows, max(1, shape.tile_places // (max(1, rows) * keys)), parts)
    return [
        Task(*cut)
        for cut in product(
            cuts(shape.batches, sizes[0]),
            cuts(shape.groups, sizes[1]),
            cuts(shape.members, sizes[2]),
            reversed(cuts(shape.rows, rows)),  # under a causal mask the last rows have most to do
        )
    ]


def even(length: int, most: int) -> int:
    """Return the size of the fewest equal runs of at most `most`."""
    return -(-length // max(1, -(-length // most)))


def packed(shape: Shape, rows: int, fit: int, parts: int) -> tuple[int, int, int]:
    """Return how many batch entries, key/value heads and their query heads share a tile that has room for `fit`."""
    blocks = shape.batches * shape.groups * shape.members * -(-shape.rows // max(1, rows))
    fit = min(fit, -(-blocks // parts))
    members = max(1, min(shape.members, fit))
    groups = max(1, min(shape.groups, fit // members)) if members == shape.members else 1
    batches = max(1, min(shape.batches, fit // (members * groups))) if groups == shape.groups else 1
    return batches, groups, members


def cuts(length: int, size: int) -> list[slice]:
    """Cut `length` things into runs of `size`."""
    return [slice(start, min(start + size, length)) for start in range(0, length, max(1, size))]


def runs(span: Span, most: int) -> Iterator[Run]:
    """Yield the keys that anybody sees, at most so many in a run; masks are for those that not everybody sees."""
    start, stop, every_start, every_stop = span
    if every_stop - every_start < SLIVER:
        every_start = every_stop = stop
    for tile in cuts(stop - start, most):
        first, last = start + tile.start, start + tile.stop
        edges = (first, min(last, every_start)), (max(first, every_stop), last)
        yield Run(first, last, tuple((left, right) for left, right in edges if left < right))


def union(spans: Sequence[Span]) -> Span:
    """Bound what several batch entries see together."""
    some_start, some_stop, every_start, every_stop = zip(*spans, strict=True)
    return Span(min(some_start), max(some_stop), max(every_start), min(every_stop))


def intersection(spans: Sequence[Span], keys: int) -> Span:
    """Bound what passes several masks at once, as ranges within the keys."""
    some_start, some_stop, every_start, every_stop = zip(Span(0, keys, 0, keys), *spans, strict=True)
    start, stop = max(some_start), min(some_stop)
    every = max(start, *every_start), min(stop, *every_stop)
    return Span(start, max(start, stop), *(every if every[0] < every[1] else (start, start)))
