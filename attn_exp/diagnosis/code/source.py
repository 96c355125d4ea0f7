"""The source of functions and classes, and their compiled code.

Before Python 3.13, `inspect` parses the whole file on every request for a class; for a long file that took a fifth
of a check.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import textwrap
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any


def tree_of(thing: Any) -> ast.Module:
    """Parse the source of a function or class.

    Raises:
        OSError: the source is not available.
        TypeError: it is not written in Python.
        SyntaxError: it is part of a line, such as a lambda, that does not parse alone.
    """
    return ast.parse(textwrap.dedent(source_of(thing)))


def source_of(thing: Any) -> str:
    """Return the source of a function or class.

    Raises:
        OSError: the source is not available.
        TypeError: it is not written in Python.
    """
    file = inspect.getsourcefile(thing) if inspect.isclass(thing) else None
    if file is None:
        return inspect.getsource(thing)
    linecache.checkcache(file)
    lines = linecache.getlines(file, getattr(inspect.getmodule(thing, file), "__dict__", None))
    first = vars(thing).get("__firstlineno__")  # from Python 3.13 on
    for start, end in places_of_classes("".join(lines)).get(thing.__qualname__, ()):
        if first in (None, start):
            return "".join(lines[start - 1 : end])
    raise OSError(f"{thing.__qualname__} is not in {file}")


@functools.lru_cache(maxsize=32)
def places_of_classes(code: str) -> Mapping[str, list[tuple[int, int]]]:
    """Return the first and last lines of all classes in a file, by qualified name."""
    found: dict[str, list[tuple[int, int]]] = {}
    for name, node in classes_in(ast.parse(code), ""):
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        found.setdefault(name, []).append((first, node.end_lineno or first))
    return found


def classes_in(tree: ast.AST, before: str) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield the classes below a node by qualified name; `before` is the prefix."""
    for node in ast.iter_child_nodes(tree):
        inside = before
        if isinstance(node, ast.ClassDef):
            yield f"{before}{node.name}", node
            inside = f"{before}{node.name}."
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = f"{before}{node.name}.<locals>."
        if not isinstance(node, ast.expr):
            yield from classes_in(node, inside)


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and those of all functions inside it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from codes_in(inner)


def names_in(code: CodeType) -> list[str]:
    """Return the names used by a code object and the functions inside it, in order, without duplicates."""
    return list(dict.fromkeys(name for one in codes_in(code) for name in one.co_names))
