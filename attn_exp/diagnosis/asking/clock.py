"""Processor time used by a check: slow steps that rarely find more are skipped once their time is over.

Processor seconds let a check on a busy machine try as much as on an idle one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import process_time
from typing import TypeVar

T = TypeVar("T")
EXPLAINING = 8.0
"""Seconds after which a check tries no more combinations of mistakes."""


SEVERAL = "several mistakes at once"


@dataclass
class Pace:
    """Processor seconds that count as one; more of them let a slow machine try as much as a fast one."""

    seconds: float = 1.0


PACE = Pace()


@dataclass
class Clock:
    """When a check began, and which steps it skipped for lack of time."""

    start: float = field(default_factory=process_time)
    left_out: dict[str, float] = field(default_factory=dict)

    def worked(self) -> float:
        return (process_time() - self.start) / PACE.seconds


CLOCK: ContextVar[Clock | None] = ContextVar("the clock of the check that is at work", default=None)


@contextmanager
def running() -> Iterator[Clock]:
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
    for one in several:
        if is_over(seconds, what):
            return
        yield one


def is_over(seconds: float, what: str) -> bool:
    """Return whether the check has used more than `seconds`; if so, record that `what` was skipped."""
    clock = CLOCK.get()
    if clock is None or clock.worked() <= seconds:
        return False
    clock.left_out.setdefault(what, seconds)
    return True
