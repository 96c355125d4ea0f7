"""The oracle: attention with scalar loops, Python floats and `math` alone.

It was derived from the definition, apart from the forms, and shares nothing with them but the rules. Every sum is
`fsum`, which rounds once, so an answer is as close to the exact one as double precision lets a reader check.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Sequence
from itertools import compress

from attn_exp.problem.problem import Heads
from attn_exp.rules.grid import Grid
from attn_exp.rules.rules import Rules

Vector = Sequence[float]
Matrix = Sequence[Vector]


def project(x: Matrix, weight: Matrix, bias: Vector | None) -> list[list[float]]:
    """Return `y_ij = sum_m x_im W_mj + b_j`."""
    columns = list(zip(*weight, strict=True))
    return [[dot(row, column) + (0.0 if bias is None else bias[j]) for j, column in enumerate(columns)] for row in x]


def weights(  # noqa: PLR0913 - a query by its place, and what it is asked
    q: Matrix,
    k: Matrix,
    heads: int,
    head: int,
    row: int,
    position: int,
    rules: Rules,
    *,
    taken: float | None = None,
) -> list[float]:
    """Return the weights of one query of one head over all keys.

    `q` holds the heads side by side: head i owns the numbers from `i d` to `(i + 1) d`. `k` holds one such part for
    every group of query heads that share it. `taken` is taken from every logit in the type of the softmax, and rounded.
    """
    query, keys = sides_of(q, k, heads, head, row)
    pair = rules.pairing.pair_twin if rules.pairing is not None else lambda one, other, head: dot(one, other)
    masked = [rules.scale * pair(query, numbers, head) for numbers in keys]
    if rules.scores or rules.masks:
        places = (Grid(0, head, row, position, key, heads, len(q), len(k)) for key in range(len(k)))
        masked = [judge(logit, place, rules) for logit, place in zip(masked, places, strict=True)]
    extras = [float(extra) for rule in rules.scores if (extra := rule.extra(head)) is not None]
    assert rules.normalizer.twin is not None
    if taken is not None:
        masked = [less(logit, taken, rules.softmax_dtype) for logit in masked]
        if rules.normalizer.exponential and not extras and max(masked, default=0.0) == -math.inf:
            return [math.nan] * len(masked)
    return rules.normalizer.twin(masked, extras)


def less(logit: float, taken: float, kind: str | None) -> float:
    """Return a logit less a number, as a type of 16, 32 or 64 bits holds it; what is too large for it is infinite."""
    code = {"float16": "<e", "float32": "<f"}.get(str(kind), "<d")
    try:
        (rounded,) = struct.unpack(code, struct.pack(code, logit))
        (left,) = struct.unpack(code, struct.pack(code, rounded - taken))
    except OverflowError:
        return math.copysign(math.inf, logit - taken)
    return float(left)


def sees(keys: int, heads: int, head: int, row: int, position: int, rows: int, rules: Rules) -> bool:
    """Say whether the masks let a query see any key, whatever its weight may be."""
    places = (Grid(0, head, row, position, key, heads, rows, keys) for key in range(keys))
    return any(all(mask.allows(place) for mask in rules.masks) for place in places)


def linear_weights(q: Matrix, k: Matrix, heads: int, head: int, row: int, position: int, rules: Rules) -> list[float]:
    """Return the weights of one query under kernel attention: `phi(q) . phi(k_j)`, over their sum where allowed."""
    query, keys = sides_of(q, k, heads, head, row)
    places = (Grid(0, head, row, position, key, heads, len(q), len(k)) for key in range(len(k)))
    seen = [all(mask.allows(place) for mask in rules.masks) for place in places]
    shares = [dot(list(map(above_zero, query)), list(map(above_zero, key))) for key in keys]
    shares = [share if is_seen else 0.0 for share, is_seen in zip(shares, seen, strict=True)]
    total = math.fsum(shares)
    return [share / total if total else 0.0 for share in shares]


def sides_of(q: Matrix, k: Matrix, heads: int, head: int, row: int) -> tuple[Vector, list[Vector]]:
    """Return one query of one head, and the keys that this head reads."""
    groups = len(k[0]) * heads // len(q[0])
    return part(q[row], heads, head), [part(numbers, groups, head * groups // heads) for numbers in k]


def above_zero(number: float) -> float:
    """Return `elu(x) + 1`: `x + 1` above zero, `e^x` below."""
    return number + 1 if number > 0 else math.exp(number)


def context(weights: Vector, v: Matrix, groups: int, group: int) -> list[float]:
    """Return `sum_j w_j v_j` for one query of a head that reads this group.

    A key of weight zero adds nothing, whatever its value.
    """
    seen = [weight for weight in weights if weight]
    columns = zip(*(part(row, groups, group) for row in v), strict=True)
    return [dot(seen, list(compress(column, weights))) for column in columns]


def judge(logit: float, place: Grid, rules: Rules) -> float:
    """Return the logit after the score rules, or -inf where a mask forbids the place."""
    if not rules.bend_last:
        logit = bent(logit, rules)
    for rule in rules.scores:
        logit += float(rule.bias(place) or 0.0)
    logit = logit if all(mask.allows(place) for mask in rules.masks) else -math.inf
    return bent(logit, rules) if rules.bend_last else logit


def bent(logit: float, rules: Rules) -> float:
    """Return a logit after every rule that bends it, in order."""
    for rule in rules.scores:
        logit = float(rule.bend(logit))
    return logit


def shared(numbers: Vector, heads: Heads) -> list[float]:
    """Return the key/value heads of one token that attention uses, side by side, as `Heads.pool` says."""
    groups, size = heads.shared, len(numbers) // heads.given
    if heads.pool == "first":
        return list(numbers[: groups * size])
    members = heads.given // groups
    return [
        math.fsum(numbers[(group * members + member) * size + place] for member in range(members)) / members
        for group in range(groups)
        for place in range(size)
    ]


def part(numbers: Vector, heads: int, head: int) -> Vector:
    """Return the numbers that belong to one head."""
    size = len(numbers) // heads
    return numbers[head * size : (head + 1) * size]


def dot(left: Vector, right: Vector) -> float:
    """Return `sum_i a_i b_i`."""
    if len(left) != len(right):
        raise ValueError(f"{len(left)} numbers and {len(right)} have no product")
    return math.fsum(map(operator.mul, left, right))
