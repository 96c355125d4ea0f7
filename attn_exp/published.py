"""Printed results of documents, held against what a run computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attn_exp.config import Config
from attn_exp.problem import Problem
from attn_exp.stages import Trace
from attn_exp.variant import Settled


@dataclass(frozen=True)
class Agreement:
    """One printed quantity beside the computed one: `agrees` iff the largest difference is within the tolerance."""

    quantity: str
    printed: str
    computed: str
    largest_difference: float
    tolerance: float
    agrees: bool
    note: str


def hold(
    config: Config, problem: Problem, variants: Sequence[Settled], traces: Mapping[str, Trace]
) -> tuple[Agreement, ...]:
    """Compare every published figure of the configuration with the run's own numbers."""
    return ()
