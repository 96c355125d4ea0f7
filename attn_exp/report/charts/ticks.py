"""Where numbers stand along an axis: round ones, as many as can be read, where Matplotlib would put them."""

from __future__ import annotations

import math

from attn_exp.report.charts.chart import Ticks

STEPS = (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 2.5, 5.0, 10.0, 20.0)
"""Round steps, in powers of ten of what nine tenths of an axis would need."""

POINTS_EACH = 15
"""Points of an axis, upwards, that each number of it takes at least."""


def numbers(low: float, high: float, length: float) -> Ticks:
    """Return round numbers along an upward axis of so many inches, all with the same digits."""
    places = round_places(low, high, ticks_in(length))
    digits = decimals(places[1] - places[0]) if len(places) > 1 else 2
    return Ticks(places, tuple(f"{place:.{digits}f}" for place in places))


def ticks_in(length: float) -> int:
    """Return into how many pieces numbers part an upward axis of so many inches at most."""
    return max(1, min(9, int(length * 72 // POINTS_EACH)))


def round_places(low: float, high: float, most: int) -> tuple[float, ...]:
    """Return multiples of the smallest round step that parts an axis into at most so many pieces.

    Where fewer than two fall on the axis, the next smaller step is taken. Source: `MaxNLocator` of Matplotlib, with the
    steps 1, 2, 2.5, 5 and 10.
    """
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    steps = [step * power for step in STEPS]
    largest = next((place for place, step in enumerate(steps) if step >= (high - low) / most), len(steps) - 1)
    places: tuple[float, ...] = ()
    for step in reversed(steps[: largest + 1]):
        first, last = math.ceil(low / step - 1e-10), math.floor(high / step + 1e-10)
        places = tuple(place * step for place in range(first, last + 1))
        if len(places) > 1:
            break
    return places


def decimals(step: float) -> int:
    """Return how many digits after the point multiples of a round step need."""
    return next(digits for digits in range(20) if abs(step - round(step, digits)) < 1e-3 * step)


def powers(low: float, high: float, length: float) -> Ticks:
    """Return powers of ten along an axis of so many inches."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    room = max(2, min(9, int(length * 72 // 22)))
    places = [10.0**power for power in range(first, last + 1, (last - first) // room + 1)]
    return Ticks(tuple(places), tuple(f"{place:g}" for place in places))


def named(names: list[str], turned: bool, length: float) -> Ticks:
    """Return names of the cells along an axis `length` inches long, leaving out evenly what would overlap."""
    places = range(0, len(names), max(1, math.ceil(0.12 * len(names) / length)))
    return Ticks(tuple(map(float, places)), tuple(names[place] for place in places), turned)
