"""Save runs atomically, each in its own folder, and load them without computing anything.

`results.npz` has all arrays; settings refer by name to those that are too large to type. Reading that file
runs no code, and does not trust the sizes that it claims. A run is loaded only if its files have not changed.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_exp import machine, registry
from attn_exp.arrays import Array, Arrays
from attn_exp.config.kinds import make
from attn_exp.config.schema import Config, read_config
from attn_exp.config.spelling import MARK, Repeat, array_name, array_reference, as_numbers, spelled
from attn_exp.errors import UserError, first_line, refuse
from attn_exp.experiment import checks
from attn_exp.experiment.checks.check import Finding
from attn_exp.experiment.row import Agreement, Comparison, Distance, Row, Run, Step, Timing
from attn_exp.experiment.variant import Settled, settle
from attn_exp.forms.trace import Summary, Trace
from attn_exp.own_code import is_code
from attn_exp.problem.problem import Problem
from attn_exp.problem.projections import BIASES, MATRICES
from attn_exp.runs import folders, provenance, records, trust
from attn_exp.runs.trust import DamagedError

if TYPE_CHECKING:
    from attn_exp.experiment.verdict import Verdict

FILE = "results.npz"
INPUTS = ("tokens", "memory", "vectors", "q", "k", "v", "weights")  # settings in `embeddings` that may be arrays
BESIDE = {"tokens", "memory"}
"""Inputs that can only be given together with others."""
# the fields of `run.json` that are read, and their types
DESCRIPTION = {
    **folders.DESCRIPTION,
    "config": dict,
    "versions?": dict,
    "git?": (dict, NoneType),
    "blas?": [dict],
    **provenance.SCHEMAS,
    "files": dict,
    "seal": str,
}
STEPS, VERDICTS = "steps.csv", "own.json"


def split_arrays(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    inputs = {key: as_plain(value) for key, value in settings.items() if key in INPUTS}
    return inputs, {key: as_plain(value) for key, value in settings.items() if key in (*MATRICES, *BIASES)}


def as_plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: as_plain(item) for key, item in value.items()}
    return [as_plain(item) for item in value] if isinstance(value, list | tuple) else value


def input_words(inputs: Mapping[str, Any]) -> list[str]:
    """Return the settings for a run that starts from these arrays; none if they are only tokens or a memory."""
    if "vectors" in inputs:
        return ["embeddings=inline"]
    return ["embeddings=inline", "projections=none"] if inputs.keys() - BESIDE else []


def insert_arrays(
    composed: Mapping[str, Any], inputs: Mapping[str, Any], projections: Mapping[str, Any]
) -> dict[str, Any]:
    settings = dict(composed)
    if inputs:
        kept = composed["embeddings"] if inputs.keys() <= BESIDE else {}
        settings["embeddings"] = {**kept, **inputs}
    if projections:
        section = composed["projections"]
        settings["projections"] = {**section, "given": {**(section.get("given") or {}), **projections}}
    return settings


def format_array(value: Any) -> str:
    array = as_numbers(value)
    return spelled(value) if array is None else array_reference(array_name(array))


def settings_to_json(value: Any, arrays: dict[str, Array]) -> Any:
    """Convert settings to plain values; `{"array": name}` stands for each large array, which is moved to `arrays`."""
    if is_dataclass(value):
        return {field.name: settings_to_json(getattr(value, field.name), arrays) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: settings_to_json(item, arrays) for key, item in value.items()}
    if not isinstance(value, list | tuple | np.ndarray):
        return value
    array = as_numbers(value)
    if array is None:
        return value.tolist() if isinstance(value, np.ndarray) else [settings_to_json(item, arrays) for item in value]
    name = array_name(array)
    arrays[name] = array
    return {MARK: name}


def settings_from_json(value: Any, arrays: Mapping[str, Array]) -> Any:
    """Replace each `{"array": name}` in settings with the array, as nested lists.

    Raises:
        KeyError: an array is missing.
    """
    if isinstance(value, Mapping):
        if set(value) == {MARK} and isinstance(value[MARK], str):
            return arrays[array_reference(value[MARK])].tolist()
        return {key: settings_from_json(item, arrays) for key, item in value.items()}
    return [settings_from_json(item, arrays) for item in value] if isinstance(value, list) else value


def collect_arrays(comparison: Comparison) -> dict[str, Any]:
    """Return all arrays of a run by name: its problem, projections, settings, `<variant>/<stage>`, and ladder steps."""
    problem = comparison.problem
    named = {field.name: getattr(problem, field.name) for field in fields(problem)}
    named |= named.pop("projections")
    named.pop("marks")  # the settings describe these rules
    for variant, trace in comparison.traces.items():
        named |= {f"{variant}/{stage}": array for stage, array in trace.stages()}
        if trace.summary is not None:
            named |= {f"{variant}/summary/{name}": array for name, array in vars(trace.summary).items()}
    for (variant, step), trace in comparison.rungs.items():
        named |= {f"{variant}/step {step}/{stage}": array for stage, array in trace.stages()}
    config_arrays: dict[str, Array] = {}
    settings_to_json(comparison.config, config_arrays)
    named |= {array_reference(name): array for name, array in config_arrays.items()}
    return {name: np.asarray(array) for name, array in named.items() if array is not None}


def load_arrays(folder: Path) -> dict[str, Array]:
    """Load the arrays of a run.

    Raises:
        OSError: there is no such file, or it is not a regular file.
        DamagedError: the file is invalid, or claims larger arrays than it contains.
    """
    from attn_exp.problem.files.numpy_files import load_archive  # noqa: PLC0415 - not needed to write a run

    try:
        return load_archive(folder / FILE)
    except (ValueError, MemoryError) as error:
        raise DamagedError(f"{FILE}: {first_line(error)}") from error


def restore_problem(results: Mapping[str, Array]) -> Problem:
    projections = {name: array for name, array in results.items() if "/" not in name and name[:2] in ("W_", "b_")}
    tokens, key_tokens = (tuple(map(str, results[name])) for name in ("tokens", "key_tokens"))
    stages = select_fields(Problem, results) | {"past": int(results.get("past", 0)), "marks": ()}
    return Problem(**stages | {"tokens": tokens, "key_tokens": key_tokens, "projections": projections})


def select_fields(schema: type, results: Mapping[str, Array], prefix: str = "") -> dict[str, Any]:
    return {field.name: results.get(prefix + field.name) for field in fields(schema)}


def restore_trace(results: Mapping[str, Array], prefix: str) -> Trace:
    stages = select_fields(Trace, results, f"{prefix}/")
    summary_fields = select_fields(Summary, results, f"{prefix}/summary/")
    is_complete = all(part is not None for part in summary_fields.values())
    return Trace(**stages | {"summary": Summary(**summary_fields) if is_complete else None})


def save(run: Run, output_dir: Path) -> Path:
    """Write a run to a new folder `output_dir/runs/<time>-<random>` and return it; `output_dir/latest` points to it.

    The folder is a draft until the end, so that an interruption cannot leave half a run. The results are written first,
    then the report, and last `run.json` with the hashes of the results.

    Raises:
        UserError: the folder cannot be written to, or the disk is full.
    """
    with refuse(f"output_dir={output_dir}: cannot be written to", OSError):
        output_dir.mkdir(parents=True, exist_ok=True)
        folder = machine.own_folder(output_dir / "runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        with machine.write_folder(folder) as draft:
            files = write_data(run, draft)
            render(run, draft)
            about = trust.add_seal(run.about, draft, files)
            machine.fill(draft, {"run.json": json.dumps(about, indent=1, ensure_ascii=False) + "\n"})
        machine.point(output_dir / "latest", folder)
    return folder


def render(run: Run, folder: Path) -> None:
    wanted = run.comparison.config.report
    if not (wanted.tables or wanted.figures or wanted.pages):
        return
    from attn_exp.report.documents import documents  # noqa: PLC0415 - `report=none` needs none

    machine.fill(folder, documents(run))


def describe_run(comparison: Comparison, command: Repeat, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of `run.json`: the command and settings, provenance, and records of code and input files."""
    config = comparison.config
    return {
        "status": folders.COMPLETE,
        "command": command.line,
        "words": list(command.words),
        "folders": list(command.folders),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "seed": config.seed,
        **origin,
        **provenance.record_files(config, provenance.list_functions(config)),
        "config": settings_to_json(config, {}),
    }


