"""Run JAX functions operation by operation in NumPy.

A *jaxpr* is what JAX records when it traces a function: a list of equations, each with an operation, its inputs and its
outputs. `trace_once` traces a function for each shape of its arguments, `run_jaxpr` runs the equations, and `rule_of`
finds the NumPy implementation of each.

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
"""The NumPy implementation of an operation."""
RunEquation = Callable[[Any, str, Sequence[Any]], list[Any]]
"""Runs one operation, given its equation, its name and its inputs."""

ELEMENTWISE: dict[str, Rule] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "neg": np.negative,
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "tanh": np.tanh,
    "sin": np.sin, "cos": np.cos, "sqrt": np.sqrt, "abs": np.abs,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "square": np.square,
}  # fmt: skip
"""Elementwise operations, in any dtype."""
FLOATS_ONLY: dict[str, Rule] = {
    "div": np.divide, "erf": np.vectorize(math.erf, [float]), "pow": np.power, "rsqrt": lambda x: 1 / np.sqrt(x),
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip
"""Operations for floats only; JAX runs them on integers, because NumPy's results differ."""
BITWISE: dict[str, Rule] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.bitwise_not}
REDUCTIONS: dict[str, Rule] = {
    "reduce_sum": np.sum, "reduce_max": np.max, "reduce_min": np.min, "reduce_prod": np.prod, "reduce_and": np.all,
    "reduce_or": np.any,
}  # fmt: skip
CALLS = ("pjit", "jit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr",
         "checkpoint", "remat", "remat2", "custom_lin")  # fmt: skip
"""Operations that contain a jaxpr."""


def contract(left: Any, right: Any, dimension_numbers: Any, multiply: Callable[[Any, Any], Any]) -> Any:
    """Contract any axes of two arrays by calling `multiply` on `[n t d]` and `[n d s]`, which sums over d.

    `dimension_numbers` are those of JAX: the contracted axes of both arrays, and their batch axes.
    """
    (left_summed, right_summed), (left_batch, right_batch) = dimension_numbers
    left_free = [axis for axis in range(left.ndim) if axis not in (*left_summed, *left_batch)]
    right_free = [axis for axis in range(right.ndim) if axis not in (*right_summed, *right_batch)]
    shape = [left.shape[axis] for axis in (*left_batch, *left_free)] + [right.shape[axis] for axis in right_free]
    batch_size, rows = (int(np.prod([left.shape[axis] for axis in axes])) for axes in (left_batch, left_free))
    columns, summed_size = (int(np.prod([right.shape[axis] for axis in axes])) for axes in (right_free, right_summed))
    left_matrices = left.transpose(*left_batch, *left_free, *left_summed).reshape(batch_size, rows, summed_size)
    right_matrices = right.transpose(*right_batch, *right_summed, *right_free).reshape(batch_size, summed_size, columns)
    return multiply(left_matrices, right_matrices).reshape(shape)


def broadcast(array: Any, *_: Any, shape: Sequence[int], broadcast_dimensions: Sequence[int], **__: Any) -> Any:
    # axis i of the array becomes axis `broadcast_dimensions[i]` of the result
    aligned = [1] * len(shape)
    for axis, length in zip(broadcast_dimensions, np.shape(array), strict=True):
        aligned[axis] = length
    return np.broadcast_to(np.reshape(array, aligned), shape)


def make_iota(*_: Any, dtype: Any, shape: Sequence[int], dimension: int, **__: Any) -> Any:
    lengths = [length if axis == dimension else 1 for axis, length in enumerate(shape)]
    return np.broadcast_to(np.arange(shape[dimension], dtype=dtype).reshape(lengths), shape)


