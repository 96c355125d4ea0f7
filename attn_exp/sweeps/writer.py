"""Writes parts in a thread of its own, so that no worker waits for the disk.

A part must survive a loss of power before it counts, and a disk takes milliseconds to say so: about as long for several
files as for one. So the thread waits for all parts at once that were computed while it last waited. It does nothing
else; what takes the processor was done before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

from attn_exp.sweeps.parts import Draft, Part, Shelf

MOST_WAITING = 16
"""Parts that wait to be written; where there are more, the disk is too slow, and the sweep waits for it."""


class Writer:
    """A thread that writes what it is given, in that order, and gives back what is safe on disk."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.thread = ThreadPoolExecutor(1)
        self.waiting: deque[Draft] = deque()
        self.batches: deque[Future[list[Part]]] = deque()

    def put(self, draft: Draft) -> None:
        """Let a part be written soon."""
        self.waiting.append(draft)
        self.batches.append(self.thread.submit(self.write_waiting))
        if len(self.waiting) > MOST_WAITING:
            wait([self.batches[-1]])

    def write_waiting(self) -> list[Part]:
        """Write all that waits, together, and return it."""
        drafts = [self.waiting.popleft() for _ in range(len(self.waiting))]
        if drafts:
            self.shelf.write(drafts)
        return [draft.part for draft in drafts]

    def written(self) -> Iterator[Part]:
        """Yield the parts that were written since the last call.

        Raises:
            OSError: one could not be written.
        """
        while self.batches and self.batches[0].done():
            yield from self.batches.popleft().result()

    def close(self) -> Iterator[Part]:
        """Write what still waits, end the thread, and yield the parts that were written since the last call.

        Raises:
            OSError: one could not be written.
        """
        self.thread.shutdown()
        yield from self.written()
        yield from self.write_waiting()  # what an interrupt kept from the thread
