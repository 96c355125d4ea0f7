"""How long each variant takes and how much memory it needs at most, measured within a small budget."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Annotated

from attn_exp.experiment.column import Column
from attn_exp.experiment.executing import execute
from attn_exp.experiment.variant import Settled
from attn_exp.problem.problem import Problem

BUDGET = 0.005
"""Seconds that all variants of a run share; a variant slower than its share runs once."""

PATIENCE = 0.5
"""Seconds beyond which a variant is not run again for its peak memory, which slows Python loops several times."""

ENOUGH = 0.5
"""Seconds beyond which the comparison's own computation is the measurement: a long one is done once."""

MOST_RUNS = 100


@dataclass(frozen=True)
class Timing:
    """What one variant costs on this machine: seconds per computation, and the most bytes held at once, if measured."""

    variant: str
    median_s: Annotated[float, Column(200, unit="s", meaning="median time of one computation on this machine")]
    minimum_s: float
    runs: int
    peak_bytes: Annotated[
        int | None, Column(210, unit="bytes", meaning="the most memory held at once", aside=True, deep=True)
    ]


def measure(
    variants: Sequence[Settled], problem: Problem, budget: float = BUDGET, known: Mapping[str, float] | None = None
) -> tuple[Timing, ...]:
    """Run every variant as often as its share of the budget, in seconds, allows, and once more for its peak memory.

    `known` are the seconds that variants took before; what took long is not run again, and has no peak.
    """
    before, computed = known or {}, [variant for variant in variants if not variant.refused]
    return tuple(
        measure_one(variant, problem, budget / len(computed), before.get(variant.name, 0.0)) for variant in computed
    )


def measure_one(settled: Settled, problem: Problem, share: float, before: float = 0.0) -> Timing:
    """Measure one variant for so many seconds; one that took long before is not computed again."""
    if before > ENOUGH and not settled.member.library:  # else it may have been the loading of the library
        return Timing(settled.name, before, before, 1, None)
    times: list[float] = []
    while not times or (sum(times) + times[-1] < share and len(times) < MOST_RUNS):
        start = perf_counter()
        execute(settled, problem)
        times.append(perf_counter() - start)
    peak = peak_bytes(settled, problem) if times[0] < PATIENCE else None
    return Timing(settled.name, median(times), min(times), len(times), peak)


def median(numbers: Sequence[float]) -> float:
    """Return the middle of some numbers; NumPy's own loads its masked arrays, which nothing else here needs."""
    ordered, middle = sorted(numbers), len(numbers) // 2
    return ordered[middle] if len(numbers) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def peak_bytes(settled: Settled, problem: Problem) -> int:
    """Return the most bytes allocated at once while the variant computes, in a run of its own: tracing is slow."""
    tracemalloc.start()
    try:
        execute(settled, problem)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
