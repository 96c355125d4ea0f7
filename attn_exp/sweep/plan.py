"""A sweep cut into chunks, each named by all that decides its results."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from attn_exp.config.schema import Sweep
from attn_exp.sweep import skip
from attn_exp.sweep.space import Space, changed, holds
from attn_exp.sweep.words import spelled

FILES = 500
"""Parts of a large sweep; with its tables and plots it stays under a thousand files."""


@dataclass(frozen=True)
class Job:
    """Points for one worker: their numbers in the sweep, all of one chunk. `whole` unless some are done already."""

    chunk: int
    numbers: Sequence[int]
    whole: bool = True


@dataclass(frozen=True)
class Plan:
    """The points that are left after `sweep.skip`, how many of them make a chunk, and metrics beyond a row's own."""

    space: Space
    kept: Sequence[int]
    chunk: int
    version: str
    fail_fast: bool = False
    metrics: tuple[str, ...] = ()

    @property
    def points(self) -> int:
        """How many points there are."""
        return len(self.kept)

    @property
    def chunks(self) -> int:
        """How many chunks there are."""
        return -(-self.points // self.chunk)

    def number(self, index: int) -> int | None:
        """Return the number of the point that is this combination of all; None where it was left out."""
        if isinstance(self.kept, range):
            return index
        place = bisect_left(self.kept, index)
        return place if place < len(self.kept) and self.kept[place] == index else None

    def numbers(self, chunk: int) -> range:
        """Return the numbers of a chunk's points."""
        return range(chunk * self.chunk, min(self.points, (chunk + 1) * self.chunk))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each chunk: a hash of its points' whole configurations and of the program."""
        return tuple(self.name(chunk) for chunk in range(self.chunks))

    def name(self, chunk: int) -> str:
        """Return the hash of one chunk."""
        digest = hashlib.sha256(self.version.encode())
        for number in self.numbers(chunk):
            places = self.space.places(self.kept[number])
            words = [
                self.files.get(word := axis.word(place), word)
                for axis, place in zip(self.space.axes, places, strict=True)
            ]
            digest.update(repr((number, self.bases[self.space.base_key(places)], words)).encode())
        return digest.hexdigest()[:24]

    @cached_property
    def bases(self) -> dict[tuple[int, ...], str]:
        """A hash of each composed base, without the values that points put into it."""
        return {key: fingerprint(base, self.space) for key, base in self.space.bases.items()}

    @cached_property
    def files(self) -> dict[str, str]:
        """Words that name a data file, and the same with a hash of what it holds."""
        axes = [axis for axis in self.space.axes if axis.key == "embeddings.file"]
        words = {axis.word(place): value for axis in axes for place, value in enumerate(axis.values)}
        return {word: f"{word} {contents(value)}" for word, value in words.items()}


def fingerprint(base: Mapping[str, Any], space: Space) -> str:
    """Return a hash of composed settings: all that could change a result."""
    for axis in space.axes:
        path = axis.key.split(".")
        base = changed(base, path, None) if not axis.composed and holds(base, path) else base
    told = {key: value for key, value in base.items() if key not in ("sweep", "output_dir", "report")}
    text = json.dumps(told, sort_keys=True, default=repr) + contents(base["embeddings"].get("file"))
    return hashlib.sha256(text.encode()).hexdigest()


def contents(file: Any) -> str:
    """Return a hash of a file's contents; nothing where there is none."""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest() if isinstance(file, str) else ""
    except OSError:
        return ""


def task_version() -> str:
    """Return a hash of the program: its sources, and the library that rounds its numbers."""
    home = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256(importlib.metadata.version("numpy").encode())
    for path in sorted(home.rglob("*.py")):
        digest.update(path.relative_to(home).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def make_plan(space: Space, sweep: Sweep, metrics: tuple[str, ...] = ()) -> Plan:
    """Return the plan of a sweep.

    Raises:
        UserError: a `sweep.skip` that cannot be read or decided.
    """
    kept: Sequence[int] = array("Q", left(space, sweep.skip)) if sweep.skip else range(space.size)
    return Plan(space, kept, sweep.chunk or chunk_size(len(kept)), task_version(), sweep.fail_fast, metrics)


def chunk_size(points: int) -> int:
    """Return how many points a chunk gets: the same each time, so that a sweep finds its parts again."""
    return max(1, -(-points // FILES), min(32, points // 16))


def left(space: Space, text: str) -> Iterator[int]:
    """Yield the points for which the expression does not hold."""
    test, names = skip.condition(text)
    swept = {axis.key: place for place, axis in enumerate(space.axes)}
    fixed: dict[tuple[int, ...], dict[str, Any]] = {}
    for index in range(space.size):
        places = space.places(index)
        base = space.base_key(places)
        if base not in fixed or "d_model" in names:
            settings = space.settings(index)
            fixed[base] = {name: skip.look_up(name, settings, space.choices[base]) for name in names}
        known = fixed[base] | {
            name: space.axes[swept[name]].values[places[swept[name]]]
            for name in names
            if name in swept and not space.axes[swept[name]].composed
        }
        if not skip.holds(test, known, text):
            yield index


def identity(space: Space, sweep: Sweep, folders: Sequence[str]) -> str:
    """Return the name of the folder of a sweep that was given none: a hash of its command, whatever the engine."""
    axes = [(axis.key, [spelled(value) for value in axis.values]) for axis in space.axes]
    fixed = sorted(word for word in space.fixed if not word.startswith(("sweep.", "report=", "output_dir=")))
    told = (axes, space.dimensions, fixed, sweep.skip, list(folders))
    return hashlib.sha256(repr(told).encode()).hexdigest()[:12]
