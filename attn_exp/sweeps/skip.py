"""`sweep.skip`: which points to leave out, as a small language that is parsed, never run as Python."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from attn_exp.errors import UserError, brief, unknown

Names = Mapping[str, Any]
Test = Callable[[Names], Any]

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


def condition(text: str) -> tuple[Test, frozenset[str]]:
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
    return built(tree.body, text, names), frozenset(names)


def depth(tree: ast.AST) -> int:
    """Return how deep an expression is nested, without going down into it."""
    level, levels = [tree], 0
    while level:
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        levels += 1
    return levels


def holds(test: Test, names: Names, text: str) -> bool:
    """Say whether a point is to be left out.

    Raises:
        UserError: values that cannot be compared or computed with.
    """
    try:
        return bool(test(names))
    except (TypeError, ZeroDivisionError, OverflowError) as error:
        shown = ", ".join(f"{name}={names[name]}" for name in condition(text)[1])
        raise UserError(f"sweep.skip={brief(text)}: cannot be decided for {shown} ({error})") from error


def built(node: ast.AST, text: str, names: set[str]) -> Test:  # noqa: PLR0911 - a case for each kind of node
    """Turn one node of the expression into a function of the names; refuse every kind of node not listed."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return lambda _: value
        case ast.Name() | ast.Attribute():
            return named(dotted(node, text), names)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            parts = [built(item, text, names) for item in items]
            return lambda given: [part(given) for part in parts]
        case ast.UnaryOp(op=sign, operand=inner) if type(sign) in SIGNS:
            change, operand = SIGNS[type(sign)], built(inner, text, names)
            return lambda given: change(operand(given))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in ARITHMETIC:
            return joined(ARITHMETIC[type(sign)], built(left, text, names), built(right, text, names))
        case ast.BoolOp(op=sign, values=values):
            tests = [built(operand, text, names) for operand in values]
            whole = all if isinstance(sign, ast.And) else any
            return lambda given: whole(test(given) for test in tests)
        case ast.Compare(left=left, ops=signs, comparators=others) if all(type(sign) in COMPARISONS for sign in signs):
            sides = [built(side, text, names) for side in (left, *others)]
            pairs = [joined(COMPARISONS[type(sign)], *sides[at : at + 2]) for at, sign in enumerate(signs)]
            return lambda given: all(pair(given) for pair in pairs)
    raise UserError(
        f"sweep.skip={brief(text)}: {brief(ast.unparse(node))!r} is not part of what an expression may hold"
    )


def joined(operation: Callable[[Any, Any], Any], left: Test, right: Test) -> Test:
    return lambda given: operation(left(given), right(given))


def named(name: str, names: set[str]) -> Test:
    if name in WORDS:
        return lambda _: WORDS[name]
    names.add(name)
    return lambda given: given[name]


def dotted(node: ast.expr, text: str) -> str:
    """Return a name such as `embeddings.tokens`."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value, text)}.{node.attr}"
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
