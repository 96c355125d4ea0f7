"""What lies on disk is not trusted: JSON is held to a shape, files to their hashes, words of commands to settings.

A file that somebody else wrote may hold anything. What a folder says decides which settings a run has when it is
repeated, but neither where it writes nor what it reads of the machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

from attn_exp import machine, parsing
from attn_exp.errors import UserError, first_line
from attn_exp.report.escapes import plain

MOST_NUMBER = 2**63
"""Whole numbers are smaller: counts, and times in nanoseconds."""

NAMES = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    NoneType: "null",
}
Shape = Any
"""What a value must be: a type; a tuple of types, any of which will do; `[shape]`, a list of such; or `{key: shape}`,
an object with these keys and perhaps others, where a key that ends in `?` may be missing."""

SEAL = "seal"
SEALED_FILE = {"bytes": int, "sha256": str}
"""What a description says of a file."""

USUAL = "outputs"
PLAIN_INTERPOLATION = re.compile(r"\$\{[\w.\[\]]+\}")
"""One that reads another setting; what else stands in `${...}` can read the environment."""

HYDRAS_OWN = re.compile(r"[+~]*hydra\b")


class DamagedError(ValueError):
    """A file that does not hold what it should; the message says in one line what is wrong."""


def read_json(path: Path, shape: Shape, most: int = machine.MOST_BYTES) -> dict[str, Any]:
    """Return the object that a file holds, checked.

    Raises:
        OSError: there is no such file, or it is too large or no regular one.
        DamagedError: it holds something else.
    """
    try:
        value: dict[str, Any] = parsing.read_json(path, most)
    except ValueError as error:
        raise DamagedError(f"{path.name}{first_line(error).removeprefix('it')}") from error
    check_shape(value, shape, path.name)
    return value


def check_shape(value: Any, shape: Shape, where: str) -> None:
    """Refuse a value of another shape.

    Raises:
        DamagedError: where it is, and what was expected.
    """
    if isinstance(shape, Mapping):
        check_shape(value, dict, where)
        for name, inner in shape.items():
            key = name.removesuffix("?")
            if key in value:
                check_shape(value[key], inner, f"{where}: {key}")
            elif key == name:
                raise DamagedError(f"{where}: {key} is missing")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise DamagedError(f"{where} is no list")
        for item in value:
            check_shape(item, shape[0], f"an item of {where}")
    else:
        kinds = shape if isinstance(shape, tuple) else (shape,)
        if not any(is_of_kind(value, kind) for kind in kinds):
            raise DamagedError(f"{where} is not {' or '.join(NAMES[kind] for kind in kinds)}")


def is_of_kind(value: Any, kind: type) -> bool:
    """Say whether a value is of a type as JSON has it: true is no number, and a whole number is a number too."""
    if kind is int:
        return type(value) is int and abs(value) < MOST_NUMBER
    if kind is float:
        return type(value) in (int, float) and abs(value) < float("inf")
    return isinstance(value, kind)


def seal_of_file(path: Path, size: int | None = None) -> dict[str, Any]:
    """Return the size of a regular file and its hash; where it is not of the `size` that it should be, its size alone.

    Raises:
        OSError: there is no such file, or no regular one.
    """
    with machine.opened(path) as file:
        there = os.fstat(file.fileno()).st_size
        if size not in (None, there):
            return {"bytes": there}
        return {"bytes": there, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def seal_of_description(about: Mapping[str, Any]) -> str:
    """Return the hash of plain values, but for a seal among them."""
    rest = {key: value for key, value in about.items() if key != SEAL}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def sealed(about: Mapping[str, Any], folder: Path, files: Sequence[str]) -> dict[str, Any]:
    """Return a description with the hashes of a folder's files and of itself."""
    whole = {**about, "files": {name: seal_of_file(folder / name) for name in files}}
    return whole | {SEAL: seal_of_description(whole)}


def check_seal(about: Mapping[str, Any], folder: Path) -> None:
    """Refuse a description or files that are not as they were written.

    Raises:
        OSError: a file is missing.
        DamagedError: one has changed.
    """
    if about[SEAL] != seal_of_description(about):
        raise DamagedError("its description is not as it was written")
    for name, file in about["files"].items():
        if seal_of_file(folder / name, file["bytes"]) != file:
            raise DamagedError(f"{name} is not as it was written")


def allowed_output_dir(named: str) -> str:
    """Return the output folder that a run names if it lies under the folder that the user is in; else the usual one."""
    here = Path.cwd().resolve()
    inside = not Path(named).is_absolute() and (here / named).resolve().is_relative_to(here)
    return named if inside else USUAL


def allowed_words(command: Iterable[str], folder: Path) -> list[str]:
    """Return the words of a command that are settings and nothing else.

    Raises:
        UserError: an option, a setting of Hydra's own, or an interpolation that could read the environment.
    """
    checked = list(command)
    for word in checked:
        if word.lstrip().startswith("-") or HYDRAS_OWN.match(word.lstrip()):
            raise UserError(f"{folder}: {plain(word)} is no setting of a run; it is not followed")
        if "${" in PLAIN_INTERPOLATION.sub("", word):
            raise UserError(f"{folder}: {plain(word)} could read more than settings; it is not followed")
    return checked
