"""Find the keys and attributes that a function's code reads from its arguments, as in `params["attn"]["wq"]`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from attn_exp.diagnosis.code.source import tree_of

NO_FIELDS = {
    *dir(""), *dir(1.0), *dir([]), "shape", "ndim", "dtype", "device", "weight", "bias", "data", "size", "view", "T",
    "mT", "to", "at", "out_features", "in_features", "name", "apply", "forward", "children", "parameters", "modules",
    "transpose", "reshape", "permute", "float", "numel", "dim", "type", "unsqueeze", "detach", "clone", "new_zeros",
    "repeat", "expand", "requires_grad",
} - {"__getitem__"}  # fmt: skip
"""Attributes of arrays, strings, lists and layers: reading one does not make an object a mapping."""
OF_MAPPINGS = ("get", "pop", "setdefault")
LIBRARIES = ("builtins", "torch", "flax", "haiku", "equinox", "keras", "jax", "jaxlib", "jaxtyping", "abc", "typing",
             "numpy")  # fmt: skip


@dataclass
class Use:
    """The attributes (`fields`) and keys that code reads from one object."""

    fields: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)


def uses_of(function: Any) -> dict[str, Use]:
    """Return the attributes and keys that a function reads from each name; empty if its source is unavailable."""
    found: dict[str, Use] = {}
    if not is_of_a_library(function):
        with suppress(OSError, TypeError, SyntaxError):
            Reader(found, helpers_of(function)).visit(tree_of(function))
    return found


def helpers_of(function: Any) -> dict[str, Any]:
    """Return the user's own functions that a function may call."""
    known = getattr(inspect.unwrap(function), "__globals__", {})
    return {
        name: one for name, one in known.items() if inspect.isfunction(inspect.unwrap(one)) and not is_of_a_library(one)
    }


def is_of_a_library(kind: Any) -> bool:
    """Return whether a class or function belongs to Python or to a library."""
    home = str(getattr(kind, "__module__", "")).partition(".")[0]
    return home in LIBRARIES


def assigned_pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each assignment target with its value: `a, b = c, d` has two."""
    for target in node.targets:
        several = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
        if several and len(target.elts) == len(node.value.elts):  # type: ignore[attr-defined]
            yield from zip(target.elts, node.value.elts, strict=True)  # type: ignore[attr-defined]
        else:
            yield target, node.value


class Reader(ast.NodeVisitor):
    """Collects what one function reads; `helpers` are functions that it may call."""

    def __init__(self, found: dict[str, Use], helpers: Mapping[str, Any]) -> None:
        self.found, self.helpers = found, helpers

    def note(self, node: ast.AST, what: str, text: str) -> None:
        """Record that a field or key of an object is read."""
        name = last_name(node)
        known = getattr(self.found.setdefault(name, Use()), what) if name else [text]
        if text not in known:
            known.append(text)

    def visit_Call(self, node: ast.Call) -> None:
        """Record what `get`, `getattr` and helpers read."""
        names = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        is_method = isinstance(node.func, ast.Attribute)
        if names and isinstance(node.func, ast.Attribute) and node.func.attr in OF_MAPPINGS:
            self.note(node.func.value, "keys", names[0])
        elif names and getattr(node.func, "id", "") in ("getattr", "hasattr"):
            self.note(node.args[0], "fields", names[0])
        if getattr(node.func, "id", "") in self.helpers:
            self.note_helper(node)
        for one in ast.iter_child_nodes(node):
            self.visit(one.value if is_method and one is node.func else one)  # type: ignore[attr-defined]

    def note_helper(self, call: ast.Call) -> None:
        """Record what a helper reads from its arguments."""
        name: str = call.func.id  # type: ignore[attr-defined]
        inner: dict[str, Use] = {}
        with suppress(OSError, TypeError, ValueError, SyntaxError):
            others = {other: one for other, one in self.helpers.items() if other != name}
            Reader(inner, others).visit(tree_of(self.helpers[name]))
            taken = list(inspect.signature(self.helpers[name]).parameters)
            given = [*zip(call.args, taken, strict=False), *((one.value, one.arg) for one in call.keywords)]
            for node, word in given:
                read = inner.get(word or "", Use())
                for key in (*read.keys, *read.fields):
                    self.note(node, "keys" if key in read.keys else "fields", key)
                    self.found.setdefault(key, inner.get(key, Use()))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load) and node.attr not in NO_FIELDS:
            self.note(node.value, "fields", node.attr)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            self.note(node.value, "keys", node.slice.value)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Record the new name of a value that is taken from a mapping."""
        for target, value in assigned_pairs(node):
            if isinstance(target, ast.Name) and isinstance(value, ast.Subscript) and last_name(value):
                self.found[target.id] = self.found.setdefault(last_name(value), Use())
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Record keys that code tests for: `"bias" in params`."""
        is_in = isinstance(node.left, ast.Constant) and isinstance(node.ops[0], ast.In | ast.NotIn)
        if is_in and isinstance(node.left.value, str):  # type: ignore[attr-defined]
            self.note(node.comparators[0], "keys", node.left.value)  # type: ignore[attr-defined]
        self.generic_visit(node)


def last_name(node: ast.AST) -> str:
    """Return the last name of `config`, `self.config` or `config["model"]`; empty for `self` and modules."""
    if isinstance(node, ast.Name):
        return "" if node.id in ("self", "nn", "torch", "F", "math", "np", "jnp", "jax") else node.id
    if isinstance(node, ast.Attribute):
        return node.attr if getattr(node.value, "id", "") == "self" or last_name(node.value) else ""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and last_name(node.value):
        return node.slice.value if isinstance(node.slice.value, str) else ""
    return ""


OF_SHAPES = ("ndim", "shape")


def numbers_compared(thing: Any) -> list[float]:
    """Return the numbers, except 0 and 1, in comparisons in the file of a function or class; those on masks first.

    Comparisons that involve a shape or a call are skipped.
    """
    try:
        tree = ast.parse("".join(inspect.findsource(thing)[0]))
    except (OSError, TypeError, SyntaxError):
        return []
    found: dict[float, bool] = {}
    for node in (one for one in ast.walk(tree) if isinstance(one, ast.Compare)):
        if any(isinstance(one, ast.Call) or getattr(one, "attr", "") in OF_SHAPES for one in ast.walk(node)):
            continue
        for side in (node.left, *node.comparators):
            with suppress(ValueError, TypeError):
                number = float(ast.literal_eval(side))
                found[number] = found.get(number, False) or "mask" in ast.unparse(node)
    return sorted((number for number in found if number not in (0.0, 1.0)), key=lambda one: not found[one])
