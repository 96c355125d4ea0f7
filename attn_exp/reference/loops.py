"""The reference: attention in scalar loops, with sums that are rounded once.

It was derived from the definition, independently of the forms, and shares only the rules with them. Every sum equals
the result of `math.fsum`, which rounds once, so it is as exact as double precision allows.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Sequence

from attn_exp.problem.problem import Heads
from attn_exp.rules.grid import Grid
from attn_exp.rules.rules import Rules

Vector = Sequence[float]
Matrix = Sequence[Vector]


def compute_weights(  # noqa: PLR0913 - a query and what determines its weights
    q: Matrix,
    k: Matrix,
    heads: int,
    head: int,
    row: int,
    position: int,
    rules: Rules,
    *,
    dots: Vector | None = None,
    subtracted: float | None = None,
) -> list[float]:
    """Return the weights of one query over all keys, from the `q` `[t d]` and `k` `[s d]` of one head.

    `row` is the index of the query, and `position` its position among the keys. `dots` are its dot products with the
    keys, if they are known already. `subtracted` is subtracted from every logit, rounded in the softmax dtype.
    """
    if rules.pairing is not None:
        dots = [rules.pairing.pair_twin(q[row], key, head) for key in k]
    masked = [rules.scale * product for product in dots or [dot(q[row], key) for key in k]]
    if rules.scores or rules.masks:
        grids = (Grid(0, head, row, position, key, heads, len(q), len(k)) for key in range(len(k)))
        masked = [mask_logit(logit, grid, rules) for logit, grid in zip(masked, grids, strict=True)]
    extras = [float(extra) for rule in rules.scores if (extra := rule.extra(head)) is not None]
    assert rules.normalizer.twin is not None
    if subtracted is not None:
        masked = [subtract_in(logit, subtracted, rules.softmax_dtype) for logit in masked]
        if rules.normalizer.exponential and not extras and max(masked, default=0.0) == -math.inf:
            # the subtraction overflowed for every key, and the softmax is 0 / 0
            return [math.nan] * len(masked)
    return rules.normalizer.twin(masked, extras)


def subtract_in(logit: float, number: float, dtype: str | None) -> float:
    """Return `logit - number`, rounded to float16, float32 or float64; overflow gives infinity."""
    code = {"float16": "<e", "float32": "<f"}.get(str(dtype), "<d")
    try:
        (rounded,) = struct.unpack(code, struct.pack(code, logit))
        (difference,) = struct.unpack(code, struct.pack(code, rounded - number))
    except OverflowError:
        return math.copysign(math.inf, logit - number)
    return float(difference)


def sees_key(keys: int, heads: int, head: int, row: int, position: int, rows: int, rules: Rules) -> bool:
    grids = (Grid(0, head, row, position, key, heads, rows, keys) for key in range(keys))
    return any(all(mask.allows(grid) for mask in rules.masks) for grid in grids)


def compute_linear_weights(  # noqa: PLR0913 - as above
    q: Matrix, k: Matrix, heads: int, head: int, row: int, position: int, rules: Rules, *, dots: Vector | None = None
) -> list[float]:
    """Return the weights of one query under kernel attention: `phi(q) . phi(k_j)`, normalized over the allowed keys."""
    grids = (Grid(0, head, row, position, key, heads, len(q), len(k)) for key in range(len(k)))
    is_allowed = [all(mask.allows(grid) for mask in rules.masks) for grid in grids]
    query = list(map(elu_plus_one, q[row]))
    products = [dot(query, list(map(elu_plus_one, key))) for key in k]
    products = [product if allowed else 0.0 for product, allowed in zip(products, is_allowed, strict=True)]
    total = math.fsum(products)
    return [product / total if total else 0.0 for product in products]


def elu_plus_one(number: float) -> float:
    """Return `elu(x) + 1`: `x + 1` above zero, `e^x` below."""
    return number + 1 if number > 0 else math.exp(number)


def mask_logit(logit: float, grid: Grid, rules: Rules) -> float:
    if not rules.bend_last:
        logit = bend(logit, rules)
    for rule in rules.scores:
        logit += float(rule.bias(grid) or 0.0)
    logit = logit if all(mask.allows(grid) for mask in rules.masks) else -math.inf
    return bend(logit, rules) if rules.bend_last else logit


def bend(logit: float, rules: Rules) -> float:
    for rule in rules.scores:
        logit = float(rule.bend(logit))
    return logit


def pool_key_heads(numbers: Vector, heads: Heads) -> list[float]:
    """Return the key/value heads that attention uses, given all heads of one token side by side; see `Heads.pool`."""
    groups, size = heads.shared, len(numbers) // heads.given
    if heads.pool == "first":
        return list(numbers[: groups * size])
    members = heads.given // groups
    return [
        math.fsum(numbers[(group * members + member) * size + feature] for member in range(members)) / members
        for group in range(groups)
        for feature in range(size)
    ]


def slice_head(numbers: Vector, heads: int, head: int) -> Vector:
    size = len(numbers) // heads
    return numbers[head * size : (head + 1) * size]


def dot(left: Vector, right: Vector) -> float:
    """Return `sum_i a_i b_i`."""
    if len(left) != len(right):
        raise ValueError(f"cannot multiply vectors of {len(left)} and {len(right)} numbers")
    return math.fsum(map(operator.mul, left, right))
