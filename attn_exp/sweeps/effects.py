"""The effect of each setting on each metric, as one table: paired differences, seed by seed, and a verdict.

Student's t is computed here because importing SciPy takes longer than writing a sweep's report.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import combinations
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array, Shape
from attn_exp.config.schema import Matters
from attn_exp.experiment import metrics
from attn_exp.report.sentences import listed
from attn_exp.report.sweep_plots import in_order, is_number
from attn_exp.sweeps.rows import METRICS, OWN, VARIANT, Cube

LEVEL = 0.05
YES, NO, FEW = "yes", "no", "too few seeds"
RATIOS = frozenset(
    ("error", "row_sum_error", "max_error", "mean_error", "rms_error", "relative_rms", "log_sum_exp_error")
)
"""Rounding errors, which vary by orders of magnitude: their effects are differences of log10."""
NOISE = 1e-9
"""An interval whose half-width is below this share of the mean is due to rounding."""
GROUPS = re.compile(r"(?:^|(?<=, ))(?:embeddings|model|projections|mask|score|position)\.")
"""Prefixes of settings whose names are clear without them."""
SPOKEN = ("entropy", "largest_weight", "max_diff")
"""Built-in metrics described in sentences: the first two that a setting changes, and `error` if it is not rounding."""
MATTERS = asdict(Matters())
RATIO_MATTERS, SHARE_MATTERS = 0.1, 0.05
"""Default thresholds: for differences of log10, and for other metrics relative to their mean absolute value."""
DEPENDS = 0.25
"""An effect is shown at each value of another setting if it varies over these by at least this share of its maximum."""
TURNS = 0.25
"""A metric counts as non-monotonic along a setting if it reverses by more than this share of its range."""
FLOOR = 1e-12
"""Differences below this, or below `NOISE` times the numbers, are due to rounding."""
MOST_LEVELS = 12
"""Maximum number of values compared for a numeric setting; if there are more, evenly spaced ones are picked."""
CHANGE_KEYS = ("mask", "mask_join", "align", "past", "tokens", "memory")
"""Settings that change how many keys a query can attend to; those in `INPUTS` replace the whole input."""
INPUTS = ("embeddings", "experiment")
WRONG = 1e6
"""Errors above this, in units in the last place, cannot be due to rounding."""
CORRECTION = "; metrics=[normalized_entropy] corrects for this"
ALLOW_FOR_KEYS = ("normalized_entropy", "error", "error_ulp", "max_diff", "cosine")
"""Metrics that do not change just because the number of visible keys does."""
SCALES = ("scale", "multiplier", "logit_std")
SPREAD = 0.05
"""Smallest relative change of the standard deviation of the logits that is reported."""
Shares = Mapping[tuple[str, ...], float]
"""The share of a metric's variance explained by one setting, or by the interaction of two: `(metric, setting, ...)`."""


class Estimate(NamedTuple):
    """The mean of one number per seed, with its 95 % interval and p-value; NaN where undefined."""

    mean: float
    low: float
    high: float
    chance: float
    seeds: int


def student_tails(distance: float, freedom: int) -> float:
    """Return the two-sided tail probability of Student's t with `freedom` degrees of freedom.

    Source: Abramowitz & Stegun 1964, 26.7.3 and 26.7.4.
    """
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
    """Return the two-sided critical value of Student's t, found by bisection."""
    low, high = 0.0, 1e4
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_tails(middle, freedom) > level else (low, middle)
    return high


def find_level(chances: Iterable[float]) -> float:
    """Return the threshold at or below which a p-value in this family of tests is significant.

    On average, at most 5 of 100 families contain a false positive. Source: Holm 1979, "A simple sequentially rejective
    multiple test procedure".
    """
    known = sorted(1.0 if math.isnan(chance) else chance for chance in chances)
    level = LEVEL / max(1, len(known))
    for place, chance in enumerate(known):
        if chance > LEVEL / (len(known) - place):
            break
        level = max(level, chance)
    return level


