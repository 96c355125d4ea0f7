"""The commands on what runs and sweeps left on disk: `attn-exp open`, `index` and `runs`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attn_exp import machine
from attn_exp.runs import listing, reader
from attn_exp.runs.index import rebuild

OUTPUTS = "outputs"


def open_newest(words: Sequence[str]) -> str:
    """Open the newest report."""
    return reader.show(output_dir(words))


def index(words: Sequence[str]) -> str:
    """Rebuild the page of all runs and sweeps, and return its path."""
    return str(rebuild(output_dir(words)))


def runs(words: Sequence[str]) -> str:
    """List all runs and sweeps."""
    return listing.listing(output_dir(words))


def output_dir(words: Sequence[str]) -> Path:
    """Return the output folder that the words name, or the usual one."""
    return machine.folder(words[0] if words else OUTPUTS)
