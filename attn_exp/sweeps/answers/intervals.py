"""What numbers of a few seeds say of their mean: an interval, how likely such a mean is by chance, how many would do.

Differences between seeds are often skewed, and Student's interval then holds their mean too seldom: of 5 lognormal ones
in 82 of 100 cases. So it is widened by as much as lognormal numbers (sigma 1) need for 95 of 100, the more the more
skewed the numbers are. Five numbers cannot show whether they are: whatever they look like, the interval is 2.3 times as
wide, and of normal ones it holds 99.7. Of 10 normal ones it holds 99.6, of 20 it holds 98, of 30 and more 95.
That 0 is their mean is another question: where a setting changes nothing, two rows are alike and their difference is
symmetric, and Student's test errs on the safe side. A mean is surely not 0 where both say so.
`benchmarks/answers.py` measures it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from attn_exp.arrays import Array
from attn_exp.report.sweep.plotted import FEW

LEVEL = 0.05
"""An interval misses this often, and so often any sentence of a sweep may be false."""

T_975 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip
"""97.5 % points of Student's t for 1 to 30 degrees of freedom; Abramowitz & Stegun 1964, table 26.10."""
Z_975 = 1.959963985

COUNTS = (5, 6, 8, 10, 15, 20, 30, 60, 100, 300, 1000)
WIDER = (2.30, 2.15, 1.78, 1.54, 1.27, 1.05, 0.76, 0.72, 0.75, 0.94, 1.04)
SKEWED = (0.0, 0.1, 0.4, 0.5, 0.5, 0.5, 0.5, 0.3, 0.2, 0.05, 0.0)
"""How much wider than Student's an interval of so many numbers is, and by how much more for each unit of their
skewness, but never narrower than it; between counts by their logarithm. Chosen by simulation, for lognormal numbers."""
CLEAR = 1.01
"""A mean is sure where its interval leaves 0 out by a hundredth: digits can show no less."""

MOST_SERIES = 200
"""Degrees of freedom up to which Student's t is summed; beyond them it is nearly normal."""
MOST_SEEDS = 100_000


@dataclass(frozen=True)
class Estimate:
    """The mean of numbers, one a seed, and what is known of it.

    `spread` is their standard deviation, `skew` their skewness. `low` and `high` are the ends of the 95 % interval, and
    `chance` the share of cases in which a mean as far from 0 comes about though the true one is 0; NaN with fewer than
    `FEW` numbers, which `numbers` holds. `count` is 0 where no seed changes the number: it is what it is.
    """

    mean: float
    spread: float
    count: int
    low: float
    high: float
    chance: float
    numbers: tuple[float, ...] = ()
    skew: float = 0.0

    @property
    def certain(self) -> bool:
        """Whether no seed changes it."""
        return self.count == 0

    @property
    def few(self) -> bool:
        """Whether it is of too few numbers to say anything of their mean."""
        return math.isnan(self.chance)

    @property
    def nothing(self) -> bool:
        """Whether nothing changed at all, in any seed."""
        return self.mean == 0 and (not any(self.numbers) if self.few else self.spread == 0)

    def chance_of(self, other: float, sign: int) -> float:
        """Return the chance of a mean as far above another number, if that is the true one; below it with sign -1."""
        distance = sign * (self.mean - other)
        if self.few or distance <= 0:
            return 1.0
        return 0.0 if self.certain else chance(distance, self.spread, self.count, self.skew)

    def beyond(self, size: float) -> float:
        """Return how likely the mean came about by chance if the true one is no larger than `size`, either way."""
        return self.chance_of(math.copysign(size, self.mean), 1 if self.mean > 0 else -1)

    def within(self, size: float) -> float:
        """Return how likely the mean came about by chance if the true one is `size` or larger, either way."""
        return max(self.chance_of(-size, 1), self.chance_of(size, -1))

    def largest(self, level: float) -> float:
        """Return how large the true mean may be, either way, at a level; infinity where that is not known."""
        if self.certain or self.nothing:
            return abs(self.mean)
        if self.few or self.spread == 0:
            return math.inf
        quantile = student_quantile(level, self.count - 1)
        return abs(self.mean) + wider(self.count, self.skew) * quantile * self.spread / math.sqrt(self.count)


def certainly(mean: float) -> Estimate:
    """Return a number that no seed changes."""
    return Estimate(mean, 0.0, 0, mean, mean, 1.0 if mean == 0 else 0.0)


