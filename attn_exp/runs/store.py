"""Save runs atomically, each in its own folder, and load them without computing anything."""

from __future__ import annotations

import errno
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from attn_exp import drafts, machine, registry
from attn_exp.arrays import Array
from attn_exp.config import large_arrays
from attn_exp.config.schema import Config, read_config
from attn_exp.config.spelling import Repeat
from attn_exp.errors import UserError, refuse
from attn_exp.experiment import checks
from attn_exp.experiment.comparison import Comparison, Run
from attn_exp.experiment.row import Agreement, Distance, Row, Step, Timing
from attn_exp.experiment.settling import settle
from attn_exp.experiment.variant import Settled
from attn_exp.own_code import is_code
from attn_exp.problem.problem import Problem
from attn_exp.runs import (
    folders,
    input_files,
    recorded_code,
    records,
    rendering,
    stored_arrays,
    stored_shapes,
    trust,
)

DESCRIPTION = {
    **folders.DESCRIPTION,
    "config": dict,
    "versions?": dict,
    "git?": (dict, NoneType),
    "blas?": [dict],
    "code?": [recorded_code.FUNCTION],
    "inputs?": [input_files.RECORD],
    "with?": [recorded_code.FILE_OF_MEMBERS],
    "files": dict.fromkeys(
        ("comparison.csv?", "distances.csv?", "timings.csv?", "steps.csv?", "results.npz?"), trust.SEALED_FILE
    ),
    "seal": str,
}
"""The fields of `run.json` that are read."""

STEPS = "steps.csv"

USER_ERRORS = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOTDIR, errno.EEXIST,
    errno.ENOENT, errno.EISDIR, errno.EINVAL, errno.ENAMETOOLONG, errno.ELOOP,
)  # fmt: skip
"""System errors when a folder cannot be written to, which are not faults of the program."""


def save(run: Run, output_dir: Path) -> Path:
    """Write a run to a new folder `output_dir/runs/<time>-<random>` and return it; `output_dir/latest` points to it.

    Everything is a draft until the end, so that no interruption leaves half a run. The report is written after the
    results, and `run.json`, with the hashes of them, last.

    Raises:
        UserError: the folder cannot be written to, or the disk is full.
    """
    with refuse_unwritable(f"output_dir={output_dir}"):
        output_dir.mkdir(parents=True, exist_ok=True)
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        folder = machine.own_folder(output_dir / "runs") / name
        with drafts.new_folder(folder) as draft:
            files = write_data(run, draft)
            rendering.render(run, draft)
            about = trust.sealed(run.about, draft, files)
            rendering.write_text(draft / "run.json", json.dumps(about, indent=1, ensure_ascii=False) + "\n")
        drafts.sweep_up(output_dir)
        drafts.point(output_dir / "latest", folder)
    return folder


@contextmanager
def refuse_unwritable(place: str) -> Iterator[None]:
    """Report in one line that a folder cannot be written to.

    Raises:
        UserError: it is read-only, or the disk is full; errors that are faults of the program are passed on.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in USER_ERRORS:
            raise
        raise UserError(f"{place}: cannot be written to ({error.strerror})") from error


def about(comparison: Comparison, command: Repeat, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of `run.json`: how to repeat the run, its provenance, and its input files."""
    config = comparison.config
    plain = stored_arrays.plain_settings(config, {})
    return {
        "status": folders.COMPLETE,
        "command": command.line,
        "words": list(command.words),
        "folders": list(command.folders),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "seed": config.seed,
        **origin,
        **recorded_code.record_functions_by_name(recorded_code.functions_in(config)),
        **recorded_code.record_members(config),
        **input_files.recorded(config),
        "config": plain,
    }


def load(folder: Path) -> Run:
    """Load a finished run without computing anything.

    Raises:
        UserError: the folder holds no finished run, or one that this version cannot read.
    """
    with refuse(f"{folder}: not a finished run that can be read", *trust.UNREADABLE):
        about = trust.read_json(folder / "run.json", DESCRIPTION)
        trust.check_seal(about, folder)
        stored = stored_arrays.load_arrays(folder / stored_arrays.FILE)
        config = read_config(stored_arrays.put_back(about["config"], stored))
        with recorded_code.members_without_code(about):
            run = Run(restored(folder, config, stored), table(folder, "timings.csv", Timing), about)
            stored_shapes.check_comparison(run.comparison, run.timings)
    return run


