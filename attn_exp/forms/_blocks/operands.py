"""What a thread works on: a whole problem cut into heads, one task's part of it, and room to work in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms._blocks.memory import Memory
from attn_exp.forms._blocks.tasks import Shape, Task
from attn_exp.rules.masks.mask import Span
from attn_exp.rules.rules import Rules

Job = TypeVar("Job")


@dataclass(frozen=True)
class Scratch:
    """What one thread works with: room for a tile of logits, ones to sum with, masks that come again, and more room."""

    tile: Array
    ones: Array
    memory: Memory
    patterns: dict[tuple[int, int, int], Array] = field(default_factory=dict)

    def afresh(self, jobs: Iterator[Job]) -> Iterator[Job]:
        """Yield jobs; what one took of the memory is free for the next."""
        begin = self.memory.used
        for job in jobs:
            yield job
            self.memory.used = begin


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
        """Say whether whole rows of logits are needed: by every normalizer but softmax, and to round as asked for."""
        return not self.rules.normalizer.exponential or self.softmax_dtype != self.q.dtype

    @property
    def softmax_dtype(self) -> np.dtype[Any]:
        """The type that logits are rounded to before they are normalized, where that is coarser than their own."""
        asked = self.rules.softmax_dtype
        return self.q.dtype if asked is None or np.dtype(asked).itemsize >= self.q.dtype.itemsize else np.dtype(asked)


@dataclass(frozen=True)
class Block:
    """One task's part of the operands, with `q` scaled and turned, `[b g r d t]`.

    Where queries are few, those of all heads that share a key/value head are `joined`: they lie beside each other, and
    are multiplied with it as one.
    """

    whole: Operands
    task: Task
    q: Array
    k: Array
    v: Array
    span: Span
    scratch: Scratch
    joined: bool = False


def side_by_side(array: Array) -> Array:
    """Show `[b g r s t]` as `[b g 1 s r*t]`, heads beside each other."""
    b, g, r, s, t = array.shape
    return array.swapaxes(2, 3).reshape(b, g, 1, s, r * t)


def apart(array: Array, members: int) -> Array:
    """Show `[b g 1 s r*t]` as `[b g r s t]`."""
    b, g, _, s, columns = array.shape
    return array.reshape(b, g, s, members, columns // members).swapaxes(2, 3)


def room(whole: Operands, memory: Memory, entire: bool = False) -> Scratch:
    """Lay out what one thread works with; `entire` where whole rows of logits must fit whatever is computed."""
    shape, dtype = whole.shape, whole.q.dtype
    places = min(shape.places, max(shape.tile_places, shape.keys if entire or whole.entire else 0))
    return Scratch(memory.array((places,), dtype), np.ones(min(shape.keys, shape.tile_keys), dtype), memory)
