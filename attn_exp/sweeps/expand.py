"""The axes of a sweep as Hydra reads them: its grammar, its groups, its composition, once per choice of groups.

How large a sweep would be is counted before anything is written out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import ceil, prod
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, RangeSweep
from omegaconf import DictConfig, OmegaConf

from attn_exp import patience
from attn_exp.config.compose import composed_once, plain, register_schema
from attn_exp.config.hydra_errors import in_users_words, what_hydra_stumbles_over
from attn_exp.config.kinds import is_finite
from attn_exp.config.loader import environment, opened
from attn_exp.config.schema import Config, Sweep, check_seed, read_config, read_settings
from attn_exp.config.spelling import key_of, with_path_quoted
from attn_exp.errors import UserError, brief, unknown
from attn_exp.own_code import Named, is_code, mark_named
from attn_exp.sweeps.space import Axis, Space, changed, holds

OF_THE_WHOLE = ("sweep", "output_dir", "strict")
"""Settings that a sweep has one of."""

MOST_POINTS = 50_000_000
"""A plan of so many points starts in seconds, and its table fills a disk."""

MOST_WRITTEN_OUT = 1_000_000
"""Values that are no even steps of whole numbers are held one by one."""

MOST_COMPOSED = 10_000
"""Each composition by Hydra takes hundredths of a second."""

INTERPOLATION = re.compile(r"\$\{([^{}]*)\}")


def expand(words: Sequence[str], folders: Sequence[str]) -> tuple[Space, Config]:
    """Return the points that the words of `-m` describe, and the settings of the first, all checked.

    Raises:
        UserError: a value of the wrong kind, an interval, or settings that cannot be swept.
    """
    register_schema()
    with in_users_words(), opened(folders, words) as hydra, environment(words):
        loader = hydra.config_loader
        composer = Composer(loader, words)
        given = {override.get_key_element(): override for override in typed_settings(words, loader)}
        fixed = tuple(str(override.input_line) for override in given.values() if not override.is_sweep_override())
        axes = tuple(axis_of(override, loader) for override in given.values() if override.is_sweep_override())
        first = composer.settings([*fixed, *(axis.word(0) for axis in axes)])
        together = dimensions(axes, read_config(first).sweep)
        check_size(axes, together)
        check_repeats(axes, together)
        return composer.space(axes, together, fixed, first), read_config(first)


def typed_settings(words: Sequence[str], loader: ConfigLoader) -> Iterator[Override]:
    """Yield the words as Hydra's grammar reads them, and refuse what this sweeper would not do."""
    with what_hydra_stumbles_over():
        overrides = OverridesParser.create(config_loader=loader).parse_overrides(list(map(with_path_quoted, words)))
    for override in overrides:
        check_range(override)
        if override.is_interval_sweep():
            raise UserError(f"{override.input_line}: an interval has no list of values; use range() or write them out")
        if override.is_hydra_override():
            raise UserError(
                f"{override.input_line}: this sweeper does not read it; for Hydra's own add hydra/sweeper=basic"
            )
        if override.is_sweep_override() and key_of(str(override.input_line)).split(".")[0] in OF_THE_WHOLE:
            raise UserError(
                f"{override.input_line}: {override.key_or_group} belongs to the whole sweep and takes one value"
            )
        yield override


def check_range(override: Override) -> None:
    """Refuse a range that never ends, whose ends are no numbers, or of more values than a sweep takes."""
    swept = override._value
    if not isinstance(swept, RangeSweep):
        return
    start, stop, step = swept.start, swept.stop, swept.step
    if start is None or stop is None or not (step and all(map(is_finite, (start, stop, step)))):
        raise UserError(
            f"{override.input_line}: expected range(start,stop,step) of finite numbers, and a step that is not 0"
        )
    check_length(str(override.input_line), start, stop, step)


def axis_of(override: Override, loader: ConfigLoader) -> Axis:
    """Return one swept key: words for a group and for what only Hydra can put in its place, else plain values."""
    swept = override._value
    if isinstance(swept, ChoiceSweep | RangeSweep):
        swept.shuffle = False  # results are in the order of the values
    with what_hydra_stumbles_over():
        group = bool(loader.get_group_options(override.key_or_group)) or override.package is not None
    values = () if group else plain_values(override)
    key, sign = override.get_key_element().lstrip("+"), "+" * override.get_key_element().count("+")
    if isinstance(values, range):
        axis = Axis(key, values, sign=sign)
    elif group or any(isinstance(value, dict) or "${" in str(value) or value == "???" for value in values):
        values = tuple(override.sweep_string_iterator())
        axis = Axis(key, values, composed=True, sign=sign)
    else:
        axis = Axis(key, with_code_named(key, values), sign=sign)
    if not values:
        raise UserError(f"{override.input_line}: no value matches")
    return axis


