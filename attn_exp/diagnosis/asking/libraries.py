"""Arrays of NumPy, PyTorch and JAX: find a function's library, convert to and from it, and read what a call returned.

Reading anything from a user's object may run user code: its shape, its class, its conversion to an array. All of that
happens here, while `own_code.held` protects the process; the results are plain arrays that nothing else refers to.
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
from attn_exp.own_code import error_line, held

LIBRARIES = ("numpy", "torch", "jax")
DTYPES = ("float64", "float32", "float16", "bfloat16")
DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
"""Significant bits of each dtype."""


NUMPY = {name: value for name, value in vars(np).items() if callable(value)}
"""NumPy's functions as they were before user code could replace any."""


def replaced_in_numpy() -> list[str]:
    """Return the NumPy functions that user code replaced, which would invalidate the expected results."""
    return [f"numpy.{name}" for name, value in NUMPY.items() if vars(np).get(name) is not value]


@dataclass(frozen=True)
class Library:
    """Converts arrays to and from a library; `widest` is its widest default floating-point dtype.

    `back` converts an array that `into` made. `read` converts an array that user code returned to NumPy, with the same
    or a wider dtype, and also returns the name of its dtype; instead of too large an array it returns its size.
    """

    name: str
    into: Callable[[Array, str], Any]
    back: Callable[[Any], Array]
    read: Callable[[Any, int], tuple[Array | int, str]]
    widest: str


def library(name: str, device: str = "cpu") -> Library:
    """Return a library by name.

    Raises:
        UserError: there is no such library, or it is not installed.
    """
    if name not in LIBRARIES:
        raise UserError(unknown(name, LIBRARIES, "takes"))
    if find_spec(name) is None:
        raise UserError(f"takes={name}: {name} is not installed; pip install {name}")
    return {"numpy": of_numpy, "torch": lambda: of_torch(device), "jax": of_jax}[name]()


def of_numpy() -> Library:
    def into(array: Array, kind: str) -> Any:
        return array.copy() if array.dtype.kind in "bi" else array.astype(np_type(kind))

    return Library("numpy", into, wide, read_array, "float64")


def np_type(kind: str) -> Any:
    return bfloat16() if kind == "bfloat16" else np.dtype(kind)


def wide(array: Any) -> Array:
    plain = np.asarray(array)
    return plain.astype(np.float64) if plain.dtype.kind not in "bi" else plain


def read_array(array: Any, most: int) -> tuple[Array | int, str]:
    """Convert an array to NumPy, or return its size if that exceeds `most`; also return the name of its dtype."""
    plain = np.asarray(array)
    return (plain if plain.size <= most else int(plain.size)), str(plain.dtype)


def of_torch(device: str) -> Library:
    """Return the `Library` for PyTorch on a device.

    Raises:
        UserError: there is no such device.
        UncalledError: PyTorch cannot use the device on this machine.
    """
    torch = module_of("torch")
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        kind = UserError if "Expected one of" in str(error) else UncalledError  # no such device; none here
        raise kind(f"device={device}: torch cannot use it here ({first_line(error)})") from error

    def into(array: Array, kind: str) -> Any:
        tensor = torch.from_numpy(np.array(array, copy=True))
        return tensor.to(device) if array.dtype.kind in "bi" else tensor.to(device, getattr(torch, kind))

    def back(tensor: Any) -> Array:
        if not torch.is_tensor(tensor):
            return wide(tensor)
        return wide(plain(tensor))

    def plain(tensor: Any) -> Any:
        return tensor.detach().cpu().to(torch.float64 if tensor.is_floating_point() else tensor.dtype).numpy()

    def read(tensor: Any, most: int) -> tuple[Array | int, str]:
        if not torch.is_tensor(tensor):
            return read_array(tensor, most)
        kind = str(tensor.dtype).removeprefix("torch.")
        if tensor.numel() > most:
            return int(tensor.numel()), kind
        return read_array(plain(tensor.resolve_neg().resolve_conj()), most)[0], kind

    return Library("torch", into, back, read, "float64")


