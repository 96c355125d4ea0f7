"""`manifest.json`: what a sweep is, from the files alone."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from attn_exp import machine
from attn_exp.config.repeat import Repeat
from attn_exp.config.schema import Config
from attn_exp.errors import UserError
from attn_exp.sweep.plan import Plan
from attn_exp.sweep.space import Axis
from attn_exp.sweep.task import columns

KINDS: dict[str, set[type]] = {"bool": {bool}, "int": {int}, "float": {int, float}}


def described(plan: Plan, config: Config, command: Repeat) -> dict[str, Any]:
    """Return all that a reader of the folder needs: the axes, and the parts in order."""
    return {
        "status": "running",
        "command": command.line,
        "words": list(command.words),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "clock": time.time(),
        "folders": [str(Path(folder).resolve()) for folder in command.folders],
        "title": title(plan),
        "points": plan.points,
        "chunk": plan.chunk,
        "fixed": list(plan.space.fixed),
        "axes": [axis_described(axis) for axis in plan.space.axes],
        "dimensions": plan.space.dimensions,
        "skipped": plan.space.size - plan.points,
        "columns": columns(plan),
        "metrics": plan.metrics,
        "format": config.sweep.format,
        "sweep": asdict(config.sweep),
        "report": asdict(config.report),
        "version": plan.version,
        "kept": ranges(plan.kept),
        "parts": list(plan.names),
    }


def title(plan: Plan) -> str:
    """Return the title that all points share, if they do."""
    found = {str(base["title"]) for base in plan.space.bases.values()}
    return found.pop() if len(found) == 1 else ""


def axis_described(axis: Axis) -> dict[str, Any]:
    """Describe one axis: how many values, their range where all are numbers, and the words that choose them."""
    count, kinds = len(axis.values), {type(value) for value in axis.values}
    told: dict[str, Any] = {"key": axis.key, "sign": axis.sign, "column": axis.column, "count": count}
    told["kind"] = next((name for name, types in KINDS.items() if kinds <= types), "text")
    if told["kind"] in ("int", "float"):
        told |= {"low": min(axis.values), "high": max(axis.values)}
    values = even(axis.values)
    if values is not None:
        return told | {"range": [values.start, values.step]}
    return told | {"words": [axis.word(place).partition("=")[2] for place in range(count)]}


def even(values: Sequence[Any]) -> range | None:
    """Return whole numbers at even steps as a range; None for any others."""
    if len(values) < 2 or any(type(value) is not int for value in values):
        return None
    found = range(values[0], values[-1] + 1, values[1] - values[0]) if values[1] > values[0] else range(0)
    return found if len(found) == len(values) and tuple(found) == tuple(values) else None


def ranges(numbers: Sequence[int]) -> list[list[int]]:
    """Write ascending numbers as runs: [first, one after the last]."""
    found: list[list[int]] = []
    if isinstance(numbers, range):
        return [[numbers.start, numbers.stop]]
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1][1] = number + 1
        else:
            found.append([number, number + 1])
    return found


def write(folder: Path, told: Mapping[str, Any]) -> None:
    """Write the manifest, whole."""
    text = json.dumps(told, indent=1, ensure_ascii=False) + "\n"
    machine.write(folder / "manifest.json", text.encode("utf-8", "backslashreplace"))


def load(folder: Path) -> dict[str, Any]:
    """Return what the manifest of a sweep says.

    Raises:
        UserError: no sweep there, or a manifest that cannot be read.
    """
    try:
        told: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{folder}: no sweep there (manifest.json: {error.strerror})") from error
    except ValueError as error:
        raise UserError(f"{folder}: its manifest.json cannot be read ({error})") from error
    return told
