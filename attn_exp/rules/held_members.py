"""Rules from outside the package, held while they are asked: an error in one, or an answer that is none, is a line.

Forms, the reference and the pages ask rules in many places, and none of them expects that a mask raises, gives numbers
instead of booleans, or another shape. So a class from outside is held to it where it becomes known: each method that it
writes is asked through a guard, and what the guard refuses is a mistake of the user's, named by the rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from attn_exp.errors import UserError
from attn_exp.own_code import THIS_PACKAGE, error_line, held
from attn_exp.rules.grid import Grid

Misfit = Callable[[tuple[Any, ...], Any], str]
"""Says what is wrong with an answer to some arguments, or nothing."""
GUARD = "__guarded__"


def hold_methods(kind: type, name: str, group: str) -> None:
    """Let every method that a class from outside writes itself be asked through a guard, once.

    `name` and `group` are what a user calls the rule and its kind, such as `wide` and `mask`.
    """
    for place in kind.__mro__:
        if place.__module__.partition(".")[0] in (THIS_PACKAGE, "builtins", "abc", "typing"):
            continue
        for word, method in list(vars(place).items()):
            if (
                not word.startswith("_")
                and callable(method)
                and not isinstance(method, type | staticmethod | classmethod)
            ):
                setattr(place, word, guarded(method, f"{group}={name}", MISFITS.get((group, word), nothing)))


def nothing(given: tuple[Any, ...], said: Any) -> str:
    """Find nothing wrong."""
    return ""


def guarded(
    function: Callable[..., Any],
    name: str,
    misfit: Misfit = nothing,
    kind: type[UserError] = UserError,
    passes: type[Exception] = UserError,
) -> Callable[..., Any]:
    """Return a function that raises UserError alone, of this kind for what went wrong in it, and gives no misfit.

    `passes` is an error of its contract, which stays what it is.
    """
    if hasattr(function, GUARD):
        return function

    @functools.wraps(function)
    def asked(*given: Any, **more: Any) -> Any:
        try:
            with held():
                said = function(*given, **more)
                wrong = misfit(given, said)
        except (UserError, passes):
            raise
        except Exception as error:
            raise kind(f"{name}: {error_line(error)}") from error
        if wrong:
            raise kind(f"{name}: {function.__name__} gives {wrong}")
        return said

    setattr(asked, GUARD, True)
    return asked


def no_booleans(given: tuple[Any, ...], said: Any) -> str:
    """Say what is wrong with what a mask allows at the places of a grid."""
    if not isinstance(said, np.ndarray):
        known = isinstance(said, bool | np.bool_ | int) or hasattr(said, "shape")
        return "" if known else f"{type(said).__name__}; expected booleans"
    if said.dtype.kind not in "biu":
        return f"numbers of type {said.dtype}; expected booleans"
    return other_shape(said, given[1])


def no_bias(given: tuple[Any, ...], said: Any) -> str:
    """Say what is wrong with what a score rule adds at the places of a grid."""
    if said is None or not isinstance(said, np.ndarray | float | int):
        known = said is None or hasattr(said, "shape")
        return "" if known else f"{type(said).__name__}; expected real numbers"
    array = np.asarray(said)
    return not_real(array) or ("NaN" if np.isnan(array).any() else "") or other_shape(array, given[1])


def other_shape(array: Any, grid: Grid) -> str:
    """Say that an array is none of a grid's places."""
    places = np.broadcast_shapes(*(np.shape(part) for part in (grid.batch, grid.head, grid.query, grid.key)))
    try:
        fits = np.broadcast_shapes(array.shape, places) == places
    except ValueError:
        fits = False
    return "" if fits else f"shape {list(array.shape)}; expected one that fits {list(places)}"


def not_like_given(given: tuple[Any, ...], said: Any) -> str:
    """Say what is wrong with numbers that should have the shape of those that were given."""
    if not isinstance(given[1], np.ndarray):
        return ""
    array = np.asarray(said)
    if not_real(array):
        return not_real(array)
    if array.shape != given[1].shape:
        return f"shape {list(array.shape)}; expected {list(given[1].shape)}"
    return "NaN" if (np.isnan(array) & np.isfinite(given[1])).any() else ""


def not_real(array: Any) -> str:
    """Say that an array holds no real numbers."""
    return "" if array.dtype.kind in "fiub" else f"an array of type {array.dtype}; expected real numbers"


MISFITS: dict[tuple[str, str], Misfit] = {
    ("mask", "allows"): no_booleans,
    ("score", "bias"): no_bias,
    ("score", "bend"): not_like_given,
    ("position", "embed"): not_like_given,
    ("position", "turn"): not_like_given,
    ("position", "turn_key"): not_like_given,
}


def weights_misfit(given: tuple[Any, ...], said: Any) -> str:
    """Say what is wrong with weights of rows of logits; a row that is hidden whole may give anything."""
    logits, array = given[0], np.asarray(said)
    if not isinstance(logits, np.ndarray):
        return ""
    if not_real(array) or array.shape != logits.shape:
        return not_real(array) or f"shape {list(array.shape)}; expected {list(logits.shape)}"
    rows = np.isfinite(logits).any(axis=-1) & ~np.isnan(logits).any(axis=-1)
    return "NaN" if np.isnan(array).any(axis=-1)[rows].any() else ""
