"""What a function returned, read once: as arrays of our own, or in a line what it is instead.

Whatever is asked of an object of others may be code of theirs: its shape, its class, how it becomes an array. All of
that is asked here, while `own_code.held` holds on to the process; what comes out are plain arrays that nobody else has.
"""

from __future__ import annotations

import sys
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
"""What arrays hold that hold no real numbers, by the letters that NumPy has for it."""
REAL = ("f", "i", "u")
SMALL_FLOATS = ("bfloat", "float")
"""How the names of types begin that other packages bring to NumPy, which has no letter for them."""


class NoNumbersError(Exception):
    """What a function returned is no array of real numbers; it says what it is instead."""


def numbers_of(said: Any, library: Library, most: int, part: str = "") -> tuple[dict[str, Array], str]:
    """Return the arrays of an answer in float64, the output first, and the type that the output had.

    What stands beside the output and is no array of real numbers is left out. `most`: numbers of one array;
    `part`: the name of the output, where it is not the first.

    Raises:
        NoNumbersError: there is no output, or it is no array of real numbers.
    """
    try:
        parts = parts_of(said)
        if not parts:
            kind = "nothing" if said is None else f"a {type(said).__name__}"
            raise NoNumbersError(f"returned {kind}; expected an array")
        first, *others = [part, *(name for name in parts if name != part)] if part in parts else parts
        output, kind = real(parts[first], library, most)
        arrays = {first: output}
        for name in others:
            with suppress(Exception), held():
                arrays[name] = real(parts[name], library, most)[0]
    except NoNumbersError:
        raise
    except Exception as error:
        raise NoNumbersError(f"returned what is no array: {error_line(error)}") from error
    return arrays, kind


def parts_of(said: Any) -> dict[str, Any]:
    """Return the arrays of an answer, by name where they have one; the output comes first.

    Several in a list that have one shape, such as heads, are a part more, all of them together.
    """
    said = rows_of(said)
    if hasattr(said, "shape"):
        return {"output": said}
    if isinstance(said, tuple | list):
        return {**dict(leaves(said, "returned")), **together(said)}
    named = said if isinstance(said, Mapping) else fields_of(said)
    first = next((name for name in OUTPUTS if name in named), None)
    ordered = [*([first] if first is not None else []), *(name for name in named if name != first)]
    return dict(leaf for name in ordered for leaf in leaves(named[name], str(name)))


def rows_of(said: Any) -> Any:
    """Return rows that come one by one, or lists of numbers, as one array; all else as it is."""
    fewest = len("out")
    if isinstance(said, GeneratorType):
        fewest = 0
        said = list(islice(said, MOST_ROWS))
    if isinstance(said, list) and said and all(isinstance(row, list) for row in said):
        with suppress(ValueError, TypeError):  # of other things, or of several lengths
            return np.array(said, np.float64)
    shapes = {tuple(getattr(row, "shape", ())) for row in said} if isinstance(said, list) else set()
    is_rows = len(shapes) == 1 and len(next(iter(shapes))) == 1 and len(said) > fewest
    return stack(said, 0) if is_rows else said


MOST_ROWS = 2**12
OUTPUTS = ("output", "out", "context", "attn_output", "result", "o")
STACKED = "all that it returned"


def leaves(said: Any, name: str, depth: int = 3) -> Iterator[tuple[str, Any]]:
    """Yield the arrays in tuples, lists and dictionaries, each with the way to it as its name."""
    if hasattr(said, "shape"):
        yield name, said
    elif depth and isinstance(said, tuple | list | Mapping):
        inner = said.items() if isinstance(said, Mapping) else enumerate(said)
        for place, part in inner:
            yield from leaves(part, f"{name} {place}" if name == "returned" else f"{name}, {place}", depth - 1)


def together(said: Any) -> dict[str, Any]:
    """Return the arrays of a list as one, where they have the same shape."""
    shapes = [tuple(part.shape) if hasattr(part, "shape") else None for part in said]
    if not isinstance(said, list) or None in shapes or len(set(shapes)) != 1:
        return {}
    return {STACKED: stack(said, 0)}


def fields_of(said: Any) -> Mapping[str, Any]:
    """Return what an object holds under names: the fields of a dataclass, or the attributes of a plain object."""
    fields = getattr(said, "__dict__", {})
    if not fields and hasattr(type(said), "__dataclass_fields__"):  # with slots
        fields = {name: getattr(said, name) for name in type(said).__dataclass_fields__}
    return fields if isinstance(fields, Mapping) and not callable(said) else {}


def real(part: Any, library: Library, most: int) -> tuple[Array, str]:
    """Return one array in float64, a copy of its own, and the type that it had.

    Raises:
        NoNumbersError: it holds something else than real numbers, hides some, or is none of a few axes.
    """
    masked = hidden(part)
    if masked:
        raise NoNumbersError(f"returned a masked array, which hides {masked}; expected numbers")
    plain, kind = library.read(part, most)
    if isinstance(plain, int):
        raise NoNumbersError(f"returned an array of {plain:.3g} numbers; expected {most:,} at most")
    letter, name = plain.dtype.kind, plain.dtype.name
    if letter not in REAL and not (letter == "V" and name.startswith(SMALL_FLOATS)):
        raise NoNumbersError(f"returned an array of {KINDS.get(letter, name)}; expected real numbers")
    if plain.ndim == 0:
        raise NoNumbersError("returned a single number; expected an array")
    return plain.astype(np.float64), kind


def hidden(part: Any) -> str:
    """Say how many numbers a masked array of NumPy hides; nothing where it hides none, or is no such array."""
    module = sys.modules.get("numpy.ma")  # nobody has made one, where it is not loaded
    if module is None or not isinstance(part, module.MaskedArray):
        return ""
    count = int(np.count_nonzero(module.getmaskarray(part)))
    return f"{count} of its {part.size} numbers" if count else ""
