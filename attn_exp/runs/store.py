"""Runs on disk: each in a folder of its own, whole or not at all, and read back without computing anything."""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attn_exp.config.read import read
from attn_exp.config.schema import Config
from attn_exp.errors import UserError
from attn_exp.experiment import checks
from attn_exp.experiment.comparison import Comparison, Run
from attn_exp.experiment.documents.published import Agreement
from attn_exp.experiment.row import Distance, Row
from attn_exp.experiment.settling import settle
from attn_exp.experiment.timing import Timing
from attn_exp.forms.trace import Summary, Trace
from attn_exp.problem.problem import Problem
from attn_exp.runs import records

Array = NDArray[Any]

USER_ERRORS = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOTDIR, errno.EEXIST,
    errno.ENOENT, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP,
)  # fmt: skip
"""What the system says when a folder cannot be written to: no fault of the program."""


def save(run: Run, output_dir: Path, render: Callable[[Run, Path], None]) -> Path:
    """Write a run to a new folder `output_dir/runs/<time>-<random>` and return it; `output_dir/latest` points to it.

    Everything is written to a hidden folder that gets its name at the end, so that no interruption leaves half a run.
    `render` adds what readers see; `run.json` comes last.

    Raises:
        UserError: the folder cannot be written to, or the disk is full.
    """
    try:
        draft = new_draft(output_dir / "runs")
        try:
            write_data(run, draft)
            render(run, draft)
            write_text(draft / "run.json", json.dumps(run.about, indent=1, ensure_ascii=False) + "\n")
            folder = draft.rename(draft.with_name(draft.name.removeprefix(".")))
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        point(output_dir / "latest", folder)
    except OSError as error:
        if error.errno not in USER_ERRORS:
            raise
        raise UserError(f"output_dir={output_dir}: cannot be written to ({error.strerror})") from error
    return folder


def about(config: Config, command: str, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of `run.json`: how to repeat a run, and where it comes from."""
    return {
        "status": "complete",
        "command": command,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "seed": config.seed,
        **origin,
        "config": asdict(config),
    }


def load(folder: Path) -> Run:
    """Read a finished run back; nothing is computed.

    Raises:
        UserError: the folder holds no finished run, or one that this version cannot read.
    """
    try:
        told = json.loads(read_text(folder / "run.json"))
        config = read(told["config"])
        with np.load(folder / "results.npz", allow_pickle=False) as arrays:
            results = dict(arrays)
        problem = problem_from(results)
        comparison = Comparison(
            config=config,
            problem=problem,
            variants=tuple(settle(name, each, config, problem) for name, each in config.variant.items()),
            rows=table(folder, "comparison.csv", Row),
            distances=table(folder, "distances.csv", Distance),
            traces={name: trace_from(results, name) for name in config.variant},
            published=table(folder, "published.csv", Agreement) if config.published else (),
            checks=tuple(
                checks.restored(name, table(folder, f"{name}.csv", checks.load(name).record))
                for name in checks.wanted(config)
            ),
        )
        return Run(comparison, table(folder, "timings.csv", Timing), told)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder}: not a finished run that can be read ({first_line(error)})") from error


def write_data(run: Run, folder: Path) -> None:
    """Write the tables and arrays of a run."""
    comparison = run.comparison
    tables: dict[str, tuple[type, tuple[Any, ...]]] = {
        "comparison.csv": (Row, comparison.rows),
        "distances.csv": (Distance, comparison.distances),
        "timings.csv": (Timing, run.timings),
    }
    if comparison.config.published:
        tables["published.csv"] = (Agreement, comparison.published)
    tables |= {f"{finding.name}.csv": (finding.check.record, finding.records) for finding in comparison.checks}
    for name, (schema, rows) in tables.items():
        write_text(folder / name, records.written(schema, rows))
    np.savez(folder / "results.npz", **arrays_of(comparison))


def arrays_of(comparison: Comparison) -> dict[str, Any]:
    """Name every array of a run: those of the problem, its projections, and `<variant>/<stage>`."""
    problem = comparison.problem
    named: dict[str, Any] = {each.name: getattr(problem, each.name) for each in fields(problem)}
    named |= named.pop("projections")
    for variant, trace in comparison.traces.items():
        named |= {f"{variant}/{stage}": array for stage, array in trace.stages()}
        if trace.summary is not None:
            named |= {f"{variant}/summary/{name}": array for name, array in vars(trace.summary).items()}
    return {name: np.asarray(array) for name, array in named.items() if array is not None}


def problem_from(results: Mapping[str, Array]) -> Problem:
    """Put the problem together from the arrays of a run."""
    names = {each.name for each in fields(Problem)} - {"tokens", "key_tokens", "projections"}
    projections = {name: array for name, array in results.items() if "/" not in name and name[:2] in ("W_", "b_")}
    tokens, key_tokens = (tuple(str(token) for token in results[name]) for name in ("tokens", "key_tokens"))
    arrays: dict[str, Any] = {name: results.get(name) for name in names}
    return Problem(tokens=tokens, key_tokens=key_tokens, projections=projections, **arrays)


def trace_from(results: Mapping[str, Array], variant: str) -> Trace:
    stages: dict[str, Any] = {each.name: results.get(f"{variant}/{each.name}") for each in fields(Trace)}
    parts: dict[str, Any] = {each.name: results.get(f"{variant}/summary/{each.name}") for each in fields(Summary)}
    whole = all(part is not None for part in parts.values())
    return Trace(**stages | {"summary": Summary(**parts) if whole else None})


def table(folder: Path, name: str, schema: type) -> tuple[Any, ...]:
    return records.parsed(schema, read_text(folder / name))


def new_draft(runs: Path) -> Path:
    """Make a hidden folder whose name, without its dot, no other run has."""
    runs.mkdir(parents=True, exist_ok=True)
    while True:
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        if not (runs / name).exists():
            draft = runs / f".{name}"
            draft.mkdir()
            return draft


def point(latest: Path, folder: Path) -> None:
    """Let `latest` name the newest run: a link, or a text file with the path where links are not possible."""
    target = os.path.relpath(folder, latest.parent)
    spare = latest.with_name(f".{latest.name}-{secrets.token_hex(3)}")
    try:
        spare.symlink_to(target, target_is_directory=True)
    except (OSError, NotImplementedError):
        write_text(spare, target + "\n")
    spare.replace(latest)


def check_writable(output_dir: Path) -> None:
    """Refuse, before anything is computed, a folder that could not be written to.

    Raises:
        UserError: its nearest existing parent is no folder, or a folder that may not be written to.
    """
    nearest = next(each for each in (output_dir.absolute(), *output_dir.absolute().parents) if os.path.exists(each))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        reason = "is no folder" if not nearest.is_dir() else "may not be written to"
        raise UserError(f"output_dir={output_dir}: cannot be written to ({nearest} {reason})")
    latest = output_dir / "latest"
    if os.path.isdir(latest) and not latest.is_symlink():
        raise UserError(f"output_dir={output_dir}: {latest} is a folder, and would have to become a link; rename it")


def write_text(path: Path, text: str) -> None:
    """Write a text as UTF-8 with plain line ends; half a surrogate pair, which it cannot hold, becomes its number."""
    path.write_bytes(text.encode("utf-8", "backslashreplace"))


def read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