@dataclass(frozen=True)
class Effect:
    """The effect of changing a setting from `start` to `end` on a metric, overall or `at` a value of another setting.

    `mean` is the mean over seeds of the paired differences, where a pair shares the seed and all other settings; `low`
    and `high` are its 95 % interval, NaN for one seed or if all seeds agree. `explains` is the share of the metric's
    variance that the setting explains. `sign` is 0 unless the effect is significant.
    """

    setting: str
    start: str
    end: str
    metric: str
    at: str
    mean: float
    low: float
    high: float
    chance: float
    seeds: int
    explains: float
    verdict: str
    note: str
    sign: int = 0


@dataclass(frozen=True)
class Contrast:
    """The change of a metric between two values of a setting: `differences[levels of each setting ..., seeds]`.

    `tries` is the number of pairs of values that this one was chosen from; `turn` describes an extremum of the metric,
    if there is one.
    """

    axis: int
    start: int
    end: int
    metric: str
    differences: Array
    tries: int
    turn: str


@dataclass(frozen=True)
class Dependence:
    """An effect at each value of another setting, and the p-value of the hypothesis that all of them are equal."""

    axis: int
    chance: float
    at: Mapping[int, Estimate]

    @property
    def width(self) -> float:
        """The range of the effects, relative to the largest one."""
        means = [each.mean for each in self.at.values()]
        return (max(means) - min(means)) / (max(map(abs, means)) or 1.0)


def measure_effects(
    cube: Cube, thresholds: Mapping[str, float], shares: Shares, exact: bool = False
) -> tuple[list[Effect], int]:
    """Return the effects, sorted by explained variance, and the number of tests behind their verdicts.

    `thresholds` holds the smallest difference that matters, by metric; `exact` means that no number depends on the
    seed.
    """
    inert = find_inert(cube)
    measured = [
        (contrast, overall, find_dependences(cube, contrast, exact))
        for contrast in find_contrasts(cube, inert)
        if (overall := estimate_of(contrast.differences, exact, contrast.tries if contrast.turn else 1))
    ]
    chances = []
    for contrast, overall, dependences in measured:
        tests = [overall, *dependences, *(dependences[0].at.values() if dependences else ())]
        chances += [test.chance * contrast.tries for test in tests]
    level, effects = find_level(chances), list[Effect]()
    for contrast, overall, dependences in measured:
        few = math.isnan(overall.chance)
        found = [each for each in dependences if few or each.chance * contrast.tries <= level]
        name, metric, rows = cube.names[contrast.axis], contrast.metric, {"": overall}
        explains = shares.get((metric, name), math.nan)
        verdict = judge(cube, contrast, overall, level, thresholds)
        asides = [contrast.turn] if contrast.turn else []
        if found and found[0].width >= DEPENDS:
            other, labels = cube.names[found[0].axis], cube.levels[found[0].axis]
            explains += shares.get((metric, name, other), 0.0) + shares.get((metric, other, name), 0.0)
            rows = {f"{other}={labels[place]}": estimate for place, estimate in found[0].at.items()}
            verdict = FEW if few else f"depends on {listed([shorten(cube.names[each.axis]) for each in found])}"
        elif dependences and dependences[0].chance <= LEVEL:
            means = sorted(each.mean for each in dependences[0].at.values())
            key = shorten(cube.names[dependences[0].axis])
            ends = f"between {signed(means[0])} and {signed(means[-1])}, depending on {key}"
            asides.append(ends if found else f"may depend on {key}")
        if 0 < len(inert.get(name, ())) < len(cube.variants):
            asides.append(f"{listed(inert[name])} {'is' if len(inert[name]) == 1 else 'are'} unaffected")
        start, end = (cube.levels[contrast.axis][place] for place in (contrast.start, contrast.end))
        note = "; ".join((*asides, *find_cautions(cube, contrast)))
        for at, each in rows.items():
            sign = int(np.sign(each.mean)) if each.chance * contrast.tries <= level else 0
            effects.append(Effect(name, start, end, metric, at, *each, min(explains, 1.0), verdict, note, sign))
    return sorted(effects, key=lambda effect: -np.nan_to_num(effect.explains)), len(chances)


