"""Tables whose cells a tab parts."""

from __future__ import annotations

from pathlib import Path

from attn_exp.problem.files import csv
from attn_exp.problem.files.format import Format, Held


def look(path: Path, said: str) -> Held:
    """Return the one array of a table, and the names in its first column where those are no numbers."""
    return csv.table([line.split("\t") for line in csv.text(path).splitlines() if line.strip()], said)


FORMAT = Format(look)
