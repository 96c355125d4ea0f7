"""`sweep.skip`: which points to leave out, in a small expression language that is parsed, never executed as Python."""

from __future__ import annotations

import ast
import operator
import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from attn_exp.errors import UserError, brief, unknown
from attn_exp.sweeps.space import Axis, Settings, Space

MOST_DECIDED = 1_000_000
"""Maximum number of combinations for which an expression is evaluated, some microseconds each."""

OPERATIONS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
ALLOWED = {ast.List, ast.Tuple, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.And, ast.Or, ast.Load, *OPERATIONS}
DOTTED = re.compile(r"\w+(\.\w+)*")
WORDS = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class Condition:
    """An expression, and the names of the settings in it."""

    text: str
    tree: ast.expr
    names: frozenset[str]

    def holds(self, values: Settings) -> bool:
        """Return whether the expression is true for these values of its names.

        Raises:
            UserError: values that cannot be compared or computed with.
        """
        try:
            return bool(evaluate(self.tree, {**WORDS, **values}))
        except (TypeError, ZeroDivisionError, OverflowError, RecursionError) as error:
            shown = ", ".join(f"{name}={values[name]}" for name in self.names)
            raise UserError(f"sweep.skip={brief(self.text)}: cannot be decided for {shown} ({error})") from error


def parse_condition(text: str) -> Condition:
    """Parse an expression.

    It has names of settings (`head`, `embeddings.tokens`), numbers, quoted words, lists, `true`, `false`, `null`,
    comparisons, `in`, `and`, `or`, `not`, and `+ - * / // %`.

    Raises:
        UserError: anything else.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return Condition(text, tree, frozenset(find_names(tree, text)) - WORDS.keys())
    except UserError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"sweep.skip={brief(text)}: not an expression such as head > d_model") from error


def find_names(node: ast.AST, text: str) -> Iterator[str]:
    """Yield the names in an expression, and refuse syntax that is not allowed."""
    if isinstance(node, ast.Name | ast.Attribute) and DOTTED.fullmatch(name := ast.unparse(node)):
        yield name
    elif not (isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str | None)):
        if type(node) not in ALLOWED:
            what = type(node).__name__
            raise UserError(f"sweep.skip={brief(text)}: {what} is not part of what an expression may hold")
        for child in ast.iter_child_nodes(node):
            yield from find_names(child, text)


def evaluate(node: ast.expr, values: Settings) -> Any:  # noqa: PLR0911 - a case for each kind of node
    """Return the value of a parsed expression."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [evaluate(item, values) for item in items]
        case ast.UnaryOp(op=sign, operand=operand):
            return OPERATIONS[type(sign)](evaluate(operand, values))
        case ast.BinOp(left=left, op=sign, right=right):
            numbers = evaluate(left, values), evaluate(right, values)
            if not all(isinstance(number, int | float) for number in numbers):  # text * number could fill the memory
                raise TypeError("only numbers are computed with")
            return OPERATIONS[type(sign)](*numbers)
        case ast.BoolOp(op=sign, values=parts):
            return (all if isinstance(sign, ast.And) else any)(evaluate(part, values) for part in parts)
        case ast.Compare(left=left, ops=signs, comparators=others):
            pairs = pairwise(evaluate(side, values) for side in (left, *others))
            return all(OPERATIONS[type(sign)](*pair) for sign, pair in zip(signs, pairs, strict=True))
    return values[ast.unparse(node)]


def look_up(name: str, settings: Settings, choices: Settings) -> Any:
    """Return the value of a name at one point: the choice of a group, or the value of a setting.

    Raises:
        UserError: no such setting.
    """
    if name in choices:
        return choices[name]
    if name == "d_model":
        return find_d_model(settings["embeddings"])
    value: Any = settings
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            known = sorted({*choices, *(key for key in settings if not isinstance(settings[key], Mapping)), "d_model"})
            raise UserError(unknown(name, known, "name in sweep.skip"))
        value = value[part]
    return value


def find_d_model(embeddings: Settings) -> int | None:
    """Return the width of a token's vector, if the settings determine it."""
    if embeddings.get("d_model") is not None:
        return int(embeddings["d_model"])
    for name in ("vectors", "q"):
        rows = embeddings.get(name)
        if isinstance(rows, list | tuple) and rows and isinstance(rows[0], list | tuple):
            return len(rows) if embeddings.get("columns") and name == "vectors" else len(rows[0])
    return None


def points_left(space: Space, text: str) -> array[int]:
    """Return the points for which the expression is false.

    It is evaluated once for each combination of the values that it reads, which decides all points that share them.

    Raises:
        UserError: an expression that cannot be parsed or evaluated, or one that reads too many values.
    """
    condition = parse_condition(text)
    read = [any(reads_axis(condition.names, space.axes[place]) for place in together) for together in space.dimensions]
    lengths = [length if is_read else 1 for length, is_read in zip(space.lengths, read, strict=True)]
    if prod(lengths) > MOST_DECIDED:
        raise UserError(
            f"sweep.skip reads {prod(lengths):,} combinations of values; at most {MOST_DECIDED:,} are decided"
        )
    held = np.zeros(lengths, dtype=bool)
    for places in np.ndindex(*lengths):
        index = int(np.ravel_multi_index(places, space.lengths)) if places else 0
        settings, choices = space.settings(index), space.choices[space.base_key(space.places(index))]
        held[places] = condition.holds({name: look_up(name, settings, choices) for name in condition.names})
    points = np.flatnonzero(~np.broadcast_to(held, space.lengths).ravel())
    return array("Q", points.astype(np.uint64).tobytes())


def reads_axis(names: frozenset[str], axis: Axis) -> bool:
    """Return whether an expression with these names may depend on an axis."""
    top = axis.key.split(".")[0]
    return (
        axis.composed
        or (top == "embeddings" and "d_model" in names)
        or any(f"{name}.".startswith(f"{axis.key}.") or axis.key.startswith(f"{name}.") for name in names)
    )
