"""Holds a rule from outside the package to the outcome that its file draws by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attn_exp.rules.example import Example
from attn_exp.rules.grid import Array
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.normalizers.normalizer import Normalizer
from attn_exp.rules.positions.position import Position
from attn_exp.rules.rules import Rules, whole_grid
from attn_exp.rules.scores.score import Score

SEEN, UNSEEN = "█", "·"


def difference(group: str, rule: Any, example: Example) -> str:
    """Return how the outcome of a rule differs from the one drawn, in a few words; nothing where it does not.

    `rule` is a mask, score rule or position with the settings of the example, or a normalizer.
    """
    return mask_difference(rule, example) if group == "mask" else numbers_difference(group, rule, example)


def mask_difference(rule: Mask, example: Example) -> str:
    """Return the first query that sees other keys than are drawn."""
    drawn = list(example.outcome)
    if not drawn or any(set(row) - {SEEN, UNSEEN} or len(row) != len(drawn[0]) for row in drawn):
        return f"its rows must be of {SEEN} and {UNSEEN}, all of one length"
    shape = example.heads, len(drawn), len(drawn[0])
    allowed = np.broadcast_to(rule.allows(whole_grid(Rules(offset=example.offset), *shape)), shape)[example.head]
    for place, (row, expected) in enumerate(zip(allowed, drawn, strict=True)):
        seen = "".join(SEEN if key else UNSEEN for key in row)
        if seen != expected:
            return f"query {place} sees {seen}, drawn is {expected}"
    return ""


def numbers_difference(group: str, rule: Any, example: Example) -> str:
    """Return the first number that is not the one written."""
    got, expected = np.asarray(OUTCOMES[group](rule, example), float), np.asarray(example.outcome, float)
    if got.shape != expected.shape:
        return f"its shape is {list(got.shape)}, written is {list(expected.shape)}"
    apart = ~np.isclose(got, expected, rtol=0, atol=0.51 * 10.0**-example.decimals, equal_nan=True)
    if not apart.any():
        return ""
    place = tuple(int(axis[0]) for axis in np.nonzero(apart))
    return f"row {place[0]}, column {place[-1]} is {got[place]:.{example.decimals}g}, written is {expected[place]:.12g}"


def started(rule: Score, example: Example, rows: int, keys: int) -> Array:
    """Return the logits that a score rule starts from: those given, or what it makes of queries and keys."""
    if rule.pairs:
        return rule.pair(given(example), np.array(example.keys, float), example.head)
    return given(example) if example.given else np.zeros((rows, keys))


def scored(rule: Score, example: Example) -> Array:
    """Return rows of logits after a score rule, the extra logit last where it has one."""
    extra = rule.extra(example.head)
    rows, keys = len(example.outcome), len(example.outcome[0]) - (extra is not None)
    logits = started(rule, example, rows, keys)
    bias = rule.bias(whole_grid(Rules(offset=example.offset), example.heads, rows, keys))
    shape = example.heads, rows, keys
    changed = np.asarray(rule.bend(logits) + np.broadcast_to(0.0 if bias is None else bias, shape)[example.head])
    return changed if extra is None else np.column_stack([changed, np.full(rows, extra)])


def placed(rule: Position, example: Example) -> Array:
    """Return rows of x, or of one head, after a position."""
    return rule.turn(rule.embed(given(example)), np.arange(len(example.given)) + example.offset)


def weighed(rule: Normalizer, example: Example) -> Array:
    """Return rows of weights of rows of logits."""
    return rule.weigh(given(example), None)


def given(example: Example) -> Array:
    """Return the rows that an example starts from."""
    rows: Sequence[Sequence[float]] = example.given
    return np.array(rows, float)


OUTCOMES: dict[str, Callable[[Any, Example], Array]] = {"score": scored, "position": placed, "normalizer": weighed}
