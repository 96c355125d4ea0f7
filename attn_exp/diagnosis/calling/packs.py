"""Arguments that hold several inputs, as code takes them apart: a list `[q, k, v]`, a pair `(x, mask)`, a dictionary.

Each part is looked for as an argument of its own; a call puts them together again.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attn_exp.diagnosis.asking.offer import BY_NAME, plain
from attn_exp.diagnosis.code.source import tree_of


@dataclass(frozen=True)
class Pack:
    """An argument and its parts, in their order, or by the `keys` of a dictionary."""

    name: str
    parts: tuple[str, ...]
    keys: tuple[str, ...] = ()

    def closed(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call with these parts in one."""
        whole = [arguments.get(part) for part in self.parts]
        one = dict(zip(self.keys, whole, strict=True)) if self.keys else tuple(whole)
        return {self.name: one, **{name: value for name, value in arguments.items() if name not in self.parts}}


class Part(inspect.Parameter):
    """A part of an argument, as an argument."""

    pack: Pack


def taken_apart(call: Callable[..., Any], given: Sequence[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return the parameters of a call with the parts of the first one in its place, if its code uses those alone."""
    pack = pack_of(call, given[0].name, {one.name for one in given}) if given else None
    if pack is None:
        return list(given)
    parts = [Part(part, inspect.Parameter.KEYWORD_ONLY) for part in pack.parts]
    for part in parts:
        part.pack = pack
    return [*parts, *(one.replace(kind=one.KEYWORD_ONLY) if one.kind is one.POSITIONAL_OR_KEYWORD else one
                      for one in given[1:])]  # fmt: skip


def packs_in(given: Sequence[inspect.Parameter]) -> tuple[Pack, ...]:
    """Return the arguments of which these are parts."""
    return tuple(dict.fromkeys(one.pack for one in given if isinstance(one, Part)))


def pack_of(call: Callable[..., Any], name: str, others: set[str]) -> Pack | None:
    """Return an argument with its parts; None where the code of a call uses it as a whole."""
    try:
        tree = tree_of(call)
    except (OSError, TypeError, SyntaxError):
        return None
    reader = Reader(name, {id(one) for one in getattr(tree.body[0], "body", [])})
    reader.visit(tree)
    if reader.as_a_whole:
        return None
    if reader.keys:
        known = {key: word if (word := key if key.isidentifier() else f"part_{key}") not in others else f"{word}_"
                 for key in reader.keys}  # fmt: skip
        return Pack(name, tuple(known.values()), tuple(known))
    count = max(reader.places, default=-1) + 1
    if count == 1 and name.endswith("s"):  # `x[0]` may be an entry of a batch, and `inputs[0]` hardly is
        return Pack(name, ("x",) if "x" not in others else (name,))
    if count < len("xy"):
        return None
    words = [reader.places.get(place, "") for place in range(count)]
    if not any(BY_NAME.get(plain(word)) for word in words):
        words = list(USUAL[count - 2]) if count <= len("qkvm") else words
    parts = [word if word and word not in others - {name} else f"part_{place}" for place, word in enumerate(words)]
    return Pack(name, tuple(parts)) if len(set(parts)) == count else None


USUAL = (("x", "memory"), ("query", "key", "value"), ("query", "key", "value", "mask"))
"""What two, three or four inputs without names are, mostly."""


class Reader(ast.NodeVisitor):
    """Reads which parts of one argument a function takes: `places` by their number, with a name if one is said, `keys`.

    Once the argument is another thing whatever happens, as after `x, mask = x`, the rest of the code is not about it:
    `always` are the statements that run in each call.
    """

    def __init__(self, name: str, always: set[int]) -> None:
        self.name, self.always, self.as_a_whole, self.over = name, always, False, False
        self.places: dict[int, str] = {}
        self.keys: dict[str, None] = {}

    def is_it(self, node: ast.AST) -> bool:
        """Say whether an expression is the argument."""
        return isinstance(node, ast.Name) and node.id == self.name and isinstance(node.ctx, ast.Load)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Note what falls into parts, and the name that a part gets."""
        target = node.targets[0]
        if self.is_it(node.value) and isinstance(target, ast.Tuple | ast.List) and not self.over:
            if any(isinstance(one, ast.Starred) for one in target.elts):
                self.as_a_whole = True
            for number, one in enumerate(target.elts):
                self.places[number] = one.id if isinstance(one, ast.Name) else self.places.get(number, "")
        else:
            self.visit(node.value)
            place = place_of(node.value)
            if place is not None and place in self.places and isinstance(target, ast.Name) and self.is_it(
                node.value.value  # type: ignore[attr-defined] # it has a place, so it is a subscript
            ):  # fmt: skip
                self.places[place] = self.places[place] or target.id
        names = [one for part in node.targets for one in ast.walk(part) if isinstance(one, ast.Name)]
        self.over |= id(node) in self.always and any(one.id == self.name for one in names)

    def visit_If(self, node: ast.If) -> None:
        """Read either branch by itself: the argument is another thing behind them where it is one in both."""
        self.visit(node.test)
        before, ends = self.over, list[bool]()
        for branch in (node.body, node.orelse):
            self.always |= {id(one) for one in branch}
            self.over = before
            for one in branch:
                self.visit(one)
            ends.append(self.over)
        self.over = all(ends)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Note a part by its number or its key."""
        if not self.is_it(node.value) or self.over:
            self.generic_visit(node)
        elif (number := place_of(node)) is not None:
            self.places.setdefault(number, "")
        elif isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            self.keys[node.slice.value] = None
        else:
            self.as_a_whole = True

    def visit_Call(self, node: ast.Call) -> None:
        """Note what is asked of a dictionary; its length and kind say nothing."""
        called, first = node.func, node.args[0] if node.args else None
        if isinstance(called, ast.Attribute) and self.is_it(called.value) and called.attr == "get" and not self.over:
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                self.keys[first.value] = None
        elif not (isinstance(called, ast.Name) and called.id in ("len", "isinstance")):
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Leave out what asks whether a key is there."""
        if not (isinstance(node.ops[0], ast.In | ast.NotIn) and self.is_it(node.comparators[0])):
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """Note that the argument is used as it is."""
        self.as_a_whole |= self.is_it(node) and not self.over


def place_of(node: ast.AST) -> int | None:
    """Return the number of a part, as in `inputs[0]`; None of what is none."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant):
        return None
    place = node.slice.value
    return place if type(place) is int and place >= 0 else None
