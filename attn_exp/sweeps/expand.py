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
from attn_exp.config.compose import compose_dict_config, register_schema, to_plain_values
from attn_exp.config.hydra_errors import reword_any_error, reword_hydra_errors
from attn_exp.config.kinds import is_finite
from attn_exp.config.loader import guard_environment, initialize_hydra
from attn_exp.config.schema import Config, Sweep, check_seed, read_config, read_settings
from attn_exp.config.spelling import key_of, quote_windows_path
from attn_exp.errors import UserError, brief, chosen
from attn_exp.own_code import Named, is_code, mark_named
from attn_exp.sweeps.space import Axis, Space, has_path, with_value

OF_THE_WHOLE = ("sweep", "output_dir", "strict")
"""Settings that have one value for the whole sweep."""

MOST_POINTS = 50_000_000
"""Maximum number of points: a sweep of this size starts in seconds, but its table fills a disk."""

MOST_WRITTEN_OUT = 1_000_000
"""Maximum number of values on any axis other than an integer range, since they are stored one by one."""

MOST_COMPOSED = 10_000
"""Maximum number of compositions by Hydra, each of which takes hundredths of a second."""

# an innermost interpolation of OmegaConf, such as `${embeddings.d_model}`
INTERPOLATION = re.compile(r"\$\{([^{}]*)\}")


def expand(words: Sequence[str], folders: Sequence[str]) -> tuple[Space, Config]:
    """Return the points that the arguments of `-m` describe, and the settings of the first point, all validated.

    Raises:
        UserError: a value has the wrong type, an axis is an interval, or a setting cannot be swept.
    """
    register_schema()
    with reword_hydra_errors(), initialize_hydra(folders, words) as hydra, guard_environment(words):
        overrides = {override.get_key_element(): override for override in parse_words(words, hydra.config_loader)}
        fixed = tuple(str(override.input_line) for override in overrides.values() if not override.is_sweep_override())
        axes = tuple(
            make_axis(override, hydra.config_loader) for override in overrides.values() if override.is_sweep_override()
        )
        compose = cache(compose_dict_config)  # one composition per choice
        first = mark_named(to_plain_values(compose((*fixed, *(axis.word(0) for axis in axes)))), words)
        config = read_config(first)
        dimensions = group_axes(axes, config.sweep)
        check_repeats(axes, dimensions)
        axes = tuple(
            axis if axis.composed or has_path(first, axis.key.split(".")) else as_composed(axis) for axis in axes
        )
        return compose_space(axes, dimensions, fixed, words, compose), config


def parse_words(words: Sequence[str], loader: ConfigLoader) -> Iterator[Override]:
    with reword_any_error():
        overrides = OverridesParser.create(config_loader=loader).parse_overrides(list(map(quote_windows_path, words)))
    for override in overrides:
        reason = ""
        if override.is_interval_sweep():
            reason = "an interval has no list of values; use range() or list the values"
        elif override.is_hydra_override():
            reason = "Hydra's own settings are not supported"
        elif override.is_sweep_override() and key_of(str(override.input_line)).split(".")[0] in OF_THE_WHOLE:
            reason = f"{override.key_or_group} applies to the whole sweep and takes one value"
        elif isinstance(override._value, RangeSweep):
            reason = find_range_problem(override._value)
        if reason:
            raise UserError(f"{brief(str(override.input_line))}: {reason}")
        yield override


def find_range_problem(swept: RangeSweep) -> str:
    """Return why a range cannot be swept (infinite, or too many values), or an empty string if it can."""
    start, stop, step = swept.start, swept.stop, swept.step
    if start is None or stop is None or not (step and all(map(is_finite, (start, stop, step)))):
        return "expected range(start,stop,step) with finite numbers and a step that is not 0"
    count = max(0, ceil((Fraction(stop) - Fraction(start)) / Fraction(step)))
    is_whole = all(isinstance(end, int) for end in (start, stop, step))
    kind, most = ("values", MOST_POINTS) if is_whole else ("values that are not whole numbers", MOST_WRITTEN_OUT)
    return f"{count:,} {kind}; a sweep takes at most {most:,}" if count > most else ""


def make_axis(override: Override, loader: ConfigLoader) -> Axis:
    """Return the axis of a swept key.

    If the key is a group, or if its values need Hydra, the axis is composed, and its values are words of the command
    line. Otherwise, it has plain values.
    """
    swept = override._value
    if isinstance(swept, ChoiceSweep | RangeSweep):
        swept.shuffle = False  # keep the results in the order of the values
    with reword_any_error():
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
    """Return the dimensions: the indices of the zipped axes (`sweep.zip`) as one group, each other axis as its own.

    The order of the axes is kept: axes a, b, c with `zip=[a,c]` have the dimensions `((0, 2), (1,))`.
    """
    keys = [axis.key for axis in axes]
    for key in sweep.zip:
        chosen(key, keys, "key in sweep.zip")
    zipped_indices = tuple(index for index, key in enumerate(keys) if key in sweep.zip)
    if len({len(axes[index].values) for index in zipped_indices}) > 1:
        counts = ", ".join(f"{axes[index].key} has {len(axes[index].values)}" for index in zipped_indices)
        raise UserError(f"sweep.zip needs the same number of values for each key: {counts}")
    return tuple(
        zipped_indices if index in zipped_indices else (index,)
        for index in range(len(axes))
        if index not in zipped_indices[1:]
    )


