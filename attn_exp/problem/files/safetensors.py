"""Safetensors files: a header of names, types, shapes and places, then the numbers, which stay on disk until asked for.

The package `safetensors` stays out: it cannot read bfloat16 as NumPy arrays, and takes a header that names a tensor
twice. A model of several files comes with `model.safetensors.index.json`, which says in which file each tensor lies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from attn_exp import machine, parsing
from attn_exp.arrays import Array
from attn_exp.errors import UserError, brief, first_line, some
from attn_exp.problem.files.format import Entry as Lazy
from attn_exp.problem.files.format import Format, Held, size_of

SUFFIX, INDEX = ".safetensors", ".safetensors.index.json"
MOST_HEADER = 100_000_000
"""The largest header that the format allows, in bytes."""

MOST_TENSORS = 100_000
"""More than any model has in one file; the largest models have some thousand in each of many."""

TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "|b1", "U8": "|u1", "I8": "|i1",
    "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8", "I64": "<i8",
}  # fmt: skip
"""How NumPy reads each type of number; it has no bfloat16, whose halves of a float32 are read as whole numbers."""

BYTES = {kind: np.dtype(name).itemsize for kind, name in TYPES.items()}


@dataclass(frozen=True)
class Tensor:
    """Where the numbers of one tensor lie: in which file, from which byte on, of which type and shape."""

    path: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def nbytes(self) -> int:
        """How many bytes it takes on disk."""
        return math.prod(self.shape) * BYTES[self.dtype]


def tensors(path: Path, key: str) -> dict[str, Tensor]:
    """Return every tensor of a file, or of all the files that an index names, by its name; no number is read.

    `key` is the setting that named the file, such as `projections.file=weights.safetensors`; errors begin with it.

    Raises:
        UserError: no such file, or a header that is cut off, lies, or holds what cannot be read.
    """
    try:
        return sharded(path, key) if path.name.endswith(INDEX) else whole(path)
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
        raise UserError(f"{key}: cannot be read ({reason})") from error


def array(tensor: Tensor, rows: Sequence[int] | Array | None = None) -> Array:
    """Return the numbers of a tensor as they lie on disk, read-only; of some `rows` alone, a copy of those.

    bfloat16, which NumPy lacks, becomes float32, and nothing else is copied: `x = (u16 << 16)` as the bits of a float.
    """
    dtype = np.dtype(TYPES[tensor.dtype])
    if tensor.nbytes:
        with machine.opened(tensor.path) as file:
            mapped: Array = np.memmap(file, dtype, "r", tensor.start, tensor.shape).view(np.ndarray)
    else:  # nothing can be mapped
        mapped = np.empty(tensor.shape, dtype)
    if rows is not None:
        mapped = mapped[np.asarray(rows, dtype=np.intp)]
    return widened(mapped) if tensor.dtype == "BF16" else mapped


def widened(halves: Array) -> Array:
    """Return bfloat16, read as whole numbers of 16 bits, as the float32 of the same value."""
    wide = halves.astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)


def whole(path: Path) -> dict[str, Tensor]:
    """Return the tensors of one file."""
    with machine.opened(path) as file:
        size = size_of(file)
        length = int.from_bytes(file.read(8), "little")
        if size < 8:
            raise ValueError(f"{size} bytes, too short for a safetensors file")
        if length > min(size - 8, MOST_HEADER):
            raise ValueError(f"its header claims {length:,} bytes, and {size - 8:,} follow; cut off or no safetensors")
        header = file.read(length)
    if not header.startswith(b"{"):
        raise ValueError("its header does not begin with {: no safetensors file")
    if header.count(b'"dtype"') > MOST_TENSORS:
        raise ValueError(f"its header names more than {MOST_TENSORS:,} tensors")
    entries = plain_json(header, "its header")
    texts(entries.pop("__metadata__", {}), "__metadata__")
    return placed(path, {name: read_entry(name, entry) for name, entry in entries.items()}, 8 + length, size)


Entry = tuple[str, tuple[int, ...], int, int]
"""Type, shape, and the bytes from where to where."""


def placed(path: Path, entries: Mapping[str, Entry], begin: int, size: int) -> dict[str, Tensor]:
    """Return tensors whose bytes follow each other, from `begin` to the end of the file, without holes."""
    end = 0
    for name, (_, _, start, stop) in sorted(entries.items(), key=lambda pair: pair[1][2:]):
        if start != end:
            raise ValueError(f"{brief(name)} begins at byte {start} of the numbers; expected {end}")
        end = stop
    if begin + end != size:
        raise ValueError(f"its header describes {end:,} bytes of numbers, and the file has {size - begin:,}: cut off?")
    return {name: Tensor(path, name, kind, shape, begin + start) for name, (kind, shape, start, _) in entries.items()}


def read_entry(name: str, entry: Any) -> Entry:
    """Return what a header says of one tensor, held against itself."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{brief(name)} has no dtype, shape and data_offsets in its header, or more than these")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in TYPES:
        raise ValueError(f"{brief(name)} holds {brief(str(kind))}; expected one of {', '.join(TYPES)}")
    if not are_sizes(shape) or len(shape) > 32:
        raise ValueError(f"{brief(name)} has the shape {brief(str(shape))}; expected sizes")
    if not are_sizes(offsets) or len(offsets) != 2:
        raise ValueError(f"{brief(name)} has data_offsets {brief(str(offsets))}; expected two places")
    start, stop = offsets
    size = math.prod(shape) * BYTES[kind]
    if stop - start != size:
        takes = f"{kind} {brief(str(shape), 40)} takes {brief(str(size), 40)} bytes"
        raise ValueError(f"{brief(name)}: {takes}, and its data_offsets span {stop - start}")
    return kind, tuple(shape), start, stop


def are_sizes(value: Any) -> bool:
    """Say whether a value is a list of whole numbers from 0 on that an index can hold."""
    return isinstance(value, list) and all(type(size) is int and 0 <= size < 2**63 for size in value)


def sharded(path: Path, key: str) -> dict[str, Tensor]:
    """Return the tensors of all files that an index names; each must lie beside it and hold what is said of it."""
    places = texts(plain_json(machine.read(path, MOST_HEADER), "it").get("weight_map"), "weight_map")
    known: dict[str, dict[str, Tensor]] = {}
    for file in sorted(set(places.values())):
        if PurePath(file).name != file or "\\" in file:
            raise ValueError(f"it names the file {brief(file)!r}; expected the name of a file beside it")
        known[file] = tensors(path.with_name(file), f"{key}: {brief(file)}")
    absent = [name for name, file in places.items() if name not in known[file]]
    if absent:
        raise ValueError(f"{brief(places[absent[0]])} lacks {some(absent, 80)}, which the index says it holds")
    return {name: known[file][name] for name, file in places.items()}


def texts(value: Any, name: str) -> dict[str, str]:
    """Return a mapping of names to texts, or refuse what is none."""
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError(f"{name} is no mapping of names to texts")
    return value


def plain_json(data: bytes, what: str) -> dict[str, Any]:
    """Return a JSON object whose names are there once each."""
    try:
        value = parsing.parse_json(data, MOST_HEADER, once=True)
    except ValueError as error:
        raise ValueError(f"{what}{first_line(error).removeprefix('it')}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no JSON object")
    return value


def look(path: Path, said: str) -> Held:
    """Return the arrays of a file; a number is read when it is asked for."""
    known = tensors(path, said)
    return Held({name: Lazy(one.shape, one.dtype, partial(array, one)) for name, one in known.items()})


FORMAT = Format(look)