def judge(cube: Cube, contrast: Contrast, effect: Estimate, level: float, thresholds: Mapping[str, float]) -> str:
    if math.isnan(effect.chance):
        return FEW
    if effect.chance * contrast.tries <= level:
        return YES
    usual = SHARE_MATTERS * float(np.nanmean(np.abs(cube.numbers[contrast.metric])))
    known = {**MATTERS, **dict.fromkeys(RATIOS, RATIO_MATTERS), **thresholds}
    largest = abs(effect.mean) if math.isnan(effect.low) else max(-effect.low, effect.high)
    return NO if largest <= known.get(contrast.metric, usual) else FEW


def find_contrasts(cube: Cube, inert: Mapping[str, Sequence[str]]) -> Iterator[Contrast]:
    """Yield the contrasts of each setting in the metrics that it changes.

    A setting that changes no metric yields only its first contrast.
    """
    rounded = float(np.nanmax(cube.numbers.get("error", np.zeros(1)), initial=0.0)) <= FLOOR
    asked = [metric for metric in cube.numbers if metric not in METRICS]
    is_wrong = find_wrong_rows(cube).any()
    wanted = [metric for metric in SPOKEN if metric in cube.numbers] + asked + ["error"] * (not rounded)
    relative = {
        "max_diff",
        *(name for name in asked if name in metrics.all_metrics() and metrics.all_metrics()[name].relative),
    }
    for axis, name in enumerate(cube.names):
        # relative metrics compare each variant with the baseline anyway
        chosen = [metric for metric in wanted if name != VARIANT or metric not in relative]
        contrasts = [each for metric in chosen for each in contrast_levels(cube, axis, metric, inert.get(name, ()))]
        moved = {each.metric for each in contrasts if np.nanmax(np.abs(each.differences)) > 0}
        moved -= set([metric for metric in SPOKEN if metric in moved][2:])
        # the error of a wrong output says nothing about precision
        moved -= {"error"} if is_wrong and len(moved) > 1 else set()
        yield from [each for each in contrasts if each.metric in moved] or contrasts[:1]


def contrast_levels(cube: Cube, axis: int, metric: str, inert: Sequence[str]) -> Iterator[Contrast]:
    """Yield pairs of values that summarise how a metric changes along a setting, leaving out inert variants.

    Each non-numeric value is paired with the first one. A monotonic sequence is summarised by one pair, its first and
    last value, and any other sequence by two pairs, split at the extremum.
    """
    values, labels = values_of(cube, metric), cube.levels[axis]
    moving = [variant not in inert for variant in cube.variants]
    values = np.where(np.array(moving)[:, None], values, np.nan) if any(moving) else values
    groups = cube.find_groups(metric)
    ordered = pick_levels(labels, cube.names[axis])
    levels = [level for level in ordered if np.isfinite(values.take(level, axis)).any()]
    from_first = {level: paired(values, groups, axis, levels[0], level) for level in levels[1:]}
    means = [0.0, *(float(np.nanmean(each)) if np.isfinite(each).any() else math.nan for each in from_first.values())]
    if not (len(levels) > 2 and all(is_number(labels[level]) or labels[level] == "all" for level in levels)):
        pairs, turn = [(levels[0], level) for level in levels[1:]], ""
    else:
        way = [abs(mean) + abs(means[-1] - mean) for mean in means[1:-1]]
        top = 1 + int(np.nanargmax(way)) if not np.isnan(way).all() else 1
        back = (max(way) - abs(means[-1])) / 2 > TURNS * (np.nanmax(means) - np.nanmin(means))
        turn = f"{'highest' if means[top] > 0 else 'lowest'} at {labels[levels[top]]}" if back else ""
        pairs = [(levels[0], levels[top]), (levels[top], levels[-1])] if back else [(levels[0], levels[-1])]
    tries = 2 * len(levels) - 3 if len(pairs) < len(levels) - 1 or turn else 1
    for start, end in pairs:
        differences = paired(values, groups, axis, start, end)
        if np.isfinite(differences).any():
            yield Contrast(axis, start, end, metric, differences, tries, turn)


