"""Run JAX functions operation by operation in NumPy.

JAX takes longer to compile a function than to trace it, and a check calls each function with arrays of many sizes,
once or twice per size. JAX itself runs the operations that have no rule here.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

Rule = Callable[..., Any]

ELEMENTWISE: dict[str, Rule] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "neg": np.negative,
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "tanh": np.tanh,
    "sin": np.sin, "cos": np.cos, "sqrt": np.sqrt, "abs": np.abs,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "square": np.square,
}  # fmt: skip
OF_FLOATS: dict[str, Rule] = {
    "div": np.divide, "erf": np.vectorize(math.erf, [float]), "pow": np.power, "rsqrt": lambda x: 1 / np.sqrt(x),
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip
"""Operations for floats only; JAX runs them on integers, because NumPy's results differ."""
OF_BITS: dict[str, Rule] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.bitwise_not}
ALONG: dict[str, Rule] = {
    "reduce_sum": np.sum, "reduce_max": np.max, "reduce_min": np.min, "reduce_prod": np.prod, "reduce_and": np.all,
    "reduce_or": np.any,
}  # fmt: skip
CALLS = ("pjit", "jit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr",
         "checkpoint", "remat", "remat2", "custom_lin")  # fmt: skip
"""Operations that contain a jaxpr."""


def product(left: Any, right: Any, *, dimension_numbers: Any, **_: Any) -> Any:
    return as_matrices(left, right, dimension_numbers, np.matmul)


def as_matrices(left: Any, right: Any, numbers: Any, multiply: Callable[[Any, Any], Any]) -> Any:
    """Contract any axes of two arrays by calling `multiply` on `[n t d]` and `[n d s]`."""
    (of_left, of_right), (batch, other_batch) = numbers
    free = [axis for axis in range(left.ndim) if axis not in (*of_left, *batch)]
    other_free = [axis for axis in range(right.ndim) if axis not in (*of_right, *other_batch)]
    shape = [left.shape[axis] for axis in (*batch, *free)] + [right.shape[axis] for axis in other_free]
    count, rows = (int(np.prod([left.shape[axis] for axis in axes])) for axes in (batch, free))
    columns, inner = (int(np.prod([right.shape[axis] for axis in axes])) for axes in (other_free, of_right))
    first = left.transpose(*batch, *free, *of_left).reshape(count, rows, inner)
    second = right.transpose(*other_batch, *of_right, *other_free).reshape(count, inner, columns)
    return multiply(first, second).reshape(shape)


def broadcast(array: Any, *_: Any, shape: Sequence[int], broadcast_dimensions: Sequence[int], **__: Any) -> Any:
    whole = [1] * len(shape)
    for axis, length in zip(broadcast_dimensions, np.shape(array), strict=True):
        whole[axis] = length
    return np.broadcast_to(np.reshape(array, whole), shape)


def iota(*_: Any, dtype: Any, shape: Sequence[int], dimension: int, **__: Any) -> Any:
    lengths = [length if axis == dimension else 1 for axis, length in enumerate(shape)]
    return np.broadcast_to(np.arange(shape[dimension], dtype=dtype).reshape(lengths), shape)


