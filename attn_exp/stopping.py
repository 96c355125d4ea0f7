"""How a command ends before it is done: at a signal that asks it to, and never in the middle of a step.

The door of the command line turns the signals on; from then on each of them raises `Stopped` where the command is, as
Ctrl-C does, so that whatever is half done is undone on the way out.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from attn_exp.system import ending_signals, send_to_main_thread

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


class Stopped(KeyboardInterrupt):
    """A signal asked the command to end. `code` is what it exits with: 128 and the number of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = 128 + number


@dataclass
class Asked:
    """What signals have asked of this process, which has one set of handlers, and so one of these."""

    number: int = 0
    """The signal that asked it to end, and 0 while none has; Python may lose the exception, this stays."""
    waiting: bool = False
    holds: int = 0


ASKED = Asked()


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Return what a command exits with that was interrupted: 128 and the number of the signal."""
    return interrupt.code if isinstance(interrupt, Stopped) else 128 + signal.SIGINT


def stop(number: int, frame: FrameType | None) -> None:
    """Ask the command to end: now, or once what must not be cut short is over."""
    ASKED.number = number
    if ASKED.holds:
        ASKED.waiting = True
    else:
        raise Stopped(number)


SOON = 0.05
"""Seconds after which a signal is sent again whose exception was lost."""


def lost(unraisable: UnraisableHookArgs) -> None:
    """Send a signal again that came in the middle of a destructor or a callback: Python drops what those raise."""
    if isinstance(unraisable.exc_value, Stopped):
        told = threading.Event()
        threading.Thread(target=send_again, args=(told,), daemon=True).start()
        told.set()
    else:
        sys.__unraisablehook__(unraisable)


def send_again(told: threading.Event) -> None:
    """Send the signal that asked the process to end, where it would still end the block and no more.

    Not before `lost` has told all it has to: what is raised in there is dropped once more.
    """
    told.wait()
    time.sleep(SOON)
    if ASKED.number and signal.getsignal(ASKED.number) is stop:
        send_to_main_thread(ASKED.number)


@contextmanager
def stoppable() -> Iterator[None]:
    """Let signals raise `Stopped` in the block, but for those that whoever started the process has it ignore.

    Whatever a library makes of the exception on its way, such as an ImportError, the block ends with `Stopped`.
    """
    if threading.current_thread() is not threading.main_thread():  # where Python takes no signals
        yield
        return
    before = {number: signal.getsignal(number) for number in ending_signals()}
    taken = {number: handler for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    ASKED.number, ASKED.waiting, ASKED.holds = 0, False, 0
    hook, sys.unraisablehook = sys.unraisablehook, lost
    try:
        for number in taken:
            signal.signal(number, stop)
        yield
    except Exception as error:
        if ASKED.number:
            raise Stopped(ASKED.number) from error
        raise
    finally:
        sys.unraisablehook = hook
        for number, handler in taken.items():
            signal.signal(number, handler)


@contextmanager
def held() -> Iterator[None]:
    """Let a signal wait until the block is over: it must be short, and is done whole or not at all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ASKED.holds += 1
    try:
        yield
    finally:
        ASKED.holds -= 1
        if ASKED.waiting and not ASKED.holds:
            ASKED.waiting = False
            raise Stopped(ASKED.number)
