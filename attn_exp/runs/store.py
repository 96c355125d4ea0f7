"""Save runs atomically, each in its own folder, and load them without computing anything."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_exp import drafts, machine, registry
from attn_exp.arrays import Array, Arrays
from attn_exp.config import large_arrays
from attn_exp.config.fields import make
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
from attn_exp.runs import folders, provenance, records, rendering, stored_arrays, trust

if TYPE_CHECKING:
    from attn_exp.experiment.verdict import Verdict

DESCRIPTION = {
    **folders.DESCRIPTION,
    "config": dict,
    "versions?": dict,
    "git?": (dict, NoneType),
    "blas?": [dict],
    **provenance.SHAPES,
    "files": dict,
    "seal": str,
}
"""The fields of `run.json` that are read."""

STEPS, VERDICTS = "steps.csv", "own.json"


def save(run: Run, output_dir: Path) -> Path:
    """Write a run to a new folder `output_dir/runs/<time>-<random>` and return it; `output_dir/latest` points to it.

    Everything is a draft until the end, so that no interruption leaves half a run. The report is written after the
    results, and `run.json`, with the hashes of them, last.

    Raises:
        UserError: the folder cannot be written to, or the disk is full.
    """
    with refuse(f"output_dir={output_dir}: cannot be written to", OSError):
        output_dir.mkdir(parents=True, exist_ok=True)
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        folder = machine.own_folder(output_dir / "runs") / name
        with drafts.new_folder(folder) as draft:
            files = write_data(run, draft)
            rendering.render(run, draft)
            about = trust.sealed(run.about, draft, files)
            drafts.fill(draft, {"run.json": json.dumps(about, indent=1, ensure_ascii=False) + "\n"})
        drafts.sweep_up(output_dir)
        drafts.point(output_dir / "latest", folder)
    return folder


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
        **provenance.record_files(config, provenance.functions_in(config)),
        "config": plain,
    }


def load(folder: Path) -> Run:
    """Load a finished run without computing anything.

    Raises:
        UserError: the folder holds no finished run, or one that this version cannot read.
    """
    with refuse(f"{folder}: not a finished run that can be read", *trust.UNREADABLE):
        about, config, stored = read_settings(folder, sealed=True)
        with provenance.members_without_code(about):
            run = Run(restore_comparison(folder, config, stored), read_table(folder, "timings.csv", Timing), about)
        check_fit(run)
    return run


def check_fit(run: Run) -> None:
    """Check that the tables and the stages of a run belong to its variants and its problem.

    Raises:
        DamagedError: what does not fit.
    """
    comparison, problem = run.comparison, run.comparison.problem
    tables = {"distances.csv": comparison.distances, STEPS: comparison.steps, "timings.csv": run.timings}
    for name, lines in tables.items():
        sides = {getattr(line, side, None) for line in lines for side in ("variant", "other", "against")} - {None}
        if not sides <= comparison.traces.keys():
            raise trust.DamagedError(f"{name} is about other variants")
    for row in comparison.rows:
        np.dtype(row.computed_in)  # raises TypeError
    for trace in (*comparison.traces.values(), *comparison.rungs.values()):
        sizes = {"t": len(problem.tokens), "s": len(problem.key_tokens)}
        stored_arrays.check_shapes(dict(trace.stages()), stored_arrays.STAGES, sizes)


def read_settings(folder: Path, sealed: bool = False) -> tuple[dict[str, Any], Config, dict[str, Array]]:
    """Read the description of a run, its settings and its arrays; if `sealed`, all must be as they were written."""
    about = trust.read_json(folder / "run.json", DESCRIPTION)
    if sealed:
        trust.check_seal(about, folder)
    is_named = sealed or large_arrays.MARK in json.dumps(about["config"])
    stored = stored_arrays.load_arrays(folder) if is_named else {}
    return about, read_config(stored_arrays.put_back(about["config"], stored)), stored


def restore_comparison(folder: Path, config: Config, stored: Arrays) -> Comparison:
    problem, rows = stored_arrays.problem_from(stored), read_table(folder, "comparison.csv", Row)
    if [row.variant for row in rows] != list(config.variant):
        raise trust.DamagedError("comparison.csv is about other variants")
    is_apart = (folder / STEPS).is_file()
    steps = read_table(folder, STEPS, Step) if is_apart else ()
    places = {(step.variant, step.step): stored_arrays.place_of_step(step.variant, step.step) for step in steps}
    rungs = {step: stored_arrays.trace_from(stored, place) for step, place in places.items()}
    return Comparison(
        config=config,
        problem=problem,
        variants=variants_from(config, problem, rows),
        rows=rows,
        distances=read_table(folder, "distances.csv", Distance),
        traces={name: stored_arrays.trace_from(stored, name) for name in config.variant},
        published=read_table(folder, "published.csv", Agreement) if config.published else (),
        verdicts=read_verdicts(folder),
        checks=tuple(
            checks.restored(name, read_table(folder, f"{name}.csv", checks.load(name).record))
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
    with refuse(f"{folder}: its settings cannot be read", *trust.UNREADABLE):
        about, config, _ = read_settings(folder)
    return config, folders.settings(about), about


def problem_of(folder: Path) -> Problem:
    """Load the problem that a run stored.

    Raises:
        UserError: there is none, or it cannot be read.
    """
    with refuse(f"{folder}: the arrays that it kept cannot be read", *trust.UNREADABLE):
        return stored_arrays.problem_from(stored_arrays.load_arrays(folder))


def write_data(run: Run, folder: Path) -> list[str]:
    comparison = run.comparison
    tables: dict[str, tuple[type, tuple[Any, ...]]] = {
        "comparison.csv": (Row, comparison.rows),
        "distances.csv": (Distance, comparison.distances),
        "timings.csv": (Timing, run.timings),
        **({STEPS: (Step, comparison.steps)} if comparison.taken_apart else {}),
        **({"published.csv": (Agreement, comparison.published)} if comparison.config.published else {}),
        **{f"{finding.name}.csv": (finding.check.record, finding.records) for finding in comparison.checks},
    }
    drafts.fill(folder, {name: records.written(schema, rows) for name, (schema, rows) in tables.items()})
    np.savez(folder / stored_arrays.FILE, **stored_arrays.named_arrays(comparison))
    if not comparison.verdicts:
        return [*tables, stored_arrays.FILE]
    verdicts = [{"variant": name, **verdict.plain()} for name, verdict in comparison.verdicts.items()]
    drafts.fill(folder, {VERDICTS: json.dumps({"verdicts": verdicts}, indent=1) + "\n"})
    return [*tables, stored_arrays.FILE, VERDICTS]


def read_table(folder: Path, name: str, schema: type) -> tuple[Any, ...]:
    return records.parsed(schema, machine.read_text(folder / name))


def check_writable(output_dir: Path) -> None:
    """Refuse an output folder that cannot be written to, before anything is computed.

    Raises:
        UserError: its nearest existing parent is not a folder, or is not writable.
    """
    place = output_dir.absolute()
    nearest = next(folder for folder in (place, *place.parents) if os.path.exists(folder))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        reason = "is not writable" if nearest.is_dir() else "is not a folder"
        raise UserError(f"output_dir={output_dir}: cannot be written to ({nearest} {reason})")


def read_verdicts(folder: Path) -> dict[str, Verdict]:
    """Read the verdicts of a run, by variant.

    Raises:
        DamagedError: the file is invalid.
    """
    if not (folder / VERDICTS).exists():
        return {}
    from attn_exp.experiment.verdict import Verdict  # noqa: PLC0415 - it loads all mistakes, and most runs have none

    verdicts = trust.read_json(folder / VERDICTS, {"verdicts": [{"variant": str}]})["verdicts"]
    return {verdict.pop("variant"): make(Verdict, to_tuples(verdict), VERDICTS) for verdict in verdicts}


def to_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: to_tuples(item) for key, item in value.items()}
    return tuple(map(to_tuples, value)) if isinstance(value, list) else value
