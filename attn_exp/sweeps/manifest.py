"""`manifest.json`: the description of a sweep, and the words that choose each of its points."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from attn_exp import machine
from attn_exp.config.choices import as_yaml_value
from attn_exp.config.kinds import read_fields
from attn_exp.config.schema import Config, Figures
from attn_exp.config.spelling import Repeat
from attn_exp.errors import UserError
from attn_exp.runs import folders, provenance, trust
from attn_exp.runs.trust import DamagedError
from attn_exp.sweeps.plan import Plan
from attn_exp.sweeps.space import Axis, Space
from attn_exp.sweeps.task import columns

FILE = "manifest.json"
About = Mapping[str, Any]
"""The contents of a manifest."""

SHAPE = {
    **folders.DESCRIPTION,
    "words": [str], "clock": float, "seconds?": float, "folders": [str], "title": str, "points": int, "chunk": int,
    "fixed": [str], "axes": [{
        "key": str, "sign": str, "column": str, "count": int, "kind": str, "low?": float, "high?": float,
        "range?": [int], "words?": [str],
    }],
    "dimensions": [[int]], "skipped": int, "columns": [str], "metrics": [str], "format": str,
    "report": {"tables": bool, "figures": bool, "pages": bool, "depth?": str}, "kept": [[int]], "parts": [str],
    "version": str, "versions?": dict, "git?": (dict, NoneType), "cpu?": str, "blas?": [dict],
    "told?": str, "disagreeing?": int, "exact?": bool, "sweep": dict,
    "figures": dict, "results?": {"bytes?": int, "sha256?": str}, **provenance.SHAPES,
}  # fmt: skip
"""The fields of a manifest that are read."""

KINDS: dict[str, set[type]] = {"bool": {bool}, "int": {int}, "float": {int, float}}


def describe_sweep(plan: Plan, config: Config, command: Repeat) -> dict[str, Any]:
    titles = {str(base["title"]) for base in plan.space.bases.values()}
    listed = [axis for axis in plan.space.axes if not isinstance(axis.values, range)]
    return {
        "status": "running",
        "command": command.line,
        "words": list(command.words),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "clock": time.time(),
        "folders": [str(Path(folder).resolve()) for folder in command.folders],
        "title": titles.pop() if len(titles) == 1 else "",
        "points": plan.points,
        "chunk": plan.chunk,
        "fixed": list(plan.space.fixed),
        "axes": [describe_axis(axis) for axis in plan.space.axes],
        "dimensions": plan.space.dimensions,
        "skipped": plan.space.size - plan.points,
        "columns": columns(plan),
        "metrics": plan.metrics,
        "format": config.sweep.format,
        "sweep": as_yaml_value(asdict(config.sweep)),
        "report": asdict(config.report),
        "figures": as_yaml_value(asdict(config.figures)),
        "version": plan.version,
        "kept": find_runs(plan.kept),
        "parts": list(plan.names),
        **provenance.record_files(config, plan.code, [(axis.key, value) for axis in listed for value in axis.values]),
    }


def describe_axis(axis: Axis) -> dict[str, Any]:
    values, count = axis.values, len(axis.values)
    steps = values if isinstance(values, range) else None
    kinds = {int} if steps else {type(value) for value in values}
    kind = next((name for name, types in KINDS.items() if kinds <= types), "text")
    ends = {"low": min(values), "high": max(values)} if kind in ("int", "float") else {}
    words = [axis.value_word(place) for place in range(0 if steps else count)]
    chosen = {"range": [steps.start, steps.step]} if steps else {"words": words}
    return {"key": axis.key, "sign": axis.sign, "column": axis.column, "count": count, "kind": kind, **ends, **chosen}


MOST_RUNS = 1_000_000


def find_runs(numbers: Sequence[int]) -> list[list[int]]:
    """Write ascending numbers as runs: [first, one after the last]."""
    if isinstance(numbers, range):
        return [[numbers.start, numbers.stop]]
    whole = np.asarray(numbers, dtype=np.uint64)
    breaks = np.flatnonzero(np.diff(whole) != 1) + 1
    if len(breaks) > MOST_RUNS:
        raise UserError(f"sweep.skip leaves {len(breaks) + 1:,} separate runs of points; a plan holds {MOST_RUNS:,}")
    return [[int(run[0]), int(run[-1]) + 1] for run in np.split(whole, breaks)]


def write_manifest(folder: Path, about: About) -> None:
    text = json.dumps(about, indent=1, ensure_ascii=False) + "\n"
    machine.write(folder / FILE, text, sync=True)


def load_manifest(folder: Path) -> dict[str, Any]:
    """Load and check the manifest of a sweep, which somebody else may have written.

    Raises:
        UserError: no sweep there, or a manifest that cannot be read.
    """
    if not os.path.lexists(folder / FILE) and (folder / "run.json").is_file():
        raise UserError(f"{folder} is a run; for a sweep name a folder with a {FILE}")
    try:
        about = trust.read_json(folder / FILE, SHAPE)
        check_manifest(about)
    except FileNotFoundError as error:
        raise UserError(f"{folder}: no sweep there ({FILE}: {error.strerror})") from error
    except (OSError, ValueError, LookupError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{folder}: its {FILE} cannot be read ({reason})") from error
    return about


def find_manifest(folder: Path) -> dict[str, Any] | None:
    try:
        return load_manifest(folder)
    except UserError:
        return None


def thresholds(about: About) -> dict[str, float]:
    matters = about["sweep"].get("matters")
    known = matters.items() if isinstance(matters, dict) else ()
    return {name: float(limit) for name, limit in known if isinstance(limit, int | float)}


def figures(about: About) -> Figures:
    """Return the figure settings in the manifest.

    Raises:
        UserError: unknown settings of figures.
    """
    said = {name: value for name, value in about["figures"].items() if value is not None}
    return Figures(**read_fields(Figures, said, "figures."))


def check_manifest(about: About) -> None:
    """Check that the counts in a manifest are consistent.

    Raises:
        DamagedError: what does not fit.
    """
    counts = [stop - start if start <= stop else -1 for start, stop in about["kept"]]
    places = [place for together in about["dimensions"] for place in together]
    fits = {
        "points": about["points"] == sum(counts) and min(counts, default=0) >= 0,
        "parts": about["chunk"] > 0 and len(about["parts"]) == -(-about["points"] // about["chunk"]),
        "dimensions": sorted(places) == list(range(len(about["axes"]))) and all(about["dimensions"]),
        "columns": {"point", "status", "message", "variant", *(axis["column"] for axis in about["axes"])}
        <= set(about["columns"]),
        "axes": all(len(list_words(axis)) == axis["count"] > 0 for axis in about["axes"]),
        "format": about["format"] in ("csv", "parquet"),
    }
    for name, is_fine in fits.items():
        if not is_fine:
            raise DamagedError(f"{name} does not fit the rest")


def space_of(about: About) -> Space:
    """Return the points of a sweep as words; the settings that Hydra composed are not in the manifest."""
    axes = tuple(Axis(axis["key"], list_words(axis), composed=True, sign=axis["sign"]) for axis in about["axes"])
    return Space(axes, tuple(map(tuple, about["dimensions"])), fixed=tuple(about["fixed"]))


def list_words(axis: Mapping[str, Any]) -> Sequence[Any]:
    start, step = axis.get("range", (0, 0))
    words: Sequence[Any] = range(start, start + step * axis["count"], step) if step else axis["words"]
    return words


def point_command(about: About, point: int) -> Repeat:
    """Return the command that runs one point alone, with the user's config folders that it needs."""
    for first, stop in about["kept"]:  # among all combinations, including those left out
        if point < stop - first:
            break
        point -= stop - first
    else:
        raise DamagedError("the manifest has no such point")
    words = [word for word in space_of(about).words(first + point) if not word.startswith("sweep.")]
    return Repeat(tuple(words), tuple(about["folders"]), own=provenance.files_of_members(about))
