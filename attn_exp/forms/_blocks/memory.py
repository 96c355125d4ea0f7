"""Working memory that each thread keeps from call to call.

The C library may return freed memory to the system, and the next call then waits while the system hands out the same
pages again, cleared: with 64 tokens that took two thirds of the time. Arrays that live no longer than a call are
therefore cut from bytes that stay with the thread. Results are always freshly allocated.

This is the only state that the engine keeps between calls. A thread's first call allocates the bytes, and they belong
to one call at a time; a nested call, from a rule or from `tell`, gets other bytes. They are returned when the call
ends, even by an exception, and stay until the thread ends or `keep_memory` lowers the limit. No thread sees another
thread's bytes, and a forked child has copies of those of the thread that forked.
"""

from __future__ import annotations

import threading
from math import prod
from typing import Any, ClassVar
from weakref import ref

import numpy as np

from attn_exp.arrays import Array, Shape
from attn_exp.errors import UserError, given

MOST = 8 << 20
"""Default number of bytes that a thread keeps, for tiles and smaller arrays; `keep_memory` changes it."""

LINE = 64
"""Size of a cache line in bytes; every array is aligned to it."""


class Memory:
    """The working memory of one call, allocated from front to back."""

    def __init__(self) -> None:
        self.bytes = aligned_bytes(0)
        self.used = self.wanted = 0

    def array(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        """Return an uninitialized array from the kept bytes, or a newly allocated one if it does not fit."""
        start, size = self.used, -(-prod(shape) * dtype.itemsize // LINE) * LINE
        if start + size > STORE.most:
            return np.empty(shape, dtype)
        self.used = start + size
        self.wanted = max(self.wanted, self.used)
        return np.empty(shape, dtype) if self.used > len(self.bytes) else np.ndarray(shape, dtype, self.bytes, start)

    def __enter__(self) -> Memory:
        self.begin()
        return self

    def __exit__(self, *failure: object) -> None:
        free = STORE.shelf.free
        if self.wanted + sum(other.wanted for other in free) <= STORE.most:
            free.append(self)

    def begin(self) -> None:
        """Release all arrays, and grow to the size that earlier calls wanted."""
        self.used = 0
        if self.wanted > len(self.bytes):
            self.bytes = aligned_bytes(self.wanted)


class Shelf:
    """The memory that a thread keeps between calls."""

    def __init__(self) -> None:
        self.free: list[Memory] = []


class Store(threading.local):
    """The shelf of the calling thread; `most` limits the bytes per shelf, and `shelves` lists those of all threads."""

    most: ClassVar[int] = MOST
    shelves: ClassVar[list[ref[Shelf]]] = []

    def __init__(self) -> None:
        self.shelf = Shelf()
        self.shelves.append(ref(self.shelf, self.shelves.remove))


STORE = Store()


def lent() -> Memory:
    """Return memory for one call; as a context manager it goes back to its thread on exit."""
    try:
        return STORE.shelf.free.pop()
    except IndexError:
        return Memory()


def aligned_bytes(size: int) -> Array:
    spare = np.empty(size + LINE, np.uint8)
    start = -spare.ctypes.data % LINE
    return spare[start : start + size]


def keep_memory(most: int) -> int:
    """Set how many bytes of working memory each thread keeps between calls of `attention`, and return the old limit.

    Lowering the limit frees the idle memory of all threads at once; 0 keeps nothing. The default is 8 MiB.

    Raises:
        UserError: `most` is not a whole number, or is negative.
    """
    if isinstance(most, bool) or not isinstance(most, (int, np.integer)):
        raise UserError(f"most is {given(most)}; expected a whole number of bytes, 0 or more")
    if most < 0:
        raise UserError(f"most is {most} bytes; expected 0 or more")
    before, Store.most = STORE.most, most
    if most < before:
        for shelf in [known() for known in list(STORE.shelves)]:
            if shelf is not None:
                shelf.free.clear()
    return before
