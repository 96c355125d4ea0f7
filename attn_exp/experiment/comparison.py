"""The complete result of one run: plain data that renderers read and never compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attn_exp.config.schema import Config
from attn_exp.experiment.row import Agreement, Distance, Row, Step, Timing
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem

if TYPE_CHECKING:
    from attn_exp.experiment.checks.check import Finding
    from attn_exp.experiment.verdict import Verdict


@dataclass(frozen=True)
class Comparison:
    """The complete result of one run: plain data that renderers read and never compute.

    `steps`: what makes each row differ from the baseline row, one setting at a time; `rungs`: the weights and output
    after a step that leads to no row, by variant and step, where they are small; points of a sweep have neither.
    `verdicts`: the verdict on each function of the user's own, by variant.
    `seconds`: what each variant took during the comparison; empty for a run read from disk.
    """

    config: Config
    problem: Problem
    variants: tuple[Settled, ...]
    rows: tuple[Row, ...]
    distances: tuple[Distance, ...]
    traces: Mapping[str, Trace]
    published: tuple[Agreement, ...]
    checks: tuple[Finding, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    rungs: Mapping[tuple[str, int], Trace] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """A comparison, the time of each variant, and `about`: how to repeat it and where it was made (`run.json`)."""

    comparison: Comparison
    timings: tuple[Timing, ...]
    about: Mapping[str, Any]


def settled_as(comparison: Comparison, variant: str) -> Settled:
    return next(settled for settled in comparison.variants if settled.name == variant)
