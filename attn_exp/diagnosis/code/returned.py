"""Read what a function returned, once: as plain arrays, or as an error that says what it is instead.

Any attribute of a user's object may run user code: its shape, its class, its conversion to an array. All of that
happens here, while `own_code.held` protects the process; the results are plain arrays that nothing else refers to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from types import GeneratorType
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.code.libraries import Library, stack
from attn_exp.own_code import error_line, held

KINDS = {"b": "booleans", "c": "complex numbers", "S": "bytes", "U": "texts", "O": "Python objects", "M": "dates",
         "m": "spans of time", "V": "records"}  # fmt: skip
"""Contents of arrays without real numbers, by NumPy's dtype kind."""
REAL = ("f", "i", "u")
SMALL_FLOATS = ("bfloat", "float")
"""Prefixes of dtypes that other packages add to NumPy, which has no kind for them."""


class NoNumbersError(Exception):
    """The function returned no array of real numbers; the message says what it returned."""


def numbers_of(said: Any, library: Library, most: int, part: str = "") -> tuple[dict[str, Array], str]:
    """Return the arrays of an answer in float64, the output first, and the dtype of the output.

    Additional results that are not arrays of real numbers are left out. `most` is the maximum number of elements of an
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
    if hasattr(said, "shape"):
        return {"output": said}
    if isinstance(said, tuple | list):
        return {**dict(leaves(said, "returned")), **stack_list(said)}
    named = said if isinstance(said, Mapping) else fields_of(said)
    first = next((name for name in OUTPUTS if name in named), None)
    ordered = [*([first] if first is not None else []), *(name for name in named if name != first)]
    return dict(leaf for name in ordered for leaf in leaves(named[name], str(name)))


def rows_of(said: Any) -> Any:
    fewest = len("out")
    if isinstance(said, GeneratorType):
        fewest = 0
        said = list(islice(said, MOST_ROWS))
    if isinstance(said, list) and said and all(isinstance(row, list) for row in said):
        with suppress(ValueError, TypeError):  # not numbers, or of different lengths
            return np.array(said, np.float64)
    shapes = {tuple(getattr(row, "shape", ())) for row in said} if isinstance(said, list) else set()
    is_rows = len(shapes) == 1 and len(next(iter(shapes))) == 1 and len(said) > fewest
    return stack(said, 0) if is_rows else said


MOST_ROWS = 2**12
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
    if not fields and hasattr(type(said), "__dataclass_fields__"):  # with slots
        fields = {name: getattr(said, name) for name in type(said).__dataclass_fields__}
    return fields if isinstance(fields, Mapping) and not callable(said) else {}


def read_real(part: Any, library: Library, most: int) -> tuple[Array, str]:
    """Return a float64 copy of an array, and its original dtype.

    Raises:
        NoNumbersError: it is a scalar, too large, masked, or does not hold real numbers.
    """
    if np.ma.is_masked(part):
        raise NoNumbersError("returned a masked array, which hides numbers; expected all of them")
    plain, kind = library.read(part, most)
    if isinstance(plain, int):
        raise NoNumbersError(f"returned an array of {plain:.3g} numbers; expected {most:,} at most")
    letter, name = plain.dtype.kind, plain.dtype.name
    if letter not in REAL and not (letter == "V" and name.startswith(SMALL_FLOATS)):
        raise NoNumbersError(f"returned an array of {KINDS.get(letter, name)}; expected real numbers")
    if plain.ndim == 0:
        raise NoNumbersError("returned a single number; expected an array")
    return plain.astype(np.float64), kind