def values_of(cube: Cube, metric: str) -> Array:
    """Return the values of a metric: log10 of errors, and NaN for the max_diff of the baseline row."""
    values = cube.numbers[metric]
    if metric == "max_diff":
        first = np.nan_to_num(values).max(axis=(*range(values.ndim - 2), -1), keepdims=True) == 0
        return np.where(first & (not first.all()), np.nan, values)
    return np.log10(np.where(values > 0, values, np.nan)) if metric in RATIOS else values


def pick_levels(labels: Sequence[str], name: str) -> list[int]:
    """Return the indices of the values to compare: numbers in order, false before true, words as typed."""
    ordered = in_order(labels) if name != VARIANT else labels
    places = [labels.index(label) for label in (sorted(labels) if set(labels) == {"true", "false"} else ordered)]
    if len(places) <= MOST_LEVELS or not all(map(is_number, labels)):
        return places
    return [places[round(place)] for place in np.linspace(0, len(places) - 1, MOST_LEVELS)]


def paired(values: Array, groups: Array, axis: int, start: int, end: int) -> Array:
    """Return the values at `end` minus those at `start`; rounding counts as 0, and an incomparable pair is NaN."""
    first, second = (np.take(values, [level], axis=axis) for level in (start, end))
    same = np.take(groups, [start], axis=axis) == np.take(groups, [end], axis=axis)
    differences = np.where(same, second - first, np.nan)
    size = np.nanmax(np.abs(np.stack([first, second])), initial=0.0)
    return np.where(np.abs(differences) <= max(NOISE * float(size), FLOOR), 0.0, differences)


def estimate_of(differences: Array, exact: bool = False, tries: int = 1) -> Estimate | None:
    """Estimate the mean over seeds with Student's t; None if there are no numbers.

    An exact mean has no interval; its p-value is 1 if the mean is 0, else 0. `tries` is the number of means from which
    this one was selected by size; the interval is widened (Bonferroni) to match.
    """
    there = np.isfinite(differences)
    axes = tuple(range(differences.ndim - 1))
    counts = there.sum(axis=axes)
    numbers = np.where(there, differences, 0.0).sum(axis=axes)[counts > 0] / counts[counts > 0]
    if not len(numbers):
        return None
    count, mean = len(numbers), float(numbers.mean())
    is_exact = exact or (count > 1 and float(np.ptp(numbers)) <= NOISE * abs(float(numbers[0])))
    if is_exact or count == 1:
        return Estimate(mean, math.nan, math.nan, float(mean == 0) if is_exact else math.nan, count)
    error = float(numbers.std(ddof=1)) / math.sqrt(count)
    half = t_quantile(count - 1, LEVEL / tries) * error
    return Estimate(mean, mean - half, mean + half, student_tails(abs(mean) / error, count - 1), count)


def find_dependences(cube: Cube, contrast: Contrast, exact: bool) -> list[Dependence]:
    """Return how an effect varies with each other setting, most significant first."""
    found, looks = [], contrast.tries if contrast.turn else 1
    for axis, labels in enumerate(cube.levels):
        if axis == contrast.axis or len(labels) < 2:
            continue
        parts = {
            level: np.take(contrast.differences, [level], axis=axis) for level in pick_levels(labels, cube.names[axis])
        }
        at = {level: each for level, part in parts.items() if (each := estimate_of(part, exact, looks))}
        tests = [estimate_of(parts[level] - parts[next(iter(at))], exact) for level in [*at][1:]]
        if known := [test.chance for test in tests if test]:
            found.append(Dependence(axis, min(1.0, min(known) * len(known)), at))
    return sorted(found, key=lambda each: (each.chance, -each.width))