def with_code_named(key: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values of an axis; those of a form that are code are named here, as they were typed."""
    form = key.startswith("variant.") and key.endswith(".form")
    return tuple(Named(value) if form and is_code(value) else value for value in values)


def plain_values(override: Override) -> Sequence[Any]:
    """Return the values of a swept key; even steps of whole numbers stay a range."""
    swept = override._value
    steps = swept.range() if isinstance(swept, RangeSweep) else None
    if isinstance(steps, range):
        return steps
    return tuple(Override._convert_value(value) for value in override.sweep_iterator())


def dimensions(axes: Sequence[Axis], sweep: Sweep) -> tuple[tuple[int, ...], ...]:
    """Return which axes move together, in the order of their first."""
    keys = [axis.key for axis in axes]
    together = {}
    for key in sweep.zip:
        if key not in keys:
            raise UserError(unknown(key, keys, "key in sweep.zip") if keys else f"sweep.zip: {key} is not swept")
        together[keys.index(key)] = len(axes[keys.index(key)].values)
    if len(set(together.values())) > 1:
        counts = ", ".join(f"{axes[place].key} has {count}" for place, count in together.items())
        raise UserError(f"sweep.zip needs as many values of each: {counts}")
    zipped = tuple(sorted(together))
    return tuple(zipped if place in zipped else (place,) for place in range(len(axes)) if place not in zipped[1:])


class Composer:
    """Hydra's composition of `conf/`, for one set of search paths."""

    def __init__(self, loader: ConfigLoader, typed: Sequence[str]) -> None:
        self.loader, self.typed = loader, typed
        self.known: dict[tuple[str, ...], DictConfig] = {}
        self.bases: dict[tuple[str, ...], tuple[dict[str, Any], dict[str, Any], DictConfig]] = {}

    def compose(self, words: Sequence[str]) -> DictConfig:
        if tuple(words) not in self.known:
            self.known[tuple(words)] = composed_once(words)
        return self.known[tuple(words)]

    def base(self, words: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any], DictConfig]:
        """Return the settings of one choice of groups, checked, the choices, and what Hydra composed; the same words
        are read once."""
        if tuple(words) not in self.bases:
            config = self.compose(words)
            base = {name: value for name, value in self.plain(config).items() if name != "sweep"}
            choices = {name: choice for name, choice in config.hydra.runtime.choices.items() if "/" not in name}
            read_config(base)
            self.bases[tuple(words)] = base, choices, config
        return self.bases[tuple(words)]

    def settings(self, words: Sequence[str]) -> dict[str, Any]:
        return self.plain(self.compose(words))

    def plain(self, composed: DictConfig) -> dict[str, Any]:
        return mark_named(plain(composed), self.typed)

    def space(
        self,
        axes: tuple[Axis, ...],
        together: tuple[tuple[int, ...], ...],
        fixed: tuple[str, ...],
        first: Mapping[str, Any],
    ) -> Space:
        """Compose every choice of groups once; an axis that an interpolation reads becomes a composed one."""
        axes = tuple(axis if axis.composed or holds(first, axis.key.split(".")) else as_composed(axis) for axis in axes)
        check_size(axes, together)
        bases, choices, read_by_others = {}, {}, set[int]()
        places_of_bases = list(base_places(axes, together))
        for done, places in enumerate(places_of_bases):
            patience.count(done, len(places_of_bases))
            key = tuple(place for axis, place in zip(axes, places, strict=True) if axis.composed)
            words = [*fixed, *(axis.word(place) for axis, place in zip(axes, places, strict=True))]
            bases[key], choices[key], config = self.base(words)
            read_by_others |= interpolated(config, axes)
        patience.count(len(places_of_bases), len(places_of_bases))
        if read_by_others:
            axes = tuple(as_composed(axis) if place in read_by_others else axis for place, axis in enumerate(axes))
            return self.space(axes, together, fixed, first)
        check_values(axes, next(iter(bases.values())))
        return Space(axes, together, bases, fixed, choices)


