"""Working memory that each thread keeps from call to call.

What a call frees, the C library may give back to the system, and the next call waits while the system hands out the
same pages again, cleared: among 64 tokens that took two thirds of the time. So arrays that live no longer than a call
are cut from bytes that stay with the thread. Answers never are: they are allocated.

This is the one place of the engine that remembers anything of a call. Bytes come with the first call of a thread that
wants them, and belong to one call at a time; a call within a call, from a rule or from `tell`, gets others. They come
back when the call ends, however it ends, and stay until the thread ends or `keep_memory` allows fewer. No thread sees
those of another, and a forked child has copies of those of the thread that forked.
"""

from __future__ import annotations

import threading
from math import prod
from typing import Any, ClassVar
from weakref import ref

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import UserError, given

MOST = 8 << 20
"""Bytes that a thread keeps, unless `keep_memory` says another number: tiles, and what is laid out beside them."""

LINE = 64
"""Bytes of a cache line: every array begins with one."""


class Memory:
    """The working memory of one call, given out from front to back."""

    def __init__(self) -> None:
        self.bytes = lines(0)
        self.used = self.wanted = 0

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array that holds anything: of the bytes kept, or allocated where it does not fit, or not yet."""
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
        """Take back all arrays, and make room for as many as were wanted before."""
        self.used = 0
        if self.wanted > len(self.bytes):
            self.bytes = lines(self.wanted)


class Shelf:
    """Where a thread puts memory between calls."""

    def __init__(self) -> None:
        self.free: list[Memory] = []


class Store(threading.local):
    """The shelf of the thread that asks; `most` bytes lie on each, and `shelves` knows those of all threads."""

    most: ClassVar[int] = MOST
    shelves: ClassVar[list[ref[Shelf]]] = []

    def __init__(self) -> None:
        self.shelf = Shelf()
        self.shelves.append(ref(self.shelf, self.shelves.remove))


STORE = Store()


def lent() -> Memory:
    """Return memory for one call, to be used with `with`, which puts it back on the shelf of its thread."""
    try:
        return STORE.shelf.free.pop()
    except IndexError:
        return Memory()


def lines(size: int) -> Array:
    """Return so many bytes, from the beginning of a cache line on."""
    spare = np.empty(size + LINE, np.uint8)
    start = -spare.ctypes.data % LINE
    return spare[start : start + size]


def keep_memory(most: int) -> int:
    """Let each thread keep at most so many bytes of working memory between calls of `attention`; return the old bound.

    With fewer than before, all threads give back at once what lies idle; 0 keeps nothing. The default is 8 MiB.

    Raises:
        UserError: no whole number, or less than nothing.
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
