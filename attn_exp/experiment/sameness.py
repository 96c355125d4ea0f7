"""Whether two computations are the same function: to the bit, to the last places, to rounding, or not at all."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.executing import answer
from attn_exp.experiment.metrics.errors import error_in_ulp, ulp_distance
from attn_exp.forms import coarser
from attn_exp.forms.trace import Trace

SAME_FUNCTION = 256
"""Two answers this many units in the last place of their largest number apart still count as one function."""

FEW_ULP = 16
"""Up to so many units in the last place of each number by itself, the number of units is told."""

IDENTICAL, ROUNDING, DIFFERENT = "bit-identical", "within rounding", "different"


class Sameness(NamedTuple):
    """How near two computations are, and the first stage at which they part."""

    word: str
    differs_at: str


def sameness(one: Trace, other: Trace, kind: Any = None) -> Sameness:
    """Compare two computations: their answers, then the stages in order, as `compared` does.

    `differs_at` is the first stage that both form and that is not bit-identical; where the answers differ beyond
    rounding, the first stage that does.
    """
    word = compared(answer(one), answer(other), kind)
    if word == IDENTICAL:
        return Sameness(word, "")
    theirs = dict(other.stages())
    for name, array in one.stages():
        if name in theirs and parted(compared(array, theirs[name], kind), word):
            return Sameness(word, name)
    return Sameness(word, "output")


def parted(stage: str, answers: str) -> bool:
    return stage == DIFFERENT if answers == DIFFERENT else stage != IDENTICAL


def compared(one: Array, other: Array, kind: Any = None) -> str:
    """Say how near two arrays are: bit-identical, within k units in the last place, within rounding, different.

    `kind` is the coarser of the types that they were computed in. Where their own has more digits, units and rounding
    are those of `kind`, and the words say so: within 2 ulp of float32.
    """
    if one.shape != other.shape or (np.isfinite(one) != np.isfinite(other)).any():
        return DIFFERENT
    if one.dtype == other.dtype and np.array_equal(one, other, equal_nan=True):
        return IDENTICAL
    finite = np.isfinite(one)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return DIFFERENT
    kind = one.dtype if kind is None else np.dtype(kind)
    of_kind = "" if kind == one.dtype else f" of {kind.name}"
    units = ulp_distance(one[finite].astype(kind), other[finite])
    if units <= FEW_ULP:
        return f"within {units} ulp{of_kind}"
    far = error_in_ulp(one[finite], other[finite], kind) > SAME_FUNCTION
    return DIFFERENT if far else f"{ROUNDING}{of_kind}"


def letters(traces: Mapping[str, Trace], kinds: Mapping[str, Any]) -> dict[str, str]:
    """Give computations of the same function, to rounding in the coarser of their types, the same letter."""
    leaders: list[str] = []
    classes = {}
    for name in traces:
        leader = next((other for other in leaders if alike(name, other, traces, kinds)), name)
        if leader == name:
            leaders.append(name)
        classes[name] = letter(leaders.index(leader))
    return classes


def alike(name: str, other: str, traces: Mapping[str, Trace], kinds: Mapping[str, Any]) -> bool:
    return compared(answer(traces[name]), answer(traces[other]), coarser(kinds[name], kinds[other])) != DIFFERENT


def letter(place: int) -> str:
    """Return A, B, ... Z, AA, AB, ..."""
    alphabet = string.ascii_uppercase
    return (letter(place // 26 - 1) if place >= 26 else "") + alphabet[place % 26]
