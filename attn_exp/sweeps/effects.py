"""The effect of each setting on each metric, as one table: paired differences, seed by seed, and a verdict.

`find_contrasts` chooses pairs of values, such as head=1 and head=4; `estimate_mean` averages the differences between
their rows; `find_dependences` repeats this at each value of every other setting; `judge` gives the verdict. Student's
t is computed here because importing SciPy takes longer than writing a sweep's report.
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

LEVEL = 0.05  # the significance level
# verdicts: the setting has an effect, it has none that matters, or there are too few seeds to tell
YES, NO, FEW = "yes", "no", "too few seeds"
RATIOS = frozenset(
    ("error", "row_sum_error", "max_error", "mean_error", "rms_error", "relative_rms", "log_sum_exp_error")
)
"""Rounding errors, which vary by orders of magnitude: their effects are differences of log10."""
NOISE = 1e-9
"""Numbers that differ by less than this share of their size differ only by rounding."""
GROUPS = re.compile(r"(?:^|(?<=, ))(?:embeddings|model|projections|mask|score|position)\.")
"""Prefixes of settings whose names are clear without them."""
SPOKEN = ("entropy", "largest_weight", "max_diff")
"""Built-in metrics that sentences describe; of those that a setting changes, only the first two. `error` is described
too, if it exceeds rounding."""
MATTERS = asdict(Matters())  # default thresholds of the metrics that the settings name
RATIO_MATTERS, SHARE_MATTERS = 0.1, 0.05
"""Default thresholds: of the difference in log10, and, for other metrics, of the difference over their mean size."""
DEPENDS = 0.25
"""An effect is shown at each value of another setting if it varies over them by this share of its maximum."""
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
SCALES = ("scale", "multiplier", "logit_std")  # settings and metrics that describe the scale of the logits
SCOPE = "compared only at"
"""The beginning of a note that says where an effect was measured."""
SPREAD = 0.05
"""Smallest relative change of the standard deviation of the logits that is reported."""
Shares = Mapping[tuple[str, ...], float]
"""Shares of a metric's variance: of a setting by `(metric, setting)`, of a pair by `(metric, setting, setting)`."""


class Estimate(NamedTuple):
    """The mean of one number per seed, with its 95 % interval (`low`, `high`) and p-value (`chance`).

    What cannot be estimated is NaN, such as the interval for one seed.
    """

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
    return max(1e-15, 1 - (2 / math.pi * (angle + sine * total) if odd else sine * total))


@cache
def t_quantile(freedom: int, level: float = LEVEL) -> float:
    """Return the two-sided critical value of Student's t, found by bisection."""
    low, high = 0.0, 1e4
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_tails(middle, freedom) > level else (low, middle)
    return high


def find_level(tests: Iterable[float]) -> float:
    """Return the threshold at or below which a p-value in this family of tests is significant.

    On average, at most 5 of 100 families contain a false positive. Source: Holm 1979, "A simple sequentially rejective
    multiple test procedure".
    """
    p_values = sorted(1.0 if math.isnan(chance) else chance for chance in tests)
    level = LEVEL / max(1, len(p_values))
    for rank, chance in enumerate(p_values):
        if chance > LEVEL / (len(p_values) - rank):
            break
        level = max(level, chance)
    return level