def as_composed(axis: Axis) -> Axis:
    """Return the same axis, its values to be composed by Hydra."""
    if axis.composed:
        return axis
    if len(axis.values) > MOST_COMPOSED:
        raise UserError(
            f"{axis.key}: {len(axis.values):,} values that other settings read; at most {MOST_COMPOSED:,} are composed"
        )
    words = tuple(map(axis.value_word, range(len(axis.values))))
    return Axis(axis.key, words, composed=True, sign=axis.sign)


def base_places(axes: Sequence[Axis], together: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Yield one point for each combination of choices: the places of all axes, the plain ones at their first value."""
    ranges = [
        range(len(axes[group[0]].values)) if any(axes[place].composed for place in group) else range(1)
        for group in together
    ]
    for chosen in product(*ranges):
        places = [0] * len(axes)
        for group, place in zip(together, chosen, strict=True):
            for number in group:
                places[number] = place
        yield tuple(places)


def interpolated(config: DictConfig, axes: Sequence[Axis]) -> set[int]:
    """Return the places of plain axes that an interpolation in the settings may read; rather one too many."""
    ours: list[Any] = [key for key in config if key != "hydra"]
    texts = " ".join(
        INTERPOLATION.findall(str(OmegaConf.to_container(OmegaConf.masked_copy(config, ours), resolve=False)))
    )
    parts = set(re.split(r"[^\w]+", texts))
    return {place for place, axis in enumerate(axes) if not axis.composed and parts & set(axis.key.split("."))}


def check_values(axes: Sequence[Axis], base: Mapping[str, Any]) -> None:
    """Read every value of every plain axis once, alone, and raise the error of the first that is wrong."""
    for axis in axes:
        if not axis.composed:
            top, *path = axis.key.split(".")
            for value in (axis.values[0], axis.values[-1]) if isinstance(axis.values, range) else axis.values:
                settings = read_settings({top: changed(base[top], path, value) if path else value})
                if top == "seed" and "generator" not in (other.key for other in axes):
                    check_seed(settings["seed"], base["generator"])


def check_length(word: str, start: float, stop: float, step: float) -> None:
    """Refuse a range of more values than a sweep may have points, or than fit memory.

    Raises:
        UserError: how many values there would be.
    """
    count = max(0, ceil((Fraction(stop) - Fraction(start)) / Fraction(step)))
    whole = all(isinstance(end, int) for end in (start, stop, step))
    most = MOST_POINTS if whole else MOST_WRITTEN_OUT
    if count > most:
        kind = "values" if whole else "values that are no whole numbers"
        raise UserError(f"{brief(word)}: {amount(count)} {kind}; a sweep takes at most {most:,}")


def check_size(axes: Sequence[Axis], dimensions: Sequence[Sequence[int]]) -> None:
    """Refuse a sweep of too many points, or of too many compositions by Hydra.

    Raises:
        UserError: how many there would be.
    """
    lengths = [len(axes[together[0]].values) for together in dimensions]
    composed = [any(axes[place].composed for place in together) for together in dimensions]
    if prod(lengths) > MOST_POINTS:
        raise UserError(f"{amount(prod(lengths))} points; a sweep takes at most {MOST_POINTS:,}")
    compositions = prod(length for length, by_hydra in zip(lengths, composed, strict=True) if by_hydra)
    if compositions > MOST_COMPOSED:
        raise UserError(
            f"{amount(compositions)} choices of groups and of what other settings read; a sweep composes at most "
            f"{MOST_COMPOSED:,}"
        )


def check_repeats(axes: Sequence[Axis], dimensions: Sequence[Sequence[int]]) -> None:
    """Refuse values that are typed more than once: their rows would count as independent data.

    Raises:
        UserError: the first of them, and how often it is typed.
    """
    for group in ([axes[place] for place in together] for together in dimensions):
        if not any(isinstance(axis.values, range) for axis in group):  # whose values all differ
            points = zip(*(map(axis.word, range(len(axis.values))) for axis in group), strict=True)
            words, count = Counter(map(" ".join, points)).most_common(1)[0]
            if count > 1:
                raise UserError(
                    f"{brief(words)} is given {count} times; give each value once, or its rows count as more data"
                )


def amount(count: int) -> str:
    """Write a count in full, or as a power of ten where that would be long."""
    return f"{count:,}" if count < 10**15 else f"about 1e{len(str(count)) - 1 if count < 10**4000 else 4000}"
