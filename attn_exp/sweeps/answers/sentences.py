"""What a sweep found, in sentences: each stands for numbers that the table of effects holds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.column import spoken
from attn_exp.experiment.row import COLUMNS
from attn_exp.report.sentences import listed
from attn_exp.sweeps.answers.cube import METRICS, Cube
from attn_exp.sweeps.answers.effects import Effect, Share, compared, same_functions

SPOKEN = ("entropy", "largest_weight", "shift", "cosine")
"""The metrics of a row that sentences speak of, the first that change first."""
MOST_METRICS = 2
MOST_SHARES = 4
LEAST_SHARE = 0.01
DEPENDS = 0.25
"""An effect depends on another setting where it varies over its values by more than this share of its largest."""


@dataclass(frozen=True)
class Dependence:
    """How an effect varies over the values of another setting: its mean at each."""

    setting: str
    levels: tuple[str, ...]
    means: tuple[float, ...]


def sentences(
    cube: Cube,
    effects: Sequence[Effect],
    variants: Sequence[Effect],
    shares: Sequence[Share],
    still: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    """Yield what was found: what is the same, what changes nothing, what each setting does, what explains most.

    `still` names, for each setting, the variants in which it changes nothing.
    """
    for group in same_functions(cube):
        count = int((cube.resolved >= 0).any(axis=-1).sum())
        points = "the one point" if count == 1 else f"all {count:,} points"
        yield f"{listed(group)} compute the same function in {points}."
    for setting, names in still.items():
        if names:
            yield of_inert(cube, setting, names)
    for setting in cube.names:
        moving = [effect for effect in effects if effect.setting == setting and effect.variant not in still[setting]]
        yield from of_setting(cube, moving)
    yield from of_variants(variants)
    yield from explained(shares)
    if cube.left_out:
        seeds = len(cube.seeds)
        yield f"These sentences compare the first {seeds:,} of {seeds + cube.left_out:,} seeds."


def of_inert(cube: Cube, setting: str, names: Sequence[str]) -> str:
    """Say that a setting changes nothing, in which variants, and which value they always have where that is why."""
    pins = {cube.pinned(setting, name) for name in names}
    value = pins.pop() if len(pins) == 1 else ""
    if len(names) == len(cube.variants):
        everywhere = f" in any variant: it is always {value} there" if value else ""
        return f"{setting} changes nothing{everywhere}."
    always = f", which always {'has' if len(names) == 1 else 'have'} {setting}={value}" if value else ""
    return f"{setting} changes nothing in {listed(names)}{always}."


def of_setting(cube: Cube, effects: Sequence[Effect]) -> Iterator[str]:
    """Yield what a setting does to the metrics that it changes most plainly, and to each that was asked for."""
    asked = [metric for metric in cube.numbers if metric not in METRICS]
    said = 0
    for metric in (*asked, *SPOKEN):
        changes = [effect for effect in effects if effect.metric == metric and not effect.nothing]
        if not changes or (metric in SPOKEN and said == MOST_METRICS):
            continue
        said += metric in SPOKEN
        for group in alike(farthest(changes)):
            yield of_group(cube, group)


def farthest(effects: Sequence[Effect]) -> list[Effect]:
    """Return the effect of the last value of each variant: for numbers, that of the whole way."""
    return list({effect.variant: effect for effect in effects}.values())


def alike(effects: Sequence[Effect]) -> list[list[Effect]]:
    """Return the effects in groups that read the same."""
    groups: dict[tuple[str, str, float], list[Effect]] = {}
    for effect in effects:
        groups.setdefault((signed(effect.mean), signed(effect.low), effect.share), []).append(effect)
    return list(groups.values())


def of_group(cube: Cube, group: Sequence[Effect]) -> str:
    """Say one effect, for the variants that share it."""
    effect = group[0]
    where = "" if len(group) == len(cube.variants) else f" in {listed([effect.variant for effect in group])}"
    metric, units = f"{spoken(effect.metric)}{where}", f"{unit(effect.metric)} ({evidence(effect)})"
    if not effect.sure and effect.seeds > 1:
        return f"It is not sure what {change(effect)} does to the {metric}: {signed(effect.mean)}{units}."
    other = dependence(cube, effect)
    more = f", {depends(other)}" if other else ""
    does = "raises" if effect.mean > 0 else "lowers"
    return f"{change(effect)} {does} the {metric} by {size(effect.mean)}{units}{more}."


def change(effect: Effect) -> str:
    """Name the change of a setting."""
    if {effect.start, effect.end} == {"true", "false"}:
        return f"{effect.setting}={effect.end}"
    return f"{effect.setting} from {short(effect.start)} to {short(effect.end)}"


def evidence(effect: Effect) -> str:
    """Say how sure an effect is: seeds of its sign and the interval, or the few differences themselves."""
    if effect.seeds == 1:
        return "one seed: more would say how sure this is"
    if effect.differences:
        return f"{effect.seeds} seeds: {', '.join(map(signed, effect.differences))}"
    agreeing = f"{round(effect.share * effect.seeds):,} of {effect.seeds:,} seeds"
    ends = (effect.low, effect.high) if not effect.sure else sorted((abs(effect.low), abs(effect.high)))
    low, high = map(signed if not effect.sure else size, ends)
    return agreeing if low == high else f"{agreeing}, 95% interval {low} to {high}"


def dependence(cube: Cube, effect: Effect) -> Dependence | None:
    """Return the other setting on which an effect depends most, if it surely depends on one."""
    place, variant = cube.names.index(effect.setting), cube.variants.index(effect.variant)
    levels = cube.levels[place]
    numbers = np.moveaxis(cube.numbers[effect.metric][..., variant], place, 0)
    with np.errstate(invalid="ignore"):
        differences = numbers[levels.index(effect.end)] - numbers[levels.index(effect.start)]
    others = [name for name in cube.names if name != effect.setting]
    best, widest = None, DEPENDS
    for axis, other in enumerate(others):
        over = np.moveaxis(np.moveaxis(differences, axis, 0), -1, 1)
        over = over.reshape(*over.shape[:2], -1)
        labels = cube.levels[cube.names.index(other)]
        means = tuple(float(np.nanmean(level)) if np.isfinite(level).any() else math.nan for level in over)
        width = (max(means) - min(means)) / max(map(abs, means)) if all(map(math.isfinite, means)) else 0.0
        if len(labels) > 1 and width > widest and surely_apart(over, means):
            best, widest = Dependence(other, labels, means), width
    return best


def surely_apart(over: Array, means: Sequence[float]) -> bool:
    """Say whether the effect where it is largest surely differs from that where it is least."""
    difference = compared(over[int(np.argmin(means))], over[int(np.argmax(means))])
    return difference is not None and Effect("", "", "", "", "", *difference).sure


def depends(dependence: Dependence) -> str:
    """Say how an effect varies over the values of another setting."""
    places = [0, len(dependence.levels) - 1] if len(dependence.levels) > 3 else range(len(dependence.levels))
    means = ((signed(dependence.means[place]), short(dependence.levels[place])) for place in places)
    pairs = ", ".join(f"{mean} at {level}" for mean, level in means)
    sizes = np.abs(dependence.means)
    if all(map(is_number, dependence.levels)):
        order = np.argsort([float(level) for level in dependence.levels])
        steps = np.diff(sizes[order])
        if (steps > 0).all() or (steps < 0).all():
            return f"{'more' if steps[0] > 0 else 'less'} as {dependence.setting} grows: {pairs}"
    return f"and it depends on {dependence.setting}: {pairs}"


def of_variants(effects: Sequence[Effect]) -> Iterator[str]:
    """Yield how the variants differ from the first in the first metric that parts them."""
    for metric in SPOKEN[:2]:
        changes = [effect for effect in effects if effect.metric == metric and not effect.nothing and effect.sure]
        for group in alike(changes):
            effect = group[0]
            have = "has" if len(group) == 1 else "have"
            way = "higher" if effect.mean > 0 else "lower"
            variants = listed([effect.variant for effect in group])
            by = f"{size(effect.mean)}{unit(metric)} ({evidence(effect)})"
            yield f"{variants} {have} a {way} {spoken(metric)} than {effect.start}, by {by}."
        if changes:
            return


def explained(shares: Sequence[Share]) -> Iterator[str]:
    """Yield what explains most of how the first metric varies."""
    first = next((share.metric for metric in SPOKEN for share in shares if share.metric == metric), None)
    large = [share for share in shares if share.metric == first and share.share >= LEAST_SHARE][:MOST_SHARES]
    if first and any(share.settings != ("seed",) for share in large):
        parts = ", ".join(f"{' with '.join(share.settings)} {share.share:.0%}" for share in large)
        yield f"Of all that varies in the {spoken(first)}: {parts}."


def unit(metric: str) -> str:
    """Return the unit of a metric, with a space before it."""
    return f" {COLUMNS[metric].small}" if metric in COLUMNS and COLUMNS[metric].small else ""


def size(number: float) -> str:
    """Write the size of a number in two digits."""
    return f"{abs(number):.2g}"


def signed(number: float) -> str:
    """Write a number in two digits with its sign."""
    return "0" if number == 0 else f"{number:+.2g}".replace("-", "−")


def short(label: str) -> str:
    """Write the value of a setting; a number of very many digits in six."""
    return f"{float(label):g}" if len(label) > 8 and is_number(label) else label


def is_number(label: str) -> bool:
    """Say whether a label is a number."""
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False
