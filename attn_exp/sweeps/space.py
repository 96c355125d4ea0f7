"""The points of a sweep: the keys that vary, their values, and the settings of each point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

from attn_exp.config.schema import Config, read_config
from attn_exp.config.spelling import spelled

Settings = Mapping[str, Any]
Places = tuple[int, ...]
"""For each axis, the index of its value."""
Groups = tuple[tuple[int, ...], ...]
"""Indices of axes: those of zipped ones together."""


@dataclass(frozen=True)
class Axis:
    """One swept key and its values.

    The values of a `composed` axis are words, each composed by Hydra: choices of groups, and values that interpolations
    read. The values of other axes are inserted into the composed settings as they are.
    """

    key: str
    values: Sequence[Any]
    composed: bool = False
    sign: str = ""

    @property
    def column(self) -> str:
        """The axis's column in tables: its key, except for `variant`, which names the rows of one point."""
        return "variants" if self.key == "variant" else self.key

    def word(self, place: int) -> str:
        """Return the command-line word for one value."""
        return f"{self.sign}{self.key}={self.value_word(place)}"

    def value_word(self, place: int) -> str:
        """Return one value as it is typed."""
        value = self.values[place]
        return str(value) if self.composed else spelled(value)


@dataclass(frozen=True)
class Space:
    """All combinations of the axes' values, in the order of the command line, the last axis fastest.

    `dimensions` groups the indices of zipped axes (`sweep.zip`); the others stand alone. `bases` holds the composed
    settings for each combination of indices of composed axes, `choices` the groups' choices with them, `fixed` the
    words that do not vary.
    """

    axes: tuple[Axis, ...]
    dimensions: Groups
    bases: Mapping[Places, Settings] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()
    choices: Mapping[Places, Settings] = field(default_factory=dict)

    @property
    def lengths(self) -> Places:
        """The number of values of each dimension."""
        return tuple(len(self.axes[places[0]].values) for places in self.dimensions)

    @cached_property
    def seeds(self) -> tuple[int, int] | None:
        """The axis of the seeds, and the distance between points that differ only in the next seed.

        None if seeds are not plain values, or vary with another setting.
        """
        stride = self.size
        for length, together in zip(self.lengths, self.dimensions, strict=True):
            stride //= length
            axis = self.axes[together[0]]
            if len(together) == 1 and axis.key == "seed" and not axis.composed:
                return together[0], stride
        return None

    @property
    def size(self) -> int:
        """The number of combinations."""
        return prod(self.lengths)

    @cached_property
    def configs(self) -> Mapping[Places, Config]:
        """The bases as configurations, parsed once per worker."""
        return {key: read_config(base) for key, base in self.bases.items()}

    def places(self, index: int) -> Places:
        """Return the index of a point's value on each axis."""
        places = [0] * len(self.axes)
        for length, together in zip(reversed(self.lengths), reversed(self.dimensions), strict=True):
            index, place = divmod(index, length)
            for axis in together:
                places[axis] = place
        return tuple(places)

    def values(self, index: int) -> tuple[Any, ...]:
        """Return the value of each axis at a point."""
        return tuple(axis.values[place] for axis, place in zip(self.axes, self.places(index), strict=True))

    def base_key(self, places: Sequence[int]) -> Places:
        """Return the indices of the composed axes alone."""
        return tuple(place for axis, place in zip(self.axes, places, strict=True) if axis.composed)

    def settings(self, index: int) -> Settings:
        """Return the plain settings of one point."""
        places = self.places(index)
        settings = self.bases[self.base_key(places)]
        for axis, place in zip(self.axes, places, strict=True):
            if not axis.composed:
                settings = changed(settings, axis.key.split("."), axis.values[place])
        return settings

    def words(self, index: int) -> list[str]:
        """Return the command-line words that choose one point."""
        return [*self.fixed, *(axis.word(place) for axis, place in zip(self.axes, self.places(index), strict=True))]


def changed(settings: Settings, path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return a copy of the settings with one value replaced."""
    first, rest = path[0], path[1:]
    return {**settings, first: changed(settings[first], rest, value) if rest else value}


def holds(settings: Any, path: Sequence[str]) -> bool:
    """Return whether a path leads to a value through mappings alone."""
    for part in path:
        if not isinstance(settings, Mapping) or part not in settings:
            return False
        settings = settings[part]
    return True
