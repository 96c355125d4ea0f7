"""Check rules from outside the package against their example, and guard their methods.

Forms, the reference and the pages call rules in many places. None of them expects a mask to raise an error, to return
numbers instead of booleans, or to return the wrong shape. So each method that an outside class defines is wrapped in a
guard. The guard reports such a violation as a user error that names the rule.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import UserError
from attn_exp.own_code import THIS_PACKAGE, error_line, guard_process
from attn_exp.rules.example import Example
from attn_exp.rules.grid import Grid
from attn_exp.rules.rules import Rules, whole_grid

SEEN = "█"
"""Marks a visible key in the drawing of a mask."""


def describe_difference(group: str, rule: Any, example: Example) -> str:
    """Describe how a rule differs from its example; return an empty string if it does not.

    `rule` is a mask, score rule or position with the settings of the example, or a normalizer.
    """
    expected = example.outcome if group != "mask" else [[key == SEEN for key in row] for row in example.outcome]
    difference = describe_first_difference(compute_outcome(group, rule, example), expected, example.decimals)
    if difference or group != "position" or not (len(example.keys) or len(example.keys_after)):
        return difference
    keys = rule.turn_key(np.array(example.keys, float), np.arange(len(example.keys)) + example.offset)
    difference = describe_first_difference(keys, example.keys_after, example.decimals)
    return f"for keys, {difference}" if difference else ""


def compute_outcome(group: str, rule: Any, example: Example) -> Array:
    """Return the result of a rule for the input of its example, in the form of `Example.outcome`.

    A mask gives booleans. A score rule gives logits, and in the last column its extra logit. A position gives rows of x
    or of a head. A normalizer gives weights.
    """
    inputs = np.array(example.given, float)
    if group == "normalizer":
        return np.asarray(rule.weigh(inputs, None))
    if group == "position":
        return np.asarray(rule.turn(rule.embed(inputs), np.arange(len(inputs)) + example.offset))
    extra = None if group == "mask" else rule.extra(example.head)
    shape = example.heads, len(example.outcome), len(example.outcome[0]) - (extra is not None)
    grid = whole_grid(Rules(offset=example.offset), *shape)
    if group == "mask":
        return np.asarray(np.broadcast_to(rule.allows(grid), shape)[example.head])
    logits = inputs if example.given else np.zeros(shape[1:])
    logits = rule.pair(inputs, np.array(example.keys, float), example.head) if rule.pairs else logits
    bias = rule.bias(grid)
    changed = rule.bend(logits) + np.broadcast_to(0.0 if bias is None else bias, shape)[example.head]
    return np.asarray(changed) if extra is None else np.column_stack([changed, np.full(len(changed), extra)])


def describe_first_difference(numbers: Array, outcome: Sequence[Any], decimals: int) -> str:
    actual, expected = np.asarray(numbers, float), np.asarray(outcome, float)
    if actual.shape != expected.shape:
        return f"its shape is {list(actual.shape)}, expected {list(expected.shape)}"
    wrong = np.argwhere(~np.isclose(actual, expected, rtol=0, atol=0.51 * 10.0**-decimals, equal_nan=True))
    if not len(wrong):
        return ""
    index = tuple(wrong[0])
    return f"row {index[0]}, column {index[-1]} is {actual[index]:.{decimals}g}, expected {expected[index]:.12g}"


Misfit = Callable[[tuple[Any, ...], Any], str]
"""Takes the arguments and the result of a method, and returns what is wrong with the result, or an empty string."""


def guard_methods(kind: type, name: str, group: str) -> None:
    """Wrap every public method of an outside class in a guard, unless it already has one.

    `name` and `group` are the names of the rule and its kind in settings, such as `wide` and `mask`.
    """
    for owner in kind.__mro__:
        if owner.__module__.partition(".")[0] in (THIS_PACKAGE, "builtins", "abc", "typing"):
            continue
        for method_name, method in list(vars(owner).items()):
            # a method whose globals are those of this module is a guard already
            if inspect.isfunction(method) and not method_name.startswith("_") and method.__globals__ is not globals():
                setattr(owner, method_name, guard(method, f"{group}={name}", MISFITS.get(method_name)))


def guard(
    function: Callable[..., Any],
    name: str,
    misfit: Misfit | None = None,
    error_type: type[UserError] = UserError,
    passes: type[Exception] = UserError,
) -> Callable[..., Any]:
    """Wrap a function from outside the package, so that its errors and wrong results raise `error_type`.

    `misfit` decides whether a result is wrong. The contract of the function allows exceptions of type `passes`, which
    are raised unchanged.
    """

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        try:
            with guard_process():
                result = function(*arguments, **keywords)
                problem = "" if misfit is None else misfit(arguments, result)
        except (UserError, passes):
            raise
        except Exception as error:
            raise error_type(f"{name}: {error_line(error)}") from error
        if problem:
            raise error_type(f"{name}: {function.__name__} returns {problem}")
        return result

    return call


def find_misfit(arguments: tuple[Any, ...], result: Any, kinds: str = "fiub", expected: str = "real numbers") -> str:
    """Return what is wrong with a result: its dtype, its shape, or NaN where the input had none; "" if it is right.

    `kinds` are the allowed kinds of dtype. The result must have the shape of the first array among the arguments. If
    the first is a grid, the result must broadcast to it.
    """
    argument = next((candidate for candidate in arguments if isinstance(candidate, np.ndarray | Grid)), None)
    if argument is None:
        return ""
    array = np.asarray(result)
    if array.dtype.kind not in kinds or not (hasattr(result, "dtype") or isinstance(result, float | int)):
        return f"{getattr(result, 'dtype', type(result).__name__)}; expected {expected}"
    if isinstance(argument, Grid):
        shape = np.broadcast(argument.batch, argument.head, argument.query, argument.key).shape
        return "NaN" if np.isnan(np.broadcast_to(array, shape)).any() else ""  # `guard` reports a failed broadcast
    if array.shape != argument.shape:
        return f"shape {list(array.shape)}; expected {list(argument.shape)}"
    return "NaN" if (np.isnan(array) & np.isfinite(argument)).any() else ""


MISFITS: dict[str, Misfit] = {
    "allows": functools.partial(find_misfit, kinds="biu", expected="booleans"),
    "bias": lambda arguments, result: "" if result is None else find_misfit(arguments, result),
    "bend": find_misfit,
    "embed": find_misfit,
    "turn": find_misfit,
    "turn_key": find_misfit,
}
"""The check for the result of each method of masks, score rules and positions."""
