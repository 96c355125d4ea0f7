"""The points of a sweep: the keys that vary, their values, the settings of each point, and which ones are skipped."""

from __future__ import annotations

import ast
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from types import CodeType
from typing import Any

from attn_exp.arrays import Shape
from attn_exp.config.schema import Config, read_config
from attn_exp.config.spelling import spelled
from attn_exp.errors import UserError, brief, unknown

MOST_DECIDED = 1_000_000
"""Maximum number of combinations for which `sweep.skip` is evaluated, which takes some microseconds each."""
ALLOWED = frozenset(
    """
    List Tuple UnaryOp BinOp BoolOp Compare And Or Not Load Add Sub Mult Div FloorDiv Mod USub UAdd Eq NotEq Lt
    LtE Gt GtE In NotIn
    """.split()
)
"""The syntax allowed in an expression, apart from names and constants: no calls, attributes of objects or loops."""
DOTTED = re.compile(r"\w+(\.\w+)*")  # the name of a setting, such as `embeddings.tokens`
WORDS = {"true": True, "false": False, "null": None}  # words in an expression that have a value

Settings = Mapping[str, Any]
Indices = Shape
"""The index of a value on each axis."""


@dataclass(frozen=True)
class Axis:
    """One swept key and its values.

    - `composed`: whether Hydra composes the settings once for each value, as it does for a group or a setting that
      interpolations read. The values are then words of the command line. Otherwise, they are inserted into the composed
      settings unchanged.
    - `sign`: the `+` or `++` before the key in the command.
    """

    key: str
    values: Sequence[Any]
    composed: bool = False
    sign: str = ""

    @property
    def column(self) -> str:
        """The name of the axis's column: its key, but `variants` for `variant`, because that name is taken."""
        return "variants" if self.key == "variant" else self.key

    @property
    def listed(self) -> Sequence[Any]:
        """The values, if they are stored one by one; for a range, an empty tuple."""
        return () if isinstance(self.values, range) else self.values

    def word(self, index: int) -> str:
        return f"{self.sign}{self.key}={self.value_word(index)}"

    def value_word(self, index: int) -> str:
        value = self.values[index]
        return str(value) if self.composed else spelled(value)


@dataclass(frozen=True)
class Space:
    """All combinations of the axes' values, in the order of the command line; the last axis varies fastest.

    - `dimensions`: groups of axes, by index. Zipped axes (`sweep.zip`) are one group, each other axis is its own.
    - `bases`, `choices`: the composed settings, and the choices of groups, for each combination of values of the
      composed axes; see `base_key`.
    - `fixed`: the arguments that do not vary.
    """

    axes: tuple[Axis, ...]
    dimensions: tuple[Shape, ...]
    bases: Mapping[Indices, Settings] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()
    choices: Mapping[Indices, Settings] = field(default_factory=dict)

    @property
    def lengths(self) -> Indices:
        return tuple(len(self.axes[dimension[0]].values) for dimension in self.dimensions)

    @cached_property
    def seeds(self) -> tuple[int, int] | None:
        """The index of the seed axis, and its stride: how far apart points with consecutive seeds are in the space.

        None if the sweep has no seed axis, if seeds are zipped with another setting, or if Hydra composes them.
        """
        stride = self.size
        for length, dimension in zip(self.lengths, self.dimensions, strict=True):
            stride //= length
            axis = self.axes[dimension[0]]
            if len(dimension) == 1 and axis.key == "seed" and not axis.composed:
                return dimension[0], stride
        return None

    @property
    def size(self) -> int:
        return prod(self.lengths)

    @cached_property
    def configs(self) -> Mapping[Indices, Config]:
        """The configurations of `bases`, parsed once per worker."""
        return {key: read_config(base) for key, base in self.bases.items()}

    def indices(self, index: int) -> Indices:
        """Return, for the point at `index`, the index of its value on each axis."""
        indices = [0] * len(self.axes)
        for length, dimension in zip(reversed(self.lengths), reversed(self.dimensions), strict=True):
            index, value_index = divmod(index, length)
            for axis_index in dimension:
                indices[axis_index] = value_index
        return tuple(indices)

    def values(self, index: int) -> tuple[Any, ...]:
        return tuple(axis.values[value_index] for axis, value_index in zip(self.axes, self.indices(index), strict=True))

    def base_key(self, indices: Sequence[int]) -> Indices:
        """Return the key of a point in `bases`: the indices of its values on the composed axes."""
        return tuple(value_index for axis, value_index in zip(self.axes, indices, strict=True) if axis.composed)

    def settings(self, index: int) -> Settings:
        indices = self.indices(index)
        settings = self.bases[self.base_key(indices)]
        for axis, value_index in zip(self.axes, indices, strict=True):
            if not axis.composed:
                settings = with_value(settings, axis.key.split("."), axis.values[value_index])
        return settings

    def words(self, index: int) -> list[str]:
        return [
            *self.fixed,
            *(axis.word(value_index) for axis, value_index in zip(self.axes, self.indices(index), strict=True)),
        ]


