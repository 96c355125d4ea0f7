"""Arrays of NumPy, PyTorch and JAX: find a function's library, convert to and from it, and read what a call returned.

1. `list_likely_libraries` lists those to try for a function; `load_library` returns the conversions of one of them.
2. `stack`, `join` and `convert_like` work on arrays of any library.
3. `read_outputs` turns what a call returned into float64 arrays by name, such as `{"output": ..., "returned 1": ...}`.

Reading anything from a user's object may run user code: its shape, its class, its conversion to an array. All of that
happens here, while `own_code.guard_process` protects the process. The results are plain arrays that nothing else uses.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from attn_exp.arrays import Array, bfloat16
from attn_exp.diagnosis.asking.names import source_with_helpers
from attn_exp.errors import UncalledError, UserError, first_line, unknown
from attn_exp.own_code import error_line, guard_process

LIBRARIES = ("numpy", "torch", "jax")
DTYPES = ("float64", "float32", "float16", "bfloat16")
DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
"""Significant bits of each dtype."""

NUMPY = {name: value for name, value in vars(np).items() if callable(value)}
"""NumPy's functions as they were before user code could replace any."""
METHODS = ("forward", "__call__", "call")
"""Methods of a class that may be what the user calls."""
CONTENTS = {"b": "booleans", "c": "complex numbers", "S": "bytes", "U": "strings", "O": "Python objects", "M": "dates",
         "m": "time differences", "V": "records"}  # fmt: skip
"""What arrays without real numbers contain, by NumPy's dtype kind."""
REAL_KINDS = ("f", "i", "u")
"""NumPy's dtype kinds of real numbers."""
SMALL_FLOATS = ("bfloat", "float")
"""Prefixes of floating-point dtypes that other packages add to NumPy, which has no kind for them."""
OUTPUTS = ("output", "out", "context", "attn_output", "result", "o")
"""Names of the field or key that holds the output, if a function returns several arrays by name."""
MAX_RESULTS = 3
"""A longer list of vectors is read as the rows of a matrix, not as several results."""


def replaced_in_numpy() -> list[str]:
    """Return the NumPy functions that user code replaced, which would invalidate the expected results."""
    return [f"numpy.{name}" for name, value in NUMPY.items() if vars(np).get(name) is not value]


@dataclass(frozen=True)
class Library:
    """Converts arrays to and from a library.

    - `into`: converts a NumPy array to the library; the second argument is the dtype of floats.
    - `back`: converts an array of the library, such as a result of `into`, to NumPy, and floats to float64.
    - `read`: converts an array from user code to NumPy, in the same or a wider dtype. It returns the array and the name
      of its original dtype. If the array has more elements than the second argument, it returns their number instead
      of the array.
    - `widest`: the widest floating-point dtype that the library uses by default.
    """

    name: str
    into: Callable[[Array, str], Any]
    back: Callable[[Any], Array]
    read: Callable[[Any, int], tuple[Array | int, str]]
    widest: str


def load_library(name: str, device: str = "cpu") -> Library:
    """Return a library by name.

    Raises:
        UserError: there is no such library, or it is not installed.
    """
    if name not in LIBRARIES:
        raise UserError(unknown(name, LIBRARIES, "takes"))
    if find_spec(name) is None:
        raise UserError(f"takes={name}: {name} is not installed; pip install {name}")
    return {"numpy": make_numpy, "torch": lambda: make_torch(device), "jax": make_jax}[name]()


def make_numpy() -> Library:
    def into(array: Array, dtype: str) -> Any:
        return array.copy() if array.dtype.kind in "bi" else array.astype(bfloat16() if dtype == "bfloat16" else dtype)

    return Library("numpy", into, to_float64, read_array, "float64")


def to_float64(array: Any) -> Array:
    as_numpy = np.asarray(array)
    return as_numpy.astype(np.float64) if as_numpy.dtype.kind not in "bi" else as_numpy


def read_array(array: Any, max_size: int) -> tuple[Array | int, str]:
    """Convert an array to NumPy, or return its size if that exceeds `max_size`; also return the name of its dtype."""
    as_numpy = np.asarray(array)
    return (as_numpy if as_numpy.size <= max_size else int(as_numpy.size)), str(as_numpy.dtype)


