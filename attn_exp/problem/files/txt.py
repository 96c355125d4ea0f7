"""Text: a line of numbers for each token, after its name where it has one, parted by spaces or commas."""

from __future__ import annotations

from pathlib import Path

from attn_exp.problem.files import csv
from attn_exp.problem.files.format import Format, Held


def look(path: Path, said: str) -> Held:
    """Return the one array of a text, as `np.savetxt` writes it, or with a word before each vector; # is a remark."""
    content = csv.text(path)
    if "," in content.partition("\n")[0]:
        return csv.table(csv.split(content), said)
    lines = [line for line in content.splitlines() if line.strip() and not line.startswith("# ")]
    return csv.table([line.split() for line in lines], said)


FORMAT = Format(look)