def restored(folder: Path, config: Config, stored: Mapping[str, Array]) -> Comparison:
    """Restore a comparison from the tables and arrays of a run."""
    problem, rows = stored_arrays.problem_from(stored), table(folder, "comparison.csv", Row)
    is_apart = (folder / STEPS).is_file()
    steps = table(folder, STEPS, Step) if is_apart else ()
    rungs = {(step.variant, step.step): stored_arrays.rung_from(stored, step) for step in steps}
    return Comparison(
        config=config,
        problem=problem,
        variants=variants_from(config, problem, rows),
        rows=rows,
        distances=table(folder, "distances.csv", Distance),
        traces={name: stored_arrays.trace_from(stored, name) for name in config.variant},
        published=table(folder, "published.csv", Agreement) if config.published else (),
        verdicts=recorded_code.read_verdicts(folder),
        checks=tuple(
            checks.restored(name, table(folder, f"{name}.csv", checks.load(name).record))
            for name in checks.wanted(config)
            if not registry.is_absent(checks.__name__, name)
        ),
        steps=steps,
        taken_apart=is_apart,
        rungs={place: trace for place, trace in rungs.items() if any(trace.stages())},
    )


def variants_from(config: Config, problem: Problem, rows: Sequence[Row]) -> tuple[Settled, ...]:
    """Return the variants of a run; user code is not imported, and variants that failed are marked as failed."""
    variants = [settle(name, variant, config, problem) for name, variant in config.variant.items()]
    failed = {row.variant: row.note for row in rows if is_code(row.form) and not row.checked}
    return tuple(replace(variant, failed=failed.get(variant.name, "")) for variant in variants)


def settings_of(folder: Path) -> tuple[Config, Sequence[str], Mapping[str, Any]]:
    """Return the exact settings of a run, the words that chose them, and the contents of `run.json`.

    Raises:
        UserError: no readable settings.
    """
    with refuse(f"{folder}: its run.json cannot be read", *trust.UNREADABLE):
        about = trust.read_json(folder / "run.json", DESCRIPTION)
        is_named = f'{{"{large_arrays.MARK}": ' in json.dumps(about["config"])
        stored = stored_arrays.load_arrays(folder / stored_arrays.FILE) if is_named else {}
        config = read_config(stored_arrays.put_back(about["config"], stored))
    return config, folders.settings(about), about


def write_data(run: Run, folder: Path) -> list[str]:
    """Write the tables and arrays of a run and return their file names."""
    comparison = run.comparison
    tables: dict[str, tuple[type, tuple[Any, ...]]] = {
        "comparison.csv": (Row, comparison.rows),
        "distances.csv": (Distance, comparison.distances),
        "timings.csv": (Timing, run.timings),
        **({STEPS: (Step, comparison.steps)} if comparison.taken_apart else {}),
        **({"published.csv": (Agreement, comparison.published)} if comparison.config.published else {}),
        **{f"{finding.name}.csv": (finding.check.record, finding.records) for finding in comparison.checks},
    }
    for name, (schema, rows) in tables.items():
        rendering.write_text(folder / name, records.written(schema, rows))
    np.savez(folder / stored_arrays.FILE, **stored_arrays.named_arrays(comparison))
    return [*tables, stored_arrays.FILE, *recorded_code.write_verdicts(comparison.verdicts, folder)]


def table(folder: Path, name: str, schema: type) -> tuple[Any, ...]:
    return records.parsed(schema, machine.read_text(folder / name))


def check_writable(output_dir: Path) -> None:
    """Refuse an output folder that cannot be written to, before anything is computed.

    Raises:
        UserError: its nearest existing parent is no folder, or is not writable.
    """
    place = output_dir.absolute()
    nearest = next(folder for folder in (place, *place.parents) if os.path.exists(folder))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        reason = "may not be written to" if nearest.is_dir() else "is no folder"
        raise UserError(f"output_dir={output_dir}: cannot be written to ({nearest} {reason})")
