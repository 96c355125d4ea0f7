"""Which metrics were not compared, where, and why: some rows have no number of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.column import spoken
from attn_exp.report.words import listed
from attn_exp.sweeps.answers.cube import METRICS, OF_ANSWERS, OF_SHARES, Cube
from attn_exp.sweeps.answers.phrases import called, place, short
from attn_exp.sweeps.answers.profiles import SPOKEN, VARIANT

WHY = {
    False: ("each is taken over other queries", "both are taken over the same queries"),
    True: ("weights that do not sum to 1 are no shares", "the weights of both sum to 1, or of neither"),
}
"""Why metrics, of shares or not, are not compared between any values, and where they are between some."""
OF_WEIGHTS = SPOKEN[:2]
"""Metrics of the weights alone: the entropy of those that share out 1, and the largest of any."""


def missing(cube: Cube) -> Iterator[str]:
    """Yield a sentence for each reason why metrics that sentences speak of were not compared somewhere."""
    if len(cube.names) > 1 and len(cube.comparable(VARIANT)) < len(cube.numbers):
        yield "Errors are compared between values of dtype alone: those of another type are of another size."
    yield from of_other_queries(cube)
    groups: dict[tuple[str, str], list[str]] = {}
    for metric in spoken_of(cube):
        if metric in cube.numbers and (lost := lost_rows(cube, metric)).any():
            groups.setdefault((where(cube, lost), reason(cube, metric, lost)), []).append(spoken(metric))
    for (places, why), metrics in groups.items():
        names = listed([f"the {name}" for name in metrics])
        yield f"{names[:1].upper()}{names[1:]} {'is' if len(metrics) == 1 else 'are'} not compared {places}: {why}."


def spoken_of(cube: Cube) -> tuple[str, ...]:
    """Return the metrics of weights that sentences speak of, and those that were asked for."""
    return (*OF_WEIGHTS, *(name for name in cube.numbers if name not in METRICS))


def apart(cube: Cube) -> dict[str, Array]:
    """Return the metrics that are taken over other queries here than there, with the sets of them."""
    there = [name for name in (*spoken_of(cube), *OF_ANSWERS) if np.isfinite(cube.numbers.get(name, np.nan)).any()]
    metrics = [name for name in there if np.nanmax(cube.numbers[name]) > np.nanmin(cube.numbers[name])]
    return {name: sets for name in metrics if (sets := cube.queries_of(name)) is not None}


def of_other_queries(cube: Cube) -> Iterator[str]:
    """Yield between which values of a setting, or which variants, metrics are taken over other queries."""
    groups: dict[bool, dict[str, Array]] = {}
    for name, sets in apart(cube).items():
        mixed = name in OF_SHARES and len(np.unique(cube.sums_to_one[cube.resolved >= 0])) > 1
        groups.setdefault(mixed, {})[name] = sets
    for mixed, metrics in groups.items():
        yield from not_compared(cube, metrics, *WHY[mixed])


def not_compared(cube: Cube, sets: Mapping[str, Array], why: str, both: str) -> Iterator[str]:
    """Yield between which values, or which variants, metrics of different sets of rows are not compared, and why."""
    names = listed([f"the {spoken(name)}" for name in sets])
    subject = f"{names[:1].upper()}{names[1:]} {'is' if len(sets) == 1 else 'are'}"
    partly = []
    for axis, (setting, labels) in enumerate([*zip(cube.names, cube.levels, strict=True), ("", cube.variants)]):
        along = np.moveaxis(next(iter(sets.values())), axis if setting else -1, 0)
        others = [of_others(one, other) for one, other in combinations(along, 2)]
        if others and all(other.all() for other in others):
            first = f"{called(setting)}={short(labels[0])}" if setting else labels[0]
            values = listed([first, *map(short, labels[1:])])
            yield f"{subject} not compared between {values}: {why}."
        elif any(other.any() for other in others):
            partly.append(f"values of {called(setting)}" if setting else "variants")
    if partly:
        yield f"{subject} compared between {listed(partly)} only where {both}."


def of_others(sets: Array, first: Array) -> Array:
    """Return where two numbers that are there are means of other queries."""
    other: Array = (sets != first) & (sets >= 0) & (first >= 0)
    return other


def lost_rows(cube: Cube, metric: str) -> Array:
    """Return which rows have no number of a metric though there is a result."""
    lost: Array = ~np.isfinite(cube.numbers[metric]) & (cube.resolved >= 0)
    return lost


def reason(cube: Cube, metric: str, lost: Array) -> str:
    """Return why rows have no number of a metric."""
    if "error" in cube.numbers and not any(np.isfinite(numbers[lost]).any() for numbers in cube.numbers.values()):
        return "nothing was computed there"
    if metric not in OF_WEIGHTS:
        return "there is no such number there"
    formed = OF_WEIGHTS[1] in cube.numbers and not lost_rows(cube, OF_WEIGHTS[1])[lost].any()
    return "the weights do not sum to 1 there" if formed else "no weights are formed there"


def where(cube: Cube, lost: Array, throughout: str = "anywhere") -> str:
    """Say where rows are lost: in whole variants, at whole values of a setting, and in how many others.

    `throughout` is what is said where all of them are.
    """
    there, left, parts = cube.resolved >= 0, lost.copy(), []
    if (lost == there).all():
        return throughout
    if variants := [name for row, name in enumerate(cube.variants) if whole(lost[..., row], there[..., row])]:
        parts.append(f"in {listed(variants)}")
    kept = [row for row, name in enumerate(cube.variants) if name not in variants]
    left, lost, there = (rows[..., kept] for rows in (left, lost, there))
    for axis, (name, labels) in enumerate(zip(cube.names, cube.levels, strict=True)):
        gone: list[str] = []
        for level, label in enumerate(labels):
            at = (slice(None),) * axis + (level,)
            if left[at].any() and whole(lost[at], there[at]):
                gone.append(short(label) if gone else place(name, label))
                left[at] = False
        parts += [listed(gone)] if gone else []
    if left.any():
        parts.append(f"in {int(left.sum()):,} {'other' if parts else f'of {int(there.sum()):,}'} rows")
    return listed(parts)


def whole(lost: Array, there: Array) -> bool:
    """Say whether all rows are lost of those that there are, if there are any."""
    return bool(there.any() and (lost == there).all())
