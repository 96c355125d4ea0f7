"""How many points make a chunk: the same each time, so that a sweep finds its parts again."""

from __future__ import annotations

from attn_exp.sweeps.space import Space

FILES = 500
"""Parts of a large sweep; with its tables and plots it stays under a thousand files."""

USUAL, MOST, SHARES = 32, 512, 16
"""Points of a chunk: usually, and at most where seeds lie far apart; never more than this share of a small sweep."""

SEEDS = 16
"""Seeds of one setting that a chunk should hold, since they are computed together."""


def chunk_size(space: Space, points: int) -> int:
    """Return how many points a chunk gets, of so many that are left of a space."""
    usual = max(USUAL, min(MOST, SEEDS * apart(space)))
    return max(1, -(-points // FILES), min(usual, points // SHARES), layers(space))


def apart(space: Space) -> int:
    """Return how many points lie between two that differ in the next seed alone: 0 where seeds do not vary alone."""
    stride = space.size
    for length, together in zip(space.lengths, space.dimensions, strict=True):
        stride //= length
        if len(together) == 1 and space.axes[together[0]].key == "seed":
            return stride
    return 0


def layers(space: Space) -> int:
    """Return how many points a chunk should have at least: a quarter of a model's layers, where neighbours differ in
    them alone and share one pass through it."""
    last = space.axes[space.dimensions[-1][-1]] if space.dimensions else None
    return -(-len(last.values) // 4) if last is not None and last.key == "model.layer" else 1