def of_jax() -> Library:
    jnp = module_of("jax")
    widest = "float64" if jnp.asarray(1.0).dtype == jnp.float64 else "float32"
    return Library(
        "jax",
        lambda array, kind: in_jax(array, None if array.dtype.kind in "bi" else jnp.dtype(kind)),
        lambda array: wide(np.asarray(array)),
        read_array,
        widest,
    )


def in_jax(array: Array, kind: Any = None) -> Any:
    """Copy an array to JAX; `jnp.asarray` would compile for each shape."""
    return sys.modules["jax"].device_put(np.array(array, kind))


def wanted(function: Any) -> tuple[str, ...]:
    """Return the libraries to try, likeliest first: those of a function's module and of the modules that it names."""
    home = (getattr(function, "__module__", None) or type(function).__module__).split(".")[0]
    if home in ("torch", "jax", "numpy"):
        return (home,)
    named = modules_named(function)
    first = [name for name in ("torch", "jax", "numpy") if name in named]
    rest = [name for name in LIBRARIES if name not in first and (name == "numpy" or name in sys.modules)]
    return (*first, *rest)


CALLS = ("forward", "__call__", "call")


def modules_named(function: Any) -> set[str]:
    if inspect.isclass(function):
        if any(base.__module__.startswith("torch.nn") for base in function.__mro__):
            return {"torch"}
        function = next((one for word in CALLS if inspect.isfunction(one := getattr(function, word, None))), function)
    function = inspect.unwrap(function) if hasattr(function, "__wrapped__") else function  # a jitted function
    source, home = source_with_helpers(function), getattr(function, "__module__", None) or ""
    space = vars(sys.modules.get(home, inspect))
    values = [space[word] for word in set(re.findall(r"\w+", source)) if word in space]
    homes = {str(getattr(value, word, "") or "") for value in values for word in ("__name__", "__module__")}
    homes |= set(re.findall(r"\w+\.", source))  # a quoted annotation may name a library that the file does not import
    return {home.partition(".")[0] for home in homes} & set(LIBRARIES)


# Functions common to all libraries


def stack(arrays: Sequence[Any], axis: int) -> Any:
    return home(arrays[0]).stack(tuple(arrays), axis)


def join(arrays: Sequence[Any], axis: int) -> Any:
    module = home(arrays[0])
    return (module.cat if hasattr(module, "cat") else module.concatenate)(tuple(arrays), axis)


def beside(array: Array, x: Any) -> Any:
    name = library_of(x)
    if name == "torch":
        made = module_of(name).as_tensor(array, device=x.device)
        if made.is_complex():
            return made.to(x.dtype.to_complex())
        return made.to(x.dtype) if made.is_floating_point() else made
    kind = x.dtype if array.dtype.kind == "f" else None
    if array.dtype.kind == "c":
        kind = module_of(name).result_type(x.dtype, np.complex64)
    if name == "jax":
        return in_jax(array, kind)
    return array if kind is None else array.astype(kind)


def home(array: Any) -> Any:
    return module_of(library_of(array))


def library_of(array: Any) -> str:
    name = type(array).__module__.partition(".")[0].replace("jaxlib", "jax")
    return name if name in LIBRARIES else "numpy"


def module_of(name: str) -> Any:
    """Import a library on first use; for JAX, import `jax.numpy`."""
    return import_module("jax.numpy" if name == "jax" else name)


# What a call returned, as plain arrays or as an error that says what it is instead

KINDS = {"b": "booleans", "c": "complex numbers", "S": "bytes", "U": "strings", "O": "Python objects", "M": "dates",
         "m": "time differences", "V": "records"}  # fmt: skip
"""What arrays without real numbers contain, by NumPy's dtype kind."""
REAL = ("f", "i", "u")
SMALL_FLOATS = ("bfloat", "float")
"""Prefixes of floating-point dtypes that other packages add to NumPy, which has no kind for them."""


class NoNumbersError(Exception):
    """The function returned no array of real numbers; the message says what it returned."""


