"""How long a check has been at work: what takes long and seldom tells more is left out once its time is over.

Seconds are those of the processor, so that a busy machine asks no less than an idle one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import TypeVar

T = TypeVar("T")
ASKING_MORE, EXPLAINING = 6.0, 8.0
"""Seconds of a check after which a function is asked in no other size, layout or convention, and after which no more
combinations of mistakes are tried."""


SEVERAL = "several mistakes at once"


@dataclass
class Pace:
    """How many seconds of this processor count as one; more lets a slow machine ask as much as a quick one."""

    seconds: float = 1.0


PACE = Pace()


@dataclass
class Clock:
    """When a check began, and what was left out of it for want of time.

    `told` and `at`: what the processor's clock said last, and when; it is asked again after `OFTEN`.
    """

    start: float = field(default_factory=process_time)
    left_out: dict[str, float] = field(default_factory=dict)
    told: float = 0.0
    at: float = 0.0

    def worked(self) -> float:
        """Return for how many seconds, at the pace that is set, a check has been at work."""
        now = perf_counter()
        if now - self.at >= OFTEN:
            self.told, self.at = process_time(), now
        return (self.told - self.start) / PACE.seconds


OFTEN = 0.01
"""Seconds: thousands of tries ask for the time, and a processor's clock lets others run first on a busy machine."""


CLOCK: ContextVar[Clock | None] = ContextVar("the clock of the check that is at work", default=None)


@contextmanager
def running() -> Iterator[Clock]:
    """Start the clock of a check; one within another has the same."""
    clock = CLOCK.get()
    if clock is not None:
        yield clock
        return
    clock = Clock()
    token = CLOCK.set(clock)
    try:
        yield clock
    finally:
        CLOCK.reset(token)


def while_there_is_time(several: Iterable[T], seconds: float, what: str) -> Iterator[T]:
    """Yield one after the other until a check has been at work for so many seconds."""
    for one in several:
        if is_over(seconds, what):
            return
        yield one


def is_over(seconds: float, what: str) -> bool:
    """Say whether a check has been at work for so many seconds, and note `what` is left out then."""
    clock = CLOCK.get()
    if clock is None or clock.worked() <= seconds:
        return False
    clock.left_out.setdefault(what, seconds)
    return True
