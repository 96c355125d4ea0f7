"""The source of functions and classes, and their compiled code.

Before Python 3.13, `inspect` parses the whole file on every request for a class, so sources are kept.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterator
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


@functools.lru_cache(maxsize=256)
def source_of(thing: Any) -> str:
    """Return the source of a function or class.

    Raises:
        OSError: the source is not available.
        TypeError: it is not written in Python.
    """
    return inspect.getsource(thing)


def codes_in(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from codes_in(inner)


def names_in(code: CodeType) -> list[str]:
    return list(dict.fromkeys(name for one in codes_in(code) for name in one.co_names))