def part(array: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    steps = strides or [1] * array.ndim
    return array[tuple(slice(*place) for place in zip(start_indices, limit_indices, steps, strict=True))]


def select(which: Any, *cases: Any) -> Any:
    return np.where(which, cases[1], cases[0]) if which.dtype == np.bool_ else np.choose(which, cases)


def cut(array: Any, *, sizes: Sequence[int], axis: int) -> list[Any]:
    return np.split(array, np.cumsum(sizes)[:-1], axis)


OTHERS: dict[str, Rule] = {
    "dot_general": product, "broadcast_in_dim": broadcast, "iota": iota, "slice": part, "select_n": select,
    "stack": lambda *several, axis=0: np.stack(several, axis), "split": cut,
    "reshape": lambda x, *_, new_sizes, dimensions=None, **__: np.reshape(
        x if dimensions is None else np.transpose(x, dimensions), new_sizes
    ),
    "transpose": lambda x, *, permutation: np.transpose(x, permutation),
    "squeeze": lambda x, *, dimensions: np.squeeze(x, tuple(dimensions)),
    "expand_dims": lambda x, *, dimensions: np.expand_dims(x, tuple(dimensions)),
    "concatenate": lambda *several, dimension: np.concatenate(several, dimension),
    "convert_element_type": lambda x, *, new_dtype, **_: np.asarray(x).astype(new_dtype),
    "integer_pow": lambda x, *, y: x**y if y >= 0 else 1 / x**-y,
    "complex": lambda real, imag: real + 1j * imag, "real": np.real, "imag": np.imag, "conj": lambda x, **_: np.conj(x),
    "stop_gradient": lambda x: x, "copy": lambda x: x, "copy_p": lambda x: x,
    "optimization_barrier": lambda *several: list(several),
}  # fmt: skip
EXACT = ("add", "sub", "mul", "max", "min", "neg", "abs", "eq", "ne", "lt", "le", "gt", "ge")
"""Operations on two numbers that every library rounds correctly."""
MOVES = ("iota", "select_n", "stack", "concatenate", "broadcast_in_dim", "slice", "split", "reshape",
         "transpose", "squeeze", "expand_dims", "stop_gradient", "copy", "copy_p",
         "convert_element_type", "optimization_barrier")  # fmt: skip
"""Operations that move numbers without changing them, except for their dtype."""


def rule_of(name: str, params: Mapping[str, Any], given: Sequence[Any]) -> Rule | None:
    """Return the NumPy implementation of an operation; None if JAX must run it, as in half precision."""
    kinds = [one.dtype if isinstance(one, np.ndarray) else None for one in given]
    if not all(map(is_number, kinds)) or (any(map(is_half, kinds)) and name not in (*EXACT, *MOVES)):
        return None
    # a float may have an integer exponent
    are_floats = all(kind is not None and kind.kind not in "biu" for kind in (kinds[:1] if name == "pow" else kinds))
    makes_whole = name == "convert_element_type" and np.dtype(params["new_dtype"]).kind in "iu"
    if (name in (*OF_FLOATS, "integer_pow") and not are_floats) or (makes_whole and are_floats):
        return None
    if name in ALONG:
        return partial(ALONG[name], axis=tuple(params["axes"]))
    rule = OTHERS.get(name)
    return partial(rule, **params) if rule is not None else (ELEMENTWISE | OF_BITS | OF_FLOATS).get(name)


def is_number(kind: Any) -> bool:
    return kind is not None and (kind.kind in "biufc" or is_half(kind))


def is_half(kind: Any) -> bool:
    return str(kind) in ("float16", "bfloat16")


def trace_for_numpy(function: Callable[..., Any], arrays: Sequence[Any]) -> Callable[..., Any]:
    """Trace a function for arrays of these shapes; return a function that runs its operations in NumPy.

    Constants are evaluated while tracing, so no tracer ends up in state that the function keeps between calls.

    Raises:
        Exception: whatever the function raises while it is traced.
    """
    jax = sys.modules["jax"]

    def evaluate(*now: Any) -> Any:
        with jax.ensure_compile_time_eval():
            return function(*now)

    closed, shape = jax.make_jaxpr(evaluate, return_shape=True)(*arrays)
    tree = jax.tree_util.tree_structure(shape)

    def call(*given: Any) -> Any:
        with np.errstate(all="ignore"):
            said = run_jaxpr(closed.jaxpr, closed.consts, [as_array(one) for one in given], run_equation, as_array)
        return jax.tree_util.tree_unflatten(tree, said)

    return call


def run_equation(step: Any, name: str, arrays: Sequence[Any]) -> list[Any]:
    return one_step(step, name, arrays, rule_of(name, step.params, arrays))


Step = Callable[[Any, str, Sequence[Any]], list[Any]]
"""Runs one operation, given its equation, its name and its inputs."""


def run_jaxpr(
    jaxpr: Any, consts: Sequence[Any], given: Sequence[Any], do: Step, held: Callable[[Any], Any]
) -> list[Any]:  # fmt: skip
    """Run a jaxpr: `do` runs each operation, `held` converts constants."""
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, map(held, consts), strict=True))
    known.update(zip(jaxpr.invars, given, strict=True))
    for step in jaxpr.eqns:
        arrays = [held(one.val) if hasattr(one, "val") else known[one] for one in step.invars]
        inner = next((step.params[word] for word in ("jaxpr", "call_jaxpr", "fun_jaxpr") if word in step.params), None)
        if step.primitive.name in CALLS and inner is not None:
            made = run_jaxpr(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), arrays, do, held)
        else:
            made = do(step, step.primitive.name, arrays)
        known.update(zip(step.outvars, made, strict=True))
    return [held(one.val) if hasattr(one, "val") else known[one] for one in jaxpr.outvars]


def one_step(step: Any, name: str, arrays: Sequence[Any], rule: Rule | None) -> list[Any]:
    if rule is not None:
        said = rule(*arrays)
        several = said if isinstance(said, list) else [said]
        return [np.asarray(one, out.aval.dtype) for one, out in zip(several, step.outvars, strict=True)]
    params = step.primitive.get_bind_params(step.params)
    made, params = params if isinstance(params, tuple) else ((), params)  # up to 0.9, JAX returns functions too
    narrow = [array.astype(one.aval.dtype) if is_wider(array, one.aval) else array
              for array, one in zip(arrays, step.invars, strict=True)]  # fmt: skip
    out = step.primitive.bind(*made, *narrow, **params)
    return [as_array(one) for one in (out if step.primitive.multiple_results else [out])]


