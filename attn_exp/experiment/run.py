"""One run, whole: what it found, what it cost, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attn_exp.experiment.compare import Comparison
from attn_exp.experiment.timing import Timing


@dataclass(frozen=True)
class Run:
    """A comparison, the time of each variant, and `about`: how to repeat it and where it was made (`run.json`)."""

    comparison: Comparison
    timings: tuple[Timing, ...]
    about: Mapping[str, Any]
