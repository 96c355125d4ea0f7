"""Cut a sweep into chunks, each named by a hash of everything that determines its results, so that they can be reused.

Each point also has a key: the sum, modulo 2^128, of the hashes of the program and of each of its settings. The key does
not depend on which settings are swept, in which order, or over how many values. So another sweep with the same point
can reuse it. `manifest.json` describes the plan, including the arguments that select each point.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache, cached_property
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from attn_exp import machine, registry
from attn_exp.config.choices import as_yaml_value
from attn_exp.config.kinds import read_fields
from attn_exp.config.schema import Config, Figures, Sweep
from attn_exp.config.spelling import Repeat, key_of, spelled
from attn_exp.errors import refuse
from attn_exp.experiment.row import Row
from attn_exp.own_code import Named, fingerprint_of_function, is_code
from attn_exp.problem import input_files
from attn_exp.registry import Origin
from attn_exp.runs import folders, provenance, trust
from attn_exp.runs.trust import DamagedError
from attn_exp.sweeps.space import Axis, Indices, Settings, Space, remaining_points

FILES = 500
"""Maximum number of parts of a sweep, so that with its tables and plots it has fewer than a thousand files."""

POINTS_PER_CHUNK = 32
"""The default number of points per chunk."""
MOST_PER_CHUNK = 512
"""The maximum number of points per chunk, which matters if points that differ only in the seed are far apart."""
SEEDS_PER_CHUNK = 64
"""How many points that differ only in the seed a chunk should contain, since they are computed together."""
FEWEST_CHUNKS = 16
"""The minimum number of chunks, so that the workers share a small sweep."""

NO_RESULT = ("sweep", "report", "figures", "output_dir", "strict")
"""Settings that affect no row: if only they change, a sweep keeps its folder and parts."""

KEYS = 2**128  # the number of different keys of points; sums of hashes are taken modulo this number
FILE = "manifest.json"
Manifest = Mapping[str, Any]
"""The contents of a manifest."""
SCHEMA = {
    **folders.DESCRIPTION,
    "words": [str], "seconds?": float, "folders": [str], "title": str, "points": int, "chunk": int,
    "fixed": [str], "axes": [{
        "key": str, "sign": str, "column": str, "count": int, "kind": str,
        "range?": [int], "words?": [str],
    }],
    "dimensions": [[int]], "skipped": int, "columns": [str], "metrics": [str], "format": str,
    "report": {"tables": bool, "figures": bool, "pages": bool, "depth?": str}, "kept": [[int]], "parts": [str],
    "version": str, "versions?": dict, "git?": (dict, NoneType), "cpu?": str, "blas?": [dict],
    "exact?": bool, "sweep": dict, "figures": dict, **provenance.SCHEMAS,
}  # fmt: skip
"""The fields of a manifest that are read, and their types."""
# the types of the values on an axis of each kind; an axis with other values has the kind `text`
KINDS: dict[str, set[type]] = {"bool": {bool}, "int": {int}, "float": {int, float}}


@dataclass(frozen=True)
class Job:
    """Points for one worker, all from one chunk.

    - `numbers`: the numbers of the points in the plan.
    - `is_retry`: whether an earlier worker died at this job.
    """

    chunk: int
    numbers: Sequence[int]
    is_retry: bool = False


@dataclass(frozen=True)
class Plan:
    """The points that `sweep.skip` leaves, and everything that determines their results.

    - `kept`: the index in `space` of each point. In a plan, the points are numbered from 0.
    - `chunk`: the number of points per chunk.
    - `version`: the hash of the program, see `task_version`.
    - `metrics`: the names of the metrics that are not built in.
    - `own`: the files of plugins.
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
        """The names of the chunks: hashes of the whole sweep, the program and the number of the chunk."""
        kept = self.kept if isinstance(self.kept, range) else hashlib.sha256(np.asarray(self.kept).tobytes()).digest()
        space = self.space.axes, self.space.dimensions, self.files, self.base_keys
        digest = hashlib.sha256(repr((self.version, self.chunk, kept, space)).encode()).hexdigest()
        chunks = -(-self.points // self.chunk)
        return tuple(hashlib.sha256(f"{digest} {chunk}".encode()).hexdigest()[:24] for chunk in range(chunks))

    @cached_property
    def base_keys(self) -> dict[Indices, int]:
        """For each composed configuration, the sum of hashes that it and the plugins add to the keys of its points."""
        plugins = hash_setting("own members", ",".join(origin.sha256 for origin in self.own))
        return {key: (hash_base(base, self.space) + plugins) % KEYS for key, base in self.space.bases.items()}

    def key(self, number: int) -> str:
        indices = self.space.indices(self.kept[number])
        total = self.base_keys[self.space.base_key(indices)] + hash_setting("version", self.version)
        for axis, value_index in zip(self.space.axes, indices, strict=True):
            if not axis.composed:
                total += hash_setting(axis.key, self.files.get(axis.word(value_index), axis.value_word(value_index)))
        return f"{total % KEYS:032x}"

    @cached_property
    def files(self) -> dict[str, str]:
        """The swept arguments that name a data or code file, each with the text that is hashed for it."""
        hashes = {}
        for axis in self.space.axes:
            for index, value in enumerate(axis.listed):
                if isinstance(value, Named):
                    hashes[axis.word(index)] = fingerprint_of_function(value)
                elif input_files.is_file(axis.key):
                    hashes[axis.word(index)] = input_files.fingerprint(value, axis.key)
        return {word: f"{word} {digest}" for word, digest in hashes.items()}

    @cached_property
    def code(self) -> tuple[str, ...]:
        variants = [variant for base in self.space.bases.values() for variant in base["variant"].values()]
        fixed = [variant["form"] for variant in variants if isinstance(variant, Mapping) and is_code(variant["form"])]
        swept = [value for axis in self.space.axes for value in axis.listed if isinstance(value, Named)]
        return tuple(dict.fromkeys(map(str, (*fixed, *swept))))


def hash_setting(key: str, text: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{key}={text}".encode()).digest()[:16], "big")


def hash_base(base: Settings, space: Space) -> int:
    """Return the sum of the hashes of all settings that no axis sets, and of the files and functions in them."""
    swept = tuple(f"{axis.key}." for axis in space.axes if not axis.composed)
    deciding = {name: value for name, value in base.items() if name not in NO_RESULT}
    texts = {key: spelled(value) for key, value in flatten(deciding) if not f"{key}.".startswith(swept)}
    texts |= {
        f"{key} file": input_files.fingerprint(file, key) for key, file in input_files.list_input_files(base).items()
    }
    functions = {name: fingerprint_of_function(variant.get("form")) for name, variant in base["variant"].items()}
    texts |= {f"{name} function": text for name, text in functions.items() if text}
    return sum(hash_setting(key, text) for key, text in texts.items())


def flatten(settings: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(settings, Mapping) and settings:
        for name, value in settings.items():
            yield from flatten(value, f"{key}.{name}" if key else str(name))
    else:
        yield key, settings


@cache
def task_version() -> str:
    """Return a hash of the program: its source files and the NumPy version."""
    home = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256(importlib.metadata.version("numpy").encode())
    for path in sorted(home.rglob("*.py")):
        digest.update(path.relative_to(home).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def make_plan(space: Space, sweep: Sweep, metrics: tuple[str, ...] = ()) -> Plan:
    """Return the plan of a sweep.

    Raises:
        UserError: `sweep.skip` cannot be parsed or evaluated.
    """
    own = tuple(origin for origin in registry.origins() if origin.name)
    kept: Sequence[int] = remaining_points(space, sweep.skip) if sweep.skip else range(space.size)
    chunk = sweep.chunk or choose_chunk(space, len(kept))
    return Plan(space, kept, chunk, task_version(), sweep.fail_fast, metrics, own)


def choose_chunk(space: Space, points: int) -> int:
    """Return the number of points per chunk if `points` points of the space remain."""
    # points of consecutive seeds are `space.seeds[1]` apart
    usual = min(MOST_PER_CHUNK, SEEDS_PER_CHUNK * space.seeds[1]) if space.seeds else POINTS_PER_CHUNK
    last = space.axes[space.dimensions[-1][-1]] if space.dimensions else None
    # at least a quarter of a model's layers, if consecutive points differ only in the layer and share a forward pass
    layers = -(-len(last.values) // 4) if last is not None and last.key == "model.layer" else 1
    return max(1, -(-points // FILES), min(max(usual, POINTS_PER_CHUNK), points // FEWEST_CHUNKS), layers)


def hash_command(space: Space, sweep: Sweep, folders: Sequence[str]) -> str:
    """Return the default folder name of a sweep: a hash of its command, without settings that affect no row."""
    axes = [
        (axis.key, axis.values if isinstance(axis.values, range) else list(map(spelled, axis.values)))
        for axis in space.axes
    ]
    fixed = sorted(filter(is_deciding, space.fixed))
    deciding = (axes, space.dimensions, fixed, sweep.skip, list(folders), *registry.files())
    return hashlib.sha256(repr(deciding).encode()).hexdigest()[:12]


def is_deciding(word: str) -> bool:
    return key_of(word).split(".")[0] not in NO_RESULT


def list_columns(plan: Plan) -> list[str]:
    """Return the columns of the results: the point, its swept settings, its status, and the row of each variant.

    A part has one more column, the key of the point.
    """
    swept = [axis.column for axis in plan.space.axes]
    return ["point", *swept, "status", "message", "agree", *row_columns().values(), *plan.metrics]


@cache
def row_columns() -> dict[str, str]:
    """Return the column of each field of a `Row`: its name, or `variant_<name>` if a setting has that name already."""
    settings = {field.name for field in fields(Config)} - {"variant"}
    return {field.name: f"variant_{field.name}" if field.name in settings else field.name for field in fields(Row)}


def describe_sweep(plan: Plan, config: Config, command: Repeat) -> dict[str, Any]:
    titles = {str(base["title"]) for base in plan.space.bases.values()}
    return {
        "status": "running",
        "command": command.line,
        "words": list(command.words),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "folders": [str(Path(folder).resolve()) for folder in command.folders],
        "title": titles.pop() if len(titles) == 1 else "",
        "points": plan.points,
        "chunk": plan.chunk,
        "fixed": list(plan.space.fixed),
        "axes": [describe_axis(axis) for axis in plan.space.axes],
        "dimensions": plan.space.dimensions,
        "skipped": plan.space.size - plan.points,
        "columns": list_columns(plan),
        "metrics": plan.metrics,
        "format": config.sweep.format,
        "sweep": as_yaml_value(asdict(config.sweep)),
        "report": asdict(config.report),
        "figures": as_yaml_value(asdict(config.figures)),
        "version": plan.version,
        "kept": find_runs(plan.kept),
        "parts": list(plan.names),
        **provenance.record_files(
            config, plan.code, [(axis.key, value) for axis in plan.space.axes for value in axis.listed]
        ),
    }


def describe_axis(axis: Axis) -> dict[str, Any]:
    values = axis.values
    described = {"key": axis.key, "sign": axis.sign, "column": axis.column, "count": len(values)}
    if isinstance(values, range):
        return described | {"kind": "int", "range": [values.start, values.step]}
    kinds = set(map(type, values))
    kind = next((name for name, types in KINDS.items() if kinds <= types), "text")
    return described | {"kind": kind, "words": list(map(axis.value_word, range(len(values))))}


def find_runs(numbers: Sequence[int]) -> list[list[int]]:
    """Encode ascending numbers as half-open runs: `[3, 4, 5, 8] -> [[3, 6], [8, 9]]`."""
    if isinstance(numbers, range):
        return [[numbers.start, numbers.stop]]
    indices = np.asarray(numbers, dtype=np.uint64)
    return [[int(run[0]), int(run[-1]) + 1] for run in np.split(indices, np.flatnonzero(np.diff(indices) != 1) + 1)]


def write_manifest(folder: Path, manifest: Manifest) -> None:
    machine.write(folder / FILE, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", sync=True)


def is_sweep(folder: Path) -> bool:
    return (folder / FILE).is_file() and not os.path.lexists(folder / "run.json")


def load_manifest(folder: Path) -> dict[str, Any]:
    """Load the manifest of a sweep, and check it, since it may come from someone else.

    Raises:
        UserError: the folder holds no sweep, or its manifest cannot be read.
    """
    with refuse(f"{folder}: its {FILE} cannot be read", OSError, ValueError, LookupError):
        manifest = trust.read_json(folder / FILE, SCHEMA)
        check_manifest(manifest)
    return manifest


def read_figures(manifest: Manifest) -> Figures:
    """Return the figure settings in the manifest.

    Raises:
        UserError: a figure setting is unknown.
    """
    figure_settings = {name: value for name, value in manifest["figures"].items() if value is not None}
    return Figures(**read_fields(Figures, figure_settings, "figures."))


def check_manifest(manifest: Manifest) -> None:
    """Check that the axes and the counts in a manifest are consistent.

    Raises:
        DamagedError: they are inconsistent.
    """
    fits = (
        manifest["points"] == sum(stop - start for start, stop in manifest["kept"])
        and all(start <= stop for start, stop in manifest["kept"])
        and manifest["chunk"] > 0
        and len(manifest["parts"]) == -(-manifest["points"] // manifest["chunk"])
        and sorted(index for dimension in manifest["dimensions"] for index in dimension)
        == list(range(len(manifest["axes"])))
        and all(manifest["dimensions"])
        and all(len(list_words(axis)) == axis["count"] > 0 for axis in manifest["axes"])
        and manifest["format"] in ("csv", "parquet")
    )
    if not fits:
        raise DamagedError("its axes, points, parts and format are inconsistent")


def list_words(axis: Mapping[str, Any]) -> Sequence[Any]:
    start, step = axis.get("range", (0, 0))
    return range(start, start + step * axis["count"], step) if step else list(axis["words"])


def point_command(manifest: Manifest, point: int) -> Repeat:
    """Return the command that runs one point alone, including the config folders that it needs."""
    for first, stop in manifest["kept"]:  # find the index of the point among all combinations, skipped ones too
        if point < stop - first:
            break
        point -= stop - first
    else:
        raise DamagedError("the manifest has no such point")
    axes = tuple(Axis(axis["key"], list_words(axis), composed=True, sign=axis["sign"]) for axis in manifest["axes"])
    space = Space(axes, tuple(map(tuple, manifest["dimensions"])), fixed=tuple(manifest["fixed"]))
    words = [word for word in space.words(first + point) if not word.startswith("sweep.")]
    return Repeat(tuple(words), tuple(manifest["folders"]), own=provenance.list_member_files(manifest))
