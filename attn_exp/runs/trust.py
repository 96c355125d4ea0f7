"""Untrusted files: check JSON against a schema, files against their hashes, and stored commands for anything unsafe.

A file from somebody else may contain anything. The contents of a folder determine the settings with which a run is
repeated, but neither where it writes nor what it reads from the machine.

- The *seal* of a run is a hash of its `run.json`, which holds the hashes of the other files. It is stored in `run.json`
  too, and shows whether a file was changed. The page of a class has the seal of the table of grades.
- A *mark* is a string near the beginning of a file that shows that attn-exp wrote it: the generator of a page, or
  the first line of a table. A file without its mark is never replaced. A sweep is never written to a folder that holds
  anything else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any

from attn_exp import machine
from attn_exp.errors import UserError, first_line
from attn_exp.report.escapes import plain

MOST_NUMBER = 2**63  # exclusive upper bound on the magnitude of integers

# JSON types, as error messages name them
NAMES = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
    NoneType: "null",
}
Schema = Any
"""The schema of a JSON value:

- a type, or a tuple of alternative types.
- `[schema]`: a list of values that all match the schema.
- `{"name": schema, "title?": schema}`: an object with at least these keys; a key that ends in `?` may be missing.
"""

SEAL = "seal"  # the key of the seal in `run.json`

OUTPUTS = "outputs"
PLAIN_INTERPOLATION = re.compile(r"\$\{[\w.\[\]]+\}")
"""An interpolation of another setting; any other `${...}` could read the environment."""

HYDRAS_OWN = re.compile(r"[+~]*hydra\b")  # an argument that changes Hydra's own settings

BEGINNING = 4096  # how many bytes of a file are searched for its mark
GENERATOR = '<meta name="generator" content="attn-exp {}">'  # the mark of our pages, with the kind of the page
SEAL_OF_TABLE = re.compile(rb'<meta name="attn-exp-table" content="([0-9a-f]{64})">')
"""The seal of the table of grades, in the page of a class."""

BEGINS_SWEEP = {"lock", "parts"}
"""The files in the folder of a sweep that ended before its manifest was written."""

MISFIT = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, AssertionError, SystemError
)  # fmt: skip
"""Errors that arbitrary contents may raise when they are rendered; SystemError is raised by invalid characters."""

UNREADABLE = (OSError, *MISFIT)
"""Errors that reading a file with arbitrary contents may raise."""


class DamagedError(ValueError):
    """A file has unexpected contents; the message describes the problem in one line."""


def read_json(path: Path, schema: Schema, most: int = machine.MOST_BYTES) -> dict[str, Any]:
    """Read a JSON object from a file and check it against a schema.

    Raises:
        OSError: there is no such file, or it is too large or not a regular file.
        DamagedError: the file is not JSON, or does not match the schema.
    """
    try:
        value: dict[str, Any] = machine.read_json(path, most)
    except ValueError as error:
        raise DamagedError(f"{path.name}: {first_line(error)}") from error
    check_schema(value, schema, path.name)
    return value


def check_schema(value: Any, schema: Schema, where: str) -> None:
    """Check a value against a schema.

    Raises:
        DamagedError: the value does not match; the message says where, and what was expected.
    """
    if isinstance(schema, Mapping):
        check_schema(value, dict, where)
        for name, inner in schema.items():
            key = name.removesuffix("?")
            if key in value:
                check_schema(value[key], inner, f"{where}: {key}")
            elif key == name:  # without a `?`
                raise DamagedError(f"{where}: {key} is missing")
    elif isinstance(schema, list):
        check_schema(value, list, where)
        for item in value:
            check_schema(item, schema[0], f"an item of {where}")
    else:
        kinds = schema if isinstance(schema, tuple) else (schema,)
        if not any(is_of_kind(value, kind) for kind in kinds):
            raise DamagedError(f"{where} is not {' or '.join(NAMES[kind] for kind in kinds)}")


def is_of_kind(value: Any, kind: type) -> bool:
    """Return whether a value has a JSON type; booleans do not count as numbers, but integers count as floats."""
    if kind is int:
        return type(value) is int and abs(value) < MOST_NUMBER
    if kind is float:
        return type(value) in (int, float) and abs(value) < float("inf")
    return isinstance(value, kind)


@contextmanager
def refuse_damaged(what: str, *kinds: type[Exception]) -> Iterator[None]:
    """Convert exceptions of these types to a UserError with the message `what` and the reason; pass on UserErrors.

    Raises:
        UserError: the block raised such an exception.
    """
    try:
        yield
    except UserError:
        raise
    except kinds as error:
        raise UserError(f"{what} ({first_line(error)})") from error


def hash_file(path: Path) -> dict[str, Any]:
    """Return the size and hash of a regular file.

    Raises:
        OSError: there is no such file, or it is not a regular file.
    """
    with machine.open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        return {"bytes": size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def hash_description(about: Mapping[str, Any]) -> str:
    """Return the hash of the contents of a `run.json`, without its seal."""
    unsealed = {key: value for key, value in about.items() if key != SEAL}
    return hashlib.sha256(json.dumps(unsealed, sort_keys=True).encode()).hexdigest()


def add_seal(about: Mapping[str, Any], folder: Path, files: Sequence[str]) -> dict[str, Any]:
    """Return the contents of a `run.json`, with the hashes of these files in its folder, and with its seal."""
    unsealed = {**about, "files": {name: hash_file(folder / name) for name in files}}
    return unsealed | {SEAL: hash_description(unsealed)}


def check_seal(about: Mapping[str, Any], folder: Path) -> None:
    """Check that the contents of a `run.json`, and the files that it lists, have not changed.

    Raises:
        OSError: a file is missing.
        DamagedError: `run.json` or a file has changed.
    """
    if about[SEAL] != hash_description(about):
        raise DamagedError("its description has changed since it was written")
    for name, file in about["files"].items():
        if hash_file(folder / name) != file:
            raise DamagedError(f"{name} has changed since it was written")


def allowed_output_dir(output_dir: str) -> str:
    """Return the `output_dir` of a stored run if it is inside the working folder, else the default folder."""
    working_dir = Path.cwd().resolve()
    is_inside = not Path(output_dir).is_absolute() and (working_dir / output_dir).resolve().is_relative_to(working_dir)
    return output_dir if is_inside else OUTPUTS


def allowed_words(words: Iterable[str], folder: Path) -> list[str]:
    """Check that all arguments of a stored command are settings of a run, and return them.

    Raises:
        UserError: an argument is an option, a setting of Hydra itself, or could read the environment.
    """
    arguments = list(words)
    for word in arguments:
        if word.lstrip().startswith("-") or HYDRAS_OWN.match(word.lstrip()):
            raise UserError(f"{folder}: {plain(word)} is not a setting of a run, so it is refused")
        if "${" in PLAIN_INTERPOLATION.sub("", word):
            raise UserError(f"{folder}: {plain(word)} may read data other than settings, so it is refused")
    return arguments


def check_mark(path: Path, mark: str) -> None:
    """Refuse to replace a file without this mark; a link may be replaced, since its target stays.

    Raises:
        UserError: the file was not written by attn-exp.
        OSError: the file cannot be read.
    """
    if os.path.lexists(path) and not path.is_symlink():
        with machine.open_regular(path) as file:
            if mark.encode() not in file.read(BEGINNING):
                refuse_foreign(path)


def check_page(path: Path, kind: str) -> None:
    """Refuse to replace a file unless it is a page of this kind that attn-exp wrote; see `check_mark`."""
    check_mark(path, GENERATOR.format(kind))


def check_grades(folder: Path, header: str) -> None:
    """Refuse to replace a table or page of grades that attn-exp did not write, or a table that somebody edited.

    `header` is the first line of a table of grades.

    Raises:
        UserError: the folder contains such a file.
        OSError: the table or page cannot be read.
    """
    page, table = folder / "class.html", folder / "grades.csv"
    check_page(page, "grades")
    check_mark(table, header)
    if page.is_file() and table.is_file():
        seal = SEAL_OF_TABLE.search(machine.read(page))
        if seal and hashlib.sha256(machine.read(table)).hexdigest() != seal[1].decode():
            raise UserError(f"{table}: has been changed since it was written, so it is kept; rename or remove it")


def check_sweep(folder: Path) -> None:
    """Refuse to write a sweep to a folder that contains other files.

    Raises:
        UserError: the folder is neither empty nor the folder of a sweep.
    """
    names = {name for name in os.listdir(folder) if not name.startswith(".")} if folder.is_dir() else set()
    if not (names <= BEGINS_SWEEP or {"manifest.json", "parts"} <= names):
        refuse_foreign(folder)


def refuse_foreign(path: Path) -> None:
    raise UserError(f"{path}: already exists and was not written by attn-exp, so it is kept; rename or remove it")
