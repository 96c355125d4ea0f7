"""NumPy files: a header of type and shape, held against the bytes that follow it. Objects in one are never loaded."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as numpy_format

from attn_exp import machine
from attn_exp.arrays import Array
from attn_exp.problem.files.format import MOST_BYTES, Entry, Format, Held

READERS = {(1, 0): numpy_format.read_array_header_1_0, (2, 0): numpy_format.read_array_header_2_0}


class Header(NamedTuple):
    """What a NumPy file says of its array, and where its numbers begin."""

    shape: tuple[int, ...]
    columns_first: bool
    dtype: np.dtype[Any]
    start: int


def header(stream: IO[bytes], size: int) -> Header:
    """Read the header of an array in a stream of so many bytes.

    Raises:
        ValueError: no NumPy file, objects, or a header that does not fit the bytes that follow.
    """
    if stream.read(2) == b"PK":
        raise ValueError("it is an archive of several arrays; call it .npz")
    stream.seek(0)
    try:
        version = numpy_format.read_magic(stream)
        shape, columns_first, dtype = READERS[version](stream)
    except Exception as error:  # a header is read as Python's own literals, which fail in a dozen ways
        raise ValueError("no NumPy file of plain numbers") from error
    if dtype.hasobject:
        raise ValueError("it holds objects, which could run code; save plain numbers, as array.astype(float)")
    if dtype.kind == "V":
        hint = "; a bfloat16 loses its type there: save it as float32, or as safetensors" if dtype.itemsize == 2 else ""
        raise ValueError(f"it holds {dtype}; expected plain numbers{hint}")
    begin, length = stream.tell(), math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or length != size - begin:
        raise ValueError(f"its header says {list(shape)} of {dtype}, {length:,} bytes, and {size - begin:,} follow")
    if length > MOST_BYTES:
        raise ValueError(f"{length:,} bytes of numbers; at most {MOST_BYTES:,} are read")
    return Header(tuple(shape), columns_first, dtype, begin)


def body(stream: IO[bytes], head: Header) -> Array:
    """Read the numbers that follow a header."""
    length = math.prod(head.shape) * head.dtype.itemsize
    data = stream.read(length)
    if len(data) != length:
        raise ValueError(f"it ends after {len(data):,} of {length:,} bytes of numbers")
    flat = np.frombuffer(data, head.dtype)
    return flat.reshape(head.shape, order="F" if head.columns_first else "C")


def look(path: Path, said: str) -> Held:
    """Return the one array of the file; it has no name."""
    with machine.opened(path) as file:
        head = header(file, sized(file))
    return Held({"": Entry(head.shape, str(head.dtype), partial(read, path))})


def sized(file: IO[bytes]) -> int:
    """Return how many bytes a file has, and go back to its beginning."""
    size = file.seek(0, 2)
    file.seek(0)
    return size


def read(path: Path) -> Array:
    """Read the array of a file."""
    with machine.opened(path) as file:
        return body(file, header(file, sized(file)))


FORMAT = Format(look)
