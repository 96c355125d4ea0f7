"""Rules from outside the package: checked against their example, guarded when called, or replaced by a placeholder.

Forms, the reference and the pages call rules in many places, and none of them expects a mask to raise, to return
numbers instead of booleans, or to return another shape. So each method that an outside class defines is wrapped in a
guard, which reports a violation as a user's mistake with the name of the rule. A stored run may name a rule whose code
is not available; a placeholder shows it without running any.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import UserError
from attn_exp.own_code import THIS_PACKAGE, error_line, held
from attn_exp.rules.example import Example
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.normalizers.normalizer import Normalizer
from attn_exp.rules.positions.position import Position
from attn_exp.rules.rules import Rules, whole_grid
from attn_exp.rules.scores.score import Score

SEEN, UNSEEN = "█", "·"


def difference(group: str, rule: Any, example: Example) -> str:
    """Return how a rule differs from its example, in a few words, or an empty text.

    `rule` is a mask, score rule or position with the settings of the example, or a normalizer.
    """
    if group == "mask":
        return mask_difference(rule, example)
    said = numbers_difference(outcome(group, rule, example), example.outcome, example.decimals)
    if said or group != "position" or not (len(example.keys) or len(example.keys_after)):
        return said
    keys = rule.turn_key(np.array(example.keys, float), np.arange(len(example.keys)) + example.offset)
    said = numbers_difference(keys, example.keys_after, example.decimals)
    return f"of its keys, {said}" if said else ""


def mask_difference(rule: Mask, example: Example) -> str:
    drawn = list(example.outcome)
    if not drawn or any(set(row) - {SEEN, UNSEEN} or len(row) != len(drawn[0]) for row in drawn):
        return f"its rows must be of {SEEN} and {UNSEEN}, all of one length"
    for place, (row, expected) in enumerate(zip(outcome("mask", rule, example), drawn, strict=True)):
        seen = "".join(SEEN if key else UNSEEN for key in row)
        if seen != expected:
            return f"query {place} sees {seen}, expected {expected}"
    return ""


def outcome(group: str, rule: Any, example: Example) -> Array:
    """Return the result of a rule on its example: visible places, logits (an extra one last), rows of x, or weights."""
    given = np.array(example.given, float)
    if group == "normalizer":
        return np.asarray(rule.weigh(given, None))
    if group == "position":
        return np.asarray(rule.turn(rule.embed(given), np.arange(len(given)) + example.offset))
    extra = None if group == "mask" else rule.extra(example.head)
    shape = example.heads, len(example.outcome), len(example.outcome[0]) - (extra is not None)
    grid = whole_grid(Rules(offset=example.offset), *shape)
    if group == "mask":
        return np.asarray(np.broadcast_to(rule.allows(grid), shape)[example.head])
    logits = given if example.given else np.zeros(shape[1:])
    logits = rule.pair(given, np.array(example.keys, float), example.head) if rule.pairs else logits
    bias = rule.bias(grid)
    changed = rule.bend(logits) + np.broadcast_to(0.0 if bias is None else bias, shape)[example.head]
    return np.asarray(changed) if extra is None else np.column_stack([changed, np.full(len(changed), extra)])


def numbers_difference(numbers: Array, written: Sequence[Any], decimals: int) -> str:
    got, expected = np.asarray(numbers, float), np.asarray(written, float)
    if got.shape != expected.shape:
        return f"its shape is {list(got.shape)}, expected {list(expected.shape)}"
    wrong = np.argwhere(~np.isclose(got, expected, rtol=0, atol=0.51 * 10.0**-decimals, equal_nan=True))
    if not len(wrong):
        return ""
    place = tuple(wrong[0])
    return f"row {place[0]}, column {place[-1]} is {got[place]:.{decimals}g}, expected {expected[place]:.12g}"


Misfit = Callable[[tuple[Any, ...], Any], str]
"""Describes what is wrong with a result for some arguments; empty if nothing is."""


def hold_methods(kind: type, name: str, group: str) -> None:
    """Wrap every public method that an outside class defines in a guard, once.

    `name` and `group` are the setting names of the rule and its kind, such as `wide` and `mask`.
    """
    for place in kind.__mro__:
        if place.__module__.partition(".")[0] in (THIS_PACKAGE, "builtins", "abc", "typing"):
            continue
        for word, method in list(vars(place).items()):
            if inspect.isfunction(method) and not word.startswith("_") and method.__globals__ is not globals():
                setattr(place, word, guarded(method, f"{group}={name}", MISFITS.get(word)))


def guarded(
    function: Callable[..., Any],
    name: str,
    misfit: Misfit | None = None,
    kind: type[UserError] = UserError,
    passes: type[Exception] = UserError,
) -> Callable[..., Any]:
    """Wrap a function so that errors and results with a misfit raise `kind`, a UserError.

    Exceptions of type `passes`, which its contract allows, are not converted.
    """

    @functools.wraps(function)
    def asked(*given: Any, **more: Any) -> Any:
        try:
            with held():
                said = function(*given, **more)
                wrong = "" if misfit is None else misfit(given, said)
        except (UserError, passes):
            raise
        except Exception as error:
            raise kind(f"{name}: {error_line(error)}") from error
        if wrong:
            raise kind(f"{name}: {function.__name__} returns {wrong}")
        return said

    return asked


def values_misfit(given: tuple[Any, ...], said: Any, kinds: str = "fiub", expected: str = "real numbers") -> str:
    """Describe a result that is not of these dtype kinds, has another shape than the argument, or introduces NaN.

    The argument is an array, or a grid, to which the result only has to broadcast.
    """
    argument = next((one for one in given if isinstance(one, np.ndarray | Grid)), None)
    if argument is None:
        return ""
    array = np.asarray(said)
    if array.dtype.kind not in kinds or not (hasattr(said, "dtype") or isinstance(said, float | int)):
        return f"{getattr(said, 'dtype', type(said).__name__)}; expected {expected}"
    if isinstance(argument, Grid):
        shape = np.broadcast(argument.batch, argument.head, argument.query, argument.key).shape
        return "NaN" if np.isnan(np.broadcast_to(array, shape)).any() else ""  # `guarded` reports one that does not fit
    if array.shape != argument.shape:
        return f"shape {list(array.shape)}; expected {list(argument.shape)}"
    return "NaN" if (np.isnan(array) & np.isfinite(argument)).any() else ""


MISFITS: dict[str, Misfit] = {
    "allows": functools.partial(values_misfit, kinds="biu", expected="booleans"),
    "bias": lambda given, said: "" if said is None else values_misfit(given, said),
    "bend": values_misfit,
    "embed": values_misfit,
    "turn": values_misfit,
    "turn_key": values_misfit,
}
"""The check of each method's result, for masks, score rules and positions."""


@dataclass(frozen=True)
class Absent:
    """A placeholder for a rule known only by name; it refuses to compute."""

    stands_for: str

    def refuse(self, *given: Any, **more: Any) -> Any:
        raise UserError(
            f"{self.stands_for} is code from outside the package, and the command line does not name its file: --with"
        )


class AbsentMask(Absent, Mask):
    allows = Absent.refuse


class AbsentScore(Absent, Score):
    bend = Absent.refuse


class AbsentPosition(Absent, Position):
    embed = Absent.refuse


def absent_normalizer(name: str) -> Normalizer:
    def weigh(logits: Array, extra: Array | None) -> Array:
        return np.asarray(Absent(name).refuse())

    weigh.__name__ = name
    return Normalizer(weigh, takes_extra=True)


ABSENT = {"mask": AbsentMask, "score": AbsentScore, "position": AbsentPosition}
