"""Infer the meaning of an unknown setting from its use in the class: `width // parts` implies a number of heads."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from attn_exp.diagnosis.bind.sizes import letter_of
from attn_exp.diagnosis.code.source import tree_of

LIBRARIES = ("builtins", "torch", "flax", "haiku", "equinox", "keras", "jax", "jaxlib", "jaxtyping", "abc", "typing",
             "numpy")  # fmt: skip


def is_of_a_library(kind: Any) -> bool:
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


def last_name(node: ast.AST) -> str:
    """Return the last name of `config`, `self.config` or `config["model"]`; empty for `self` and modules."""
    if isinstance(node, ast.Name):
        return "" if node.id in ("self", "nn", "torch", "F", "math", "np", "jnp", "jax") else node.id
    if isinstance(node, ast.Attribute):
        return node.attr if getattr(node.value, "id", "") == "self" or last_name(node.value) else ""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and last_name(node.value):
        return node.slice.value if isinstance(node.slice.value, str) else ""
    return ""


LINEAR = ("Linear", "LazyLinear", "Dense", "DenseGeneral", "Conv1d", "Conv2d", "LayerNorm", "RMSNorm", "BatchNorm2d",
          "GroupNorm", "Conv1D", "Conv2D")  # fmt: skip
"""Layers whose sizes are widths of tokens."""
ROUNDS = 3
"""How many times inferred meanings are propagated to other names."""


def infer_letters(owner: Any) -> dict[str, str]:
    """Infer the meaning of settings with unknown names: keys of `sizes.NAMES`, or `config`, `flag`, `unread`.

    The rules use `m // h` and `m % h`, `h * d`, sizes of linear layers, conditions on a single name, and names that are
    never read.
    """
    trees = []
    for home in inspect.getmro(owner) if inspect.isclass(owner) else ():
        with suppress(OSError, TypeError, SyntaxError):
            trees += [] if is_of_a_library(home) else [tree_of(home)]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {name for node in nodes if (name := last_name(node))}
    known = {name: letter for name in names if (letter := letter_of(name))}
    same = list(find_aliases(nodes))
    facts = [
        *find_configs(nodes),
        *find_widths(nodes),
        *find_tests(nodes),
        *((name, "unread") for name in find_unread(nodes, same)),
    ]
    found: dict[str, str] = {}
    for _ in range(ROUNDS):
        for node in (one for one in nodes if isinstance(one, ast.BinOp)):
            facts += relate_sizes(node, {**found, **known})
        for name, letter in facts:
            found.setdefault(name, letter)
        for one, other in same:
            facts += [(one, found[other])] if other in found else [(other, found[one])] if one in found else []
    return {name: letter for name, letter in found.items() if name not in known}


def find_aliases(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield pairs of names of one value: `self.n = n_heads`."""
    for node in nodes:
        for target, value in assigned_pairs(node) if isinstance(node, ast.Assign) else ():
            if last_name(target) and last_name(value) and last_name(target) != last_name(value):
                yield last_name(target), last_name(value)


def find_widths(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        kind = last_name(node.func) or getattr(node.func, "attr", "") if isinstance(node, ast.Call) else ""
        given = [*node.args[:2], *(one.value for one in node.keywords)] if isinstance(node, ast.Call) else []
        letter = "m" if kind in LINEAR else "dropout" if kind == "Dropout" else ""
        for name in filter(None, map(last_name, given if letter else [])):
            yield name, letter


def find_configs(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        key = node.slice if isinstance(node, ast.Subscript) else None
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and last_name(node.value):  # type: ignore[attr-defined]
            yield last_name(node.value), "config"  # type: ignore[attr-defined]


def find_tests(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield the names of switches: names that are a whole condition."""
    for node in nodes:
        tests = [node.test] if isinstance(node, ast.If | ast.IfExp) else []
        tests += node.values if isinstance(node, ast.BoolOp) else []
        tests += [node.operand] if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) else []
        for name in filter(None, map(last_name, tests)):
            yield name, "flag"


def find_unread(nodes: list[ast.AST], same: list[tuple[str, str]]) -> Iterator[str]:
    reads = Counter(last_name(node) for node in nodes if isinstance(getattr(node, "ctx", None), ast.Load))
    kept = [last_name(value) for node in nodes if isinstance(node, ast.Assign) for target, value in assigned_pairs(node)
            if isinstance(target, ast.Attribute) and last_name(target)]  # fmt: skip
    for name, count in Counter(kept).items():
        attributes = [target for target, value in same if value == name]
        if name and reads[name] == count and not any(reads[one] for one in attributes):
            yield name


def relate_sizes(node: ast.BinOp, known: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what a division or product implies about each name in it, given the meaning of the other name."""
    left, right = last_name(node.left), last_name(node.right)
    if not left or not right:
        return
    if isinstance(node.op, ast.FloorDiv | ast.Mod):
        if known.get(left, "m") == "m" and left != right:
            yield right, "h"
            yield left, "m" if known.get(right, "h") in ("h", "d") else ""
    elif isinstance(node.op, ast.Mult):
        other = {"h": "d", "d": "h", "g": "d"}
        for one, two in ((left, right), (right, left)):
            if known.get(one) in other:
                yield two, other[known[one]]
