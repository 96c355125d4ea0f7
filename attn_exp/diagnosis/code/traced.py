"""Turn any function into one of the arrays among its arguments, which JAX can trace and NumPy can run.

Other arguments stay fixed. If tracing needs array values, JAX runs the function step by step.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from attn_exp.diagnosis.code.jaxprs import taken_apart
from attn_exp.diagnosis.code.source import codes_in, names_in


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Trace a JAX function once per shape and run it in NumPy; fall back to JAX if that fails.

    Arguments that are not arrays stay fixed. If tracing needs array values, JAX runs the function step by step.
    """
    import jax  # noqa: PLC0415 - the layer imported it

    known = dict[Any, Callable[..., Any]]()

    def whole(*given: Any) -> Any:
        of_them, arrays, key = of_arrays(function, given)
        if key not in known:
            try:
                known[key] = traced(of_them, arrays)
            except (jax.errors.JAXTypeError, jax.errors.JAXIndexError, TypeError) as error:
                if not is_about_values(error):
                    raise  # shapes that do not fit fail step by step too
                said = of_them(*arrays)
                known[key] = of_them
                return said
        return known[key](*arrays)

    return whole


def traced(function: Callable[..., Any], arrays: Sequence[Any]) -> Callable[..., Any]:
    """Trace a function of arrays of these shapes for NumPy; if needed, evaluate its constants while tracing.

    Raises:
        Exception: whatever it raises while it is traced.
    """
    import jax  # noqa: PLC0415 - the function is one of JAX

    def at_once(*now: Any) -> Any:
        with jax.ensure_compile_time_eval():
            return function(*now)

    try:
        return taken_apart(function, arrays)
    except Exception as error:
        if not is_about_values(error):
            raise
        return taken_apart(at_once, arrays)


def is_about_values(error: Exception) -> bool:
    """Return whether an error says that tracing needs the values of arrays."""
    of_jax = sys.modules["jax"].errors
    return isinstance(error, of_jax.JAXTypeError | of_jax.JAXIndexError) or "racer" in str(error)


def of_arrays(function: Callable[..., Any], given: Sequence[Any]) -> tuple[Callable[..., Any], list[Any], Any]:
    """Return the function of the arrays alone, those arrays, and a cache key for the other arguments."""
    import jax  # noqa: PLC0415 - the layer imported it

    values, tree = jax.tree_util.tree_flatten(given)
    arrays = {place: value for place, value in enumerate(values) if hasattr(value, "dtype")}
    others = {place: value for place, value in enumerate(values) if place not in arrays}
    sizes = tuple((place, tuple(value.shape), str(value.dtype)) for place, value in arrays.items())

    def of_them(*now: Any) -> Any:
        mine = others | dict(zip(arrays, now, strict=True))
        return function(*jax.tree_util.tree_unflatten(tree, [mine[at] for at in range(len(values))]))

    return of_them, list(arrays.values()), (tree, sizes, repr(others))


def called(function: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Call a JAX function, traced anew, as it may draw its own random numbers in each call.

    If it may keep state between calls, its constants are evaluated while tracing, so that it can keep them. That is
    slower, because JAX compiles each step for each shape.
    """
    import jax  # noqa: PLC0415 - the function is one of JAX

    def of_both(first: Sequence[Any], others: Mapping[str, Any]) -> Any:
        return function(*first, **others)

    def at_once(first: Sequence[Any], others: Mapping[str, Any]) -> Any:
        with jax.ensure_compile_time_eval():
            return function(*first, **others)

    for way in (of_both, at_once) if keeps_nothing(function) else (at_once,):
        of_them, arrays, _ = of_arrays(way, (list(positional), dict(named)))
        try:
            return taken_apart(of_them, arrays)(*arrays)
        except Exception as error:
            if not is_about_values(error):
                raise
    return function(*positional, **named)


def keeps_nothing(function: Any) -> bool:
    """Return whether no code that a function reaches in its file writes to anything that outlives a call."""
    ahead, met, writes, holds = [function], set[int](), False, False
    while ahead:
        one = ahead.pop()
        if id(one) in met or isinstance(one, PLAIN) or home_of(one) in LIBRARIES:
            continue
        met.add(id(one))
        if inspect.isfunction(one):
            codes = list(codes_in(one.__code__))
            if any(is_kept(code) for code in codes):
                return False
            writes |= any(set(code.co_code[::2]) & {dis.opmap["STORE_SUBSCR"]} or MUTATING & set(code.co_names)
                          for code in codes)  # fmt: skip
            read = set(names_in(one.__code__)) & set(one.__globals__)
            ahead += [one.__globals__[name] for name in read]
            ahead += [cell.cell_contents for cell in one.__closure__ or () if holds_something(cell)]
            ahead += [*(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values()]
        elif inspect.isclass(one):
            ahead += [made for name, made in vars(one).items() if inspect.isfunction(made)
                      and (name == "__call__" or not name.startswith("__"))]  # fmt: skip
        elif hasattr(one, "cache_info"):
            return False
        elif isinstance(one, dict | list | set):
            holds = True
        elif home_of(one) == "attn_exp" or hasattr(one, "__wrapped__") or inspect.ismethod(one):
            inner = (getattr(one, word, None) for word in ("function", "__wrapped__", "__func__", "__self__"))
            ahead += [part for part in inner if part is not None]
        else:
            ahead += [type(one), *getattr(one, "__dict__", {}).values()]
    return not (writes and holds)


PLAIN = (type(None), bool, int, float, complex, str, bytes, tuple, np.ndarray, np.generic, ModuleType)
LIBRARIES = ("jax", "jaxlib", "numpy", "builtins", "functools", "math", "typing", "einops", "dataclasses", "flax",
             "equinox", "haiku", "collections", "operator", "enum", "abc")  # fmt: skip
"""Packages whose functions keep no state between calls."""
MUTATING = {"append", "add", "update", "setdefault", "extend", "insert", "pop"}


def home_of(one: Any) -> str:
    """Return the top-level package of an object; empty for containers and wrappers."""
    if isinstance(one, dict | list | set) or hasattr(one, "cache_info"):
        return ""
    home = getattr(one, "__module__", None) or type(one).__module__
    is_wrapped = hasattr(one, "__wrapped__")
    return "" if is_wrapped else str(home).partition(".")[0]


def is_kept(code: CodeType) -> bool:
    """Return whether code writes to a global, to a variable of an enclosing function, or to an attribute."""
    done = [(step.opname, step.argval) for step in dis.get_instructions(code) if step.opname in OUTSIDE]
    return any(name != "STORE_DEREF" or word in code.co_freevars for name, word in done)


OUTSIDE = ("STORE_GLOBAL", "STORE_ATTR", "STORE_DEREF")


def holds_something(cell: Any) -> bool:
    """Return whether a closure cell holds a value."""
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
