"""Cut a sweep into chunks, reproducibly, each named by everything that determines its results, to find parts again.

A point has a key as well: the sum, modulo 2^128, of a hash of the program and of each of its settings. It does not
depend on which settings are swept, in which order, and over how many values, so other sweeps find the point again.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from attn_exp import registry
from attn_exp.config.schema import Sweep
from attn_exp.config.spelling import key_of, spelled
from attn_exp.own_code import Named, fingerprint_of_function, is_code
from attn_exp.problem import input_files
from attn_exp.registry import Origin
from attn_exp.sweeps.space import Axis, Places, Settings, Space, points_left

FILES = 500
"""Number of parts of a large sweep, which keeps it under a thousand files with its tables and plots."""

USUAL, MOST, SHARES = 32, 512, 16
"""Points per chunk: the default, the maximum where seeds are far apart, and the fewest chunks of a small sweep."""

SEEDS = 16
"""Seeds per setting that a chunk should hold, since they are computed together."""

NO_RESULT = ("sweep", "report", "figures", "output_dir", "strict")
"""Settings that change no row: changing them keeps a sweep's folder and parts."""

KEYS = 2**128


@dataclass(frozen=True)
class Job:
    """Points for one worker: their numbers in the sweep, all of one chunk."""

    chunk: int
    numbers: Sequence[int]


@dataclass(frozen=True)
class Plan:
    """The points left after `sweep.skip`, and what determines their results.

    `chunk` is the number of points per chunk, `metrics` are those that are not built in, `own` the files of members
    from outside.
    """

    space: Space
    kept: Sequence[int]
    chunk: int
    version: str
    fail_fast: bool = False
    metrics: tuple[str, ...] = ()
    own: tuple[Origin, ...] = ()

    @property
    def points(self) -> int:
        return len(self.kept)

    def numbers(self, chunk: int) -> range:
        return range(chunk * self.chunk, min(self.points, (chunk + 1) * self.chunk))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each chunk: a hash of the whole sweep, of the program and of the chunk's number."""
        kept = self.kept if isinstance(self.kept, range) else hashlib.sha256(np.asarray(self.kept).tobytes()).digest()
        space = self.space.axes, self.space.dimensions, self.files, self.base_keys
        digest = hashlib.sha256(repr((self.version, self.chunk, kept, space)).encode()).hexdigest()
        chunks = -(-self.points // self.chunk)
        return tuple(hashlib.sha256(f"{digest} {chunk}".encode()).hexdigest()[:24] for chunk in range(chunks))

    @cached_property
    def base_keys(self) -> dict[Places, int]:
        """The contribution of each composed base, and of the members from outside, to the keys of its points."""
        own = hash_setting("own members", ",".join(origin.sha256 for origin in self.own))
        return {place: (hash_base(base, self.space) + own) % KEYS for place, base in self.space.bases.items()}

    def key(self, number: int) -> str:
        places = self.space.places(self.kept[number])
        total = self.base_keys[self.space.base_key(places)] + hash_setting("version", self.version)
        for axis, place in zip(self.space.axes, places, strict=True):
            if not axis.composed:
                total += hash_setting(axis.key, self.files.get(axis.word(place), axis.value_word(place)))
        return f"{total % KEYS:032x}"

    @cached_property
    def files(self) -> dict[str, str]:
        """Words that name a file of data or code, mapped to the same with a hash of the file."""
        hashes = {}
        for axis in self.space.axes:
            for place, value in named_code(axis):
                hashes[axis.word(place)] = fingerprint_of_function(value)
            for place, value in enumerate(axis.values if input_files.is_file(axis.key) else ()):
                hashes[axis.word(place)] = input_files.fingerprint(value, axis.key)
        return {word: f"{word} {digest}" for word, digest in hashes.items()}

    @cached_property
    def code(self) -> tuple[str, ...]:
        variants = [variant for base in self.space.bases.values() for variant in base["variant"].values()]
        fixed = [variant["form"] for variant in variants if isinstance(variant, Mapping) and is_code(variant["form"])]
        swept = [value for axis in self.space.axes for _, value in named_code(axis)]
        return tuple(dict.fromkeys(map(str, (*fixed, *swept))))


def hash_setting(key: str, text: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{key}={text}".encode()).digest()[:16], "big")


def hash_base(base: Settings, space: Space) -> int:
    """Return the sum of hashes over all settings that no axis sets, and the files and functions that they name."""
    swept = tuple(f"{axis.key}." for axis in space.axes if not axis.composed)
    deciding = {name: value for name, value in base.items() if name not in NO_RESULT}
    texts = {key: spelled(value) for key, value in flatten(deciding) if not f"{key}.".startswith(swept)}
    texts |= {f"{key} file": input_files.fingerprint(file, key) for key, file in input_files.of(base).items()}
    functions = {name: fingerprint_of_function(variant.get("form")) for name, variant in base["variant"].items()}
    texts |= {f"{name} function": text for name, text in functions.items() if text}
    return sum(hash_setting(key, text) for key, text in texts.items())


def flatten(settings: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(settings, Mapping) and settings:
        for name, value in settings.items():
            yield from flatten(value, f"{key}.{name}" if key else str(name))
    else:
        yield key, settings


def named_code(axis: Axis) -> list[tuple[int, Any]]:
    if isinstance(axis.values, range) or not axis.key.startswith("variant."):
        return []
    return [(place, value) for place, value in enumerate(axis.values) if isinstance(value, Named)]


@cache
def task_version() -> str:
    """Return a hash of the program: its sources and the NumPy version."""
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
    chunk = sweep.chunk or choose_chunk(space, len(kept))
    return Plan(space, kept, chunk, task_version(), sweep.fail_fast, metrics, own)


def choose_chunk(space: Space, points: int) -> int:
    """Return the number of points per chunk, for `points` points left of a space."""
    usual = max(USUAL, min(MOST, SEEDS * space.seeds[1])) if space.seeds else USUAL
    last = space.axes[space.dimensions[-1][-1]] if space.dimensions else None
    # at least a quarter of a model's layers, if consecutive points differ only in the layer and share a forward pass
    layers = -(-len(last.values) // 4) if last is not None and last.key == "model.layer" else 1
    return max(1, -(-points // FILES), min(usual, points // SHARES), layers)


def identity(space: Space, sweep: Sweep, folders: Sequence[str]) -> str:
    """Return the default folder name of a sweep: a hash of its command, whatever the engine."""
    spelt = (values if isinstance(values := axis.values, range) else list(map(spelled, values)) for axis in space.axes)
    axes = [(axis.key, values) for axis, values in zip(space.axes, spelt, strict=True)]
    fixed = sorted(filter(is_deciding, space.fixed))
    deciding = (axes, space.dimensions, fixed, sweep.skip, list(folders), *registry.files())
    return hashlib.sha256(repr(deciding).encode()).hexdigest()[:12]


def is_deciding(word: str) -> bool:
    return key_of(word).split(".")[0] not in NO_RESULT
