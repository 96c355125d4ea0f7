"""The shape of a metric along a setting of numbers, as far as it is sure: rises, falls, rises and falls, levels off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from attn_exp.sweeps.answers.intervals import Estimate, Family
from attn_exp.sweeps.answers.profiles import Profile

OFF, HARDLY = 0.2, 0.02
"""A metric levels off where what is left of its way is surely less than this share of what lies behind; where it surely
goes on, than the second."""


@dataclass(frozen=True)
class Leg:
    """A part of the way that surely rises or falls, from one level to another."""

    start: int
    end: int
    estimate: Estimate


@dataclass(frozen=True)
class Shape:
    """How a metric goes: in no leg where nothing is sure, in one, or in two of opposite directions.

    `steady` says that each step of the only leg is sure; `off` is the level from which it hardly changes, and `rest`
    how little. `wild` is a metric that goes up and down more often: its legs are from its least to its largest value.
    `parts` says that of a turn only two steps are sure, one up and one down, not the ways to it and from it.
    """

    legs: tuple[Leg, ...] = ()
    steady: bool = False
    off: int = -1
    rest: float = math.nan
    wild: bool = False
    parts: bool = False


def shape_of(profile: Profile, family: Family) -> Shape:
    """Return the shape of a metric along a setting."""
    last = len(profile.levels) - 1
    whole = leg(profile, family, 0, last)
    inner = [place for place in range(1, last) if math.isfinite(profile.values[place])]
    turns = []
    for sign, extreme in ((1, max), (-1, min)) if inner else ():
        top = extreme(inner, key=profile.values.__getitem__)
        up, down = leg(profile, family, 0, top), leg(profile, family, top, last)
        if up and down and up.estimate.mean * sign > 0 > down.estimate.mean * sign:
            turns.append((up, down))
    steps = [leg(profile, family, place, place + 1) for place in range(last)]
    directions = [math.copysign(1, step.estimate.mean) for step in steps if step]
    changes_of_direction = sum(one != other for one, other in pairwise(directions))
    if len(turns) > 1 or changes_of_direction > 1:
        return Shape(wild_legs(profile, family), wild=True)
    if turns:
        return Shape(turns[0])
    if changes_of_direction:
        sure = [step for step in steps if step]
        one, other = (max(group, key=lambda step: abs(step.estimate.mean)) for group in by_direction(sure))
        return Shape((one, other), parts=True)
    if whole is None:
        halves = [leg(profile, family, 0, end) for end in range(1, last)]
        halves += [leg(profile, family, start, last) for start in range(1, last)]
        sure = [half for half in halves if half]
        widest = max(sure, key=lambda half: abs(half.estimate.mean), default=None)
        return Shape((widest,) if widest else ())
    for place in range(1, last):
        before, after = leg(profile, family, 0, place), profile.pairs.get((place, last))
        if before and after and before.estimate.mean * whole.estimate.mean > 0:
            rest = after.largest(family.each)
            share = HARDLY if leg(profile, family, place, last) else OFF
            if rest <= share * abs(before.estimate.mean) and not rest > profile.threshold:
                return Shape((before,), off=place, rest=rest)
    return Shape((whole,), steady=all(steps))


def by_direction(steps: Sequence[Leg]) -> list[list[Leg]]:
    """Return steps in groups that go the same way, one after the other."""
    return [list(group) for _, group in groupby(steps, key=lambda step: step.estimate.mean > 0)]


def leg(profile: Profile, family: Family, start: int, end: int) -> Leg | None:
    """Return the way between two levels if it surely rises or falls."""
    estimate = profile.pairs.get((start, end))
    return Leg(start, end, estimate) if estimate is not None and family.sure(estimate) else None


def wild_legs(profile: Profile, family: Family) -> tuple[Leg, ...]:
    """Return the widest sure difference of all that were compared."""
    sure = [Leg(*pair, estimate) for pair, estimate in profile.pairs.items() if family.sure(estimate)]
    return (max(sure, key=lambda each: abs(each.estimate.mean)),)
