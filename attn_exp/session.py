"""One run from configuration to what the terminal prints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from attn_exp import store, terminal
from attn_exp.compare import compare
from attn_exp.config import Config
from attn_exp.provenance import provenance
from attn_exp.timing import measure


@dataclass(frozen=True)
class Outcome:
    """What a run leaves: its folder, and the text for the terminal."""

    folder: Path
    text: str


def run(config: Config, command: str) -> Outcome:
    """Compute, time, write and render one run.

    Raises:
        UserError: settings that do not fit each other, or an output folder that cannot be written to.
    """
    output_dir = Path(config.output_dir)
    store.check_writable(output_dir)
    comparison = compare(config)
    timings = measure(comparison.variants, comparison.problem)
    found = store.Run(comparison, timings, store.about(config, command, provenance()))
    folder = store.save(found, output_dir, render)
    return Outcome(folder, f"{terminal.summary(comparison)}\n\n{folder}")


def render(run: store.Run, folder: Path) -> None:
    """Write what the configuration wants a reader to see."""
