"""How near two computations are, for many points at once: what `sameness` says of each, as numbers first.

Answers and stages have the points on their first axis, and are of float64.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment import sameness
from attn_exp.experiment.executing import answer
from attn_exp.experiment.metrics.errors import ordered
from attn_exp.experiment.sameness import FEW_ULP, SAME_FUNCTION
from attn_exp.forms.trace import Trace

IDENTICAL, ROUNDING, DIFFERENT = -1, FEW_ULP + 1, FEW_ULP + 2
"""How near two arrays are, as a number; those between are units in the last place."""


def word(nearness: int) -> str:
    """Return the words of `sameness.compared`."""
    named = {IDENTICAL: sameness.IDENTICAL, ROUNDING: sameness.ROUNDING, DIFFERENT: sameness.DIFFERENT}
    return named.get(nearness, f"within {nearness} ulp")


def nearness(one: Array, other: Array) -> Array:
    """Return how near each of many arrays is to its counterpart `[n]`, as `sameness.compared` says it in words."""
    near = np.full(len(one), DIFFERENT)
    if one.shape != other.shape:
        return near
    one, other = one.reshape(len(one), -1), other.reshape(len(other), -1)
    alike = (one == other) | (np.isnan(one) & np.isnan(other))
    near[alike.all(axis=-1)] = IDENTICAL
    finite = np.isfinite(one) & np.isfinite(other)
    apart = np.flatnonzero((near != IDENTICAL) & (alike | finite).all(axis=-1))
    if len(apart):
        near[apart] = rounded(*(np.where(finite[apart], side[apart], 0.0) for side in (one, other)))
    return near


def rounded(one: Array, other: Array) -> Array:
    """Return how near finite arrays `[n k]` are that differ."""
    high, low = np.maximum(ordered(one), ordered(other)), np.minimum(ordered(one), ordered(other))
    units = (high.view(np.uint64) - low.view(np.uint64)).max(axis=-1)  # the difference of any two fits without a sign
    far = np.where(errors_in_ulp(one, other) > SAME_FUNCTION, DIFFERENT, ROUNDING)
    return np.where(units <= FEW_ULP, units.astype(np.int64), far)


def largest_errors(answers: Array, expected: Array) -> Array:
    """Return `max |answer - expected|` of each of many finite arrays, as `metrics.errors.largest_error`."""
    with np.errstate(over="ignore"):
        return np.asarray(np.abs(answers - expected).reshape(len(answers), -1).max(axis=-1))


def errors_in_ulp(answers: Array, expected: Array) -> Array:
    """Return the largest error of each over the spacing of floats there, as `metrics.errors.error_in_ulp`."""
    magnitudes = np.abs(expected).reshape(len(expected), -1).max(axis=-1)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(largest_errors(answers, expected) / np.spacing(magnitudes))


def partings(one: Trace, other: Trace, near: Array) -> list[str]:
    """Return the stage at which each point's two traces part, as `sameness.sameness`; `near` are their answers."""
    parts = np.where(near == IDENTICAL, "", "output").astype(object)
    theirs, waiting = dict(other.stages()), np.flatnonzero(near != IDENTICAL)
    for name, array in one.stages():
        if name in theirs and len(waiting):
            stage = nearness(array[waiting], theirs[name][waiting])
            parted = np.where(near[waiting] == DIFFERENT, stage == DIFFERENT, stage != IDENTICAL)
            parts[waiting[parted]] = name
            waiting = waiting[~parted]
    return [str(part) for part in parts]


def letters(traces: Mapping[str, Trace], near_first: Mapping[str, Array]) -> dict[str, list[str]]:
    """Give computations of the same function the same letter, point by point, as `sameness.letters`.

    `near_first` says how near each answer is to the first.
    """
    first, count = next(iter(traces)), len(next(iter(near_first.values())))
    places = {first: np.zeros(count, int)}  # which letter each has
    leads = {first: np.ones(count, bool)}  # where it is the first with its letter
    leaders = np.ones(count, int)
    for name in list(traces)[1:]:
        place = np.full(count, -1)
        for other, leading in leads.items():
            if (open_places := leading & (place < 0)).any():
                known = near_first[name]
                if other != first or (known > FEW_ULP).any():  # beyond that it counts whose magnitude is the unit
                    known = nearness(answer(traces[name]), answer(traces[other]))
                place = np.where(open_places & (known != DIFFERENT), places[other], place)
        leads[name] = place < 0
        places[name] = np.where(place < 0, leaders, place)
        leaders = leaders + leads[name]
    return {name: [sameness.letter(place) for place in places[name].tolist()] for name in traces}
