"""What a setting does to a metric: paired differences, seed by seed, how sure they are, and what explains most."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from attn_exp.arrays import Array
from attn_exp.report.sweep.plotted import FEW
from attn_exp.sweeps.answers.cube import OWN, Cube

RESAMPLES, MOST_RESAMPLED = 2000, 1000
SEED = 20_261
"""Resampling starts here each time, so that a report is the same each time; of more numbers than the most, the mean is
so nearly normal that Student's t says the same."""
NOISE = 1e-9
"""Differences below this share of the numbers, or below 1e-12, are rounding."""

T_975 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip
"""97.5 % points of Student's t for 1 to 30 degrees of freedom; Abramowitz & Stegun 1964, table 26.10."""
Z_975 = 1.959963985


@dataclass(frozen=True)
class Effect:
    """What changing a setting from its first value to another does to a metric of a variant.

    `mean` is the mean over seeds of the paired differences: each pair shares its seed and all other settings.
    `low` and `high` are the ends of its 95 % bootstrap interval over seeds; NaN with fewer than `FEW` seeds. `share` is
    the share of the seeds whose difference has the sign of the mean; `differences` holds those of few seeds.
    """

    setting: str
    start: str
    end: str
    variant: str
    metric: str
    mean: float
    low: float
    high: float
    share: float
    seeds: int
    pairs: int
    differences: tuple[float, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether nothing changed at all."""
        return self.mean == 0 and self.share == 1

    @property
    def sure(self) -> bool:
        """Whether the interval leaves out zero; with few seeds, whether all agree on the sign."""
        if self.nothing:
            return False
        if math.isnan(self.low):
            return self.seeds > 1 and self.share == 1
        return not self.low <= 0 <= self.high


@dataclass(frozen=True)
class Share:
    """The share of a metric's variance over all rows that one setting, or two settings beyond each alone, explains."""

    metric: str
    settings: tuple[str, ...]
    share: float


def effects(cube: Cube) -> Iterator[Effect]:
    """Yield the effect of each setting on each metric of each variant, against the first value, or false."""
    drawn = resamples(len(cube.seeds))
    for place, (name, levels) in enumerate(zip(cube.names, cube.levels, strict=True)):
        for metric in cube.numbers:
            for variant, label in enumerate(cube.variants):
                moved = cube.moved(metric, place, variant)
                start = levels.index("false") if set(levels) == {"true", "false"} else 0
                for level in [level for level in range(len(levels)) if level != start]:
                    difference = compared(moved[start], moved[level], drawn)
                    if difference is not None:
                        yield Effect(name, levels[start], levels[level], label, metric, *difference)


def between_variants(cube: Cube) -> Iterator[Effect]:
    """Yield how each variant differs from the first in each metric, at the same seed and settings."""
    drawn = resamples(len(cube.seeds))
    for metric, numbers in cube.numbers.items():
        rows = np.moveaxis(numbers, (-2, -1), (1, 0)).reshape(len(cube.variants), len(cube.seeds), -1)
        for variant in range(1, len(cube.variants)):
            difference = compared(rows[0], rows[variant], drawn)
            if difference is not None:
                yield Effect(
                    "variant", cube.variants[0], cube.variants[variant], cube.variants[variant], metric, *difference
                )


def compared(
    first: Array, second: Array, drawn: Array | None = None
) -> tuple[float, float, float, float, int, int, tuple[float, ...]] | None:
    """Return mean, interval, share of one sign, seeds, pairs, and the differences of few seeds, of `[seeds, pairs]`;
    `drawn` are the resamples of all seeds."""
    with np.errstate(invalid="ignore"):
        differences = second - first
    there = np.isfinite(differences)
    if not there.any():
        return None
    largest = max(np.abs(first[there]).max(), np.abs(second[there]).max())
    differences = np.where(np.abs(differences) <= max(NOISE * largest, 1e-12), 0.0, differences)
    counts = there.sum(axis=1)
    of_seed = np.where(there, differences, 0.0).sum(axis=1)[counts > 0] / counts[counts > 0]
    mean = float(of_seed.mean())
    low, high = interval(of_seed, drawn)
    share = float((np.sign(of_seed) == np.sign(mean)).mean())
    shown = tuple(of_seed.tolist()) if len(of_seed) < FEW else ()
    return mean, low, high, share, len(of_seed), int(there.sum()), shown


def resamples(count: int) -> Array | None:
    """Return which of so many numbers each resample holds `[resamples, count]`; None where none are drawn.

    All effects over as many seeds share them, and drawing them anew gives the same.
    """
    if not FEW <= count <= MOST_RESAMPLED:
        return None
    return np.random.default_rng(SEED).integers(count, size=(RESAMPLES, count))


def interval(numbers: Array, drawn: Array | None = None) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a mean, widened for small samples; NaN for fewer than `FEW` numbers.

    The percentile interval whose tails are `Phi(-sqrt(n / (n - 1)) t)`, t the 97.5 % point of Student's t with n - 1
    degrees of freedom: Hesterberg 2015, "What Teachers Should Know About the Bootstrap", section 4.4. Of more than
    `MOST_RESAMPLED` numbers it is not resampled but Student's own: the mean plus and minus `t s / sqrt(n)`.

    `drawn` are `resamples` of as many numbers, if they are at hand.
    """
    count = len(numbers)
    if count < FEW:
        return math.nan, math.nan
    if np.ptp(numbers) == 0:
        return float(numbers[0]), float(numbers[0])
    drawn = drawn if drawn is not None and drawn.shape[1] == count else resamples(count)
    if drawn is None:
        half = t_975(count - 1) * float(numbers.std(ddof=1)) / math.sqrt(count)
        return float(numbers.mean()) - half, float(numbers.mean()) + half
    means = numbers[drawn].mean(axis=1)
    tail = 0.5 * math.erfc(math.sqrt(count / (count - 1)) * t_975(count - 1) / math.sqrt(2))
    low, high = np.quantile(means, (tail, 1 - tail))
    return float(low), float(high)


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


def inert(cube: Cube) -> dict[str, list[str]]:
    """Return, for each setting, the variants in which it changes nothing.

    Either no metric changes with it; or the variant pins what the setting sets, and only the first row, to which it
    is compared, has changed.
    """
    inert: dict[str, list[str]] = {name: [] for name in cube.names}
    for place, name in enumerate(cube.names):
        for variant, label in enumerate(cube.variants):
            settings = np.moveaxis(cube.resolved[..., variant], place, 0)
            pinned = bool((settings == settings[:1]).all())
            metrics = OWN if pinned else tuple(cube.numbers)
            own = [metric for metric in metrics if metric in cube.numbers]
            if len(cube.levels[place]) > 1 and all(same_numbers(cube.moved(metric, place, variant)) for metric in own):
                inert[name].append(label)
    return inert


def same_numbers(numbers: Array) -> bool:
    """Say whether all levels have the numbers of the first, to rounding."""
    first = numbers[:1]
    both = np.isnan(numbers) & np.isnan(first)
    with np.errstate(invalid="ignore"):
        near = np.abs(numbers - first) <= NOISE * np.abs(first) + 1e-12
    return bool((near | both).all())


def same_functions(cube: Cube) -> list[tuple[str, ...]]:
    """Return the groups of variants that compute the same function in every point."""
    letters = cube.letters.reshape(-1, len(cube.variants))
    groups: list[list[int]] = []
    for variant in range(len(cube.variants)):
        known = letters[:, variant] >= 0
        home = next((group for group in groups if (letters[:, group[0]] == letters[:, variant]).all()), None)
        if home is None or not known.all():
            groups.append([variant])
        else:
            home.append(variant)
    return [tuple(cube.variants[variant] for variant in group) for group in groups if len(group) > 1]


def shares(cube: Cube) -> Iterator[Share]:
    """Yield the share of each setting, of the seed, of the variant and of each pair, the largest first.

    Sums of squares of a balanced design: `SS_A = N / L_A sum_a (m_a - m)^2` and
    `SS_AB = N / (L_A L_B) sum_ab (m_ab - m_a - m_b + m)^2`, over the total `sum (y - m)^2`. They are exact, and add up
    to 1 with what three settings or more do together. Nothing is yielded where a combination is missing.
    """
    names = (*cube.names, "seed", "variant")
    for metric, numbers in cube.numbers.items():
        if not np.isfinite(numbers).all():
            continue
        centred = numbers - numbers.mean()
        total = float((centred**2).sum())
        if total <= numbers.size * max(1e-12, 1e-9 * float(np.abs(numbers).max())) ** 2:
            continue
        axes = [axis for axis in range(numbers.ndim) if numbers.shape[axis] > 1]
        alone = {axis: along(centred, (axis,)) for axis in axes}
        parts: list[tuple[tuple[str, ...], float]] = [
            ((names[axis],), squares(alone[axis], numbers.size)) for axis in axes
        ]
        for one, other in combinations(axes, 2):
            both = along(centred, (one, other)) - alone[one] - alone[other]
            parts.append(((names[one], names[other]), squares(both, numbers.size)))
        for settings, sum_of_squares in sorted(parts, key=lambda pair: -pair[1]):
            yield Share(metric, settings, sum_of_squares / total)


def along(centred: Array, kept: tuple[int, ...]) -> Array:
    """Return the means over all axes but some, which broadcast against the whole."""
    dropped = tuple(axis for axis in range(centred.ndim) if axis not in kept)
    means: Array = centred.mean(axis=dropped, keepdims=True)
    return means


def squares(means: Array, size: int) -> float:
    """Return the sum of squares of means, each as often as there are numbers in it."""
    return float((means**2).sum()) * size / means.size
