"""Many sums at once, each rounded once: to the bit what `math.fsum` says of each."""

from __future__ import annotations

import math

import numpy as np

from attn_exp.arrays import Array

UNIT = 2.0**-53
"""The largest relative error of one rounding."""


def exact_sums(terms: Array) -> Array:
    """Return the sums of the last axis `[... n] -> [...]`, each the float nearest to the exact sum.

    Each addition is kept in two floats, its result and what that lost (Knuth's TwoSum), and what was lost is summed
    beside: Ogita, Rump and Oishi 2005, "Accurate Sum and Dot Product", algorithm 4.4. Their bound of its error says
    where no other float can be nearest; the few other sums, and those that are not finite, are left to `math.fsum`.
    """
    with np.errstate(all="ignore"):
        total, lost, size = added(terms)
        nearest, rest = two_sum(total, lost)
        error = size * UNIT * (terms.shape[-1] + 2)
        up, down = (np.nextafter(nearest, end) for end in (np.inf, -np.inf))
        sure = (rest + error < 0.5 * (up - nearest)) & (rest - error > 0.5 * (down - nearest))
    sums = nearest + 0.0  # no negative zero
    for place in np.argwhere(~sure):
        sums[tuple(place)] = math.fsum(terms[tuple(place)].tolist())
    return np.asarray(sums)


def added(terms: Array) -> tuple[Array, Array, Array]:
    """Return the rounded sum of the last axis, what its additions lost, summed, and the sum of the sizes of that."""
    total = terms[..., 0]
    lost, size = np.zeros_like(total), np.zeros_like(total)
    for place in range(1, terms.shape[-1]):
        total, rest = two_sum(total, terms[..., place])
        lost, size = lost + rest, size + np.abs(rest)
    return total, lost, size


def two_sum(one: Array, other: Array) -> tuple[Array, Array]:
    """Return the rounded sum of two floats and what it lost, which is a float too. Source: Knuth, TAOCP 4.2.2."""
    total = one + other
    part = total - one
    return total, (one - (total - part)) + (other - part)