def with_value(settings: Settings, path: Sequence[str], value: Any) -> dict[str, Any]:
    key, rest = path[0], path[1:]
    return {**settings, key: with_value(settings[key], rest, value) if rest else value}


def has_path(settings: Any, path: Sequence[str]) -> bool:
    """Return whether a path of keys leads to a value through nested mappings."""
    for part in path:
        if not isinstance(settings, Mapping) or part not in settings:
            return False
        settings = settings[part]
    return True


@dataclass(frozen=True)
class Condition:
    """A parsed expression of `sweep.skip`: its text, its code, and the names of the settings that it uses."""

    text: str
    code: CodeType
    names: frozenset[str]

    def holds(self, values: Settings) -> bool:
        """Return whether the expression is true for these values of its settings.

        Raises:
            UserError: the expression cannot be evaluated for these values.
        """
        try:
            known = {"__builtins__": {}, "values": {**WORDS, **values}, "number": as_number}
            return bool(eval(self.code, known))  # only the syntax in `ALLOWED`, and only arithmetic with numbers
        except (TypeError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
            shown = ", ".join(f"{name}={values[name]}" for name in self.names)
            raise UserError(f"sweep.skip={brief(self.text)}: cannot be evaluated for {shown} ({error})") from error


def as_number(value: Any) -> int | float:
    """Return a value after checking that it is a number: multiplying a string or a list could exhaust memory.

    Raises:
        TypeError: the value is not a number.
    """
    if not isinstance(value, int | float):
        raise TypeError(f"{brief(str(value))} is not a number")
    return value


class NamesAsKeys(ast.NodeTransformer):
    """Replace each name, dotted or not, with `values["name"]`; collect the names; refuse syntax not in `ALLOWED`."""

    def __init__(self, text: str) -> None:
        self.text, self.names = text, set[str]()

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Name | ast.Attribute) and DOTTED.fullmatch(name := ast.unparse(node)):
            self.names.add(name)
            return ast.Subscript(ast.Name("values", ast.Load()), ast.Constant(name), ast.Load())
        if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str | None):
            return node
        if (what := type(node).__name__) not in ALLOWED:
            raise UserError(f"sweep.skip={brief(self.text)}: {what} is not allowed in an expression")
        node = self.generic_visit(node)
        if isinstance(node, ast.BinOp):
            left, right = (ast.Call(ast.Name("number", ast.Load()), [one], []) for one in (node.left, node.right))
            return ast.BinOp(left, node.op, right)
        return node


def parse_condition(text: str) -> Condition:
    """Parse an expression of `sweep.skip`.

    It may use names of settings (`head`, `embeddings.tokens`), numbers, quoted words, lists, `true`, `false`, `null`,
    comparisons, `in`, `and`, `or`, `not`, and `+ - * / // %`.

    Raises:
        UserError: the text is not an expression, or uses anything else.
    """
    keys = NamesAsKeys(text)
    try:
        body: Any = keys.visit(ast.parse(text.strip(), mode="eval").body)
        code = compile(ast.fix_missing_locations(ast.Expression(body)), "sweep.skip", "eval")
    except UserError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"sweep.skip={brief(text)}: expected an expression such as head > d_model") from error
    return Condition(text, code, frozenset(keys.names) - WORDS.keys())


def look_up(name: str, settings: Settings, choices: Settings) -> Any:
    """Return the value of a name at one point: the choice of a group, or the value of a setting.

    Raises:
        UserError: there is no such setting.
    """
    if name in choices:
        return choices[name]
    if name == "d_model":
        return find_d_model(settings["embeddings"])
    found: Any = settings
    for part in name.split("."):
        if not isinstance(found, Mapping) or part not in found:
            known = sorted({*choices, *(key for key in settings if not isinstance(settings[key], Mapping)), "d_model"})
            raise UserError(unknown(name, known, "name in sweep.skip"))
        found = found[part]
    return found


def find_d_model(embeddings: Settings) -> int | None:
    """Return the size of a token's vector; None if the settings do not determine it."""
    if embeddings.get("d_model") is not None:
        return int(embeddings["d_model"])
    for name in ("vectors", "q"):
        rows = embeddings.get(name)
        if isinstance(rows, list | tuple) and rows and isinstance(rows[0], list | tuple):
            return len(rows) if embeddings.get("columns") and name == "vectors" else len(rows[0])
    return None


def remaining_points(space: Space, text: str) -> array[int]:
    """Return the indices of the points for which the expression is false.

    Raises:
        UserError: the expression cannot be parsed or evaluated, or there are too many points.
    """
    condition = parse_condition(text)
    if space.size > MOST_DECIDED:
        raise UserError(f"sweep.skip works for at most {MOST_DECIDED:,} combinations; this sweep has {space.size:,}")
    remaining = array("Q")
    for index in range(space.size):
        settings, choices = space.settings(index), space.choices[space.base_key(space.indices(index))]
        if not condition.holds({name: look_up(name, settings, choices) for name in condition.names}):
            remaining.append(index)
    return remaining
