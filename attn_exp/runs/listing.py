"""Runs and sweeps under an output folder in the terminal, newest first, each with the settings in which it differs."""

from __future__ import annotations

from pathlib import Path

from attn_exp.errors import UserError
from attn_exp.report.plain import plain
from attn_exp.report.terminal import table
from attn_exp.runs.folders import Entry, entries, folders

HEADS = ["when", "kind", "status", "settings"]
DEFAULTS = "(defaults)"
LONGEST, LONGEST_PLACE = 100, 300


def listing(output_dir: Path) -> str:
    """Return the table of all runs and sweeps.

    Raises:
        UserError: no such folder.
    """
    try:
        listed = entries(output_dir, folders(output_dir))
    except OSError as error:
        raise UserError(f"{output_dir}: cannot be read ({error.strerror})") from error
    if not listed:
        return f"{output_dir}: no runs yet"
    words = [set(entry.words) for entry in listed if not entry.problem]
    common = set.intersection(*words) if len(words) > 1 else set()
    cells = [[plain(cell, LONGEST) for cell in line(entry, common)] for entry in listed]
    places = [plain(str(output_dir / entry.folder), LONGEST_PLACE) for entry in listed]
    head, *rest = table(HEADS, cells).split("\n")
    text = "\n".join([head, *(f"{row}  {place}" for row, place in zip(rest, places, strict=True))])
    return f"all: {plain(' '.join(sorted(common)), LONGEST_PLACE)}\n{text}" if common else text


def line(entry: Entry, common: set[str]) -> list[str]:
    """Return the cells of one run or sweep."""
    own = " ".join(word for word in entry.words if word not in common) or DEFAULTS
    return [entry.when, entry.kind, entry.status, entry.problem or own]
