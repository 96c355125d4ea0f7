"""Whether two computations are the same function: to the bit, to the last places, to rounding, or not at all.

Answers and stages have many problems on their first axis, `[n ...]`, and each is told apart by itself; `compared` and
`sameness` ask of one problem.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.executing import answer
from attn_exp.experiment.metrics.errors import errors_in_ulp, ulp_distances
from attn_exp.forms import coarser
from attn_exp.forms.trace import Trace

SAME_FUNCTION = 256
"""Two answers this many units in the last place of their largest number apart still count as one function."""

FEW_ULP = 16
"""Up to so many units in the last place of each number by itself, the number of units is told."""

IDENTICAL, ROUNDING, DIFFERENT = "bit-identical", "within rounding", "different"

SAME_BITS, ROUNDED, APART = -1, FEW_ULP + 1, FEW_ULP + 2
"""How near two arrays are, as a number: between the first two are units in the last place."""


def sameness(one: Trace, other: Trace, kind: Any = None) -> tuple[str, str]:
    """Say how near two computations of one problem are, and the first stage at which they part."""
    one, other = one.as_stack(), other.as_stack()
    near = nearness(answer(one), answer(other), kind)
    return words(near, answer(one).dtype, kind)[0], partings(one, other, near, kind)[0]


def compared(one: Array, other: Array, kind: Any = None) -> str:
    """Say how near two arrays are: bit-identical, within k units in the last place, within rounding, different.

    `kind` is the coarser of the types that they were computed in. Where their own has more digits, units and rounding
    are those of `kind`, and the words say so: within 2 ulp of float32.
    """
    return words(nearness(one[None], other[None], kind), one.dtype, kind)[0]


def words(near: Array, own: np.dtype[Any], kind: Any = None) -> list[str]:
    """Return in words how near arrays of a type are, in units of `kind`, as `nearness` found it."""
    unit = "" if kind is None or np.dtype(kind) == own else f" of {np.dtype(kind).name}"
    named = {SAME_BITS: IDENTICAL, ROUNDED: f"{ROUNDING}{unit}", APART: DIFFERENT}
    return [named.get(number, f"within {number} ulp{unit}") for number in near.tolist()]


def nearness(one: Array, other: Array, kind: Any = None) -> Array:
    """Return how near each of many arrays is to its counterpart, `[n ...] -> [n]`.

    -1 where they are bit-identical, so many units in the last place of `kind` where these are few, then `ROUNDED` and
    `APART`. NaN and infinity must stand at the same places.
    """
    near = np.full(len(one), APART)
    if one.shape != other.shape:
        return near
    is_same_type, kind = one.dtype == other.dtype, np.dtype(one.dtype if kind is None else kind)
    one, other = one.reshape(len(one), -1), other.reshape(len(other), -1)
    alike = one == other
    if not alike.all():
        alike |= np.isnan(one) & np.isnan(other)
    if is_same_type:
        near[alike.all(axis=-1)] = SAME_BITS
    finite = np.isfinite(one) & np.isfinite(other)
    moved = np.flatnonzero((near != SAME_BITS) & (alike | finite).all(axis=-1))
    if len(moved):
        left, right = (np.where(finite[moved], side[moved], side.dtype.type(0)) for side in (one, other))
        units = ulp_distances(left.astype(kind), right)
        far = np.where(errors_in_ulp(left, right, kind) > SAME_FUNCTION, APART, ROUNDED)
        near[moved] = np.where(units <= FEW_ULP, units.astype(np.int64), far)
    return near


def partings(one: Trace, other: Trace, near: Array, kind: Any = None) -> list[str]:
    """Return the stage at which each problem's two traces part, where `near` says how near their answers are.

    It is the first stage that both form and that is not bit-identical; where the answers differ beyond rounding, the
    first stage that does.
    """
    parts = np.where(near == SAME_BITS, "", "output").astype(object)
    theirs, waiting = dict(other.stages()), np.flatnonzero(near != SAME_BITS)
    for name, array in one.stages():
        if name in theirs and len(waiting):
            stage = nearness(array[waiting], theirs[name][waiting], kind)
            parted = np.where(near[waiting] == APART, stage == APART, stage != SAME_BITS)
            parts[waiting[parted]] = name
            waiting = waiting[~parted]
    return [str(part) for part in parts]


def letters(traces: Mapping[str, Trace], kinds: Mapping[str, Any]) -> dict[str, list[str]]:
    """Give computations of the same function, to rounding in the coarser of their types, the same letter.

    Each problem of the traces `[n ...]` has letters of its own.
    """
    first = answer(next(iter(traces.values())))
    places: dict[str, Array] = {}  # which letter each has
    leads: dict[str, Array] = {}  # where it is the first with its letter
    leaders = np.zeros(len(first), int)
    for name, trace in traces.items():
        place = np.full(len(first), -1)
        for other, leading in leads.items():
            if (open_places := leading & (place < 0)).any():
                near = nearness(answer(trace), answer(traces[other]), coarser(kinds[name], kinds[other]))
                place = np.where(open_places & (near != APART), places[other], place)
        leads[name] = place < 0
        places[name] = np.where(place < 0, leaders, place)
        leaders = leaders + leads[name]
    return {name: [letter(place) for place in numbers.tolist()] for name, numbers in places.items()}


def letter(place: int) -> str:
    """Return A, B, ... Z, AA, AB, ..."""
    return (letter(place // 26 - 1) if place >= 26 else "") + string.ascii_uppercase[place % 26]
