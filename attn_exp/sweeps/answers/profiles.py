"""What is compared, and how: the way of one metric along one setting, and along it at each value of the others.

All comparisons are of rows that share their seed, their variant and all other settings. Variants are compared like the
values of a setting.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations, product

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment import metrics
from attn_exp.report.sweep.plotted import ALL
from attn_exp.sweeps.answers.cube import METRICS, OF_ROUNDING, Cube
from attn_exp.sweeps.answers.intervals import Estimate, Family, certainly, distinct, estimated, family

SPOKEN = ("entropy", "largest_weight", "shift", "cosine")
"""The metrics of a row that sentences speak of, the first that change first."""
MOST_METRICS = 2
VARIANT = "variant"
DEPENDS = 0.25
"""An effect depends on another setting where it varies over its values by more than this share of its largest."""
NOISE = 1e-9
"""Differences below this share of the numbers are rounding, and so are those below `FLOOR`."""
FLOOR = 1e-12
MOST_LEVELS = 12
"""Values of a setting that are compared; of more, so many at even distances."""
OTHERS = 3
"""Values of another setting at which an effect is compared, where they are more than eight numbers."""
EIGHT = 8


@dataclass(frozen=True)
class Dependence:
    """How an effect varies over the values of another setting: what it is at each, and how far from the first."""

    setting: str
    levels: tuple[str, ...]
    at: tuple[Estimate, ...]
    apart: tuple[Estimate, ...]
    threshold: float = math.nan

    @property
    def width(self) -> float:
        """By which share of the largest the effects differ."""
        means = [each.mean for each in self.at]
        largest = max(map(abs, means))
        return (max(means) - min(means)) / largest if largest else 0.0

    @property
    def ordered(self) -> bool:
        """Whether the values are numbers."""
        return all(map(is_number, self.levels))

    @cached_property
    def judged(self) -> list[float]:
        """The chance of each effect to be said larger, or smaller, than the threshold, though it is not."""
        if math.isnan(self.threshold):
            return []
        return [min(each.beyond(self.threshold), each.within(self.threshold)) for each in self.at]


@dataclass(frozen=True)
class Beside:
    """How an effect varies over one setting at a value of another: `one` and `other` are how it does over all rows."""

    one: Dependence
    other: Dependence
    there: Dependence


@dataclass(frozen=True)
class Change:
    """One change of a setting, on which others may bear."""

    start: int
    end: int
    estimate: Estimate
    dependences: tuple[Dependence, ...]
    slab: Slab

    def at(self, *others: Dependence) -> list[Cell]:
        """Return the effect at each value of some other settings together."""
        cells = []
        for labels in product(*(each.levels for each in others)):
            where = tuple(zip((each.setting for each in others), labels, strict=True))
            estimate = self.slab.compare(self.start, self.end, where)
            if estimate is not None:
                cells.append(Cell(where, estimate))
        return cells

    @cached_property
    def beside(self) -> tuple[Beside, ...]:
        """How the effect varies over each other setting where a second one has some value: over both, it may not."""
        found = []
        for one, other in permutations(self.dependences, 2):
            place = self.slab.names.index(one.setting)
            for level in other.levels:
                differences = self.slab.difference(self.start, self.end, ((other.setting, level),))
                if there := dependence(self.slab, differences, place, math.nan):
                    found.append(Beside(one, other, there))
        return tuple(found)

    def step(self, setting: str, one: str, other: str) -> Estimate | None:
        """Return by how much the effect at one value of another setting is above that at another."""
        before, after = (self.slab.difference(self.start, self.end, ((setting, label),)) for label in (one, other))
        return self.slab.estimate(after - before)


@dataclass(frozen=True)
class Cell:
    """An effect where some other settings have these values."""

    where: tuple[tuple[str, str], ...]
    estimate: Estimate


@dataclass(frozen=True)
class Profile:
    """How one metric goes along one setting, in one variant; along the variants themselves there is none.

    `values` are the means at each level. `pairs` are paired differences, the second level minus the first; `changes`
    are those of which it is asked whether they depend on other settings. `weight` is the share of all that varies in
    the metric that goes with the setting.
    """

    setting: str
    variant: str
    metric: str
    levels: tuple[str, ...]
    values: tuple[float, ...]
    pairs: Mapping[tuple[int, int], Estimate]
    changes: tuple[Change, ...]
    weight: float
    seeds: int
    threshold: float = math.nan

    @property
    def ordered(self) -> bool:
        """Whether the levels are more than two numbers, which have a shape."""
        return len(self.levels) > 2 and all(map(is_number, self.levels))

    def chances(self) -> Iterator[Estimate | float]:
        """Yield all that is compared here."""
        yield from self.pairs.values()
        for change in self.changes:
            for dependence in change.dependences:
                yield from dependence.apart
                yield from dependence.judged


@dataclass(frozen=True)
class Slab:
    """Numbers of one metric, `[levels, seeds, other settings ...]`, and the names and levels of those others.

    `queries` numbers, for each, the set of queries that it is a mean of: only means of the same are compared. A
    difference of up to `floor` is rounding; metrics that measure rounding have no floor.
    """

    numbers: Array
    names: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    fixed: bool
    queries: Array | None = None
    floor: float = FLOOR

    def difference(self, start: int, end: int, where: Sequence[tuple[str, str]] = ()) -> Array:
        """Return the paired differences, `[seeds, other settings ...]`, all of them or those where some have values;
        rounding is 0, what is missing NaN."""
        first, second = self.numbers[start], self.numbers[end]
        with np.errstate(invalid="ignore"):
            differences = second - first
            there = np.isfinite(differences)
            if self.queries is not None:
                there &= self.queries[start] == self.queries[end]
            most = np.where(there, np.maximum(np.abs(first), np.abs(second)), 0.0)
            differences = np.where(np.abs(differences) <= max(NOISE * float(most.max()), self.floor), 0.0, differences)
        return self.narrowed(np.where(there, differences, np.nan), where, 1)

    def narrowed(self, numbers: Array, where: Sequence[tuple[str, str]], first: int) -> Array:
        """Return the numbers at which some other settings have these values; their axes begin at the `first`."""
        for setting, label in where:
            place = self.names.index(setting)
            numbers = np.take(numbers, [self.levels[place].index(label)], axis=first + place)
        return numbers

    def only_at(self, start: int, end: int, where: Sequence[tuple[str, str]] = ()) -> list[tuple[str, tuple[str, ...]]]:
        """Return the other settings, with those values at which alone two levels can be compared, if these are not all;
        where some of them have these values already."""
        there = np.isfinite(self.difference(start, end, where))
        found = []
        named = [name for name, _ in where]
        for axis, (name, labels) in enumerate(zip(self.names, self.levels, strict=True), 1):
            if name in named:
                continue
            levels = np.flatnonzero(np.moveaxis(there, axis, 0).reshape(len(labels), -1).any(axis=1))
            if 0 < len(levels) < len(labels):
                found.append((name, tuple(labels[level] for level in levels)))
        return found

    def means(self, where: Sequence[tuple[str, str]] = ()) -> tuple[float, ...]:
        """Return the mean at each level, where some other settings have these values; NaN where there is no number.

        Means are of the rows that all levels have, of the same queries, if there are any: where some failed, the others
        would be of others.
        """
        numbers = self.narrowed(self.numbers, where, 2)
        full = np.isfinite(numbers).all(axis=0)
        if self.queries is not None:
            queries = self.narrowed(self.queries, where, 2)
            full &= (queries == queries[:1]).all(axis=0)
        numbers = np.where(full, numbers, np.nan) if full.any() else numbers
        return tuple(float(np.nanmean(each)) if np.isfinite(each).any() else math.nan for each in numbers)

    def bearing(self, differences: Array) -> tuple[str, ...]:
        """Return the other settings over which differences vary at all."""
        there = np.isfinite(differences)
        most, least = np.where(there, differences, -math.inf), np.where(there, differences, math.inf)
        return tuple(
            name for axis, name in enumerate(self.names, 1) if (most.max(axis=axis) > least.min(axis=axis)).any()
        )

    def compare(self, start: int, end: int, where: Sequence[tuple[str, str]] = ()) -> Estimate | None:
        """Return what the paired differences of two levels say of their mean; None where there are none.

        It is certain where no seed changes the numbers of both, such as those of queries that see a single key."""
        both = self.narrowed(self.numbers[[start, end]], where, 2)
        fixed = both.shape[1] > 1 and same_over(both, 1, self.floor)
        return self.estimate(self.difference(start, end, where), fixed)

    def estimate(self, differences: Array, fixed: bool = False) -> Estimate | None:
        """Return what differences say of their mean, seed by seed; None where there are none."""
        numbers = self.of_seeds(differences)
        if not len(numbers):
            return None
        alike = len(numbers) > 1 and np.ptp(numbers) <= NOISE * abs(float(numbers[0]))
        return certainly(float(numbers[0])) if fixed or self.fixed or alike else estimated(numbers)

    def of_seeds(self, differences: Array) -> Array:
        """Return the mean of the differences of each seed that has any."""
        there = np.isfinite(differences)
        axes = tuple(range(1, differences.ndim))
        counts = there.sum(axis=axes)
        means: Array = np.where(there, differences, 0.0).sum(axis=axes)[counts > 0] / counts[counts > 0]
        return means


def slab_of(cube: Cube, setting: str, metric: str, variant: int) -> Slab:
    """Return the numbers along a setting in one variant, or along the variants."""
    place = -1 if setting == VARIANT else cube.names.index(setting)

    def along(table: Array) -> Array:
        """Return a table with the levels first and then the seeds."""
        if setting == VARIANT:
            return np.moveaxis(table, (-1, -2), (0, 1))
        return np.moveaxis(np.moveaxis(table[..., variant], -1, 0), place + 1, 0)

    moved, queries = along(cube.numbers[metric]), cube.queries_of(metric)
    kept = [axis for axis in range(len(cube.names)) if axis != place]
    names, levels = tuple(cube.names[axis] for axis in kept), tuple(cube.levels[axis] for axis in kept)
    floor = 0.0 if metric in OF_ROUNDING else FLOOR
    return Slab(moved, names, levels, same_over(moved, 1, floor), None if queries is None else along(queries), floor)


def same_over(numbers: Array, axis: int, floor: float = FLOOR) -> bool:
    """Say whether numbers do not change along an axis, to rounding; what is missing does not count."""
    over = np.moveaxis(numbers, axis, 0)
    with np.errstate(invalid="ignore"):
        same = (np.abs(over - over[:1]) <= NOISE * np.abs(over[:1]) + floor) | np.isnan(over)
    return bool(same.all())


def profiles(
    cube: Cube, still: Mapping[str, Sequence[str]], thresholds: Mapping[str, float] | None = None
) -> Iterator[Profile]:
    """Yield what the sentences speak of: each setting, then the variants, with the first metrics that they change.

    `still` names, for each setting, the variants in which it changes nothing.
    """
    for setting in cube.names:
        variants = [place for place, name in enumerate(cube.variants) if name not in still[setting]]
        yield from of_setting(cube, setting, variants, thresholds or {})
    if len(cube.variants) > 1:
        yield from of_setting(cube, VARIANT, [0], thresholds or {})


def of_setting(cube: Cube, setting: str, variants: Sequence[int], thresholds: Mapping[str, float]) -> Iterator[Profile]:
    """Yield the profiles of one setting: each metric that was asked for, and the first two others that it moves."""
    errors = cube.numbers.get("error", np.zeros(1))
    first = ["error"] if setting != VARIANT and np.nanmax(errors, initial=0.0) > FLOOR else []
    asked, own = [*first, *(metric for metric in cube.numbers if metric not in METRICS)], list(SPOKEN)
    if setting == VARIANT:  # the others hold a variant to one of them anyway
        known = metrics.known() if asked else {}
        asked, own = [name for name in asked if name not in known or not known[name].relative], own[:2]
    said = 0
    for metric in (*asked, *own):
        if metric not in cube.comparable(setting) or (metric in SPOKEN and said == MOST_METRICS):
            continue
        found = [
            profile
            for variant in variants
            if (profile := profile_of(cube, setting, metric, variant, thresholds)) is not None
        ]
        said += metric in SPOKEN and bool(found)
        yield from found


def profile_of(cube: Cube, setting: str, metric: str, variant: int, thresholds: Mapping[str, float]) -> Profile | None:
    """Return one profile; None where nothing moves."""
    slab = slab_of(cube, setting, metric, variant)
    labels = cube.variants if setting == VARIANT else cube.levels[cube.names.index(setting)]
    order = order_of(labels) if setting != VARIANT else list(range(len(labels)))
    if all(map(is_number, labels)) and len(order) > MOST_LEVELS:
        order = [order[round(place)] for place in np.linspace(0, len(order) - 1, MOST_LEVELS)]
    whole = slab
    while True:
        sets = None if whole.queries is None else whole.queries[order]
        slab = replace(whole, numbers=whole.numbers[order], queries=sets)
        levels = tuple(labels[place] for place in order)
        estimates = {pair: slab.compare(*pair) for pair in compared_pairs(levels)}
        pairs = {pair: estimate for pair, estimate in estimates.items() if estimate is not None}
        if len(order) < 2 or any(start == 0 for start, _ in pairs):
            break
        order = order[1:]  # with the first value nothing can be compared
    if all(estimate.nothing and not moved(slab, *pair) for pair, estimate in pairs.items()):
        return None
    profile = Profile(
        setting, "" if setting == VARIANT else cube.variants[variant], metric, levels, slab.means(), pairs, (),
        weight(cube, slab, metric), len(cube.seeds),
    )  # fmt: skip
    limit = thresholds.get(metric, math.nan)
    return replace(profile, changes=tuple(changes(profile, slab, limit)), threshold=limit)


def moved(slab: Slab, start: int, end: int) -> bool:
    """Say whether anything moves between two levels, though it may be nothing in the mean."""
    return bool(np.nan_to_num(slab.difference(start, end)).any())


def order_of(labels: Sequence[str]) -> list[int]:
    """Return the places of levels in order: numbers rise to no limit, false stands before true, words stay."""
    if set(labels) == {"true", "false"}:
        return [labels.index("false"), labels.index("true")]
    if all(map(is_number, labels)):
        return sorted(range(len(labels)), key=lambda place: value_of(labels[place]))
    return list(range(len(labels)))


def compared_pairs(levels: Sequence[str]) -> list[tuple[int, int]]:
    """Return the pairs that are compared: each level with the first, and of numbers also with the last and the next."""
    last = len(levels) - 1
    pairs = [(0, end) for end in range(1, last + 1)]
    if last > 1 and all(map(is_number, levels)):
        pairs += [(start, last) for start in range(1, last)]
        pairs += [(start, start + 1) for start in range(1, last - 1)]
    return pairs


def weight(cube: Cube, slab: Slab, metric: str) -> float:
    """Return the share of all that varies in a metric that goes with the setting, alone and together with others."""
    with np.errstate(invalid="ignore"):
        whole = np.nanvar(cube.numbers[metric])
        there = np.isfinite(slab.numbers)
        counts = there.sum(axis=1)
        means = np.where(there, slab.numbers, 0.0).sum(axis=1) / np.maximum(1, counts)
        full = (counts > 0).all(axis=0)
    if not full.any() or not whole > 0:
        return 0.0
    return float(means[:, full].var(axis=0).mean() / whole)


def changes(profile: Profile, slab: Slab, limit: float) -> Iterator[Change]:
    """Yield the changes of which it is asked on what they depend: of numbers the whole way and the widest part of it,
    of other values each against the first."""
    last = len(profile.levels) - 1
    ends = list(range(1, last + 1))
    if profile.ordered:
        widest = max(ends, key=lambda end: abs(profile.pairs[0, end].mean) if (0, end) in profile.pairs else 0.0)
        ends = list(dict.fromkeys((last, widest)))
    for end in ends:
        if (0, end) in profile.pairs:
            differences = slab.difference(0, end)
            found = tuple(
                found for place in range(len(slab.names)) if (found := dependence(slab, differences, place, limit))
            )
            yield Change(0, end, profile.pairs[0, end], found, slab)


def dependence(slab: Slab, differences: Array, place: int, limit: float) -> Dependence | None:
    """Return how differences vary over one of the other settings; None where it has no two values to compare."""
    labels = slab.levels[place]
    order = order_of(labels)
    if all(map(is_number, labels)) and len(order) > EIGHT:
        order = [order[round(at)] for at in np.linspace(0, len(order) - 1, OTHERS if math.isnan(limit) else EIGHT)]
    moved = np.moveaxis(differences, place + 1, 0)
    order = [level for level in order if np.isfinite(moved[level]).any()]
    over = moved[order]
    at = [slab.estimate(each) for each in over]
    apart = [slab.estimate(each - over[0]) for each in over[1:]]
    if len(order) < 2 or None in at or None in apart:
        return None
    levels = tuple(labels[each] for each in order)
    known = tuple(each for each in at if each is not None)
    graded = len(levels) > 2 and all(map(is_number, levels))
    return Dependence(
        slab.names[place], levels, known, tuple(each for each in apart if each is not None),
        limit if graded else math.nan,
    )  # fmt: skip


def family_of(found: Sequence[Profile]) -> Family:
    """Return the family of all comparisons that the sentences about these profiles rest on."""
    chances = [each for profile in found for each in profile.chances()]
    estimates = distinct([each for each in chances if isinstance(each, Estimate) and not each.nothing])
    known = [each.chance for each in estimates if not each.certain]
    return family([*known, *(each for each in chances if isinstance(each, float) and each != 0)])


def is_number(label: str) -> bool:
    """Say whether a label is a number, or no limit to one."""
    return not math.isnan(value_of(label))


def value_of(label: str) -> float:
    """Return a label as a number; infinity for no limit, NaN for a word."""
    try:
        return math.inf if label == ALL else number if math.isfinite(number := float(label)) else math.nan
    except ValueError:
        return math.nan
