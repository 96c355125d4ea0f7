"""Read arrays from files of several formats, as plain numbers, so that no file can run code.

The suffix selects the module of the format. Its `list_contents(path, label)` lists the arrays of a file; the numbers
are read later, on demand. `label`, such as `embeddings.file=x.npy`, begins every error message. A false header, or a
truncated or non-regular file, gives a one-line error. Pickles are never opened, because they may run foreign code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from attn_exp import machine, registry
from attn_exp.arrays import Array, Shape
from attn_exp.config.inputs import INDEX, PICKLES
from attn_exp.errors import UserError, brief, reason
from attn_exp.problem.drawing import require_finite

FORMATS = {
    "csv": "tables",
    "json": "tables",
    "npy": "numpy_files",
    "npz": "numpy_files",
    "safetensors": "safetensors",
    "tsv": "tables",
    "txt": "tables",
}
"""The module that reads a file, by the suffix of the file."""

LONGEST = 150
"""Maximum number of characters of a path in an error message."""

PICKLE_STARTS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"\x80\x8a")
"""The first bytes that `torch.save` and `pickle.dump` write: a zip archive, or a protocol number."""

CONVERT = (
    'convert it, in its folder: python -c "import torch,safetensors.torch as s;s.save_file({{k:v.contiguous().clone() '
    "for k,v in torch.load('{name}','cpu',weights_only=True).items()}},'{stem}.safetensors')\""
)
"""A command that converts the pickle of a layer; `weights_only` makes PyTorch refuse anything but arrays."""


MOST_BYTES = 2**31
"""The size of the largest array that is read, in bytes."""

MOST_TEXT = 256 * 2**20
"""The size of the largest text file that is read, in bytes."""

TOKENS = ("tokens", "words", "names", "labels")
"""Names under which a file of several arrays may store its tokens."""


class Entry(NamedTuple):
    """One array of a file: its shape, the name of its dtype, and how to read it.

    `read` takes an index, like an array: `...` reads all of it, `[2, 0]` two of its rows.
    """

    shape: Shape
    dtype: str
    read: Callable[[Any], Array]


class Contents(NamedTuple):
    """The contents of a file: arrays by name (`""` for a single unnamed array) and token names, if any."""

    arrays: Mapping[str, Entry]
    tokens: tuple[str, ...] | None = None


def unreadable_entry(reason: str) -> Entry:
    """Return an entry that raises an error, with this reason, when its numbers are read."""

    def refuse(index: Any) -> Array:
        raise ValueError(reason)

    return Entry((), "something that is not an array", refuse)


def size_of(stream: IO[bytes]) -> int:
    size = stream.seek(0, 2)
    stream.seek(0)
    return size


def read_text(path: Path) -> str:
    """Read a UTF-8 or UTF-16 text file, without its byte order mark."""
    return machine.decode_text(machine.read(path, MOST_TEXT)).removeprefix("\ufeff")


def list_file(file: str, key: str) -> Contents:
    """List the contents of a file; `key` is the setting that names it, such as `embeddings.file`.

    Raises:
        UserError: the file is missing or not regular, its suffix or contents have no known format, or it is a pickle.
    """
    return list_contents(Path(file), format_label(key, file))


def format_label(key: str, file: str) -> str:
    """Return the beginning of error messages about a file: `"x.file", "x.npy" -> "x.file=x.npy"`."""
    return f"{key}={brief(file, LONGEST)}"


def list_contents(path: Path, label: str) -> Contents:
    try:
        if not path.is_file():
            raise ValueError("it is not a file" if path.exists() else "No such file or directory")
        if path.suffix.lower() in PICKLES:
            raise pickle_error(path, label)
        suffix = "safetensors" if path.name.endswith(INDEX) else path.suffix.lower().removeprefix(".")
        if suffix not in FORMATS:
            raise UserError(f"{label}: expected a file that ends in {', '.join(f'.{name}' for name in FORMATS)}")
        contents: Contents = registry.module(__name__, FORMATS[suffix]).list_contents(path, label)
    except UserError:
        raise
    except Exception as error:  # whatever a file holds, the error is one line
        raise unreadable_error(label, error) from error
    return contents


def is_pickle(path: Path) -> bool:
    if path.suffix.lower() not in PICKLES:
        return False
    with machine.open_regular(path) as file:
        return file.read(4).startswith(PICKLE_STARTS)


def pickle_error(path: Path, label: str) -> UserError:
    stem = "model" if path.name == "pytorch_model.bin" else path.stem
    torch = path.suffix.lower() in (".bin", ".pt", ".pth", ".ckpt")
    remedy = CONVERT.format(name=path.name, stem=stem) if torch else "save its arrays with numpy.savez"
    return UserError(f"{label.partition('=')[0]}: {path.name} is a pickle, which could run code; {remedy}")


def unreadable_error(label: str, error: Exception) -> UserError:
    return UserError(f"{label}: cannot be read ({reason(error)})")


def read_numbers(entry: Entry, label: str) -> Array:
    """Read an array as float64; error messages begin with `label`.

    Raises:
        UserError: the array is empty or truncated, or some values are not finite real numbers.
    """
    try:
        array = entry.read(...)
    except UserError:
        raise
    except Exception as error:  # as in `list_contents`
        raise unreadable_error(label, error) from error
    if array.dtype.kind not in "iuf":
        raise UserError(f"{label} holds {entry.dtype}; expected real numbers")
    wide = array.astype(np.float64)
    if wide.ndim and not wide.shape[-1]:
        raise UserError(f"{label} holds an array of shape {list(wide.shape)}; expected at least one number")
    return require_finite(wide, label)
