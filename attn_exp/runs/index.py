"""The index of an output folder: one page of all runs and sweeps, written anew after each of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attn_exp import machine
from attn_exp.errors import UserError
from attn_exp.report.index import Listed, index_page
from attn_exp.runs.folders import COMPLETE, Entry, entries, folders, named_output_dir

MOST_ROUNDS = 20


def rebuild_named(words: Sequence[str]) -> str:
    """Rebuild the page of all runs and sweeps, and return its path: `attn-exp index [DIR]`."""
    return str(rebuild(named_output_dir(words)))


def rebuild(output_dir: Path) -> Path:
    """Write `index.html` anew from what is there now, and return its path.

    Processes may do so at once. Each looks again after writing and starts over where something has changed, so the last
    page written lacks nothing. After `MOST_ROUNDS` runs come so fast that the next one's rebuild is near.

    Raises:
        UserError: no such folder, or one that cannot be written to.
    """
    page = output_dir / "index.html"
    try:
        for _ in range(MOST_ROUNDS):
            there = folders(output_dir)
            machine.write_text(page, index_page([listed(entry) for entry in entries(output_dir, there)]))
            if folders(output_dir) == there:
                break
    except OSError as error:
        raise UserError(f"{output_dir}: no index can be written there ({error.strerror})") from error
    return page


def listed(entry: Entry) -> Listed:
    """Return what the page says of a run or a sweep."""
    return Listed(
        name=entry.name,
        kind=entry.kind,
        page=f"{entry.folder}/{entry.page}",
        when=entry.when,
        ended="" if entry.status == COMPLETE else entry.status,
        title=entry.title,
        words=entry.words,
        problem=entry.problem,
    )
