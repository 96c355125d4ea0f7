"""Functions of anything as functions of the arrays in it alone, which JAX can trace, and NumPy do.

What is no array stays as it is. Where the values of arrays are wanted meanwhile, JAX does it step by step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attn_exp.diagnosis.jaxprs import taken_apart


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of JAX that is traced once for each shape, and done in NumPy; where that fails, by JAX.

    What is no array stays as it is. Where the values of arrays are wanted meanwhile, JAX does it step by step.
    """
    import jax  # noqa: PLC0415 - the layer brought it

    known = dict[Any, Callable[..., Any]]()

    def whole(*given: Any) -> Any:
        of_them, arrays, key = of_arrays(function, given)
        if key not in known:
            try:
                known[key] = traced(of_them, arrays)
            except (jax.errors.JAXTypeError, jax.errors.JAXIndexError, TypeError) as error:
                if not is_about_values(error):
                    raise  # shapes that do not fit: step by step they do not either
                said = of_them(*arrays)
                known[key] = of_them
                return said
        return known[key](*arrays)

    return whole


def traced(function: Callable[..., Any], arrays: Sequence[Any]) -> Callable[..., Any]:
    """Return a function of arrays of these sizes as NumPy does it; what it makes of none of them may be wanted at once.

    Raises:
        Exception: whatever it raises as it is traced.
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
    """Say whether an error says that the values of arrays are wanted while a function is traced."""
    of_jax = sys.modules["jax"].errors
    return isinstance(error, of_jax.JAXTypeError | of_jax.JAXIndexError) or "racer" in str(error)


def of_arrays(function: Callable[..., Any], given: Sequence[Any]) -> tuple[Callable[..., Any], list[Any], Any]:
    """Return a function of what it is given as one of the arrays in that alone, these, and what tells others apart."""
    import jax  # noqa: PLC0415 - the layer brought it

    values, tree = jax.tree_util.tree_flatten(given)
    arrays = {place: value for place, value in enumerate(values) if hasattr(value, "dtype")}
    others = {place: value for place, value in enumerate(values) if place not in arrays}
    sizes = tuple((place, tuple(value.shape), str(value.dtype)) for place, value in arrays.items())

    def of_them(*now: Any) -> Any:
        mine = others | dict(zip(arrays, now, strict=True))
        return function(*jax.tree_util.tree_unflatten(tree, [mine[at] for at in range(len(values))]))

    return of_them, list(arrays.values()), (tree, sizes, repr(others))


def called(function: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Return what a function of JAX answers, traced anew: it may keep something from call to call.

    What it makes of no array that it is given, it makes at once, so that it may keep that too.
    """
    import jax  # noqa: PLC0415 - the function is one of JAX

    def of_both(first: Sequence[Any], others: Mapping[str, Any]) -> Any:
        with jax.ensure_compile_time_eval():
            return function(*first, **others)

    of_them, arrays, _ = of_arrays(of_both, (list(positional), dict(named)))
    try:
        whole = taken_apart(of_them, arrays)
    except Exception as error:
        if not is_about_values(error):
            raise
        return function(*positional, **named)
    return whole(*arrays)
