"""Runs and sweeps under an output folder, newest first, each with the settings in which it differs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from attn_exp.errors import UserError
from attn_exp.report.terminal import plain, table


@dataclass(frozen=True)
class Entry:
    """One run or sweep: when, what kind, how it ended, the words that chose its settings, and where it is."""

    when: str
    kind: str
    status: str
    words: tuple[str, ...]
    folder: Path


def told(output_dir: Path) -> str:
    """Return the table of all runs and sweeps.

    Raises:
        UserError: no such folder.
    """
    if not output_dir.is_dir():
        raise UserError(f"{output_dir}: no such folder")
    found = sorted(
        (*entries(output_dir, "runs", "run.json"), *entries(output_dir, "sweeps", "manifest.json")), key=when
    )
    if not found:
        return f"{output_dir}: no runs yet"
    common = set.intersection(*(set(each.words) for each in found)) if len(found) > 1 else set()
    cells = [
        [each.when, each.kind, each.status, " ".join(word for word in each.words if word not in common) or "(defaults)"]
        for each in reversed(found)
    ]
    folders = [str(each.folder) for each in reversed(found)]
    lines = table(["when", "kind", "status", "settings"], [[plain(cell, 100) for cell in line] for line in cells])
    head, *rest = lines.split("\n")
    text = "\n".join([head, *(f"{line}  {folder}" for line, folder in zip(rest, folders, strict=True))])
    return f"all: {' '.join(sorted(common))}\n{text}" if common else text


def when(entry: Entry) -> str:
    return entry.when


def entries(output_dir: Path, kind: str, name: str) -> Iterator[Entry]:
    """Yield what the folders of one kind say of themselves; one that cannot be read is skipped."""
    for path in (output_dir / kind).glob(f"*/{name}"):
        try:
            about = json.loads(path.read_text(encoding="utf-8"))
            words = tuple(word for word in shlex.split(about["command"])[3:] if word != "-m")
            yield Entry(about["started"], kind.removesuffix("s"), about["status"], words, path.parent)
        except (OSError, ValueError, KeyError, TypeError):
            continue
