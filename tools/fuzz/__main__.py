"""Try to make the program fall: python -m tools.fuzz [--only FIELD ...] [--attempts N] [--seconds S] [--first SEED]

A field is a file beside this one. Its `attempt(seed)` tries one thing that the seed decides, and returns what fell, or
None. Equal seeds try equal things, so that what fell once falls again.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import pkgutil
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tools.fuzz._load import others

HERE = Path(__file__).parent
LONGEST = 60
"""Seconds after which an attempt hangs on a quiet machine, whatever limits of its own it has."""

Attempt = Callable[[int], str | None]


@dataclass
class Count:
    """How many attempts a field made, and what fell, by seed."""

    attempts: int = 0
    seconds: float = 0.0
    fell: dict[int, str] = field(default_factory=dict)


class HangError(Exception):
    """An attempt took too long."""


def fields() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules([str(HERE)]) if not module.name.startswith("_"))


def attempt_of(name: str) -> Attempt:
    """Return what a field tries."""
    attempt: Attempt = importlib.import_module(f"tools.fuzz.{name}").attempt
    return attempt


def outcome(attempt: Attempt, seed: int) -> str | None:
    """Make one attempt and return what fell; an error of the attempt itself fell too, and so did one that hangs."""

    def hang(number: int, frame: FrameType | None) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(int(LONGEST * others()))
    try:
        return attempt(seed)
    except HangError:
        return f"hung for {LONGEST} s"
    except Exception as error:
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def tried(attempt: Attempt, seeds: Iterable[int], seconds: float) -> Count:
    count, start = Count(), time.monotonic()
    for seed in seeds:
        if time.monotonic() - start > seconds:
            break
        message = outcome(attempt, seed)
        count.attempts += 1
        if message is not None:
            count.fell[seed] = message
            print(f"  seed {seed}: {message}", flush=True)
    count.seconds = time.monotonic() - start
    return count


def main() -> int:
    """Try the fields that were asked for, print how many attempts fell, and return 1 where one did."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has it ignored in the background
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description="Try to make the program fall.")
    parser.add_argument("--only", nargs="+", choices=fields(), default=fields(), help="these fields (all)")
    parser.add_argument("--attempts", type=int, help="attempts for each field (1,000, or as many as the time allows)")
    parser.add_argument("--seconds", type=float, help="seconds for all fields together (no limit)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    given = parser.parse_args()
    share = float("inf") if given.seconds is None else given.seconds / len(given.only)
    most = given.attempts if given.attempts is not None else 1000 if given.seconds is None else None
    counts = {}
    for name in given.only:
        print(f"{name}:", flush=True)
        seeds = itertools.count(given.first)
        counts[name] = tried(attempt_of(name), seeds if most is None else itertools.islice(seeds, most), share)
    print("\n| field | attempts | fell | seconds |\n| --- | --- | --- | --- |")
    for name, count in counts.items():
        print(f"| {name} | {count.attempts:,} | {len(count.fell):,} | {count.seconds:.0f} |")
    return int(any(count.fell for count in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
