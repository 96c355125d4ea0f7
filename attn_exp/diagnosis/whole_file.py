"""Which names of a file may be attention, and the table of what became of each: `attn-exp check FILE.py`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from attn_exp import machine
from attn_exp.errors import EXIT_CODES, NOT_VERIFIED, RIGHT
from attn_exp.own_code import unreadable
from attn_exp.own_imports import MOST_CODE

SHARES = ("softmax", "logsumexp", "exp", "exp2", "log_softmax")
"""What makes shares of scores."""
PRODUCTS = ("matmul", "einsum", "bmm", "baddbmm", "dot", "dot_general", "tensordot", "mm", "vecdot", "@")
FUSED = ("attention", "sdpa", "attn")
"""Part of the names of functions that compute all of it."""
WIDEST_SAID = 90


def names_in_file(place: str, module: ModuleType) -> list[dict[str, Any]]:
    """Return what a file, imported as this module, offers to be asked.

    Each has its name, and whether its code says that it may be attention.

    These are the functions, classes and callable objects that were made in the file, in its order, and the static
    methods of its classes.

    Raises:
        UserError: something in it cannot be read.
    """
    home = str(getattr(module, "__name__", ""))
    code = code_of(place)
    found: dict[str, Any] = {}
    with unreadable(place):
        for name, value in list(vars(module).items()):
            known = any(value is other for other in found.values())
            if not name.startswith("__") and is_from(value, home) and not known:
                found[name] = value
                found |= {f"{name}.{word}": method for word, method in static_methods(value)}
    return [{"name": name, "attends": attends(name, value, code)} for name, value in found.items()]


def is_from(value: Any, home: str) -> bool:
    """Say whether something that can be called was made in a module, whatever is wrapped around it."""
    if not callable(value) or (inspect.isclass(value) and not can_be_called(value)):
        return False
    for _ in range(8):
        if getattr(value, "__module__", None) == home:
            return True
        inner = getattr(value, "func", None) or getattr(value, "__wrapped__", None) or getattr(value, "py_func", None)
        if not callable(inner):
            break
        value = inner
    return getattr(type(value), "__module__", None) == home


def can_be_called(kind: type) -> bool:
    """Say whether the objects of a class can be called: it has a `__call__`, or a `forward` as modules have."""
    return not issubclass(kind, BaseException) and any("__call__" in vars(base) for base in kind.__mro__[:-1])


def static_methods(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the static methods of a class, which are functions in its name."""
    for name, method in vars(value).items() if inspect.isclass(value) else ():
        if isinstance(method, staticmethod) and not name.startswith("__"):
            yield name, method.__func__


# What code says that it does, read and not run

Code = Mapping[str, ast.AST]


def code_of(place: str) -> Code:
    """Return the functions and classes of a file by name, as they are written."""
    tree = ast.Module([], [])
    with suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        tree = ast.parse(machine.read(Path(place), MOST_CODE))
    named: dict[str, ast.AST] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            named[node.name] = node
            methods = [inner for inner in node.body if isinstance(inner, ast.FunctionDef)]
            named |= {f"{node.name}.{inner.name}": inner for inner in methods if isinstance(node, ast.ClassDef)}
        elif isinstance(node, ast.Assign):
            targets = [inner for target in node.targets for inner in ast.walk(target) if isinstance(inner, ast.Name)]
            named |= {target.id: node for target in targets}
    return named


def attends(name: str, value: Any, code: Code) -> bool:
    """Say whether the code of a name makes shares of products, by itself or by functions of its file.

    A class of the file that a class holds answers for itself. An object does what its class does.
    """
    if name not in code:
        return False
    words = words_of(code[name], code)
    kind = type(value).__name__
    if kind in code and isinstance(code[kind], ast.ClassDef):
        words |= words_of(code[kind], code)
    shares, products = words & set(SHARES), words & set(PRODUCTS)
    fused = any(part in word.lower() for word in words - set(code) for part in FUSED if word != "self")
    return bool(shares and products) or (fused and bool(calls_of(code[name])))


def words_of(node: ast.AST, code: Code) -> set[str]:
    """Return the names that code uses, and those that the functions and bases that it names use in their turn."""
    words, seen, waiting = set[str](), set[int](), [node]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        for inner in ast.walk(one):
            if isinstance(inner, ast.Name):
                words.add(inner.id)
                other = code.get(inner.id)
                base = isinstance(one, ast.ClassDef) and any(inner is base for base in one.bases)
                if other is not None and (base or not isinstance(other, ast.ClassDef)):
                    waiting.append(other)
            elif isinstance(inner, ast.Attribute):
                words.add(inner.attr.lower())
            elif isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.MatMult):
                words.add("@")
    return words


def calls_of(node: ast.AST) -> list[ast.Call]:
    """Return the calls in some code."""
    return [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]


# The table

Row = Mapping[str, Any]
"""What is known of one name: `name`, `attends`, `uncalled` (why it could not be called) and its `verdict`, as JSON."""


def kept(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of attentions: what is right, and what is not and has the code of one."""
    return [row for row in rows if row["attends"] or outcome(row) == RIGHT]


def table(place: str, rows: Sequence[Row], asked: str) -> str:
    """Return the table of a file: a line for each attention, and which names are none."""
    shown = kept(rows)
    outcomes = [outcome(row) for row in shown]
    counts = ", ".join(f"{outcomes.count(one)} {one}" for one in EXIT_CODES if one in outcomes)
    width = max((len(row["name"]) for row in shown), default=0)
    lines = [f"{Path(place).name}: {counts}   (asked: {asked})", ""]
    lines += [f"  {row['name']:{width}}  {outcome(row):12}  {said_of(row)}".rstrip() for row in shown]
    others = [row["name"] for row in rows if row not in shown]
    lines += ["", f"Not attention: {', '.join(others)}"] if others else []
    return "\n".join(lines)


def outcome(row: Row) -> str:
    """Return the outcome of one name."""
    return NOT_VERIFIED if row["uncalled"] else str(row["verdict"]["outcome"])


def said_of(row: Row) -> str:
    """Return what a line says of one name: the mistakes, what is not verified, or the words to pass."""
    verdict = row["verdict"]
    if row["uncalled"]:
        return cut(f"could not be called: {str(row['uncalled']).removeprefix(row['name']).strip()}")
    if verdict["outcome"] == NOT_VERIFIED:
        return cut("; ".join(verdict["not_verified"]) or verdict["reason"])
    names, under = ", ".join(verdict["mistakes"]), verdict.get("right_under", "")
    if verdict["outcome"] == RIGHT:
        return f"right under {under}" if under else f"remark: {names}" if names else ""
    return names or cut(verdict["computes"])


def cut(text: str) -> str:
    """Return the beginning of a text, as far as a line of the table has room."""
    return text if len(text) <= WIDEST_SAID else f"{text[: WIDEST_SAID - 3].rstrip()}..."