def estimated(numbers: Array) -> Estimate:
    """Return what numbers, one a seed, say of their mean."""
    count, mean = len(numbers), float(numbers.mean())
    spread = float(numbers.std(ddof=1)) if count > 1 and np.ptp(numbers) > 0 else 0.0
    if count < FEW:
        return Estimate(mean, spread, count, math.nan, math.nan, math.nan, tuple(numbers.tolist()))
    skew = float(((numbers - mean) ** 3).mean() / numbers.std() ** 3) if spread else 0.0
    half = wider(count, skew) * t_975(count - 1) * spread / math.sqrt(count)
    return Estimate(
        mean, spread, count, mean - half, mean + half, chance(abs(mean), spread, count, skew), skew=skew
    )  # fmt: skip


def chance(distance: float, spread: float, count: int, skew: float) -> float:
    """Return how likely the mean of numbers lies so far from the true one, as Student's t says; where the interval
    holds the true one, as the interval says."""
    if distance == 0:
        return 1.0
    if spread == 0:  # all seeds agree to the digit: as likely as that all of so many coins show one side
        return 2.0 ** (1 - count)
    reach = distance * math.sqrt(count) / spread
    widened = student_tails(reach / (CLEAR * wider(count, skew)), count - 1)
    return widened if widened > LEVEL else student_tails(reach, count - 1)


def wider(count: int, skew: float) -> float:
    """Return by how much an interval of so many numbers, as skewed as these, is widened."""
    always, more = (float(np.interp(math.log(count), np.log(COUNTS), column)) for column in (WIDER, SKEWED))
    return max(1.0, always + more * abs(skew))


def t_975(freedom: int) -> float:
    """Return the 97.5 % point of Student's t; beyond the table, Abramowitz & Stegun 1964, formula 26.7.5."""
    if freedom <= len(T_975):
        return T_975[freedom - 1]
    z, n = Z_975, freedom
    steps = (
        (z**3 + z) / (4 * n),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3),
    )
    return z + sum(steps)


def student_tails(distance: float, freedom: int) -> float:
    """Return the share of Student's t beyond a distance, both sides; Abramowitz & Stegun 1964, 26.7.3, 4 and 8."""
    if freedom > MOST_SERIES:
        z = distance * (1 - 1 / (4 * freedom)) / math.sqrt(1 + distance**2 / (2 * freedom))
        return math.erfc(z / math.sqrt(2))
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


def student_quantile(level: float, freedom: int) -> float:
    """Return the distance beyond which lies this share of Student's t, both sides, by bisection."""
    low, high = 0.0, 1.0
    while student_tails(high, freedom) > level and high < 1e15:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_tails(middle, freedom) > level else (low, middle)
    return high


def seeds_needed(estimate: Estimate, level: float) -> int:
    """Return about how many seeds would show a mean as large as this one, with the spread seen, at a level; 0 where it
    takes more than `MOST_SEEDS`, or nothing is known of the spread."""
    if not (estimate.spread > 0 and estimate.mean != 0):
        return 0

    def shows(count: int) -> bool:
        return chance(abs(estimate.mean), estimate.spread, count, estimate.skew) <= level

    if not shows(MOST_SEEDS):
        return 0
    few, enough = FEW - 1, MOST_SEEDS
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if shows(middle) else (middle, enough)
    digits: int = 10 ** max(0, len(str(enough)) - 2)
    return -(-enough // digits) * digits


@dataclass(frozen=True)
class Family:
    """All comparisons that the sentences of a sweep rest on, held together.

    Holm (1979), "A simple sequentially rejective multiple test procedure": the smallest of m chances is held against
    0.05 / m, the next against 0.05 / (m - 1), and so on up to the first that is larger. Then any sentence of a sweep is
    false in at most 5 of 100 sweeps. `level` is the largest chance that holds.
    """

    count: int = 0
    level: float = LEVEL

    def sure(self, estimate: Estimate) -> bool:
        """Say whether a mean is surely not 0."""
        return bool(estimate.chance <= self.level)

    @property
    def each(self) -> float:
        """The level of a statement that is held by itself, against all others."""
        return LEVEL / max(1, self.count)


def family(chances: Iterable[float]) -> Family:
    """Return the family of these chances; what is not known, of few seeds, counts as one that does not hold."""
    known = sorted(1.0 if math.isnan(chance) else chance for chance in chances)
    level = LEVEL / max(1, len(known))
    for chance, left in zip(known, descending(len(known)), strict=True):
        if chance > LEVEL / left:
            break
        level = max(level, chance)
    return Family(len(known), level)


def descending(count: int) -> Iterator[int]:
    yield from range(count, 0, -1)


def distinct(estimates: Sequence[Estimate]) -> list[Estimate]:
    """Return the estimates without those of the very same numbers: a row that is there twice is compared once."""
    return list({(each.mean, each.spread, each.count): each for each in estimates}.values())
