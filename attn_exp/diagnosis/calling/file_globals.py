"""Sizes that a function reads from its file's globals, and the caches that it takes as arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

from attn_exp.diagnosis.calling.neutral import (
    BATCH,
    GROUPS,
    HEADS,
    KEYS,
    ROWS,
    SHARE,
    SIZE,
    WIDTH,
    Source,
    hinted,
)
from attn_exp.diagnosis.code.source import names_in

ONE_AT_A_TIME = RLock()
SIZES = (HEADS, GROUPS, SHARE, SIZE, WIDTH, BATCH, ROWS, KEYS)


@contextmanager
def replace_globals(function: Callable[..., Any], values: Mapping[str, Any]) -> Iterator[None]:
    """Replace some globals of a function's file for the duration of a call."""
    if not values:  # so that calls may run at the same time
        yield
        return
    space = getattr(inspect.unwrap(function), "__globals__", {})
    with ONE_AT_A_TIME:
        before = {name: space[name] for name in values}
        try:
            space.update(values)
            yield
        finally:
            space.update(before)


def find_global_sizes(function: Any) -> dict[str, Source]:
    """Return the sizes that a function reads from its file, by name; none if the file also holds arrays of them."""
    read = read_globals(function) if inspect.isfunction(inspect.unwrap(function)) else {}
    values = {name: value for name, value in read.items() if not is_definition(value)}
    if any(getattr(value, "ndim", 0) for value in values.values()):
        return {}
    sizes = {name: size for name, value in read.items() if type(value) is int and (size := size_named(name))}
    heads, head_sizes = ({read[name] for name, size in sizes.items() if size is one} for one in (HEADS, SIZE))
    wide = {count * size for count in heads for size in head_sizes if count > 1}  # `d` beside `d_head` is that of x
    return {name: WIDTH if size is SIZE and read[name] in wide else size for name, size in sizes.items()}


def read_globals(function: Any) -> dict[str, Any]:
    """Return the globals that a function reads, and those that the functions of its file read that it calls."""
    code = inspect.unwrap(function)
    space, found, rest = getattr(code, "__globals__", {}), dict[str, Any](), [code]
    for one in rest:
        for name in names_in(one.__code__) if inspect.isfunction(one) else ():
            if name in space and name not in found:
                found[name] = space[name]
                inner = inspect.unwrap(space[name])
                rest += [inner] if inspect.isfunction(inner) and inner.__globals__ is space else []
    return found


def is_definition(value: Any) -> bool:
    """Return whether a value is a module, a class or a function."""
    return inspect.isroutine(value) or inspect.ismodule(value) or inspect.isclass(value)


def size_named(name: str) -> Source | None:
    """Return the size that a name stands for, or None."""
    first = next(hinted(name.strip("_"), ""), None)
    return first if first in SIZES else None


def is_cache_name(name: str) -> bool:
    """Return whether an argument name stands for what earlier tokens left."""
    return bool(re.search(r"(?i)cache|past|prev|hist", name))


def next_caches(rest: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """Return what a call returned after its output as the caches of the next call; nothing if it updates in place."""
    inner = rest[0] if len(rest) == 1 and len(names) > 1 and isinstance(rest[0], tuple | list) else rest
    return dict(zip(names, inner, strict=True)) if len(inner) == len(names) else {}
