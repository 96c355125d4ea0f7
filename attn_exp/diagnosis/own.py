"""Finds the function that a user names: `file.py:function` or `package.module:function`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from attn_exp.config.own_files import fingerprint
from attn_exp.errors import UserError, unknown


@dataclass(frozen=True)
class Own:
    """A function of the user: its name, the file it comes from, a hash of that file's text, and how it was named."""

    function: Any
    name: str
    file: str
    sha256: str
    target: str = ""


def find(target: str) -> Own:
    """Import and return the function that `file.py:function` or `package.module:function` names.

    Raises:
        UserError: there is no such file, module or name, or it cannot be imported.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise UserError(
            f"{target}: expected a file and a function, such as mine.py:attention, or package.module:function"
        )
    module = from_file(Path(place)) if place.endswith(".py") else from_package(place)
    function: Any = module
    for part in name.split("."):
        if not hasattr(function, part):
            known = [word for word in vars(module) if not word.startswith("_") and callable(vars(module)[word])]
            raise UserError(unknown(name, known[:12], f"function of {place}"))
        function = getattr(function, part)
    if not callable(function):
        raise UserError(f"{target} is a {type(function).__name__}; expected a function")
    return recorded(function, name, getattr(module, "__file__", None))


def given(function: Any) -> Own:
    """Return a function that is at hand, with the file that it comes from where that is known."""
    name = getattr(function, "__name__", type(function).__name__)
    code = getattr(function, "__code__", None)
    return recorded(function, name, getattr(code, "co_filename", None))


def recorded(function: Any, name: str, file: str | None) -> Own:
    """Return the function with the hash of its file, or none where it has no file."""
    readable = file is not None and Path(file).is_file()
    place = file if file is not None and readable else ""
    return Own(function, name, place, fingerprint(place) if place else "")


def from_file(path: Path) -> ModuleType:
    """Import a file; what lies beside it can be imported by it."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"{path} cannot be imported: {error_line(error)}") from error
    return module


def from_package(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise UserError(f"{name} cannot be imported: {error_line(error)}") from error


def error_line(error: BaseException) -> str:
    """Return the kind of an error and the first line that it says; of our own, the line alone."""
    lines = str(error).splitlines()
    if isinstance(error, UserError):
        return lines[0]
    return f"{type(error).__name__}: {lines[0]}"[:200] if lines else type(error).__name__
