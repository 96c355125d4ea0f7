"""How much of what varies in a full grid each setting explains, and each pair of settings beyond that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from attn_exp.arrays import Array
from attn_exp.sweeps.answers.cube import Cube


@dataclass(frozen=True)
class Share:
    """The share of a metric's variance over all rows that one setting, or two settings beyond each alone, explains."""

    metric: str
    settings: tuple[str, ...]
    share: float


def shares(cube: Cube) -> Iterator[Share]:
    """Yield the share of each setting, of the seed, of the variant and of each pair, the largest first.

    Sums of squares of a balanced design: `SS_A = N / L_A sum_a (m_a - m)^2` and
    `SS_AB = N / (L_A L_B) sum_ab (m_ab - m_a - m_b + m)^2`, over the total `sum (y - m)^2`. They are exact, and add up
    to 1 with what three settings or more do together. Nothing is yielded where a combination is missing.
    """
    names = (*cube.names, "seed", "variant")
    for metric, numbers in cube.numbers.items():
        if not np.isfinite(numbers).all():
            continue
        centred = numbers - numbers.mean()
        total = float((centred**2).sum())
        if total <= numbers.size * max(1e-12, 1e-9 * float(np.abs(numbers).max())) ** 2:
            continue
        axes = [axis for axis in range(numbers.ndim) if numbers.shape[axis] > 1]
        alone = {axis: along(centred, (axis,)) for axis in axes}
        parts: list[tuple[tuple[str, ...], float]] = [
            ((names[axis],), squares(alone[axis], numbers.size)) for axis in axes
        ]
        for one, other in combinations(axes, 2):
            both = along(centred, (one, other)) - alone[one] - alone[other]
            parts.append(((names[one], names[other]), squares(both, numbers.size)))
        for settings, sum_of_squares in sorted(parts, key=lambda pair: -pair[1]):
            yield Share(metric, settings, sum_of_squares / total)


def along(centred: Array, kept: tuple[int, ...]) -> Array:
    """Return the means over all axes but some, which broadcast against the whole."""
    dropped = tuple(axis for axis in range(centred.ndim) if axis not in kept)
    means: Array = centred.mean(axis=dropped, keepdims=True)
    return means


def squares(means: Array, size: int) -> float:
    """Return the sum of squares of means, each as often as there are numbers in it."""
    return float((means**2).sum()) * size / means.size