def slice_array(array: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    steps = strides or [1] * array.ndim
    return array[tuple(slice(*bounds) for bounds in zip(start_indices, limit_indices, steps, strict=True))]


OTHERS: dict[str, Rule] = {
    "dot_general": lambda left, right, *, dimension_numbers, **_: contract(left, right, dimension_numbers, np.matmul),
    "broadcast_in_dim": broadcast, "iota": make_iota, "slice": slice_array,
    "select_n": lambda which, *cases: (
        np.where(which, cases[1], cases[0]) if which.dtype == np.bool_ else np.choose(which, cases)
    ),
    "stack": lambda *several, axis=0: np.stack(several, axis),
    "split": lambda x, *, sizes, axis: np.split(x, np.cumsum(sizes)[:-1], axis),
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
"""Elementwise operations whose results every library rounds correctly."""
MOVES = ("iota", "select_n", "stack", "concatenate", "broadcast_in_dim", "slice", "split", "reshape",
         "transpose", "squeeze", "expand_dims", "stop_gradient", "copy", "copy_p",
         "convert_element_type", "optimization_barrier")  # fmt: skip
"""Operations that move numbers without changing them, except for their dtype."""


def rule_of(name: str, params: Mapping[str, Any], arrays: Sequence[Any]) -> Rule | None:
    """Return the NumPy implementation of an operation; None if JAX must run it, as in half precision."""
    dtypes = [array.dtype if isinstance(array, np.ndarray) else None for array in arrays]
    if not all(map(is_number, dtypes)) or (any(map(is_half, dtypes)) and name not in (*EXACT, *MOVES)):
        return None
    dtypes_to_test = dtypes[:1] if name == "pow" else dtypes  # a float may have an integer exponent
    are_floats = not any(dtype is None or dtype.kind in "biu" for dtype in dtypes_to_test)
    if name in (*FLOATS_ONLY, "integer_pow") and not are_floats:
        return None
    if name == "convert_element_type" and are_floats and np.dtype(params["new_dtype"]).kind in "iu":
        return None  # NumPy converts NaN and large floats to other integers than JAX does
    if name in REDUCTIONS:
        return partial(REDUCTIONS[name], axis=tuple(params["axes"]))
    rule = OTHERS.get(name)
    return partial(rule, **params) if rule is not None else (ELEMENTWISE | BITWISE | FLOATS_ONLY).get(name)


def is_number(dtype: Any) -> bool:
    return dtype is not None and (dtype.kind in "biufc" or is_half(dtype))


def is_half(dtype: Any) -> bool:
    return str(dtype) in ("float16", "bfloat16")


def trace_for_numpy(function: Callable[..., Any], arrays: Sequence[Any]) -> Callable[..., Any]:
    """Trace a function for arrays of these shapes; return a function that runs its operations in NumPy.

    Constants are evaluated while tracing, so no tracer ends up in state that the function keeps between calls.

    Raises:
        Exception: whatever the function raises while it is traced.
    """
    jax = sys.modules["jax"]

    def evaluate(*tracers: Any) -> Any:
        with jax.ensure_compile_time_eval():
            return function(*tracers)

    closed_jaxpr, output_shapes = jax.make_jaxpr(evaluate, return_shape=True)(*arrays)
    output_tree = jax.tree_util.tree_structure(output_shapes)

    def run(*inputs: Any) -> Any:
        with np.errstate(all="ignore"):
            results = run_jaxpr(
                closed_jaxpr.jaxpr, closed_jaxpr.consts, list(map(as_array, inputs)), run_equation, as_array
            )
        return jax.tree_util.tree_unflatten(output_tree, results)

    return run


def run_equation(equation: Any, name: str, arrays: Sequence[Any]) -> list[Any]:
    """Run one equation in its own dtypes, in NumPy or JAX."""
    return run_by_rule(equation, arrays, rule_of(name, equation.params, arrays))


def run_jaxpr(
    jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any], run: RunEquation, convert: Callable[[Any], Any]
) -> list[Any]:  # fmt: skip
    """Return the outputs of a jaxpr: `run` runs each equation, and `convert` converts constants.

    Equations that call another jaxpr, such as a jitted function, are replaced by the equations of that jaxpr.
    """
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, map(convert, consts), strict=True))
    values.update(zip(jaxpr.invars, inputs, strict=True))

    def value_of(variable: Any) -> Any:  # a literal has its value in `val`
        return convert(variable.val) if hasattr(variable, "val") else values[variable]

    for equation in jaxpr.eqns:
        name, params, arrays = equation.primitive.name, equation.params, list(map(value_of, equation.invars))
        inner = next((params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params), None)
        if name in CALLS and inner is not None:
            results = run_jaxpr(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), arrays, run, convert)
        else:
            results = run(equation, name, arrays)
        values.update(zip(equation.outvars, results, strict=True))
    return list(map(value_of, jaxpr.outvars))


def run_by_rule(equation: Any, arrays: Sequence[Any], rule: Rule | None) -> list[Any]:
    """Run an equation in its own dtypes and return its outputs; JAX runs it if there is no NumPy rule."""
    if rule is not None:
        outputs = zip(as_list(rule(*arrays)), equation.outvars, strict=True)
        return [np.asarray(array, variable.aval.dtype) for array, variable in outputs]
    params = equation.primitive.get_bind_params(equation.params)
    functions, params = params if isinstance(params, tuple) else ((), params)  # up to 0.9, JAX returns functions too
    inputs = [array.astype(variable.aval.dtype) if is_wider(array, variable.aval) else array
              for array, variable in zip(arrays, equation.invars, strict=True)]  # fmt: skip
    results = equation.primitive.bind(*functions, *inputs, **params)
    return [as_array(result) for result in (results if equation.primitive.multiple_results else [results])]


