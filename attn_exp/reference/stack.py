"""The reference for problems that differ only in their seed: bit-identical to what `oracle` returns for each.

The formulas are those of `loops`, rounded where those round: products, whole sums, and powers by `math.exp`. Rules are
evaluated place by place and positions vector by vector, as there. Anything but a plain softmax is computed one problem
at a time, and the loops check one problem of every stack computed with arrays: its first and its last query.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

import numpy as np

from attn_exp.arrays import Array, Shape
from attn_exp.forms.trace import ApartError
from attn_exp.problem.problem import Heads, Problem, one
from attn_exp.reference import loops, oracle
from attn_exp.reference.oracle import Answer, Question
from attn_exp.rules.grid import Grid
from attn_exp.rules.positions.position import unchanged
from attn_exp.rules.rules import Rules

Sides = tuple[Array, Array, Array]


UNIT = 2.0**-53
"""The largest relative error of one rounding."""

ENDS = [0, -1]
"""The queries of the last problem of a stack that the loops check."""


def answers(questions: Mapping[str, Question], problem: Problem, count: int) -> dict[str, Answer]:
    """Return the answer to each question by its name, as `oracle.answers`: `weights` `[n h r s]`, `output` `[n r m]`.

    `problem` holds `count` problems, each array `[n ...]`.

    Raises:
        ApartError: the arrays and the loops disagree.
    """
    return oracle.answers(questions, problem, functools.partial(ask, count=count), projected)


def plain(question: Question, problem: Problem) -> bool:
    """Say whether arrays can compute a question for all seeds at once: a softmax of masked products."""
    given = problem.weights is None and problem.q is not None and problem.k is not None and problem.v is not None
    usual = question.weights == "logits" and question.rules.plain
    return given and usual and question.empty == "zeros" and not question.tiled


def ask_one_by_one(question: Question, problem: Problem, count: int) -> Answer:
    told = [oracle.ask(question, one(problem, place)) for place in range(count)]
    outputs = [answer.output for answer in told if answer.output is not None]
    return Answer(told[0].rows, np.stack([answer.weights for answer in told]), np.stack(outputs) if outputs else None)


def ask(question: Question, problem: Problem, sides: Sides | None, count: int) -> Answer:
    if sides is None or not plain(question, problem):  # the sides may come from another question
        return ask_one_by_one(question, problem, count)
    answer, last = ask_at_once(question, problem, sides), tuple(side[-1].tolist() for side in sides)
    sample = oracle.ask(question, one(problem, -1), last, (answer.rows[0], answer.rows[-1]))
    assert answer.output is not None and sample.output is not None
    held = np.array_equal(answer.weights[-1][:, ENDS], sample.weights)
    if not (held and np.array_equal(answer.output[-1][ENDS], sample.output)):
        raise ApartError
    return answer


def ask_at_once(question: Question, problem: Problem, sides: Sides) -> Answer:
    (q, k, v), shares = placed(question, sides, problem.past), question.heads
    mixed = question.output_projection and bool(problem.projections)
    mixing = problem.projections["W_o"][0].size if mixed else 0
    rows = oracle.checked_rows(len(problem.tokens), one(problem, 0), mixing)
    queries = split_heads(q, shares.query)
    keys, values = (
        np.repeat(split_heads(side, shares.shared), shares.query // shares.shared, axis=1) for side in (k, v)
    )
    scores = exact_sums(queries[:, :, list(rows), None] * keys[:, :, None])
    weights = weights_of(question.rules.scale * scores, rows, len(problem.tokens), question.rules)
    context = exact_sums(weights[..., None, :] * values.swapaxes(-1, -2)[:, :, None])
    output = context.swapaxes(1, 2).reshape(len(context), len(rows), -1)
    return Answer(rows, weights, project(output, problem, "o") if mixed else output)


def projected(question: Question, problem: Problem) -> Sides | None:
    """Return q, k and v, projected by the reference where `oracle.projected` does it too, or None if not plain."""
    if not plain(question, problem):
        return None
    assert problem.q is not None and problem.k is not None and problem.v is not None
    embedded = any(position.changes_x for position in question.positions)
    sides = [side[0] for side in (problem.x, problem.memory) if side is not None]
    if problem.x is None or not (embedded or 3 * sum(side.size * side.shape[1] for side in sides) <= oracle.BUDGET):
        return problem.q, problem.k, problem.v
    x = marked(question, problem.x)
    source, new = x if problem.memory is None else marked(question, problem.memory), x[:, problem.past :]
    return project(new, problem, "q"), project(source, problem, "k"), project(source, problem, "v")


def marked(question: Question, x: Array) -> Array:
    if not any(position.changes_x for position in question.positions):
        return x
    return np.array([oracle.marked(question, vectors) for vectors in x.tolist()])


def placed(question: Question, sides: Sides, past: int) -> Sides:
    """Return q, k and v with heads pooled and positions encoded, as `oracle.placed`."""
    (q, k, v), shares = sides, question.heads
    k, v = (shared(side, shares) for side in (k, v))
    for twin in oracle.twins(question):
        q = turned(q, shares.query, twin.turn, past if past else int(question.rules.offset))
        k = turned(k, shares.shared, twin.turn_key, 0)
    return q, k, v


def turned(side: Array, heads: int, turn: oracle.Turn, offset: int) -> Array:
    if turn is unchanged:
        return side
    return np.array([oracle.turned(vectors, heads, turn, offset) for vectors in side.tolist()])


def project(x: Array, problem: Problem, letter: str) -> Array:
    """Return `x W + b`, checked by `loops.project` on the first and the last row of the last problem.

    Raises:
        ApartError: they differ.
    """
    weight, bias = problem.projections[f"W_{letter}"], problem.projections.get(f"b_{letter}")
    product = exact_sums(x[:, :, None] * weight.swapaxes(-1, -2)[:, None])
    product = product if bias is None else product + bias[:, None]
    sample = loops.project(x[-1][ENDS].tolist(), weight[-1].tolist(), None if bias is None else bias[-1].tolist())
    if not np.array_equal(product[-1][ENDS], sample):
        raise ApartError
    return product


def shared(side: Array, heads: Heads) -> Array:
    """Return the pooled key/value heads side by side `[n s g*d]`, one problem after the other."""
    if heads.given == heads.shared:
        return side
    return np.array([[loops.shared(row, heads) for row in vectors] for vectors in side.tolist()])


def split_heads(side: Array, heads: int) -> Array:
    """Reshape `[n t h*d]` to `[n h t d]`."""
    return side.reshape(*side.shape[:2], heads, -1).swapaxes(1, 2)


def weights_of(logits: Array, rows: Shape, count: int, rules: Rules) -> Array:
    """Return weights of logits `[n h r s]`, biased and masked as `loops.mask_logit`, normalized as `softmax.twin`."""
    shape = (logits.shape[1], len(rows), logits.shape[-1])
    grids = [
        Grid(0, head, rows[place], rows[place] + int(rules.offset), key, shape[0], count, shape[-1])
        for head, place, key in np.ndindex(shape)
    ]
    for rule in rules.scores:
        logits = logits + np.array([float(rule.bias(grid) or 0.0) for grid in grids]).reshape(shape)
    allowed = np.array([all(mask.allows(grid) for mask in rules.masks) for grid in grids]).reshape(shape)
    extras = [[rule.extra(head) for rule in rules.scores if rule.extra(head) is not None] for head in range(shape[0])]
    more = np.broadcast_to(np.array(extras, np.float64)[:, None], (*logits.shape[:-1], len(extras[0])))
    masked = np.concatenate([np.where(allowed, logits, -np.inf), more], axis=-1)
    largest = masked.max(axis=-1, keepdims=True)
    shifted = masked - np.where(np.isneginf(largest), 0.0, largest)
    powers = np.array(list(map(math.exp, shifted.ravel().tolist()))).reshape(shifted.shape)
    total = exact_sums(powers)[..., None]
    return np.asarray(powers[..., : shape[-1]] / np.where(total == 0, 1.0, total))


def exact_sums(terms: Array) -> Array:
    """Return the sums of the last axis `[... n] -> [...]`, each the float nearest to the exact sum.

    Each addition is kept in two floats, its result and its rounding error (Knuth's TwoSum), and the errors are summed
    apart: Ogita, Rump and Oishi 2005, "Accurate Sum and Dot Product", algorithm 4.4. Their error bound says where no
    other float can be nearest; the few other sums, and those that are not finite, are left to `math.fsum`.
    """
    with np.errstate(all="ignore"):
        total, lost, size = sum_with_error(terms)
        nearest, rest = two_sum(total, lost)
        error = size * UNIT * (terms.shape[-1] + 2)
        up, down = (np.nextafter(nearest, end) for end in (np.inf, -np.inf))
        sure = (rest + error < 0.5 * (up - nearest)) & (rest - error > 0.5 * (down - nearest))
    sums = nearest + 0.0  # no negative zero
    for place in np.argwhere(~sure):
        sums[tuple(place)] = math.fsum(terms[tuple(place)].tolist())
    return np.asarray(sums)


def sum_with_error(terms: Array) -> tuple[Array, Array, Array]:
    """Return the rounded sum of the last axis, the sum of its rounding errors, and the sum of their magnitudes."""
    total = terms[..., 0]
    lost, size = np.zeros_like(total), np.zeros_like(total)
    for place in range(1, terms.shape[-1]):
        total, rest = two_sum(total, terms[..., place])
        lost, size = lost + rest, size + np.abs(rest)
    return total, lost, size


def two_sum(one: Array, other: Array) -> tuple[Array, Array]:
    """Return the rounded sum of two floats and its rounding error, which is a float too. Source: Knuth, TAOCP 4.2.2."""
    total = one + other
    part = total - one
    return total, (one - (total - part)) + (other - part)
