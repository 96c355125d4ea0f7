"""Student's t without SciPy, whose import takes longer than a sweep's report."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from attn_exp.arrays import Array

LEVEL = 0.05


@dataclass(frozen=True)
class Estimate:
    """A mean with one number per seed: its 95 % interval and p-value; NaN where undefined."""

    mean: float
    low: float
    high: float
    chance: float
    seeds: int


def estimate_mean(numbers: Array, exact: bool = False, tries: int = 1) -> Estimate:
    """Estimate a mean by Student's t; an exact one has no interval, and its p-value is 0, or 1 if it is 0.

    `tries` is the number of means from which this one was selected by size; the interval is widened (Bonferroni) to
    match.
    """
    count, mean = len(numbers), float(numbers.mean())
    if exact:
        return Estimate(mean, math.nan, math.nan, float(mean == 0), count)
    if count == 1:
        return Estimate(mean, math.nan, math.nan, math.nan, count)
    error = float(numbers.std(ddof=1)) / math.sqrt(count)
    half = t_quantile(count - 1, LEVEL / tries) * error
    return Estimate(mean, mean - half, mean + half, student_tails(abs(mean) / error, count - 1), count)


def student_tails(distance: float, freedom: int) -> float:
    """Return the two-sided tail probability of Student's t; Abramowitz & Stegun 1964, 26.7.3 and 4."""
    angle = math.atan2(distance, math.sqrt(freedom))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for step in range(2 + odd, freedom - 1, 2):
        term *= square * (step - 1) / step
        total += term
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return max(1e-15, 1 - inside)


@cache
def t_quantile(freedom: int, level: float = LEVEL) -> float:
    """Return the two-sided critical value of Student's t, by bisection."""
    low, high = 0.0, 1e4
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_tails(middle, freedom) > level else (low, middle)
    return high


def find_level(chances: Iterable[float]) -> float:
    """Return the largest significant p-value in a family of tests; Holm 1979, "A simple sequentially rejective test".

    Of 100 families, at most 5 have any false positive.
    """
    known = sorted(1.0 if math.isnan(chance) else chance for chance in chances)
    level = LEVEL / max(1, len(known))
    for place, chance in enumerate(known):
        if chance > LEVEL / (len(known) - place):
            break
        level = max(level, chance)
    return level