def load(folder: Path) -> Run:
    """Load a finished run without computing anything.

    Raises:
        UserError: the folder contains no finished run, or one that this version cannot read.
    """
    with refuse(f"{folder}: not a finished run that can be read", *trust.UNREADABLE):
        about, config, stored = read_settings(folder, must_match_seal=True)
        with provenance.register_names_only(about):
            return Run(restore_comparison(folder, config, stored), read_table(folder, "timings.csv", Timing), about)


def read_settings(folder: Path, must_match_seal: bool = False) -> tuple[dict[str, Any], Config, dict[str, Array]]:
    """Read the description of a run, its settings and its arrays; with `must_match_seal`, refuse changed files."""
    about = trust.read_json(folder / "run.json", DESCRIPTION)
    if must_match_seal:
        trust.check_seal(about, folder)
    needs_arrays = must_match_seal or MARK in json.dumps(about["config"])
    stored = load_arrays(folder) if needs_arrays else {}
    return about, read_config(settings_from_json(about["config"], stored)), stored


def restore_comparison(folder: Path, config: Config, stored: Arrays) -> Comparison:
    problem, rows = restore_problem(stored), read_table(folder, "comparison.csv", Row)
    steps = read_table(folder, STEPS, Step)
    rungs = {(step.variant, step.step): restore_trace(stored, f"{step.variant}/step {step.step}") for step in steps}
    return Comparison(
        config=config,
        problem=problem,
        variants=restore_variants(config, problem, rows),
        rows=rows,
        distances=read_table(folder, "distances.csv", Distance),
        traces={name: restore_trace(stored, name) for name in config.variant},
        published=read_table(folder, "published.csv", Agreement) if config.published else (),
        verdicts=read_verdicts(folder),
        checks=tuple(
            Finding(name, checks.load(name), read_table(folder, f"{name}.csv", checks.load(name).record))
            for name in checks.choose_checks(config)
            if not registry.is_absent(checks.__name__, name)
        ),
        steps=steps,
        rungs={key: trace for key, trace in rungs.items() if any(trace.stages())},
    )


