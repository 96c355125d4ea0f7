"""Rules from outside the package: held to the outcome that their file draws by hand, or stood in for.

A run on disk may name a rule whose code is not at hand; it is shown without running any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import UserError
from attn_exp.rules.example import Example
from attn_exp.rules.grid import Grid
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
    if group == "mask":
        return mask_difference(rule, example)
    said = numbers_difference(OUTCOMES[group](rule, example), example.outcome, example.decimals)
    if said or group != "position" or not (len(example.keys) or len(example.keys_after)):
        return said
    keys = rule.turn_key(np.array(example.keys, float), np.arange(len(example.keys)) + example.offset)
    said = numbers_difference(keys, example.keys_after, example.decimals)
    return f"of its keys, {said}" if said else ""


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


def numbers_difference(numbers: Array, written: Sequence[Any], decimals: int) -> str:
    """Return the first number that is not the one written."""
    got, expected = np.asarray(numbers, float), np.asarray(written, float)
    if got.shape != expected.shape:
        return f"its shape is {list(got.shape)}, written is {list(expected.shape)}"
    apart = ~np.isclose(got, expected, rtol=0, atol=0.51 * 10.0**-decimals, equal_nan=True)
    if not apart.any():
        return ""
    place = tuple(int(axis[0]) for axis in np.nonzero(apart))
    return f"row {place[0]}, column {place[-1]} is {got[place]:.{decimals}g}, written is {expected[place]:.12g}"


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


def refuse(name: str) -> NoReturn:
    """Refuse to compute with a rule of which only the name is known.

    Raises:
        UserError: always.
    """
    raise UserError(f"{name} is code from outside the package, and the command line does not name its file: --with")


@dataclass(frozen=True)
class AbsentMask(Mask):
    """A mask that is known by its name alone."""

    stands_for: str

    def allows(self, grid: Grid) -> Array | bool:
        refuse(f"mask={self.stands_for}")


@dataclass(frozen=True)
class AbsentScore(Score):
    """A score rule that is known by its name alone."""

    stands_for: str

    def bend(self, logits: Any) -> Any:
        refuse(f"score={self.stands_for}")


@dataclass(frozen=True)
class AbsentPosition(Position):
    """A position that is known by its name alone."""

    stands_for: str

    def embed(self, x: Array) -> Array:
        refuse(f"position={self.stands_for}")


ABSENT = {"mask": AbsentMask, "score": AbsentScore, "position": AbsentPosition}


def absent_rule(group: str, name: str) -> Any:
    """Return what stands in for a mask, a score rule or a position of that name."""
    return ABSENT[group](name)


def absent_normalizer(name: str) -> Normalizer:
    """Return what stands in for a normalizer of that name."""

    def weigh(logits: Array, extra: Array | None) -> Array:
        refuse(f"normalizer={name}")

    weigh.__name__ = name
    return Normalizer(weigh, takes_extra=True)
