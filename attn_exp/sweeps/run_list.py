"""`attn-exp runs`: runs and sweeps as a table, or as flat records for MLflow and W&B."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from attn_exp import machine
from attn_exp.config.schema import Config
from attn_exp.config.spelling import bare, key_of
from attn_exp.errors import UserError, chosen
from attn_exp.report.pages import Listed
from attn_exp.runs import folders, records
from attn_exp.sweeps.plan import flatten

NO_PARAMETER = ("output_dir", "report", "figures", "sweep")
"""Settings that change no number."""
NO_METRIC = ("head", "kv_head", "multiplier", "checked")
"""Numeric columns of a comparison that are settings of a variant."""
MOST_BYTES = 2**26


def list_runs(words: Sequence[str]) -> str:
    """Return the runs and sweeps with given settings: `attn-exp runs [DIR] [head=2 mask=causal] [--json | --csv]`.

    Raises:
        UserError: no such folder, an unknown setting, other options, or a run that cannot be read.
    """
    options = [word for word in words if word.startswith("-")]
    wanted = {key_of(word): word.partition("=")[2] for word in words if "=" in word}
    places = [word for word in words if "=" not in word and word not in options]
    if len(places) > 1 or options not in ([], ["--json"], ["--csv"]):
        usage = "attn-exp runs [DIR] [head=2 mask=causal] [--json | --csv]"
        raise UserError(f"attn-exp runs {' '.join(words)}: expected {usage}")
    for key in wanted:
        chosen(key.partition(".")[0], ["experiment", *(field.name for field in fields(Config))], "setting")
    output_dir = folders.named_output_dir(places)
    entries = folders.read_entries(output_dir)
    if not (wanted or options):
        return folders.format_entries(output_dir, entries)
    readable = {entry: make_record(output_dir, entry) for entry in entries if not entry.problem}
    found = {entry: record for entry, record in readable.items() if has_values(record, wanted)}
    if options == ["--json"]:
        return "\n".join(json.dumps(record, ensure_ascii=False) for record in found.values())
    if options:
        names = list(dict.fromkeys(name for record in found.values() for name in record))
        lines = [[records.cell(record.get(name)) for name in names] for record in found.values()]
        return records.as_csv([names, *lines]).rstrip("\n")
    if not found:
        return f"{output_dir}: none of {len(entries):,} runs and sweeps has {' '.join(map('='.join, wanted.items()))}"
    return folders.format_entries(output_dir, list(found))


def make_record(output_dir: Path, entry: Listed) -> dict[str, Any]:
    """Return a run as one flat record: its settings as `params.head`, and `metrics.matrix.entropy` of each variant.

    A sweep has the settings that were typed; its numbers are in its own table, `results.csv`.
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
    try:
        config = machine.read_json(folder / "run.json")["config"]
        head, *lines = machine.parse_csv(machine.read_text(folder / "comparison.csv", MOST_BYTES))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{folder}: cannot be read ({error})") from error
    numbers = {
        f"metrics.{line[0]}.{name}": float(cell)
        for line in lines
        for name, cell in zip(head, line, strict=True)
        if name not in NO_METRIC and records.NUMBER.fullmatch(cell)
    }
    return record | dict(list_parameters(config)) | numbers


def list_parameters(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name in ("mask", "score", "position"):
        yield f"params.{name}", ",".join(config.get(name) or ()) or "none"
    for key, value in flatten({name: value for name, value in config.items() if name not in NO_PARAMETER}):
        if isinstance(value, str | int | float):
            yield f"params.{key}", value
        elif isinstance(value, list) and value and not any(isinstance(item, list | dict) for item in value):
            yield f"params.{key}", ",".join(map(bare, value))


def has_values(record: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    texts = {key: bare(record.get(f"params.{key}", "")) for key in wanted}
    return all(value in (texts[key], *texts[key].split(",")) for key, value in wanted.items())
