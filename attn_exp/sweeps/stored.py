"""Commands for stored results: list runs and sweeps, recompute a run or a point of a sweep, redraw a report."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from attn_exp import machine
from attn_exp.config.schema import Config
from attn_exp.config.spelling import Repeat, bare, key_of
from attn_exp.errors import UserError, chosen, printable, refuse
from attn_exp.report.pages import Listed
from attn_exp.runs import execution, folders, provenance, records, store, trust
from attn_exp.runs.execution import parse_overrides
from attn_exp.runs.provenance import OPTION
from attn_exp.sweeps.plan import flatten, is_sweep, load_manifest, point_command

NO_PARAMETER = ("output_dir", "report", "figures", "sweep")
"""Settings that affect no numbers."""
NO_METRIC = ("head", "kv_head", "multiplier", "checked")
"""Numeric columns of a comparison that are settings of a variant, not metrics."""
MOST_BYTES = 2**26  # size limit of a comparison that is read for a listing


def render_again(words: Sequence[str]) -> str:
    folder = machine.folder(words[0])
    if not is_sweep(folder):
        return execution.render_again(folder, words[1:])
    from attn_exp.sweeps.swept import collect_again  # noqa: PLC0415 - runs do not need this

    overrides = parse_overrides(words[1:], "attn-exp report of a sweep")
    return collect_again(folder, overrides.depth, overrides.figures)


def rerun(words: Sequence[str]) -> str:
    """Recompute `DIR [POINT] [--own-code]`, and return the text that a run prints.

    Raises:
        UserError: the arguments are invalid; or as for `run_or_point`.
    """
    positional = [word for word in words if word != OPTION]
    if len(positional) not in (1, 2) or len(words) - len(positional) > 1:
        raise UserError(f"attn-exp rerun {' '.join(words)}: expected attn-exp rerun DIR [POINT] [{OPTION}]")
    return run_or_point(
        machine.folder(positional[0]), positional[1] if len(positional) > 1 else None, is_allowed=OPTION in words
    )


def run_or_point(folder: Path, point: str | None, is_allowed: bool = False) -> str:
    """Recompute a run or a point, writing under the working directory, and return the text that a run prints.

    User code runs only if `is_allowed` is set; stderr reports whether its file has changed.

    Raises:
        UserError: the folder holds neither a run nor a sweep, there is no such point, a stored argument is not a
            setting, or user code would run without `is_allowed`.
    """
    if os.path.lexists(folder / "run.json"):
        return run_again(folder, is_allowed)
    manifest = load_manifest(folder)
    if point is None or not point.isdecimal() or len(point) > 20 or int(point) >= manifest["points"]:
        raise UserError(f"{folder} is a sweep; give the number of a point, 0 to {manifest['points'] - 1}")
    repeat = point_command(manifest, int(point))
    words = trust.allowed_words(repeat.words, folder)
    from attn_exp.config.compose import compose_config  # noqa: PLC0415 - a run's own settings need no Hydra

    with provenance.allow_members(manifest, folder, is_allowed):
        config = compose_config(words, repeat.folders, typed=False)
        for sentence in provenance.changed_inputs(config, manifest):
            print(f"attn_exp: {printable(sentence)}; a sweep does not store its arrays", file=sys.stderr)
        return run_here(config, repeat, manifest, folder, is_allowed)


def run_again(folder: Path, is_allowed: bool) -> str:
    config, words, about = store.load_settings(folder)
    changes = list(provenance.changed_inputs(config, about))
    for sentence in changes:
        print(f"attn_exp: {printable(sentence)}; the arrays stored in {folder} are used instead", file=sys.stderr)
    if changes:
        config, words = provenance.with_stored_arrays(config, words, store.load_problem(folder))
    with provenance.allow_members(about, folder, is_allowed) as files:
        return run_here(config, Repeat(tuple(trust.allowed_words(words, folder)), own=files), about, folder, is_allowed)


def run_here(config: Config, repeat: Repeat, about: Mapping[str, Any], folder: Path, is_allowed: bool) -> str:
    """Run a configuration, with user code only if `is_allowed` is set, and return the text that a run prints.

    The results go under the working directory, even if `output_dir` names another place.
    """
    config = provenance.allow_functions(config, about, folder, is_allowed)
    return execution.run(replace(config, output_dir=trust.allowed_output_dir(config.output_dir)), repeat).text


def list_runs(words: Sequence[str]) -> str:
    """Return the runs and sweeps with given settings: `attn-exp runs [DIR] [head=2 mask=causal] [--json | --csv]`.

    Raises:
        UserError: the folder does not exist, a setting or an option is unknown, or a run cannot be read.
    """
    options = [word for word in words if word.startswith("-")]
    required = {key_of(word): word.partition("=")[2] for word in words if "=" in word}
    named_folders = [word for word in words if "=" not in word and word not in options]
    if len(named_folders) > 1 or options not in ([], ["--json"], ["--csv"]):
        usage = "attn-exp runs [DIR] [head=2 mask=causal] [--json | --csv]"
        raise UserError(f"attn-exp runs {' '.join(words)}: expected {usage}")
    for key in required:
        chosen(key.partition(".")[0], ["experiment", *(field.name for field in fields(Config))], "setting")
    output_dir = folders.named_output_dir(named_folders)
    entries = folders.read_entries(output_dir)
    if not (required or options):
        return folders.format_entries(output_dir, entries)
    records_of = {entry: make_record(output_dir, entry) for entry in entries if not entry.problem}
    matching = {entry: record for entry, record in records_of.items() if has_values(record, required)}
    if options == ["--json"]:
        return "\n".join(json.dumps(record, ensure_ascii=False) for record in matching.values())
    if options:
        names = list(dict.fromkeys(name for record in matching.values() for name in record))
        lines = [[records.format_cell(record.get(name)) for name in names] for record in matching.values()]
        return records.as_csv([names, *lines]).rstrip("\n")
    if not matching:
        return f"{output_dir}: none of {len(entries):,} runs and sweeps has {' '.join(map('='.join, required.items()))}"
    return folders.format_entries(output_dir, list(matching))


def make_record(output_dir: Path, entry: Listed) -> dict[str, Any]:
    """Return a run as one flat record: settings such as `params.head`, and metrics such as `metrics.matrix.entropy`.

    The record of a sweep has only the settings that the user typed. Its metrics are in the sweep's own table.
    """
    folder = output_dir / f"{entry.kind}s" / entry.name
    record = {
        "run": str(folder),
        "kind": entry.kind,
        "when": entry.when,
        "status": entry.ended or folders.COMPLETE,
        "title": entry.title,
    }
    if entry.kind == "sweep":
        typed = {key_of(word): word.partition("=")[2] for word in entry.words}
        return record | {f"params.{key}": text for key, text in typed.items() if key.split(".")[0] not in NO_PARAMETER}
    with refuse(f"{folder}: cannot be read", *trust.UNREADABLE):
        config = machine.read_json(folder / "run.json")["config"]
        head, *lines = machine.parse_csv(machine.read_text(folder / "comparison.csv", MOST_BYTES))
        numbers = {
            f"metrics.{line[0]}.{name}": float(cell)
            for line in lines
            for name, cell in zip(head, line, strict=True)
            if name not in NO_METRIC and records.NUMBER.fullmatch(cell)
        }
        record |= dict(list_parameters(config)) | numbers
    return record


def list_parameters(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for rule in ("mask", "score", "position"):
        yield f"params.{rule}", ",".join(config.get(rule) or ()) or "none"
    for key, value in flatten({name: value for name, value in config.items() if name not in NO_PARAMETER}):
        if isinstance(value, str | int | float):
            yield f"params.{key}", value
        elif isinstance(value, list) and value and not any(isinstance(item, list | dict) for item in value):
            yield f"params.{key}", ",".join(map(bare, value))


def has_values(record: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    texts = {key: bare(record.get(f"params.{key}", "")) for key in wanted}
    return all(value in (texts[key], *texts[key].split(",")) for key, value in wanted.items())