def restore_variants(config: Config, problem: Problem, rows: Sequence[Row]) -> tuple[Settled, ...]:
    """Return the variants of a run without importing user code; a user's function that failed keeps its error."""
    variants = [settle(name, variant, config, problem) for name, variant in config.variant.items()]
    failed = {row.variant: row.note for row in rows if is_code(row.form) and not row.checked}
    return tuple(replace(variant, failed=failed.get(variant.name, "")) for variant in variants)


def load_settings(folder: Path) -> tuple[Config, Sequence[str], Mapping[str, Any]]:
    """Return the exact settings of a run, the arguments that chose them, and the contents of `run.json`.

    Raises:
        UserError: the settings cannot be read.
    """
    with refuse(f"{folder}: its settings cannot be read", *trust.UNREADABLE):
        about, config, _ = read_settings(folder)
    return config, folders.settings(about), about


def load_problem(folder: Path) -> Problem:
    """Load the problem that a run stored.

    Raises:
        UserError: the stored arrays are missing or cannot be read.
    """
    with refuse(f"{folder}: its stored arrays cannot be read", *trust.UNREADABLE):
        return restore_problem(load_arrays(folder))


def write_data(run: Run, folder: Path) -> list[str]:
    comparison = run.comparison
    tables = {
        "comparison.csv": (Row, comparison.rows),
        "distances.csv": (Distance, comparison.distances),
        "timings.csv": (Timing, run.timings),
        STEPS: (Step, comparison.steps),
        **({"published.csv": (Agreement, comparison.published)} if comparison.config.published else {}),
        **{f"{finding.name}.csv": (finding.check.record, finding.records) for finding in comparison.checks},
    }
    texts = {name: records.format_records(schema, rows) for name, (schema, rows) in tables.items()}
    if comparison.verdicts:
        verdicts = [{"variant": name, **verdict.plain()} for name, verdict in comparison.verdicts.items()]
        texts[VERDICTS] = json.dumps({"verdicts": verdicts}, indent=1) + "\n"
    machine.fill(folder, texts)
    np.savez(folder / FILE, **collect_arrays(comparison))
    return [*texts, FILE]


def read_table(folder: Path, name: str, schema: type) -> tuple[Any, ...]:
    return records.parse_records(schema, machine.read_text(folder / name))


def check_writable(output_dir: Path) -> None:
    """Refuse an output folder that cannot be written to, before anything is computed.

    Raises:
        UserError: its nearest existing parent is not a folder, or is read-only.
    """
    path = output_dir.absolute()
    nearest = next(folder for folder in (path, *path.parents) if os.path.exists(folder))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise UserError(f"output_dir={output_dir}: cannot be written to ({nearest} is not a writable folder)")


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