def is_wider(array: Any, kind: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype in (np.float64, np.complex128) and array.dtype != kind.dtype


def in_float64(step: Any, name: str, arrays: Sequence[Any]) -> list[Any]:
    """Run one operation in float64 if NumPy has a rule for it."""
    to_floats = name == "convert_element_type" and np.dtype(step.outvars[0].aval.dtype).kind not in "biu"
    rule = None if to_floats else rule_of(name, step.params, arrays)
    said: Any = arrays[0] if to_floats and isinstance(arrays[0], np.ndarray) else NotImplemented
    if rule is not None:
        with np.errstate(all="ignore"):
            said = rule(*arrays)
    several = (
        one_step(step, name, arrays, None) if said is NotImplemented else said if isinstance(said, list) else [said]
    )
    return [wide(one) if is_float(out.aval.dtype) else as_kind(one, out.aval.dtype)
            for one, out in zip(several, step.outvars, strict=True)]  # fmt: skip


def is_float(kind: Any) -> bool:
    return str(kind).startswith(("float", "bfloat", "complex"))


def as_kind(array: Any, kind: Any) -> Any:
    return np.asarray(array, kind) if isinstance(array, np.ndarray | np.generic) else array


def wide(array: Any) -> Any:
    held = as_array(array)
    if not isinstance(held, np.ndarray) or not is_float(held.dtype):
        return held
    return held.astype(np.complex128 if held.dtype.kind == "c" else np.float64)


def as_array(one: Any) -> Any:
    """Convert a JAX array to NumPy, unless it contains random keys.

    Raises:
        Exception: JAX did not have enough memory to compute the array.
    """
    if not hasattr(one, "dtype"):
        return np.asarray(one)
    if str(one.dtype).startswith("key<"):
        return one
    return np.asarray(one.block_until_ready() if hasattr(one, "block_until_ready") else one)


# Turn any function into one of the arrays among its arguments, which JAX can trace and NumPy can run


def trace_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Trace a JAX function once per shape and run it in NumPy; fall back to JAX if that fails.

    Arguments that are not arrays stay fixed. If tracing needs array values, JAX runs the function step by step.
    """
    known = dict[Any, Callable[..., Any]]()

    def whole(*given: Any) -> Any:
        of_them, arrays, key = of_arrays(function, given)
        if key not in known:
            try:
                known[key] = trace_for_numpy(of_them, arrays)
            except Exception as error:
                if not is_about_values(error):
                    raise  # shapes that do not fit fail step by step too
                known[key] = of_them
        return run_in_numpy(known[key], of_them, arrays)

    return whole


def run_in_numpy(run: Callable[..., Any], function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
    """Run a traced function in NumPy, or in JAX if that gives NaN: XLA turns `(mask == 0) * -inf` into a selection."""
    made = run(*arrays)
    parts = map(np.asarray, sys.modules["jax"].tree_util.tree_leaves(made))
    return function(*arrays) if any(one.dtype.kind == "f" and np.isnan(one).any() for one in parts) else made


def is_about_values(error: Exception) -> bool:
    of_jax = sys.modules["jax"].errors
    return isinstance(error, of_jax.JAXTypeError | of_jax.JAXIndexError) or "racer" in str(error)


def of_arrays(function: Callable[..., Any], given: Sequence[Any]) -> tuple[Callable[..., Any], list[Any], Any]:
    """Return a function of the array arguments alone, these arrays, and a cache key for the other arguments."""
    jax = sys.modules["jax"]
    values, tree = jax.tree_util.tree_flatten(given)
    arrays = {place: value for place, value in enumerate(values) if hasattr(value, "dtype")}
    others = {place: value for place, value in enumerate(values) if place not in arrays}
    sizes = tuple((place, tuple(value.shape), str(value.dtype)) for place, value in arrays.items())

    def of_them(*now: Any) -> Any:
        mine = others | dict(zip(arrays, now, strict=True))
        return function(*jax.tree_util.tree_unflatten(tree, [mine[at] for at in range(len(values))]))

    return of_them, list(arrays.values()), (tree, sizes, repr(others))


def trace_call(function: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Call a JAX function; trace it again each time, because it may draw random numbers."""

    def of_both(first: Sequence[Any], others: Mapping[str, Any]) -> Any:
        return function(*first, **others)

    return trace_once(of_both)(list(positional), dict(named))
