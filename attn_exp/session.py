"""One run from configuration to what the terminal prints."""

from __future__ import annotations

from dataclasses import dataclass

from attn_exp.compare import compare
from attn_exp.config import Config


@dataclass(frozen=True)
class Outcome:
    """What a run leaves: the text for the terminal."""

    text: str


def run(config: Config, command: str) -> Outcome:
    """Compute, write and render one run."""
    comparison = compare(config)
    return Outcome("\n".join([command, *(f"{row.variant} {row.same_as} {row.error}" for row in comparison.rows)]))
