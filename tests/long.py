"""Which cases of a test with many run at once, and which with `--all` alone; nothing is left out of both."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def thinned(cases: Iterable[Any], every: int) -> list[Any]:
    """Return all cases, the first and every so many after it as they are, those between marked `long`."""
    return [
        case if place % every == 0 else pytest.param(case, marks=pytest.mark.long) for place, case in enumerate(cases)
    ]


def thinned_rows(rows: Iterable[Sequence[Any]], every: int) -> list[Any]:
    """Do the same with cases of several arguments."""
    return [row if place % every == 0 else pytest.param(*row, marks=pytest.mark.long) for place, row in enumerate(rows)]


def each_once(*axes: Sequence[Any]) -> list[Any]:
    """Return all combinations of some lists, those marked `long` that are not needed to have each member once."""
    sizes = [range(len(axis)) for axis in axes]
    short = {tuple(place % len(size) for size in sizes) for place in range(max(map(len, axes)))}
    rest = [places for places in itertools.product(*sizes) if places not in short]
    return [
        *(picked(axes, places) for places in sorted(short)),
        *(pytest.param(*picked(axes, places), marks=pytest.mark.long) for places in rest),
    ]


def picked(axes: Sequence[Sequence[Any]], places: Sequence[int]) -> tuple[Any, ...]:
    """Return one member of each list."""
    return tuple(axis[place] for axis, place in zip(axes, places, strict=True))
