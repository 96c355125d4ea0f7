"""Parse the axes of a sweep with Hydra's grammar, and compose each choice of groups once.

The size of a sweep is checked before any point is enumerated.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from math import ceil, prod
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, RangeSweep
from omegaconf import DictConfig, OmegaConf

from attn_exp.arrays import Shape
from attn_exp.config.compose import composed_once, plain, register_schema
from attn_exp.config.hydra_errors import in_users_words, what_hydra_stumbles_over
from attn_exp.config.kinds import is_finite
from attn_exp.config.loader import environment, opened
from attn_exp.config.schema import Config, Sweep, check_seed, read_config, read_settings
from attn_exp.config.spelling import key_of, with_path_quoted
from attn_exp.errors import UserError, brief, chosen
from attn_exp.own_code import Named, is_code, mark_named
from attn_exp.sweeps.space import Axis, Space, changed, holds

OF_THE_WHOLE = ("sweep", "output_dir", "strict")
"""Settings that have one value for the whole sweep."""

MOST_POINTS = 50_000_000
"""Maximum number of points: a sweep of this size starts in seconds, but its table fills a disk."""

MOST_WRITTEN_OUT = 1_000_000
"""Maximum number of values on any axis other than an integer range, since they are stored one by one."""

MOST_COMPOSED = 10_000
"""Maximum number of compositions by Hydra, each of which takes hundredths of a second."""

INTERPOLATION = re.compile(r"\$\{([^{}]*)\}")


def expand(words: Sequence[str], folders: Sequence[str]) -> tuple[Space, Config]:
    """Return the points that the arguments of `-m` describe, and the settings of the first point, all validated.

    Raises:
        UserError: a value has the wrong type, an axis is an interval, or a setting cannot be swept.
    """
    register_schema()
    with in_users_words(), opened(folders, words) as hydra, environment(words):
        given = {override.get_key_element(): override for override in parse_words(words, hydra.config_loader)}
        fixed = tuple(str(override.input_line) for override in given.values() if not override.is_sweep_override())
        axes = tuple(make_axis(each, hydra.config_loader) for each in given.values() if each.is_sweep_override())
        compose = cache(composed_once)  # one composition per choice
        first = mark_named(plain(compose((*fixed, *(axis.word(0) for axis in axes)))), words)
        config = read_config(first)
        together = group_axes(axes, config.sweep)
        check_repeats(axes, together)
        axes = tuple(axis if axis.composed or holds(first, axis.key.split(".")) else as_composed(axis) for axis in axes)
        return compose_space(axes, together, fixed, words, compose), config


def parse_words(words: Sequence[str], loader: ConfigLoader) -> Iterator[Override]:
    with what_hydra_stumbles_over():
        overrides = OverridesParser.create(config_loader=loader).parse_overrides(list(map(with_path_quoted, words)))
    for override in overrides:
        reason = ""
        if override.is_interval_sweep():
            reason = "an interval has no list of values; use range() or list the values"
        elif override.is_hydra_override():
            reason = "Hydra's own settings are not supported"
        elif override.is_sweep_override() and key_of(str(override.input_line)).split(".")[0] in OF_THE_WHOLE:
            reason = f"{override.key_or_group} applies to the whole sweep and takes one value"
        elif isinstance(override._value, RangeSweep):
            reason = refuse_range(override._value)
        if reason:
            raise UserError(f"{brief(str(override.input_line))}: {reason}")
        yield override


def refuse_range(swept: RangeSweep) -> str:
    """Return why a range cannot be swept (infinite, or too many values), or an empty string if it can."""
    start, stop, step = swept.start, swept.stop, swept.step
    if start is None or stop is None or not (step and all(map(is_finite, (start, stop, step)))):
        return "expected range(start,stop,step) with finite numbers and a step that is not 0"
    count = max(0, ceil((Fraction(stop) - Fraction(start)) / Fraction(step)))
    is_whole = all(isinstance(end, int) for end in (start, stop, step))
    kind, most = ("values", MOST_POINTS) if is_whole else ("values that are not whole numbers", MOST_WRITTEN_OUT)
    return f"{count:,} {kind}; a sweep takes at most {most:,}" if count > most else ""


def make_axis(override: Override, loader: ConfigLoader) -> Axis:
    """Return the axis of a swept key: with words if it is a group or Hydra must compose it, else with plain values."""
    swept = override._value
    if isinstance(swept, ChoiceSweep | RangeSweep):
        swept.shuffle = False  # keep the results in the order of the values
    with what_hydra_stumbles_over():
        is_group = loader.get_group_options(override.key_or_group) or override.package is not None
    element = override.get_key_element()
    key, sign = element.lstrip("+"), "+" * element.count("+")
    steps = swept.range() if isinstance(swept, RangeSweep) and not is_group else None
    if isinstance(steps, range) and steps:
        return Axis(key, steps, sign=sign)
    words = tuple(override.sweep_string_iterator())
    if not words:
        raise UserError(f"{override.input_line}: no value matches")
    values = [] if is_group else list(map(Override._convert_value, override.sweep_iterator()))
    if is_group or any(isinstance(value, dict) or "${" in str(value) or value == "???" for value in values):
        return Axis(key, words, composed=True, sign=sign)
    is_form = key.startswith("variant.") and key.endswith(".form")  # its values may be code, named by the user
    return Axis(key, tuple(Named(each) if is_form and is_code(each) else each for each in values), sign=sign)


def group_axes(axes: Sequence[Axis], sweep: Sweep) -> tuple[Shape, ...]:
    """Group the indices of the axes, keeping their order: zipped axes (`sweep.zip`) together, each other axis alone."""
    keys = [axis.key for axis in axes]
    for key in sweep.zip:
        chosen(key, keys, "key in sweep.zip")
    zipped = tuple(place for place, key in enumerate(keys) if key in sweep.zip)
    if len({len(axes[place].values) for place in zipped}) > 1:
        counts = ", ".join(f"{axes[place].key} has {len(axes[place].values)}" for place in zipped)
        raise UserError(f"sweep.zip needs the same number of values for each key: {counts}")
    return tuple(zipped if place in zipped else (place,) for place in range(len(axes)) if place not in zipped[1:])


def compose_space(
    axes: tuple[Axis, ...],
    together: tuple[Shape, ...],
    fixed: tuple[str, ...],
    typed: Sequence[str],
    compose: Callable[[tuple[str, ...]], DictConfig],
) -> Space:
    """Compose every choice of groups once; an axis that an interpolation reads becomes a composed one.

    `typed` holds the words of the command, which may name code.
    """
    check_size(axes, together)
    bases, choices, read_by_others = {}, {}, set[int]()
    for combination in product(*map(range, count_choices(axes, together))):  # plain axes stay at their first value
        of_axis = {number: place for group, place in zip(together, combination, strict=True) for number in group}
        key = tuple(of_axis[number] for number, axis in enumerate(axes) if axis.composed)
        composed = compose((*fixed, *(axis.word(of_axis[number]) for number, axis in enumerate(axes))))
        settings, groups = mark_named(plain(composed), typed), composed.hydra.runtime.choices.items()
        bases[key] = {name: value for name, value in settings.items() if name != "sweep"}
        choices[key] = {name: choice for name, choice in groups if "/" not in name}
        read_config(bases[key])
        read_by_others |= find_interpolated(composed, axes)
    if read_by_others:
        axes = tuple(as_composed(axis) if place in read_by_others else axis for place, axis in enumerate(axes))
        return compose_space(axes, together, fixed, typed, compose)
    check_values(axes, next(iter(bases.values())))
    return Space(axes, together, bases, fixed, choices)


def as_composed(axis: Axis) -> Axis:
    if len(axis.values) > MOST_COMPOSED:
        raise UserError(
            f"{axis.key}: other settings use its {len(axis.values):,} values; at most {MOST_COMPOSED:,} are possible"
        )
    return replace(axis, values=tuple(map(axis.value_word, range(len(axis.values)))), composed=True)


def find_interpolated(config: DictConfig, axes: Sequence[Axis]) -> set[int]:
    """Return the indices of plain axes that an interpolation may read, erring on the side of too many."""
    ours: list[Any] = [key for key in config if key != "hydra"]
    text = str(OmegaConf.to_container(OmegaConf.masked_copy(config, ours), resolve=False))
    parts = set(re.findall(r"\w+", " ".join(INTERPOLATION.findall(text))))
    return {place for place, axis in enumerate(axes) if not axis.composed and parts & set(axis.key.split("."))}


def check_values(axes: Sequence[Axis], base: Mapping[str, Any]) -> None:
    """Validate each value of each plain axis once, independently of other axes."""
    for axis in axes:
        if not axis.composed:
            top, *path = axis.key.split(".")
            for value in (axis.values[0], axis.values[-1]) if isinstance(axis.values, range) else axis.values:
                settings = read_settings({top: changed(base[top], path, value) if path else value})
                if top == "seed" and "generator" not in (other.key for other in axes):
                    check_seed(settings["seed"], base["generator"])


def check_size(axes: Sequence[Axis], together: Sequence[Shape]) -> None:
    """Refuse a sweep with too many points, or with too many compositions by Hydra.

    Raises:
        UserError: there are too many; the message gives the count.
    """
    points = prod(len(axes[group[0]].values) for group in together)
    if points > MOST_POINTS:
        raise UserError(f"{points:,} points; a sweep takes at most {MOST_POINTS:,}")
    compositions = prod(count_choices(axes, together))
    if compositions > MOST_COMPOSED:
        raise UserError(
            f"{compositions:,} combinations of groups and of values that other settings use; a sweep composes at "
            f"most {MOST_COMPOSED:,}"
        )


def count_choices(axes: Sequence[Axis], together: Sequence[Shape]) -> list[int]:
    return [len(axes[group[0]].values) if any(axes[place].composed for place in group) else 1 for group in together]


def check_repeats(axes: Sequence[Axis], together: Sequence[Shape]) -> None:
    """Refuse repeated values, whose rows would count as independent data.

    Raises:
        UserError: a value is given more than once.
    """
    for group in ([axes[place] for place in places] for places in together):
        if any(isinstance(axis.values, range) for axis in group):  # the values of a range are distinct
            continue
        points = zip(*(map(axis.word, range(len(axis.values))) for axis in group), strict=True)
        words, count = Counter(map(" ".join, points)).most_common(1)[0]
        if count > 1:
            raise UserError(
                f"{brief(words)} is given {count} times; give each value once, since repeated rows would count as data"
            )