def numbers_of(said: Any, library: Library, most: int, part: str = "") -> tuple[dict[str, Array], str]:
    """Return the arrays of an answer in float64, the output first, and the dtype of the output.

    Additional results that are not arrays of real numbers are left out. `most` is the maximum number of elements per
    array; `part` names the output if it is not the first.

    Raises:
        NoNumbersError: there is no output, or it is not an array of real numbers.
    """
    try:
        parts = parts_of(said)
        if not parts:
            kind = "nothing" if said is None else f"a {type(said).__name__}"
            raise NoNumbersError(f"returned {kind}; expected an array")
        first, *others = [part, *(name for name in parts if name != part)] if part in parts else parts
        output, kind = read_real(parts[first], library, most)
        arrays = {first: output}
        for name in others:
            with suppress(Exception), held():
                arrays[name] = read_real(parts[name], library, most)[0]
    except NoNumbersError:
        raise
    except Exception as error:
        raise NoNumbersError(f"returned something that is not an array: {error_line(error)}") from error
    return arrays, kind


def parts_of(said: Any) -> dict[str, Any]:
    """Return the arrays of an answer by name, the output first.

    A list of arrays of equal shape, such as heads, is also returned stacked.
    """
    said = rows_of(said)
    if not isinstance(said, Mapping) and hasattr(said, "shape"):
        return {"output": said}
    if isinstance(said, tuple | list):
        return {**dict(leaves(said, "returned")), **stack_list(said)}
    named = said if isinstance(said, Mapping) else fields_of(said)
    first = next((name for name in OUTPUTS if name in named), None)
    ordered = [*([first] if first is not None else []), *(name for name in named if name != first)]
    return dict(leaf for name in ordered for leaf in leaves(named[name], str(name)))


def rows_of(said: Any) -> Any:
    if isinstance(said, list) and said and all(isinstance(row, list) for row in said):
        with suppress(ValueError, TypeError):  # not numbers, or of different lengths
            return np.array(said, np.float64)
    shapes = {tuple(getattr(row, "shape", ())) for row in said} if isinstance(said, list) else set()
    is_rows = len(shapes) == 1 and len(next(iter(shapes))) == 1 and len(said) > len("out")
    return stack(said, 0) if is_rows else said


OUTPUTS = ("output", "out", "context", "attn_output", "result", "o")
STACKED = "all that it returned"


def leaves(said: Any, name: str, depth: int = 3) -> Iterator[tuple[str, Any]]:
    if hasattr(said, "shape"):
        yield name, said
    elif depth and isinstance(said, tuple | list | Mapping):
        inner = said.items() if isinstance(said, Mapping) else enumerate(said)
        for place, part in inner:
            yield from leaves(part, f"{name} {place}" if name == "returned" else f"{name}, {place}", depth - 1)


def stack_list(said: Any) -> dict[str, Any]:
    shapes = [tuple(part.shape) if hasattr(part, "shape") else None for part in said]
    if not isinstance(said, list) or None in shapes or len(set(shapes)) != 1:
        return {}
    return {STACKED: stack(said, 0)}


def fields_of(said: Any) -> Mapping[str, Any]:
    fields = getattr(said, "__dict__", {})
    return fields if isinstance(fields, Mapping) and not callable(said) else {}


def read_real(part: Any, library: Library, most: int) -> tuple[Array, str]:
    """Return a float64 copy of an array, and its original dtype.

    Raises:
        NoNumbersError: the array is a scalar, too large, masked, or does not contain real numbers.
    """
    if np.ma.is_masked(part):
        raise NoNumbersError("returned a masked array, which hides numbers; expected a plain array")
    plain, kind = library.read(part, most)
    if isinstance(plain, int):
        raise NoNumbersError(f"returned an array of {plain:.3g} numbers; expected at most {most:,}")
    letter, name = plain.dtype.kind, plain.dtype.name
    if letter not in REAL and not (letter == "V" and name.startswith(SMALL_FLOATS)):
        raise NoNumbersError(f"returned an array of {KINDS.get(letter, name)}; expected real numbers")
    if plain.ndim == 0:
        raise NoNumbersError("returned a single number; expected an array")
    return plain.astype(np.float64), kind