def measure_shares(cube: Cube) -> dict[tuple[str, ...], float]:
    """Return the share of each metric's variance that each setting, the seed and each pair explain, largest first.

    Sums of squares of a balanced design: `SS_A = sum (m_a - m)^2` and `SS_AB = sum (m_ab - m_a - m_b + m)^2` over all
    rows, divided by `sum (y - m)^2`; exact in a full grid. A metric whose rows are not all comparable has no shares.
    """
    names, shares = (*cube.names, "seed"), dict[tuple[str, ...], float]()
    for metric in cube.numbers:
        values, groups = values_of(cube, metric), cube.find_groups(metric)[cube.resolved >= 0]
        there = np.isfinite(values)
        if not there.any() or (groups != groups[0]).any():
            continue
        centred = values - values[there].mean()
        total = float((centred[there] ** 2).sum())
        if total <= there.sum() * max(FLOOR, NOISE * float(np.abs(values[there]).max())) ** 2:
            continue
        axes = [axis for axis in range(values.ndim) if values.shape[axis] > 1]
        alone = {axis: mean_along(centred, (axis,)) for axis in axes}
        parts: dict[tuple[str, ...], Array] = {(metric, names[axis]): means for axis, means in alone.items()}
        for one, other in combinations(axes, 2):
            parts[metric, names[one], names[other]] = mean_along(centred, (one, other)) - alone[one] - alone[other]
        sums = {key: float(((means + 0 * centred)[there] ** 2).sum()) for key, means in parts.items()}
        shares |= {key: sums[key] / total for key in sorted(sums, key=lambda key: -sums[key])}
    return shares


def mean_along(centred: Array, kept: Shape) -> Array:
    """Return the means over all axes except `kept`; the averaged axes have length 1."""
    there = np.isfinite(centred)
    dropped = tuple(axis for axis in range(centred.ndim) if axis not in kept)
    counts = np.maximum(1, there.sum(axis=dropped, keepdims=True))
    return np.asarray(np.sum(centred, axis=dropped, keepdims=True, where=there) / counts)


def find_wrong_rows(cube: Cube) -> Array:
    return np.asarray(cube.numbers.get("error_ulp", np.zeros(cube.resolved.shape)) > WRONG)


def find_inert(cube: Cube) -> dict[str, list[str]]:
    """Return, for each setting, the variants that it does not affect, except for their distance from the baseline."""
    tables = [cube.resolved, *(cube.numbers[own] for own in OWN if own in cube.numbers)]
    return {
        name: [
            variant
            for place, variant in enumerate(cube.variants)
            if is_inert([np.moveaxis(table[..., place, :], axis, 0) for table in tables])
        ]
        for axis, name in enumerate(cube.names[:-1])
    }


def is_inert(tables: Sequence[Array]) -> bool:
    levels = int((tables[0] >= 0).reshape(len(tables[0]), -1).any(axis=1).sum())
    return levels > 1 and all(np.allclose(each, each[:1], rtol=NOISE, atol=FLOOR, equal_nan=True) for each in tables)


def find_cautions(cube: Cube, contrast: Contrast) -> Iterator[str]:
    """Yield side effects of changing a setting that may explain its effect on a metric."""
    name = cube.names[contrast.axis]
    parts = {part for key in name.split(", ") for part in (key.split(".")[0], key.split(".")[-1])}
    if (parts & set(CHANGE_KEYS) or set(name.split(", ")) & set(INPUTS)) and contrast.metric not in ALLOW_FOR_KEYS:
        yield f"the number of visible keys changes too{CORRECTION * (contrast.metric == 'entropy')}"
    if name == "head":
        yield "d_head = d_model / head changes too"
    if "logit_std" in cube.numbers and not parts & set(SCALES) and contrast.metric not in SCALES:
        first, second = (
            np.take(cube.numbers["logit_std"], level, axis=contrast.axis) for level in (contrast.start, contrast.end)
        )
        there = np.isfinite(first) & np.isfinite(second)
        ratio = float(second[there].sum() / first[there].sum()) - 1 if there.any() else 0.0
        if abs(ratio) > SPREAD:
            yield f"the standard deviation of the logits changes by {ratio:+.0%}".replace("-", "−")


def signed(number: float) -> str:
    return "0" if number == 0 else f"{number:+.2g}".replace("-", "−")


def shorten(setting: str) -> str:
    """Return the name of a setting, or of zipped settings, without prefixes that are not needed."""
    return GROUPS.sub("", setting)