@dataclass(frozen=True)
class Effect:
    """The effect of changing a setting from `start` to `end` on a metric.

    - `at`: the value of another setting at which it was measured, such as `head=2`; empty if over all rows.
    - `mean`: the mean over seeds of the paired differences. A pair shares the seed and all other settings.
    - `low`, `high`: its 95 % interval; NaN for one seed, or if all seeds agree. `chance`: its p-value.
    - `explains`: the share of the metric's variance that the setting explains.
    - `sign`: the sign of a significant effect, else 0.
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
    """The change of a metric between two values of a setting.

    - `axis`, `start`, `end`: the axis of the setting in a `Cube`, and the indices of the two values.
    - `differences`: `[levels of each setting ..., variants, seeds]`, with length 1 along `axis`.
    - `tries`: the number of pairs of values from which this pair was chosen.
    - `turn`: describes the extremum of the metric along the setting, if there is one, such as `highest at 4`.
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
    """How an effect depends on another setting, whose axis is `axis`.

    - `chance`: the p-value of the hypothesis that the effect is the same at every value of that setting.
    - `at`: the effect at each value, by the index of the value.
    """

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

    `thresholds` holds the smallest difference that matters, by metric. `exact` is set if no number depends on the
    seed.
    """
    inert = find_inert(cube)
    measured = [
        (contrast, overall, find_dependences(cube, contrast, exact))
        for contrast in find_contrasts(cube, inert)
        if (overall := estimate_mean(contrast.differences, exact, contrast.tries if contrast.turn else 1))
    ]
    p_values = []  # of all tests, corrected for the choice of each contrast
    for contrast, overall, dependences in measured:
        tests = [overall, *dependences, *(dependences[0].at.values() if dependences else ())]
        p_values += [test.chance * contrast.tries for test in tests]
    level, effects = find_level(p_values), list[Effect]()
    for contrast, overall, dependences in measured:
        has_one_seed = math.isnan(overall.chance)  # there is no p-value then
        proven = [each for each in dependences if has_one_seed or each.chance * contrast.tries <= level]
        name, metric, estimates = cube.names[contrast.axis], contrast.metric, {"": overall}
        explains = shares.get((metric, name), math.nan)
        verdict = judge(cube, contrast, overall, level, thresholds)
        notes = [contrast.turn] if contrast.turn else []
        if proven and proven[0].width >= DEPENDS:  # show the effect at each value of the other setting
            other, labels = cube.names[proven[0].axis], cube.levels[proven[0].axis]
            # `shares` has each pair of settings in one order only
            explains += shares.get((metric, name, other), 0.0) + shares.get((metric, other, name), 0.0)
            estimates = {f"{other}={labels[level_index]}": estimate for level_index, estimate in proven[0].at.items()}
            verdict = FEW if has_one_seed else f"depends on {listed([shorten(cube.names[one.axis]) for one in proven])}"
        elif dependences and dependences[0].chance <= LEVEL:  # only note that it depends, or may depend, on the other
            means = sorted(each.mean for each in dependences[0].at.values())
            other_name = shorten(cube.names[dependences[0].axis])
            range_text = f"between {format_signed(means[0])} and {format_signed(means[-1])}, depending on {other_name}"
            notes.append(range_text if proven else f"may depend on {other_name}")
        if 0 < len(inert.get(name, ())) < len(cube.variants):
            notes.append(f"{listed(inert[name])} {'is' if len(inert[name]) == 1 else 'are'} unaffected")
        start, end = (cube.levels[contrast.axis][level_index] for level_index in (contrast.start, contrast.end))
        note = "; ".join((*notes, *find_cautions(cube, contrast)))
        for at, estimate in estimates.items():
            sign = int(np.sign(estimate.mean)) if estimate.chance * contrast.tries <= level else 0
            effects.append(Effect(name, start, end, metric, at, *estimate, min(explains, 1.0), verdict, note, sign))
    return sorted(effects, key=lambda effect: -np.nan_to_num(effect.explains)), len(p_values)


def judge(cube: Cube, contrast: Contrast, effect: Estimate, level: float, thresholds: Mapping[str, float]) -> str:
    """Return YES if an effect is significant, NO if its whole interval is too small to matter, else FEW."""
    if math.isnan(effect.chance):
        return FEW
    if effect.chance * contrast.tries <= level:
        return YES
    default = SHARE_MATTERS * float(np.nanmean(np.abs(cube.numbers[contrast.metric])))
    limits = {**MATTERS, **dict.fromkeys(RATIOS, RATIO_MATTERS), **thresholds}
    largest = abs(effect.mean) if math.isnan(effect.low) else max(-effect.low, effect.high)
    return NO if largest <= limits.get(contrast.metric, default) else FEW


def find_contrasts(cube: Cube, inert: Mapping[str, Sequence[str]]) -> Iterator[Contrast]:
    """Yield the contrasts of each setting in the metrics that it changes.

    A setting that changes no metric yields only its first contrast.
    """
    is_rounding = float(np.nanmax(cube.numbers.get("error", np.zeros(1)), initial=0.0)) <= FLOOR
    added = [metric for metric in cube.numbers if metric not in METRICS]
    is_wrong = find_wrong_rows(cube).any()
    described = [metric for metric in SPOKEN if metric in cube.numbers] + added + ([] if is_rounding else ["error"])
    relative = {
        "max_diff",
        *(name for name in added if name in metrics.all_metrics() and metrics.all_metrics()[name].relative),
    }
    for axis, name in enumerate(cube.names):
        # relative metrics compare each variant with the baseline anyway
        comparable = [metric for metric in described if name != VARIANT or metric not in relative]
        contrasts = [each for metric in comparable for each in contrast_levels(cube, axis, metric, inert.get(name, ()))]
        changed = {each.metric for each in contrasts if np.nanmax(np.abs(each.differences)) > 0}
        changed -= set([metric for metric in SPOKEN if metric in changed][2:])
        # the error of a wrong output says nothing about precision
        changed -= {"error"} if is_wrong and len(changed) > 1 else set()
        yield from [each for each in contrasts if each.metric in changed] or contrasts[:1]


def contrast_levels(cube: Cube, axis: int, metric: str, inert: Sequence[str]) -> Iterator[Contrast]:
    """Yield pairs of values that summarise how a metric changes along a setting, leaving out inert variants.

    Each non-numeric value is paired with the first one. A monotonic sequence is summarised by one pair, its first and
    last value, and any other sequence by two pairs, split at the extremum.
    """
    values, labels = metric_values(cube, metric), cube.levels[axis]
    responds = [variant not in inert for variant in cube.variants]
    values = np.where(np.array(responds)[:, None], values, np.nan) if any(responds) else values
    groups = cube.find_groups(metric)
    levels = [level for level in pick_levels(labels, cube.names[axis]) if np.isfinite(values.take(level, axis)).any()]
    from_first = {level: pair_differences(values, groups, axis, levels[0], level) for level in levels[1:]}
    # the mean of each level minus the mean of the first
    means = [0.0, *(float(np.nanmean(each)) if np.isfinite(each).any() else math.nan for each in from_first.values())]
    if not (len(levels) > 2 and all(is_number(labels[level]) or labels[level] == "all" for level in levels)):
        pairs, turn = [(levels[0], level) for level in levels[1:]], ""
    else:
        # the extremum is the level through which the way from the first to the last is longest
        path_lengths = [abs(mean) + abs(means[-1] - mean) for mean in means[1:-1]]
        extremum = 1 + int(np.nanargmax(path_lengths)) if not np.isnan(path_lengths).all() else 1
        reverses = (max(path_lengths) - abs(means[-1])) / 2 > TURNS * (np.nanmax(means) - np.nanmin(means))
        turn = f"{'highest' if means[extremum] > 0 else 'lowest'} at {labels[levels[extremum]]}" if reverses else ""
        pairs = (
            [(levels[0], levels[extremum]), (levels[extremum], levels[-1])] if reverses else [(levels[0], levels[-1])]
        )
    # the pairs were chosen from all (first, k) and (k, last), by the size of their differences
    tries = 2 * len(levels) - 3 if len(pairs) < len(levels) - 1 or turn else 1
    for start, end in pairs:
        differences = pair_differences(values, groups, axis, start, end)
        if np.isfinite(differences).any():
            yield Contrast(axis, start, end, metric, differences, tries, turn)


def metric_values(cube: Cube, metric: str) -> Array:
    """Return the values of a metric: log10 of errors, and NaN for the max_diff of the baseline row."""
    values = cube.numbers[metric]
    if metric == "max_diff":
        is_baseline = np.nan_to_num(values).max(axis=(*range(values.ndim - 2), -1), keepdims=True) == 0
        return np.where(is_baseline & (not is_baseline.all()), np.nan, values)
    return np.log10(np.where(values > 0, values, np.nan)) if metric in RATIOS else values


def pick_levels(labels: Sequence[str], name: str) -> list[int]:
    """Return the indices of the values to compare: numbers in order, false before true, words as typed."""
    ordered = in_order(labels) if name != VARIANT else labels
    indices = [labels.index(label) for label in (sorted(labels) if set(labels) == {"true", "false"} else ordered)]
    if len(indices) <= MOST_LEVELS or not all(map(is_number, labels)):
        return indices
    return [indices[round(position)] for position in np.linspace(0, len(indices) - 1, MOST_LEVELS)]


def pair_differences(values: Array, groups: Array, axis: int, start: int, end: int) -> Array:
    """Return the values at `end` minus those at `start`: 0 if due to rounding, NaN if the rows are not comparable."""
    first, second = (np.take(values, [level], axis=axis) for level in (start, end))
    is_comparable = np.take(groups, [start], axis=axis) == np.take(groups, [end], axis=axis)
    differences = np.where(is_comparable, second - first, np.nan)
    scale = np.nanmax(np.abs(np.stack([first, second])), initial=0.0)
    return np.where(np.abs(differences) <= max(NOISE * float(scale), FLOOR), 0.0, differences)


def estimate_mean(differences: Array, exact: bool = False, tries: int = 1) -> Estimate | None:
    """Estimate the mean over seeds with Student's t; None if there are no numbers.

    An exact mean has no interval; its p-value is 1 if the mean is 0, else 0. `tries` is the number of means from which
    this one was selected by size; the interval is widened (Bonferroni) to match.
    """
    is_present = np.isfinite(differences)
    axes = tuple(range(differences.ndim - 1))
    counts = is_present.sum(axis=axes)
    per_seed = np.where(is_present, differences, 0.0).sum(axis=axes)[counts > 0] / counts[counts > 0]
    if not len(per_seed):
        return None
    count, mean = len(per_seed), float(per_seed.mean())
    is_exact = exact or (count > 1 and float(np.ptp(per_seed)) <= NOISE * abs(float(per_seed[0])))
    if is_exact or count == 1:
        return Estimate(mean, math.nan, math.nan, float(mean == 0) if is_exact else math.nan, count)
    standard_error = float(per_seed.std(ddof=1)) / math.sqrt(count)
    half_width = t_quantile(count - 1, LEVEL / tries) * standard_error
    return Estimate(
        mean, mean - half_width, mean + half_width, student_tails(abs(mean) / standard_error, count - 1), count
    )


def find_dependences(cube: Cube, contrast: Contrast, exact: bool) -> list[Dependence]:
    """Return how an effect varies with each other setting, most significant first."""
    dependences, tries = [], contrast.tries if contrast.turn else 1
    for axis, labels in enumerate(cube.levels):
        if axis == contrast.axis or len(labels) < 2:
            continue
        differences_at = {
            level: np.take(contrast.differences, [level], axis=axis) for level in pick_levels(labels, cube.names[axis])
        }
        estimates = {
            level: each for level, part in differences_at.items() if (each := estimate_mean(part, exact, tries))
        }
        tests = [
            estimate_mean(differences_at[level] - differences_at[next(iter(estimates))], exact)
            for level in [*estimates][1:]
        ]
        if p_values := [test.chance for test in tests if test]:
            dependences.append(Dependence(axis, min(1.0, min(p_values) * len(p_values)), estimates))
    return sorted(dependences, key=lambda each: (each.chance, -each.width))


def measure_shares(cube: Cube) -> dict[tuple[str, ...], float]:
    """Return the share of each metric's variance that each setting, the seed and each pair explain, largest first.

    These are the sums of squares of a balanced design, `SS_A = sum (m_a - m)^2` and `SS_AB = sum (m_ab - m_a - m_b +
    m)^2` over all rows, divided by `sum (y - m)^2`. Here y is the value of a row, and m_a the mean of the rows with its
    value of A. In a full grid, the shares are exact. A metric whose rows are not all comparable has no shares.
    """
    names, shares = (*cube.names, "seed"), dict[tuple[str, ...], float]()
    for metric in cube.numbers:
        values, groups = metric_values(cube, metric), cube.find_groups(metric)[cube.resolved >= 0]
        is_present = np.isfinite(values)
        if not is_present.any() or (groups != groups[0]).any():
            continue
        centred = values - values[is_present].mean()
        total = float((centred[is_present] ** 2).sum())
        if total <= is_present.sum() * max(FLOOR, NOISE * float(np.abs(values[is_present]).max())) ** 2:
            continue
        axes = [axis for axis in range(values.ndim) if values.shape[axis] > 1]
        main_effects = {axis: mean_along(centred, (axis,)) for axis in axes}
        components: dict[tuple[str, ...], Array] = {
            (metric, names[axis]): means for axis, means in main_effects.items()
        }
        for one, other in combinations(axes, 2):
            components[metric, names[one], names[other]] = (
                mean_along(centred, (one, other)) - main_effects[one] - main_effects[other]
            )
        # adding 0 repeats the means for every row
        sums = {key: float(((means + 0 * centred)[is_present] ** 2).sum()) for key, means in components.items()}
        shares |= {key: sums[key] / total for key in sorted(sums, key=lambda key: -sums[key])}
    return shares


def mean_along(centred: Array, kept: Shape) -> Array:
    """Return the means over all axes except `kept`; the averaged axes have length 1."""
    is_present = np.isfinite(centred)
    dropped = tuple(axis for axis in range(centred.ndim) if axis not in kept)
    counts = np.maximum(1, is_present.sum(axis=dropped, keepdims=True))
    return np.asarray(np.sum(centred, axis=dropped, keepdims=True, where=is_present) / counts)


def find_wrong_rows(cube: Cube) -> Array:
    return np.asarray(cube.numbers.get("error_ulp", np.zeros(cube.resolved.shape)) > WRONG)


def find_inert(cube: Cube) -> dict[str, list[str]]:
    """Return, for each setting, the variants that it does not affect, except for their distance from the baseline."""
    tables = [cube.resolved, *(cube.numbers[metric] for metric in OWN if metric in cube.numbers)]
    return {
        name: [
            variant
            for variant_index, variant in enumerate(cube.variants)
            if is_inert([np.moveaxis(table[..., variant_index, :], axis, 0) for table in tables])
        ]
        for axis, name in enumerate(cube.names[:-1])
    }


def is_inert(tables: Sequence[Array]) -> bool:
    """Return whether a setting (the first axis of each table) has several values that all give the same numbers."""
    levels_present = int((tables[0] >= 0).reshape(len(tables[0]), -1).any(axis=1).sum())
    return levels_present > 1 and all(
        np.allclose(table, table[:1], rtol=NOISE, atol=FLOOR, equal_nan=True) for table in tables
    )


def find_cautions(cube: Cube, contrast: Contrast) -> Iterator[str]:
    """Yield side effects of changing a setting that may explain its effect on a metric."""
    name = cube.names[contrast.axis]
    name_parts = {part for key in name.split(", ") for part in (key.split(".")[0], key.split(".")[-1])}
    if (name_parts & set(CHANGE_KEYS) or set(name.split(", ")) & set(INPUTS)) and contrast.metric not in ALLOW_FOR_KEYS:
        yield f"the number of visible keys changes too{CORRECTION if contrast.metric == 'entropy' else ''}"
    if name == "head":
        yield "d_head = d_model / head changes too"
    for axis, (other, labels) in enumerate(zip(cube.names, cube.levels, strict=True)):
        other_axes = tuple(each for each in range(contrast.differences.ndim) if each != axis)
        has_numbers, is_compared = (
            np.asarray(np.isfinite(array).any(axis=other_axes))
            for array in (cube.numbers[contrast.metric], contrast.differences)
        )
        if axis != contrast.axis and other != VARIANT and (has_numbers & ~is_compared).any():
            at = listed([label for label, used in zip(labels, is_compared, strict=True) if used])
            yield f"{SCOPE} {shorten(other)}={at}"
    if "logit_std" in cube.numbers and not name_parts & set(SCALES) and contrast.metric not in SCALES:
        first, second = (
            np.take(cube.numbers["logit_std"], level, axis=contrast.axis) for level in (contrast.start, contrast.end)
        )
        is_present = np.isfinite(first) & np.isfinite(second)
        ratio = float(second[is_present].sum() / first[is_present].sum()) - 1 if is_present.any() else 0.0
        if abs(ratio) > SPREAD:
            yield f"the standard deviation of the logits changes by {ratio:+.0%}".replace("-", "−")


def format_signed(number: float) -> str:
    return "0" if number == 0 else f"{number:+.2g}".replace("-", "−")


def shorten(setting: str) -> str:
    """Return the name of a setting, or of zipped settings, without prefixes that are not needed."""
    return GROUPS.sub("", setting)
