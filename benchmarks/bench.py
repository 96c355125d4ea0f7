"""The figures and goals of one benchmark of attention: what was timed, and what was hoped for on which processor."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.contenders import Call, interleaved
from benchmarks.processor import generation, maker

Array = NDArray[Any]

SHAPES = [
    *((1, 8, length, 64) for length in (64, 128, 256, 512, 1024, 2048)),
    (4, 12, 197, 64),
    (1, 4, 4096, 128),
    (1, 1, 8192, 64),
]


@dataclass(frozen=True)
class Figure:
    """One measured time."""

    part: str
    shape: str
    dtype: str
    who: str
    milliseconds: float
    gigaflops: float
    to_ours: float


@dataclass(frozen=True)
class Goal:
    """What was hoped for on this processor, and what is; None where nobody hoped, or nothing was measured."""

    what: str
    goal: float | None
    measured: float | None
    processor: str

    @property
    def met(self) -> str:
        """Say `yes` or `NO`, or `-` where there is nothing to say."""
        if self.goal is None or self.measured is None:
            return "-"
        return "yes" if self.measured <= self.goal else "NO"


class Bench:
    """The figures and goals of one run."""

    def __init__(self, quick: bool, one_core: bool) -> None:
        self.one_core = one_core
        self.clock = time.process_time if one_core else time.perf_counter
        self.figures: list[Figure] = []
        self.goals: list[Goal] = []
        self.rounds, self.burst = (2, 0.05) if quick else (5, 0.15)
        self.shapes = [shape for shape in SHAPES if not quick or shape[2] <= 2048]

    def time(
        self, part: str, shape: tuple[int, ...], calls: dict[str, Call], dtype: str = "float32", work: float = 1.0
    ) -> dict[str, float]:
        batches, heads, length, size = shape
        seconds = interleaved(calls, self.rounds, self.burst, self.clock)
        return self.note(part, shape, seconds, dtype, 4 * batches * heads * length * length * size * work)

    def note(
        self, part: str, shape: tuple[int, ...], seconds: Mapping[str, float], dtype: str = "float32", flops: float = 0
    ) -> dict[str, float]:
        """Take in times, print them, and return each one's over the first one's."""
        first = next(iter(seconds.values()))
        for who, spent in seconds.items():
            rate = flops / spent / 1e9
            self.figures.append(Figure(part, str(shape), dtype, who, spent * 1e3, rate, spent / first))
        words = "  ".join(f"{who} {spent * 1e3:.3f} ms ({spent / first:.2f})" for who, spent in seconds.items())
        print(f"{part:8} {shape!s:18} {dtype:8} {words}", flush=True)
        return {who: spent / first for who, spent in seconds.items()}

    def goal(self, what: str, goal: float | Mapping[str, float], measured: float | None) -> None:
        """Note a goal: one for all processors, or by their generations or makers, where libraries differ."""
        which = generation()
        hoped = goal.get(which, goal.get(maker())) if isinstance(goal, Mapping) else goal
        self.goals.append(Goal(what, hoped, measured, which or maker()))


def drawn(shape: tuple[int, ...], dtype: str = "float32", heads: int | None = None) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    shared = shape if heads is None else (shape[0], heads, *shape[2:])
    q, k, v = (rng.standard_normal(each, np.float64).astype(dtype) for each in (shape, shared, shared))
    return q, k, v


def mean(ratios: list[float]) -> float | None:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None
