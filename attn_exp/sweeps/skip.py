"""`sweep.skip`: which points to leave out, as a small language that is parsed, never run as Python."""

from __future__ import annotations

import ast
import operator
from array import array
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from attn_exp.errors import UserError, brief, unknown
from attn_exp.sweeps.space import Axis, Space

Names = Mapping[str, Any]
Test = Callable[[Names], Any]

MOST_DECIDED = 1_000_000
"""Combinations of values for which an expression is decided, some microseconds each."""

DEEPEST = 100
"""Levels of an expression: Python itself ends where thousands are nested."""


def on_numbers(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return an operation that computes with numbers alone: a text times a number could fill the memory."""

    def computed(left: Any, right: Any) -> Any:
        if not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise TypeError("only numbers are computed with")
        return operation(left, right)

    return computed


ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: on_numbers(operator.add),
    ast.Sub: on_numbers(operator.sub),
    ast.Mult: on_numbers(operator.mul),
    ast.Div: on_numbers(operator.truediv),
    ast.FloorDiv: on_numbers(operator.floordiv),
    ast.Mod: on_numbers(operator.mod),
}
COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
SIGNS: dict[type, Callable[[Any], Any]] = {ast.Not: operator.not_, ast.USub: operator.neg, ast.UAdd: operator.pos}
WORDS = {"true": True, "false": False, "null": None}


def parsed_condition(text: str) -> tuple[Test, frozenset[str]]:
    """Return the test that an expression describes, and the names that it reads.

    It knows names of settings (`head`, `embeddings.tokens`), numbers, quoted words, lists, `true`, `false`, `null`,
    comparisons, `in`, `and`, `or`, `not`, and `+ - * / // %`.

    Raises:
        UserError: anything else.
    """
    names: set[str] = set()
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"sweep.skip={brief(text)}: not an expression such as head > d_model") from error
    if depth(tree) > DEEPEST:
        raise UserError(f"sweep.skip={brief(text)}: nested more than {DEEPEST} deep")
    return compiled(tree.body, text, names), frozenset(names)


def depth(tree: ast.AST) -> int:
    """Return how deep an expression is nested, without going down into it."""
    level, levels = [tree], 0
    while level:
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        levels += 1
    return levels


def is_left_out(test: Test, names: Names, text: str) -> bool:
    """Say whether a point is to be left out.

    Raises:
        UserError: values that cannot be compared or computed with.
    """
    try:
        return bool(test(names))
    except (TypeError, ZeroDivisionError, OverflowError) as error:
        shown = ", ".join(f"{name}={names[name]}" for name in parsed_condition(text)[1])
        raise UserError(f"sweep.skip={brief(text)}: cannot be decided for {shown} ({error})") from error


def compiled(node: ast.AST, text: str, names: set[str]) -> Test:  # noqa: PLR0911 - a case for each kind of node
    """Turn one node of the expression into a function of the names; refuse every kind of node not listed."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return lambda _: value
        case ast.Name() | ast.Attribute():
            return value_of(dotted_name(node, text), names)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            parts = [compiled(item, text, names) for item in items]
            return lambda given: [part(given) for part in parts]
        case ast.UnaryOp(op=sign, operand=inner) if type(sign) in SIGNS:
            change, operand = SIGNS[type(sign)], compiled(inner, text, names)
            return lambda given: change(operand(given))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in ARITHMETIC:
            return of_both(ARITHMETIC[type(sign)], compiled(left, text, names), compiled(right, text, names))
        case ast.BoolOp(op=sign, values=values):
            tests = [compiled(operand, text, names) for operand in values]
            whole = all if isinstance(sign, ast.And) else any
            return lambda given: whole(test(given) for test in tests)
        case ast.Compare(left=left, ops=signs, comparators=others) if all(type(sign) in COMPARISONS for sign in signs):
            sides = [compiled(side, text, names) for side in (left, *others)]
            pairs = [of_both(COMPARISONS[type(sign)], *sides[at : at + 2]) for at, sign in enumerate(signs)]
            return lambda given: all(pair(given) for pair in pairs)
    raise UserError(
        f"sweep.skip={brief(text)}: {brief(ast.unparse(node))!r} is not part of what an expression may hold"
    )


def of_both(operation: Callable[[Any, Any], Any], left: Test, right: Test) -> Test:
    """Return the test that holds an operation of what two tests give."""
    return lambda given: operation(left(given), right(given))


def value_of(name: str, names: set[str]) -> Test:
    """Return the test that gives the value of a setting, whose name it notes, or a constant."""
    if name in WORDS:
        return lambda _: WORDS[name]
    names.add(name)
    return lambda given: given[name]


def dotted_name(node: ast.expr, text: str) -> str:
    """Return a name such as `embeddings.tokens`."""
    if isinstance(node, ast.Attribute):
        return f"{dotted_name(node.value, text)}.{node.attr}"
    if isinstance(node, ast.Name):
        return node.id
    raise UserError(f"sweep.skip={brief(text)}: {brief(ast.unparse(node))!r} is no setting")


def look_up(name: str, settings: Mapping[str, Any], choices: Mapping[str, Any]) -> Any:
    """Return what a name stands for at one point: the choice of a group, or the value of a setting.

    Raises:
        UserError: no such setting.
    """
    if name in choices:
        return choices[name]
    if name == "d_model":
        return d_model(settings["embeddings"])
    value: Any = settings
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            known = sorted({*choices, *(key for key in settings if not isinstance(settings[key], Mapping)), "d_model"})
            raise UserError(unknown(name, known, "name in sweep.skip"))
        value = value[part]
    return value


def d_model(embeddings: Mapping[str, Any]) -> int | None:
    """Return how many numbers describe a token, as far as the settings tell."""
    if embeddings.get("d_model") is not None:
        return int(embeddings["d_model"])
    for name in ("vectors", "q"):
        rows = embeddings.get(name)
        if isinstance(rows, list | tuple) and rows and isinstance(rows[0], list | tuple):
            return len(rows) if embeddings.get("columns") and name == "vectors" else len(rows[0])
    return None


def points_left(space: Space, text: str) -> array[int]:
    """Return the points for which the expression does not hold.

    It is decided once for each combination of the values that it reads, and holds alike for all points that share them.

    Raises:
        UserError: an expression that cannot be read or decided, or one that reads too many values.
    """
    test, names = parsed_condition(text)
    read = [any(reads_axis(names, space.axes[place]) for place in together) for together in space.dimensions]
    lengths = [length if is_read else 1 for length, is_read in zip(space.lengths, read, strict=True)]
    if prod(lengths) > MOST_DECIDED:
        raise UserError(
            f"sweep.skip reads {prod(lengths):,} combinations of values; at most {MOST_DECIDED:,} are decided"
        )
    held = np.zeros(lengths, dtype=bool)
    for places in np.ndindex(*lengths):
        held[places] = is_left_out(test, values_at(space, space.index_of(places), names), text)
    points = np.flatnonzero(~np.broadcast_to(held, space.lengths).ravel()).astype(np.uint64)
    kept = array("Q")
    kept.frombytes(points.tobytes())
    return kept


def reads_axis(names: frozenset[str], axis: Axis) -> bool:
    """Say whether an expression of these names may depend on an axis."""
    top = axis.key.split(".")[0]
    return (
        axis.composed
        or axis.key in names
        or (top == "embeddings" and "d_model" in names)
        or any(name.startswith(f"{axis.key}.") or axis.key.startswith(f"{name}.") for name in names)
    )


def values_at(space: Space, index: int, names: frozenset[str]) -> dict[str, Any]:
    """Return what the names of an expression stand for at one combination."""
    places = space.places(index)
    settings, choices = space.settings(index), space.choices[space.base_key(places)]
    swept = {axis.key: value for axis, value in zip(space.axes, space.values(index), strict=True) if not axis.composed}
    return {name: swept[name] if name in swept else look_up(name, settings, choices) for name in names}