def make_torch(device: str) -> Library:
    """Return the `Library` for PyTorch on a device.

    Raises:
        UserError: there is no such device.
        UncalledError: PyTorch cannot use the device on this machine.
    """
    torch = module_of("torch")
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        # "Expected one of": PyTorch knows no such device; otherwise this machine lacks it
        error_class = UserError if "Expected one of" in str(error) else UncalledError
        raise error_class(f"device={device}: torch cannot use it here ({first_line(error)})") from error

    def convert(array: Array, dtype: str) -> Any:
        tensor = torch.from_numpy(np.array(array, copy=True))
        return tensor.to(device) if array.dtype.kind in "bi" else tensor.to(device, getattr(torch, dtype))

    def back(tensor: Any) -> Array:
        return to_float64(to_numpy(tensor) if torch.is_tensor(tensor) else tensor)

    def to_numpy(tensor: Any) -> Any:  # NumPy has no bfloat16
        return tensor.detach().cpu().to(torch.float64 if tensor.is_floating_point() else tensor.dtype).numpy()

    def read(tensor: Any, most: int) -> tuple[Array | int, str]:
        if not torch.is_tensor(tensor):
            return read_array(tensor, most)
        dtype = str(tensor.dtype).removeprefix("torch.")
        if tensor.numel() > most:
            return int(tensor.numel()), dtype
        return to_numpy(tensor.resolve_neg().resolve_conj()), dtype

    return Library("torch", convert, back, read, "float64")


def make_jax() -> Library:
    jnp = module_of("jax")
    return Library(
        "jax",
        lambda array, dtype: copy_to_jax(array, None if array.dtype.kind in "bi" else jnp.dtype(dtype)),
        lambda array: to_float64(np.asarray(array)),
        read_array,
        "float64" if jnp.asarray(1.0).dtype == jnp.float64 else "float32",
    )


def copy_to_jax(array: Array, dtype: Any = None) -> Any:
    """Copy an array to JAX; `jnp.asarray` would compile for each shape."""
    return sys.modules["jax"].device_put(np.array(array, dtype))


def list_likely_libraries(function: Any) -> tuple[str, ...]:
    """Return the libraries to try, likeliest first: those that a function's code names, then all others imported.

    For a function that is part of a library, only that library is returned.
    """
    package = (getattr(function, "__module__", None) or type(function).__module__).split(".")[0]
    if package in LIBRARIES:
        return (package,)
    libraries_named = find_named_libraries(function)
    likely = [name for name in ("torch", "jax", "numpy") if name in libraries_named]
    loaded = (name for name in LIBRARIES if name == "numpy" or name in sys.modules)
    return tuple(dict.fromkeys((*likely, *loaded)))


def find_named_libraries(function: Any) -> set[str]:
    """Return the libraries that the code of a function or class refers to."""
    if inspect.isclass(function):
        if any(base.__module__.startswith("torch.nn") for base in function.__mro__):
            return {"torch"}
        function = next(filter(inspect.isfunction, (getattr(function, name, None) for name in METHODS)), function)
    function = inspect.unwrap(function) if hasattr(function, "__wrapped__") else function  # a jitted function
    source = source_with_helpers(function)
    module_name = getattr(function, "__module__", None) or ""
    globals_of_file = vars(sys.modules.get(module_name, inspect))
    values = [globals_of_file[word] for word in set(re.findall(r"\w+", source)) if word in globals_of_file]
    modules = {str(getattr(value, field, "") or "") for value in values for field in ("__name__", "__module__")}
    modules |= set(re.findall(r"\w+\.", source))  # a quoted annotation may name a library that the file does not import
    return {module.partition(".")[0] for module in modules} & set(LIBRARIES)


# Functions common to all libraries


def stack(arrays: Sequence[Any], axis: int) -> Any:
    return module_of(library_of(arrays[0])).stack(tuple(arrays), axis)


def join(arrays: Sequence[Any], axis: int) -> Any:
    module = module_of(library_of(arrays[0]))
    return (module.cat if hasattr(module, "cat") else module.concatenate)(tuple(arrays), axis)


def convert_like(array: Array, x: Any) -> Any:
    """Convert a NumPy array to the library and device of x, and floats to its dtype."""
    library = library_of(x)
    if library == "torch":
        tensor = module_of(library).as_tensor(array, device=x.device)
        if tensor.is_complex():
            return tensor.to(x.dtype.to_complex())
        return tensor.to(x.dtype) if tensor.is_floating_point() else tensor
    dtype = x.dtype if array.dtype.kind == "f" else None
    if array.dtype.kind == "c":
        dtype = module_of(library).result_type(x.dtype, np.complex64)
    if library == "jax":
        return copy_to_jax(array, dtype)
    return array if dtype is None else array.astype(dtype)


def library_of(array: Any) -> str:
    name = type(array).__module__.partition(".")[0].replace("jaxlib", "jax")
    return name if name in LIBRARIES else "numpy"


def module_of(name: str) -> Any:
    """Import a library on first use and return its module; for JAX, `jax.numpy`."""
    return import_module("jax.numpy" if name == "jax" else name)


