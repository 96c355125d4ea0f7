"""Safetensors files: a header of names, types, shapes and offsets, then the numbers, which stay on disk until read.

The package `safetensors` is not used: it cannot read bfloat16 as NumPy arrays, and accepts a header that names a tensor
twice. A model of several files comes with `model.safetensors.index.json`, which maps each tensor to its file.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from attn_exp import machine
from attn_exp.arrays import Array, Shape
from attn_exp.config.inputs import INDEX
from attn_exp.errors import UserError, brief, reason, some
from attn_exp.problem.files import Contents, Entry, size_of

MOST_HEADER = 2**25
"""The size of the largest header or index that is read, in bytes; large models need several hundred thousand."""

TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "|b1", "U8": "|u1", "I8": "|i1",
    "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8", "I64": "<i8",
}  # fmt: skip
"""The NumPy dtype of each type. NumPy has no bfloat16: it is read as integers, the upper halves of float32."""


def list_contents(path: Path, label: str) -> Contents:
    """List the arrays of a file, or of all the files that an index names; numbers are read on demand."""
    if not path.name.endswith(INDEX):
        return Contents(read_entries(path))
    file_of = read_index(path)
    entries = {}
    for file in sorted(set(file_of.values())):
        try:
            entries[file] = read_entries(path.with_name(file))
        except (OSError, ValueError) as error:
            raise UserError(f"{label}: {brief(file)}: cannot be read ({reason(error)})") from error
    absent = [name for name, file in file_of.items() if name not in entries[file]]
    if absent:
        raise ValueError(f"{brief(file_of[absent[0]])} lacks {some(absent, 80)}, which the index lists")
    return Contents({name: entries[file][name] for name, file in file_of.items()})


def read_index(path: Path) -> dict[str, str]:
    """Return the file of each array; all files are in the folder of the index.

    Raises:
        OSError: the file is missing or not regular.
        ValueError: the file is not an index, or it names a file in another folder.
    """
    index = machine.read_json(path, MOST_HEADER)
    file_of = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(file_of, dict):
        raise ValueError("its weight_map is not a mapping of names to files")
    for file in file_of.values():
        if not isinstance(file, str) or PurePath(file).name != file or "\\" in file:
            raise ValueError(f"it names the file {brief(str(file))!r}; expected the name of a file beside it")
    return file_of


def read_entries(path: Path) -> dict[str, Entry]:
    """List the tensors of one file; they must fill it without gaps.

    Raises:
        OSError: the file is missing or not regular.
        ValueError: the header is truncated, or does not fit the file.
    """
    with machine.open_regular(path) as file:
        size = size_of(file)
        length = int.from_bytes(file.read(8), "little")
        if length > min(size - 8, MOST_HEADER):
            raise ValueError(f"its header claims {length:,} of {size:,} bytes: truncated, or not a safetensors file")
        header = machine.parse_json(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    header.pop("__metadata__", None)
    described = {name: read_description(name, entry) for name, entry in header.items()}
    end = 0
    for name, (type_name, shape, start, stop) in sorted(described.items(), key=lambda pair: pair[1][2:]):
        length_in_bytes = count_bytes(type_name, shape)
        if (start, stop) != (end, end + length_in_bytes):
            raise ValueError(
                f"{brief(name)} takes bytes {start} to {stop}; expected {end} to {brief(str(end + length_in_bytes))}"
            )
        end = stop
    if 8 + length + end != size:
        raise ValueError(f"its header describes {end:,} bytes of numbers, but {size - length - 8:,} follow")
    return {
        name: make_entry(path, type_name, shape, 8 + length + start)
        for name, (type_name, shape, start, _) in described.items()
    }


def read_description(name: str, entry: Any) -> tuple[str, Shape, int, int]:
    match entry:
        case {"dtype": str(kind), "shape": [*shape], "data_offsets": [start, stop], **rest} if (
            kind in TYPES and not rest
        ):
            if all(type(size) is int and 0 <= size < 2**63 for size in (*shape, start, stop)):
                return kind, tuple(shape), start, stop
    expected = f"dtype (one of {', '.join(TYPES)}), shape and data_offsets"
    raise ValueError(f"{brief(name)} is described as {brief(str(entry), 60)}; expected {expected}")


def count_bytes(type_name: str, shape: Shape) -> int:
    return math.prod(shape) * np.dtype(TYPES[type_name]).itemsize


def make_entry(path: Path, type_name: str, shape: Shape, start: int) -> Entry:
    return Entry(shape, type_name, partial(read_numbers, path, type_name, shape, start))


def read_numbers(path: Path, type_name: str, shape: Shape, start: int, index: Any) -> Array:
    """Memory-map a tensor read-only, and return the part that `index` selects.

    NumPy has no bfloat16, so it is copied to float32: `u16 << 16` gives the bits of the number.
    """
    dtype = np.dtype(TYPES[type_name])
    if 0 in shape:  # an empty file cannot be mapped
        return np.asarray(np.empty(shape, dtype)[index])
    with machine.open_regular(path) as file:
        mapped: Array = np.memmap(file, dtype, "r", start, shape).view(np.ndarray)[index]
    return (mapped.astype(np.uint32) << 16).view(np.float32) if type_name == "BF16" else mapped
