"""The oracle: attention with scalar loops, Python floats and `math` alone.

It was derived from the definition, apart from the forms, and shares nothing with them but the rules. Every sum is
`fsum`, which rounds once, so an answer is as close to the exact one as double precision lets a reader check.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from attn_exp.rules.rule import Grid, Rules

Vector = Sequence[float]
Matrix = Sequence[Vector]


def project(x: Matrix, weight: Matrix, bias: Vector | None) -> list[list[float]]:
    """Return `y_ij = sum_m x_im W_mj + b_j`."""
    return [
        [dot(row, [line[j] for line in weight]) + (0.0 if bias is None else bias[j]) for j in range(len(weight[0]))]
        for row in x
    ]


def weights(q: Matrix, k: Matrix, heads: int, head: int, row: int, position: int, rules: Rules) -> list[float]:
    """Return the weights of one query of one head over all keys.

    `q` and `k` hold the heads side by side: head i owns the numbers from `i d` to `(i + 1) d`.
    """
    query = part(q[row], heads, head)
    masked = []
    for key, numbers in enumerate(k):
        place = Grid(0, head, row, position, key, heads, len(q), len(k))
        masked.append(judge(rules.scale * dot(query, part(numbers, heads, head)), place, rules))
    extras = [float(extra) for rule in rules.scores if (extra := rule.extra(head)) is not None]
    return softmax(masked, extras)


def context(weights: Vector, v: Matrix, heads: int, head: int) -> list[float]:
    """Return `sum_j w_j v_j` for one query of one head; a key of weight zero adds nothing, whatever its value."""
    values = [part(row, heads, head) for row in v]
    return [
        math.fsum(weight * value[e] for weight, value in zip(weights, values, strict=True) if weight)
        for e in range(len(values[0]))
    ]


def judge(logit: float, place: Grid, rules: Rules) -> float:
    """Return the logit after the score rules, or -inf where a mask forbids the place."""
    for rule in rules.scores:
        logit = float(rule.bend(logit))
    for rule in rules.scores:
        logit += float(rule.bias(place) or 0.0)
    return logit if all(mask.allows(place) for mask in rules.masks) else -math.inf


def softmax(logits: Vector, extras: Vector = ()) -> list[float]:
    """Return `exp(l_j) / (sum_j exp(l_j) + sum exp(extra))`; zeros where every logit is -inf."""
    largest = max((*logits, *extras))
    if largest == -math.inf:
        return [0.0] * len(logits)
    powers = [math.exp(logit - largest) for logit in logits]
    total = math.fsum((*powers, *(math.exp(extra - largest) for extra in extras)))
    return [power / total for power in powers]


def part(numbers: Vector, heads: int, head: int) -> Vector:
    """Return the numbers that belong to one head."""
    size = len(numbers) // heads
    return numbers[head * size : (head + 1) * size]


def dot(left: Vector, right: Vector) -> float:
    return math.fsum(a * b for a, b in zip(left, right, strict=True))