# What a call returned, as plain arrays or as an error that says what it is instead


class NoNumbersError(Exception):
    """The function returned no array of real numbers; the message says what it returned."""


def read_outputs(returned: Any, library: Library, max_size: int, output_part: str = "") -> tuple[dict[str, Array], str]:
    """Return the arrays of an answer in float64, the output first, and the dtype of the output.

    Additional results that are not arrays of real numbers are left out. `max_size` is the maximum number of elements
    per array; `output_part` names the output if it is not the first.

    Raises:
        NoNumbersError: there is no output, or it is not an array of real numbers.
    """
    try:
        arrays_by_name = collect_arrays(returned)
        if not arrays_by_name:
            kind = "nothing" if returned is None else f"a {type(returned).__name__}"
            raise NoNumbersError(f"returned {kind}; expected an array")
        output_name = output_part if output_part in arrays_by_name else next(iter(arrays_by_name))
        output, dtype = read_real(arrays_by_name.pop(output_name), library, max_size)
        outputs = {output_name: output}
        for name, other in arrays_by_name.items():
            with suppress(Exception), guard_process():
                outputs[name] = read_real(other, library, max_size)[0]
    except NoNumbersError:
        raise
    except Exception as error:
        raise NoNumbersError(f"returned something that is not an array: {error_line(error)}") from error
    return outputs, dtype


def collect_arrays(returned: Any) -> dict[str, Any]:
    """Return the arrays of an answer by name, the output first.

    For a list of arrays of equal shape, such as heads, also return them stacked.
    """
    returned = stack_rows(returned)
    if not isinstance(returned, Mapping) and hasattr(returned, "shape"):
        return {"output": returned}
    if isinstance(returned, tuple | list):
        return {**dict(list_arrays(returned, "returned")), **stack_list(returned)}
    fields = returned if isinstance(returned, Mapping) else get_fields(returned)
    output_name = [name for name in OUTPUTS if name in fields][:1]
    names = [*output_name, *(name for name in fields if name not in output_name)]
    return dict(leaf for name in names for leaf in list_arrays(fields[name], str(name)))


def stack_rows(returned: Any) -> Any:
    """Convert a list of rows, each a list of numbers or a vector, to an array; return anything else unchanged."""
    if not isinstance(returned, list) or not returned:
        return returned
    if all(isinstance(row, list) for row in returned):
        with suppress(ValueError, TypeError):  # not numbers, or of different lengths
            return np.array(returned, np.float64)
    shapes = {tuple(getattr(row, "shape", ())) for row in returned}
    return (
        stack(returned, 0) if len(shapes) == 1 and len(shapes.pop()) == 1 and len(returned) > MAX_RESULTS else returned
    )


def list_arrays(value: Any, name: str, depth: int = 3) -> Iterator[tuple[str, Any]]:
    """Yield the arrays inside nested tuples, lists and dicts, with names such as "returned 1, weights"."""
    if hasattr(value, "shape"):
        yield name, value
    elif depth and isinstance(value, tuple | list | Mapping):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from list_arrays(item, f"{name} {key}" if name == "returned" else f"{name}, {key}", depth - 1)


def stack_list(returned: Any) -> dict[str, Any]:
    shapes = [tuple(part.shape) if hasattr(part, "shape") else None for part in returned]
    if not isinstance(returned, list) or None in shapes or len(set(shapes)) != 1:
        return {}
    return {"all that it returned": stack(returned, 0)}


def get_fields(returned: Any) -> Mapping[str, Any]:
    fields = getattr(returned, "__dict__", {})
    return fields if isinstance(fields, Mapping) and not callable(returned) else {}


def read_real(array: Any, library: Library, max_size: int) -> tuple[Array, str]:
    """Return a float64 copy of an array, and its original dtype.

    Raises:
        NoNumbersError: the array is a scalar, too large, masked, or does not contain real numbers.
    """
    if np.ma.is_masked(array):
        raise NoNumbersError("returned a masked array, which hides numbers; expected a plain array")
    converted, dtype = library.read(array, max_size)
    if isinstance(converted, int):
        raise NoNumbersError(f"returned an array of {converted:.3g} numbers; expected at most {max_size:,}")
    kind, name = converted.dtype.kind, converted.dtype.name
    if kind not in REAL_KINDS and not (kind == "V" and name.startswith(SMALL_FLOATS)):
        raise NoNumbersError(f"returned an array of {CONTENTS.get(kind, name)}; expected real numbers")
    if converted.ndim == 0:
        raise NoNumbersError("returned a single number; expected an array")
    return converted.astype(np.float64), dtype
