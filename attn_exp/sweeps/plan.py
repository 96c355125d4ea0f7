"""A sweep cut into chunks, the same each time, each named by all that decides its results: so parts are found again."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from attn_exp import registry
from attn_exp.config.schema import Sweep
from attn_exp.config.spelling import key_of, spelled
from attn_exp.own_code import Named, fingerprint_of_function, is_code
from attn_exp.problem import input_files
from attn_exp.registry import Origin
from attn_exp.sweeps.skip import points_left
from attn_exp.sweeps.space import Axis, Space, changed, holds

FILES = 500
"""Parts of a large sweep; with its tables and plots it stays under a thousand files."""

USUAL, MOST, SHARES = 32, 512, 16
"""Points of a chunk: usually, and at most where seeds lie far apart; never more than this share of a small sweep."""

SEEDS = 16
"""Seeds of one setting that a chunk should hold, since they are computed together."""

MOST_SPELLED = 100_000
"""Values of a range that are hashed one by one for the name of a sweep's folder."""

NO_RESULT = ("sweep", "report", "figures", "output_dir", "strict")
"""Settings that change no row: a sweep finds its folder and its parts again where they are others."""


@dataclass(frozen=True)
class Job:
    """Points for one worker: their numbers in the sweep, all of one chunk. `whole` unless some are done already."""

    chunk: int
    numbers: Sequence[int]
    whole: bool = True


@dataclass(frozen=True)
class Plan:
    """The points that are left after `sweep.skip`, how many of them make a chunk, metrics beyond a row's own, and
    the files of members from outside the package."""

    space: Space
    kept: Sequence[int]
    chunk: int
    version: str
    fail_fast: bool = False
    metrics: tuple[str, ...] = ()
    own: tuple[Origin, ...] = ()

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
        """Return the hash of one chunk: of its numbers, and of every value that its points may have."""
        numbers = self.numbers(chunk)
        kept = self.kept[numbers.start : numbers.stop]
        digest = hashlib.sha256(self.version.encode())
        digest.update("".join(origin.sha256 for origin in self.own).encode())
        digest.update(repr((numbers, self.space.lengths[1:], kept)).encode())
        touched = self.space.touched(kept[0], kept[-1])
        for axis, places in zip(self.space.axes, touched, strict=True):
            digest.update(repr((axis.key, self.words(axis, places))).encode())
        composed = [places for axis, places in zip(self.space.axes, touched, strict=True) if axis.composed]
        for key in self.bases:
            if all(place in places for place, places in zip(key, composed, strict=True)):
                digest.update(repr((key, self.bases[key])).encode())
        return digest.hexdigest()[:24]

    def words(self, axis: Axis, places: range) -> Any:
        """Return what chooses some values of an axis; of even steps, the steps."""
        if isinstance(axis.values, range) and places.stop <= len(axis.values):
            return axis.sign, axis.values[places.start : places.stop]
        words = [axis.word(place % len(axis.values)) for place in places]
        return [self.files.get(word, word) for word in words]

    @cached_property
    def bases(self) -> dict[tuple[int, ...], str]:
        """A hash of each composed base, without the values that points put into it."""
        return {key: fingerprint(base, self.space) for key, base in self.space.bases.items()}

    @cached_property
    def files(self) -> dict[str, str]:
        """Words that name a file of data or of code, and the same with a hash of what it holds."""
        axes = [axis for axis in self.space.axes if input_files.is_file(axis.key)]
        words = {
            axis.word(place): input_files.fingerprint(value, axis.key)
            for axis in axes
            for place, value in enumerate(axis.values)
        }
        code = {axis.word(place): value for axis in self.space.axes for place, value in named_code(axis)}
        words |= {word: fingerprint_of_function(value) for word, value in code.items()}
        return {word: f"{word} {digest}" for word, digest in words.items()}

    @cached_property
    def code(self) -> tuple[str, ...]:
        """The code of the user's own that its points run, by name."""
        variants = [variant for base in self.space.bases.values() for variant in base["variant"].values()]
        fixed = [variant["form"] for variant in variants if isinstance(variant, Mapping) and is_code(variant["form"])]
        swept = [value for axis in self.space.axes for _, value in named_code(axis)]
        return tuple(dict.fromkeys(map(str, (*fixed, *swept))))


def fingerprint(base: Mapping[str, Any], space: Space) -> str:
    """Return a hash of composed settings: all that could change a result."""
    for axis in space.axes:
        path = axis.key.split(".")
        base = changed(base, path, None) if not axis.composed and holds(base, path) else base
    deciding = {key: value for key, value in base.items() if key not in NO_RESULT}
    text = json.dumps(deciding, sort_keys=True, default=repr)
    text += "".join(input_files.fingerprint(file, key) for key, file in input_files.of(base).items())
    text += "".join(fingerprint_of_function(variant.get("form")) for variant in base["variant"].values())
    return hashlib.sha256(text.encode()).hexdigest()


def named_code(axis: Axis) -> list[tuple[int, Any]]:
    """Return the values of an axis that are code of the user's own, with their places."""
    if isinstance(axis.values, range) or not axis.key.startswith("variant."):
        return []
    return [(place, value) for place, value in enumerate(axis.values) if isinstance(value, Named)]


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
    own = tuple(origin for origin in registry.origins() if origin.name)
    kept: Sequence[int] = points_left(space, sweep.skip) if sweep.skip else range(space.size)
    chunk = sweep.chunk or chunk_size(space, len(kept))
    return Plan(space, kept, chunk, task_version(), sweep.fail_fast, metrics, own)


def chunk_size(space: Space, points: int) -> int:
    """Return how many points a chunk gets, of so many that are left of a space."""
    usual = max(USUAL, min(MOST, SEEDS * seed_stride(space)))
    last = space.axes[space.dimensions[-1][-1]] if space.dimensions else None
    # at least a quarter of a model's layers, where neighbours differ in them alone and share one pass through it
    layers = -(-len(last.values) // 4) if last is not None and last.key == "model.layer" else 1
    return max(1, -(-points // FILES), min(usual, points // SHARES), layers)


def seed_stride(space: Space) -> int:
    """Return how many points lie between two that differ in the next seed alone: 0 where seeds do not vary alone."""
    stride = space.size
    for length, together in zip(space.lengths, space.dimensions, strict=True):
        stride //= length
        if len(together) == 1 and space.axes[together[0]].key == "seed":
            return stride
    return 0


def identity(space: Space, sweep: Sweep, folders: Sequence[str]) -> str:
    """Return the name of the folder of a sweep that was given none: a hash of its command, whatever the engine."""
    axes = [(axis.key, identity_of(axis)) for axis in space.axes]
    fixed = sorted(word for word in space.fixed if key_of(word).split(".")[0] not in NO_RESULT)
    deciding = (axes, space.dimensions, fixed, sweep.skip, list(folders), *registry.files())
    return hashlib.sha256(repr(deciding).encode()).hexdigest()[:12]


def identity_of(axis: Axis) -> Any:
    """Return what tells the values of an axis from others: all of them, or the steps of a long range."""
    long = isinstance(axis.values, range) and len(axis.values) > MOST_SPELLED
    return repr(axis.values) if long else [spelled(value) for value in axis.values]
