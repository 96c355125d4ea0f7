"""What a setting does to a metric: paired differences, seed by seed, how sure they are, and what explains most."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from attn_exp.arrays import Array
from attn_exp.sweeps.answers.cube import OWN, Cube
from attn_exp.sweeps.answers.intervals import Estimate, estimated
from attn_exp.sweeps.answers.profiles import MOST_LEVELS, NOISE, VARIANT, Slab, order_of, slab_of


@dataclass(frozen=True)
class Effect:
    """What changing a setting from its first value to another does to a metric of a variant.

    `mean` is the mean over seeds of the paired differences: each pair shares its seed and all other settings.
    `low` and `high` are the ends of its 95 % interval over seeds, `chance` how likely such a mean is by chance; NaN
    with fewer than `FEW` seeds. `share` is the share of the seeds whose difference has the sign of the mean;
    `differences` holds those of few seeds.
    """

    setting: str
    start: str
    end: str
    variant: str
    metric: str
    mean: float
    low: float
    high: float
    chance: float
    share: float
    seeds: int
    pairs: int
    differences: tuple[float, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether nothing changed at all."""
        return self.mean == 0 and self.share == 1

    def sure(self, level: float) -> bool:
        """Whether it is not there by chance, as far as this level says; few seeds are never sure."""
        return not self.nothing and self.chance <= level


@dataclass(frozen=True)
class Share:
    """The share of a metric's variance over all rows that one setting, or two settings beyond each alone, explains."""

    metric: str
    settings: tuple[str, ...]
    share: float


def effects(cube: Cube) -> Iterator[Effect]:
    """Yield the effect of each setting on each metric of each variant, against its first value: the least number, or
    false; and how each variant differs from the first."""
    for name, labels in zip(cube.names, cube.levels, strict=True):
        start, *others = order_of(labels)
        for metric in cube.comparable(name):
            for variant, label in enumerate(cube.variants):
                slab = slab_of(cube, name, metric, variant)
                for level in others:
                    yield from effect_of(slab, (start, level), (name, labels[start], labels[level], label, metric))
    for metric in cube.comparable(VARIANT):
        slab = slab_of(cube, VARIANT, metric, 0)
        for variant, label in enumerate(cube.variants[1:], 1):
            yield from effect_of(slab, (0, variant), (VARIANT, cube.variants[0], label, label, metric))


def effect_of(slab: Slab, levels: tuple[int, int], named: tuple[str, str, str, str, str]) -> Iterator[Effect]:
    """Yield the effect between two levels, if both have numbers anywhere."""
    differences = slab.difference(*levels)
    estimate, numbers = slab.compare(*levels), slab.of_seeds(differences)
    if estimate is not None:
        share = float((np.sign(numbers) == np.sign(estimate.mean)).mean())
        low, high, chance = estimate.low, estimate.high, estimate.chance
        if len(numbers) == 1:
            low = high = chance = math.nan
        shown = tuple(numbers.tolist()) if math.isnan(low) else ()
        pairs = int(np.isfinite(differences).sum())
        yield Effect(*named, estimate.mean, low, high, chance, share, len(numbers), pairs, shown)


def compared(first: Array, second: Array) -> Estimate | None:
    """Return what the paired differences of `[seeds, pairs]` say of their mean; None where there are none."""
    slab = Slab(np.stack([first, second]), ("",), ((),), fixed=False)
    numbers = slab.of_seeds(slab.difference(0, 1))
    return estimated(numbers) if len(numbers) else None


def inert(cube: Cube) -> dict[str, list[str]]:
    """Return, for each setting, the variants in which it changes nothing.

    Either no metric changes with it; or the variant pins what the setting sets, and only the first row, to which it
    is compared, has changed.
    """
    inert: dict[str, list[str]] = {name: [] for name in cube.names}
    for place, name in enumerate(cube.names):
        for variant, label in enumerate(cube.variants):
            settings = np.moveaxis(cube.resolved[..., variant], place, 0)
            if (settings >= 0).reshape(len(settings), -1).any(axis=1).sum() < 2:  # nothing was changed here
                continue
            pinned = bool((settings == settings[:1]).all())
            metrics = OWN if pinned else tuple(cube.numbers)
            own = [metric for metric in metrics if metric in cube.numbers]
            if all(same_numbers(cube.moved(metric, place, variant)) for metric in own):
                inert[name].append(label)
    return inert


def same_numbers(numbers: Array) -> bool:
    """Say whether all levels have the numbers of the first, to rounding."""
    first = numbers[:1]
    both = np.isnan(numbers) & np.isnan(first)
    with np.errstate(invalid="ignore"):
        near = np.abs(numbers - first) <= NOISE * np.abs(first) + 1e-12
    return bool((near | both).all())


def same_levels(cube: Cube, still: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, list[str]]]:
    """Yield the values of a setting that do the same in every point, where it changes anything.

    `still` names, for each setting, the variants in which it changes nothing.
    """
    for place, (name, labels) in enumerate(zip(cube.names, cube.levels, strict=True)):
        moving = [variant for variant, label in enumerate(cube.variants) if label not in still[name]]
        if not (moving and 2 < len(labels) <= MOST_LEVELS):
            continue
        tables = [cube.moved(metric, place, variant) for metric in cube.numbers for variant in moving]
        left = [level for level in order_of(labels) if any(np.isfinite(table[level]).any() for table in tables)]
        while left:
            group = [level for level in left if all(same_numbers(table[[left[0], level]]) for table in tables)]
            if len(group) > 1:
                yield name, [labels[level] for level in group]
            left = [level for level in left if level not in group]


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
        if not np.isfinite(numbers).all() or cube.queries_of(metric) is not None:
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
