"""What is printed, and what becomes of it where nobody can take it: a stream that is closed, or a disk that is full."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import Any

from attn_exp import system


class UnprintedError(Exception):
    """What a command has to say cannot be printed; the message says why."""


class Answers(io.TextIOWrapper):
    """A stream for what a command has to say: where it cannot be written, that is no fault of any other file."""

    before: io.TextIOWrapper | None = None
    """The stream in whose place it stands."""

    def write(self, text: str) -> int:
        """Write a text.

        Raises:
            UnprintedError: it cannot be written.
            BrokenPipeError: nobody reads any more.
        """
        try:
            return super().write(text)
        except OSError as error:
            raise unprinted(error) from error

    def flush(self) -> None:
        """Hand on what was written; raises as `write`."""
        try:
            super().flush()
        except OSError as error:
            raise unprinted(error) from error


def unprinted(error: OSError) -> Exception:
    """Return the error that says so; a reader who has enough, such as `head`, is another matter."""
    return error if isinstance(error, BrokenPipeError) else UnprintedError(error.strerror or str(error))


class Patient(io.TextIOWrapper):
    """A stream for remarks, which is silent where they cannot be written: there is nobody else to tell."""

    before: io.TextIOWrapper | None = None
    """The stream in whose place it stands."""

    def write(self, text: str) -> int:
        """Write a text, if it can be written."""
        with suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        """Hand on what was written, if it can be."""
        with suppress(OSError):
            super().flush()


def made_usable() -> None:
    """Let stdout and stderr take every text, and stand where they were closed.

    A number that no stream has would be given to the next file that is opened, and what is printed would go there. In
    its place comes one that cannot be written to: what is printed to it ends as it does on a full disk.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_RDWR)  # the lowest number that is free
    if sys.stdout is None:
        sys.stdout = Answers(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8")
    if sys.stderr is None:
        sys.stderr = Patient(io.BufferedWriter(io.FileIO(2, "w", closefd=False)), "utf-8")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=system.IN_OTHER_LETTERS)
    if type(sys.stdout) is io.TextIOWrapper:
        sys.stdout = in_the_place_of(sys.stdout, Answers)
    if type(sys.stderr) is io.TextIOWrapper:
        sys.stderr = in_the_place_of(sys.stderr, Patient)


def in_the_place_of(stream: io.TextIOWrapper, kind: type[Answers] | type[Patient]) -> io.TextIOWrapper:
    """Return a stream that writes where this one does, and keeps it: a stream that nobody holds closes its file."""
    new = kind(stream.buffer, **as_it_was(stream))
    new.before = stream
    return new


def as_it_was(stream: io.TextIOWrapper) -> dict[str, Any]:
    """Return how a stream writes texts."""
    names = ("encoding", "errors", "line_buffering", "write_through")
    return {name: getattr(stream, name) for name in names}


def to_nowhere() -> None:
    """Let what is printed from here on go nowhere, and what waits to be printed."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
