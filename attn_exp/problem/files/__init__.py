"""Files of arrays: similar formats share a module, and all are read as numbers alone, so that none can run code.

The suffix selects the format. `look` lists what a file holds; numbers are read on demand, and a lying header, a
truncated file or one that is not regular is an error of one line. Pickles, which may run foreign code, are never
opened.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from attn_exp import machine, registry
from attn_exp.arrays import Array
from attn_exp.config.inputs import PICKLES
from attn_exp.errors import UserError, brief, reason
from attn_exp.problem.files.format import Entry, Format, Held
from attn_exp.problem.files.safetensors import INDEX

FORMATS: dict[str, Format] = registry.members(__name__, Format, without=("format",))
"""How a file is read, by its suffix."""

LONGEST = 150
"""The most characters of a path in an error."""

PICKLE_STARTS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"\x80\x8a")
"""The first bytes that `torch.save` and `pickle.dump` write: a zip archive, or a protocol number."""

CONVERT = (
    'convert it, in its folder: python -c "import torch,safetensors.torch as s;s.save_file({{k:v.contiguous().clone() '
    "for k,v in torch.load('{name}','cpu',weights_only=True).items()}},'{stem}.safetensors')\""
)
"""Converts the pickle of a layer to safetensors; `weights_only` makes PyTorch refuse anything but arrays."""


def look(file: str, key: str) -> Held:
    """List what a file holds; `key` is the setting that named it, such as `embeddings.file`.

    Raises:
        UserError: the file is missing or not regular, its suffix or contents are no known format, or it is a pickle.
    """
    return look_at(Path(file), name_file(key, file))


def name_file(key: str, file: str) -> str:
    """Return the beginning of errors about a file: the setting and the file."""
    return f"{key}={brief(file, LONGEST)}"


def look_at(path: Path, said: str) -> Held:
    try:
        if not path.is_file():
            raise ValueError("it is not a file" if path.exists() else "No such file or directory")
        if path.suffix.lower() in PICKLES:
            raise pickle_error(path, said)
        suffix = "safetensors" if path.name.endswith(INDEX) else path.suffix.lower().removeprefix(".")
        if suffix not in FORMATS:
            raise UserError(f"{said}: expected a file of {', '.join(f'.{name}' for name in FORMATS)}")
        return FORMATS[suffix].look(path, said)
    except UserError:
        raise
    except Exception as error:  # whatever a file holds, the error is one line
        raise unreadable(said, error) from error


def is_pickle(path: Path) -> bool:
    if path.suffix.lower() not in PICKLES:
        return False
    with machine.opened(path) as file:
        return file.read(4).startswith(PICKLE_STARTS)


def pickle_error(path: Path, said: str) -> UserError:
    stem = "model" if path.name == "pytorch_model.bin" else path.stem
    torch = path.suffix.lower() in (".bin", ".pt", ".pth", ".ckpt")
    how = CONVERT.format(name=path.name, stem=stem) if torch else "save its arrays with numpy.savez"
    return UserError(f"{said.partition('=')[0]}: {path.name} is a pickle, which could run code; {how}")


def unreadable(said: str, error: Exception) -> UserError:
    return UserError(f"{said}: cannot be read ({reason(error)})")


def numbers(entry: Entry, said: str) -> Array:
    """Return an array as float64; `said` names its file and itself.

    Raises:
        UserError: the array is not of real and finite numbers, is empty, or its bytes are missing.
    """
    try:
        array = entry.read(...)
    except UserError:
        raise
    except Exception as error:  # as in `look_at`
        raise unreadable(said, error) from error
    if array.dtype.kind not in "iuf":
        raise UserError(f"{said} holds {entry.dtype}; expected real numbers")
    wide = array.astype(np.float64)
    if wide.ndim and not wide.shape[-1]:
        raise UserError(f"{said} holds an array of shape {list(wide.shape)}; expected at least one number")
    bad = np.argwhere(~np.isfinite(wide))
    if len(bad):
        place = f"row {bad[0][0]}, column {bad[0][1]}" if wide.ndim == 2 else f"[{','.join(map(str, bad[0]))}]"
        raise UserError(f"{said}: {place} holds {wide[tuple(bad[0])]}; expected finite numbers")
    return wide