def compose_space(
    axes: tuple[Axis, ...],
    dimensions: tuple[Shape, ...],
    fixed: tuple[str, ...],
    words: Sequence[str],
    compose: Callable[[tuple[str, ...]], DictConfig],
) -> Space:
    """Return the space of points, after composing every choice of groups once.

    If an interpolation reads the values of a plain axis, composing starts again for each of these values. `words` are
    the arguments of the command, which may name code.
    """
    check_size(axes, dimensions)
    bases, choices, interpolated = {}, {}, set[int]()
    for combination in product(*map(range, count_choices(axes, dimensions))):  # plain axes stay at their first value
        value_index = {
            axis_index: index
            for dimension, index in zip(dimensions, combination, strict=True)
            for axis_index in dimension
        }
        base_key = tuple(value_index[axis_index] for axis_index, axis in enumerate(axes) if axis.composed)
        config = compose((*fixed, *(axis.word(value_index[axis_index]) for axis_index, axis in enumerate(axes))))
        settings, groups = mark_named(to_plain_values(config), words), config.hydra.runtime.choices.items()
        bases[base_key] = {name: value for name, value in settings.items() if name != "sweep"}
        choices[base_key] = {name: choice for name, choice in groups if "/" not in name}
        read_config(bases[base_key])
        interpolated |= find_interpolated(config, axes)
    if interpolated:  # compose once for each of their values
        axes = tuple(as_composed(axis) if index in interpolated else axis for index, axis in enumerate(axes))
        return compose_space(axes, dimensions, fixed, words, compose)
    check_values(axes, next(iter(bases.values())))
    return Space(axes, dimensions, bases, fixed, choices)


def as_composed(axis: Axis) -> Axis:
    if len(axis.values) > MOST_COMPOSED:
        raise UserError(
            f"{axis.key}: other settings use its {len(axis.values):,} values; at most {MOST_COMPOSED:,} are possible"
        )
    return replace(axis, values=tuple(map(axis.value_word, range(len(axis.values)))), composed=True)


def find_interpolated(config: DictConfig, axes: Sequence[Axis]) -> set[int]:
    """Return the indices of all plain axes that an interpolation reads, and perhaps of axes with similar names."""
    own_keys: list[Any] = [key for key in config if key != "hydra"]
    text = str(OmegaConf.to_container(OmegaConf.masked_copy(config, own_keys), resolve=False))
    names = set(re.findall(r"\w+", " ".join(INTERPOLATION.findall(text))))
    return {index for index, axis in enumerate(axes) if not axis.composed and names & set(axis.key.split("."))}


def check_values(axes: Sequence[Axis], base: Mapping[str, Any]) -> None:
    """Validate each value of each plain axis once, independently of other axes."""
    for axis in axes:
        if not axis.composed:
            section, *path = axis.key.split(".")
            for value in (axis.values[0], axis.values[-1]) if isinstance(axis.values, range) else axis.values:
                settings = read_settings({section: with_value(base[section], path, value) if path else value})
                if section == "seed" and "generator" not in (other.key for other in axes):
                    check_seed(settings["seed"], base["generator"])


def check_size(axes: Sequence[Axis], dimensions: Sequence[Shape]) -> None:
    """Refuse a sweep with too many points, or with too many compositions by Hydra.

    Raises:
        UserError: there are too many; the message gives the count.
    """
    points = prod(len(axes[dimension[0]].values) for dimension in dimensions)
    if points > MOST_POINTS:
        raise UserError(f"{points:,} points; a sweep takes at most {MOST_POINTS:,}")
    compositions = prod(count_choices(axes, dimensions))
    if compositions > MOST_COMPOSED:
        raise UserError(
            f"{compositions:,} combinations of groups and of values that other settings use; a sweep composes at "
            f"most {MOST_COMPOSED:,}"
        )


def count_choices(axes: Sequence[Axis], dimensions: Sequence[Shape]) -> list[int]:
    return [
        len(axes[dimension[0]].values) if any(axes[index].composed for index in dimension) else 1
        for dimension in dimensions
    ]


def check_repeats(axes: Sequence[Axis], dimensions: Sequence[Shape]) -> None:
    """Refuse repeated values, whose rows would count as independent data.

    Raises:
        UserError: a value is given more than once.
    """
    for zipped in ([axes[index] for index in dimension] for dimension in dimensions):
        if any(isinstance(axis.values, range) for axis in zipped):  # the values of a range are distinct
            continue
        points = zip(*(map(axis.word, range(len(axis.values))) for axis in zipped), strict=True)
        most_common, count = Counter(map(" ".join, points)).most_common(1)[0]
        if count > 1:
            raise UserError(
                f"{brief(most_common)} is given {count} times; give each value once, since repeated rows would count "
                "as data"
            )
