"""The oracle: attention with scalar loops, Python floats and `math` alone.

It was derived from the definition, apart from the forms, and shares nothing with them but the rules. Every sum is
`fsum`, which rounds once, so an answer is as close to the exact one as double precision lets a reader check.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from attn_exp.rules.grid import Grid
from attn_exp.rules.rules import Rules

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

    `q` holds the heads side by side: head i owns the numbers from `i d` to `(i + 1) d`. `k` holds one such part for
    every group of query heads that share it.
    """
    query, groups = part(q[row], heads, head), len(k[0]) * heads // len(q[0])
    masked = []
    for key, numbers in enumerate(k):
        place = Grid(0, head, row, position, key, heads, len(q), len(k))
        masked.append(judge(rules.scale * dot(query, part(numbers, groups, head * groups // heads)), place, rules))
    extras = [float(extra) for rule in rules.scores if (extra := rule.extra(head)) is not None]
    return NORMALIZERS[rules.normalizer](masked, extras)


def linear_weights(q: Matrix, k: Matrix, heads: int, head: int, row: int, position: int, rules: Rules) -> list[float]:
    """Return the weights of one query under kernel attention: `phi(q) . phi(k_j)`, over their sum where allowed."""
    query, groups = part(q[row], heads, head), len(k[0]) * heads // len(q[0])
    shares = []
    for key, numbers in enumerate(k):
        place = Grid(0, head, row, position, key, heads, len(q), len(k))
        seen = all(mask.allows(place) for mask in rules.masks)
        mine = part(numbers, groups, head * groups // heads)
        shares.append(dot([above_zero(a) for a in query], [above_zero(b) for b in mine]) if seen else 0.0)
    total = math.fsum(shares)
    return [share / total if total else 0.0 for share in shares]


def above_zero(number: float) -> float:
    """Return `elu(x) + 1`: `x + 1` above zero, `e^x` below."""
    return number + 1 if number > 0 else math.exp(number)


def context(weights: Vector, v: Matrix, groups: int, group: int) -> list[float]:
    """Return `sum_j w_j v_j` for one query of a head that reads this group.

    A key of weight zero adds nothing, whatever its value.
    """
    values = [part(row, groups, group) for row in v]
    return [
        math.fsum(weight * value[e] for weight, value in zip(weights, values, strict=True) if weight)
        for e in range(len(values[0]))
    ]


def judge(logit: float, place: Grid, rules: Rules) -> float:
    """Return the logit after the score rules, or -inf where a mask forbids the place."""
    if not rules.bend_last:
        logit = bent(logit, rules)
    for rule in rules.scores:
        logit += float(rule.bias(place) or 0.0)
    logit = logit if all(mask.allows(place) for mask in rules.masks) else -math.inf
    return bent(logit, rules) if rules.bend_last else logit


def bent(logit: float, rules: Rules) -> float:
    for rule in rules.scores:
        logit = float(rule.bend(logit))
    return logit


def softmax(logits: Vector, extras: Vector = ()) -> list[float]:
    """Return `exp(l_j) / (sum_j exp(l_j) + sum exp(extra))`; zeros where every logit is -inf."""
    largest = max((*logits, *extras))
    if largest == -math.inf:
        return [0.0] * len(logits)
    powers = [math.exp(logit - largest) for logit in logits]
    total = math.fsum((*powers, *(math.exp(extra - largest) for extra in extras)))
    return [power / total for power in powers]


def sigmoid(logits: Vector, extras: Vector = ()) -> list[float]:
    """Return `1 / (1 + exp(-l_j))`, written so that no power overflows."""
    return [(1 + math.tanh(logit / 2)) / 2 if logit > -30 else math.exp(logit) for logit in logits]


def sparsemax(logits: Vector, extras: Vector = ()) -> list[float]:
    """Return `max(0, l_j - tau)` that sums to 1: drop what falls below the threshold of the rest until nothing does."""
    support = [logit for logit in (*logits, *extras) if logit > -math.inf]
    while support:
        tau = (math.fsum(support) - 1) / len(support)
        kept = [logit for logit in support if logit > tau]
        if len(kept) == len(support):
            return [max(0.0, logit - tau) for logit in logits]
        support = kept
    return [0.0] * len(logits)


NORMALIZERS = {"softmax": softmax, "sigmoid": sigmoid, "sparsemax": sparsemax}


def sinusoid(position: int, column: int, width: int, base: float) -> float:
    """Return the number that sinusoidal positions add: `sin(p w_i)` in column 2i, `cos(p w_i)` in 2i+1."""
    angle = position * math.pow(base, -(column - column % 2) / width)
    return math.cos(angle) if column % 2 else math.sin(angle)


def turned(numbers: Vector, position: float, base: float, interleaved: bool, size: int) -> list[float]:
    """Return a query or key with pair p, `(a, b)`, as the complex number `(a + bi) e^(i position / base^(2p/size))`."""
    result = list(numbers)
    for pair in range(size // 2):
        angle = position * math.pow(base, -2 * pair / size)
        one, other = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + size // 2)
        point = complex(numbers[one], numbers[other]) * complex(math.cos(angle), math.sin(angle))
        result[one], result[other] = point.real, point.imag
    return result


def shared(numbers: Vector, heads: int, groups: int) -> list[float]:
    """Return one mean head for each group of neighbouring heads."""
    each = heads // groups
    size = len(numbers) // heads
    return [
        math.fsum(numbers[(group * each + member) * size + place] for member in range(each)) / each
        for group in range(groups)
        for place in range(size)
    ]


def part(numbers: Vector, heads: int, head: int) -> Vector:
    """Return the numbers that belong to one head."""
    size = len(numbers) // heads
    return numbers[head * size : (head + 1) * size]


def dot(left: Vector, right: Vector) -> float:
    return math.fsum(a * b for a, b in zip(left, right, strict=True))
