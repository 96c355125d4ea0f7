"""Seals: hashes by which files on disk are known to be as they were written."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attn_exp import machine
from attn_exp.runs.json_file import DamagedError

KEY = "seal"
FILE = {"bytes": int, "sha256": str}
"""What a description says of a file."""


def of_file(path: Path, size: int | None = None) -> dict[str, Any]:
    """Return the size of a regular file and its hash; where it is not of the `size` that it should be, its size alone.

    Raises:
        OSError: there is no such file, or no regular one.
    """
    with machine.opened(path) as file:
        there = os.fstat(file.fileno()).st_size
        if size not in (None, there):
            return {"bytes": there}
        return {"bytes": there, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def of_plain(about: Mapping[str, Any]) -> str:
    """Return the hash of plain values, but for a seal among them."""
    rest = {key: value for key, value in about.items() if key != KEY}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def sealed(about: Mapping[str, Any], folder: Path, files: Sequence[str]) -> dict[str, Any]:
    """Return a description with the hashes of a folder's files and of itself."""
    whole = {**about, "files": {name: of_file(folder / name) for name in files}}
    return whole | {KEY: of_plain(whole)}


def check(about: Mapping[str, Any], folder: Path) -> None:
    """Refuse a description or files that are not as they were written; what was never sealed cannot be judged.

    Raises:
        OSError: a file is missing.
        DamagedError: one has changed.
    """
    if KEY not in about:
        return
    if about[KEY] != of_plain(about):
        raise DamagedError("its description is not as it was written")
    for name, file in about["files"].items():
        if of_file(folder / name, file["bytes"]) != file:
            raise DamagedError(f"{name} is not as it was written")