def as_list(results: Any) -> list[Any]:
    return results if isinstance(results, list) else [results]


def is_wider(array: Any, aval: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype in (np.float64, np.complex128) and array.dtype != aval.dtype


def run_in_float64(equation: Any, name: str, arrays: Sequence[Any]) -> list[Any]:
    """Run one equation in float64 if NumPy has a rule for it."""
    dtypes = [variable.aval.dtype for variable in equation.outvars]
    if name == "convert_element_type" and np.dtype(dtypes[0]).kind not in "biu":
        # a conversion from one float to another keeps float64
        rule = np.asarray if isinstance(arrays[0], np.ndarray) else None
    else:
        rule = rule_of(name, equation.params, arrays)
    with np.errstate(all="ignore"):
        outputs = run_by_rule(equation, arrays, None) if rule is None else as_list(rule(*arrays))
    return [to_float64(array) if is_float(dtype)
            else np.asarray(array, dtype) if isinstance(array, np.ndarray | np.generic) else array
            for array, dtype in zip(outputs, dtypes, strict=True)]  # fmt: skip


def is_float(dtype: Any) -> bool:
    return str(dtype).startswith(("float", "bfloat", "complex"))


def to_float64(value: Any) -> Any:
    """Convert floats to float64 and complex numbers to complex128."""
    array = as_array(value)
    if not isinstance(array, np.ndarray) or not is_float(array.dtype):
        return array
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def as_array(array: Any) -> Any:
    """Convert a JAX array to NumPy, unless it contains random keys.

    Raises:
        Exception: JAX did not have enough memory to compute the array.
    """
    if not hasattr(array, "dtype"):
        return np.asarray(array)
    if str(array.dtype).startswith("key<"):
        return array
    return np.asarray(array.block_until_ready() if hasattr(array, "block_until_ready") else array)


# Turn a function into one that takes only its array arguments, so that JAX can trace it and NumPy can run it


def trace_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes the same in NumPy, by tracing the JAX function once per combination of shapes.

    Arguments that are not arrays become constants of the trace. If tracing needs the values of arrays, or if NumPy
    gives NaN, JAX runs the function itself.
    """
    traced = dict[Any, Callable[..., Any]]()

    def call(*arguments: Any) -> Any:
        array_function, arrays, key = separate_arrays(function, arguments)
        if key not in traced:
            try:
                traced[key] = trace_for_numpy(array_function, arrays)
            except Exception as error:
                if not is_about_values(error):
                    raise  # mismatched shapes also fail when run step by step
                traced[key] = array_function
        return run_in_numpy(traced[key], array_function, arrays)

    return call


def run_in_numpy(run: Callable[..., Any], function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
    """Run a traced function in NumPy. If the result has NaN, run it in JAX.

    XLA avoids some NaNs: it turns `(mask == 0) * -inf` into a select.
    """
    results = run(*arrays)
    outputs = map(np.asarray, sys.modules["jax"].tree_util.tree_leaves(results))
    has_nan = any(output.dtype.kind == "f" and np.isnan(output).any() for output in outputs)
    return function(*arrays) if has_nan else results


def is_about_values(error: Exception) -> bool:
    """Return whether tracing failed because the code needs the values of an array, as `if x.sum() > 0` does."""
    errors = sys.modules["jax"].errors
    return isinstance(error, errors.JAXTypeError | errors.JAXIndexError) or "racer" in str(error)


def separate_arrays(
    function: Callable[..., Any], arguments: Sequence[Any]
) -> tuple[Callable[..., Any], list[Any], Any]:
    """Return three things: a function of the array arguments only, these arrays, and a cache key.

    The key contains the shapes and dtypes of the arrays, and all other arguments.
    """
    jax = sys.modules["jax"]
    leaves, tree = jax.tree_util.tree_flatten(arguments)
    arrays = {index: value for index, value in enumerate(leaves) if hasattr(value, "dtype")}
    constants = {index: value for index, value in enumerate(leaves) if index not in arrays}
    sizes = tuple((index, tuple(value.shape), str(value.dtype)) for index, value in arrays.items())

    def array_function(*new_arrays: Any) -> Any:
        merged = constants | dict(zip(arrays, new_arrays, strict=True))
        return function(*jax.tree_util.tree_unflatten(tree, [merged[index] for index in range(len(leaves))]))

    return array_function, list(arrays.values()), (tree, sizes, repr(constants))


def trace_call(function: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Call a JAX function; trace it again each time, because it may draw random numbers."""
    return trace_once(lambda arguments, keywords: function(*arguments, **keywords))(list(positional), dict(named))
