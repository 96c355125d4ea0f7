"""Files of arrays: alike formats to a file, each read as numbers alone, so that nothing in one can run code.

A format is found by its suffix. `look` says what a file holds; numbers are read when they are asked for, and a header
that lies, a file that is cut off, or one that is no regular file is one line.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from attn_exp import machine, registry
from attn_exp.arrays import Array
from attn_exp.errors import UserError, brief, first_line
from attn_exp.problem.files import pickles
from attn_exp.problem.files.format import MOST_TEXT, Entry, Format, Held
from attn_exp.problem.input_files import INDEX

FORMATS: dict[str, Format] = registry.members(__name__, Format, without=("format", "pickles", "checkpoint", "cells"))
"""How a file is read, by its suffix."""

LONGEST = 150
"""Characters of a path that a line has room for."""


def look(file: str, key: str) -> Held:
    """Return what a file holds; `key` is the setting that named it, such as `embeddings.file`.

    Raises:
        UserError: no such file, no regular one, a suffix or contents that are no format, or a pickle.
    """
    path, said = Path(file), f"{key}={brief(file, LONGEST)}"
    try:
        if not path.is_file():
            raise ValueError("it is no file" if path.exists() else "No such file or directory")
        if path.suffix.lower() in pickles.SUFFIXES:
            raise pickles.refusal(path, key)
        return chosen(path, said).look(path, said)
    except UserError:
        raise
    except Exception as error:  # whatever a file holds, it is a line about that file
        raise unreadable(said, error) from error


def text(file: str, key: str) -> str:
    """Return a file of text, without the mark that some programs begin one with.

    Raises:
        UserError: no such file, no regular one, or bytes that are no text.
    """
    try:
        return machine.read_text(Path(file), MOST_TEXT).removeprefix("\ufeff")
    except (OSError, ValueError) as error:
        raise unreadable(f"{key}={brief(file, LONGEST)}", error) from error


def chosen(path: Path, said: str) -> Format:
    """Return the format that the suffix of a file names."""
    suffix = "safetensors" if path.name.endswith(INDEX) else path.suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise UserError(f"{said}: expected a file of {', '.join(f'.{name}' for name in FORMATS)}")
    return FORMATS[suffix]


def no_matrix(said: str, shape: tuple[int, ...], heads: bool = False) -> UserError:
    """Return the line that says that an array has no rows and columns; `heads` says that it may be several heads."""
    batch = "; a run is one sequence of a batch, and -m runs several" if len(shape) > 2 else ""
    beside = ", its heads side by side in the columns" if batch and heads else ""
    return UserError(
        f"{said} holds an array of shape {list(shape)}; expected rows and columns, such as [3,4]{beside}{batch}"
    )


def unreadable(said: str, error: BaseException) -> UserError:
    """Return the line that says why a file cannot be read."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
    return UserError(f"{said}: cannot be read ({reason})")


def numbers(entry: Entry, said: str) -> Array:
    """Return the numbers of an array as float64; `said` names its file and itself.

    Raises:
        UserError: what are no real and finite numbers, none at all, or bytes that are not there.
    """
    try:
        array = entry.read()
        if array.dtype.kind not in "iuf":
            raise UserError(f"{said} holds {entry.dtype}; expected real numbers")
        wide = array.astype(np.float64)
    except UserError:
        raise
    except Exception as error:  # as in `look`
        raise unreadable(said, error) from error
    if wide.ndim and not wide.shape[-1]:
        raise UserError(f"{said} holds an array of shape {list(wide.shape)}; expected at least one number")
    bad = np.argwhere(~np.isfinite(wide))
    if len(bad):
        place = f"row {bad[0][0]}, column {bad[0][1]}" if wide.ndim == 2 else f"[{','.join(map(str, bad[0]))}]"
        raise UserError(f"{said}: {place} holds {wide[tuple(bad[0])]}; expected finite numbers")
    return wide
