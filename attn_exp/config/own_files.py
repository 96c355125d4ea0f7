"""A file of the user's code as it is on disk, read and never run: a hash of it and of what it imports beside it."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OURS = __name__.partition(".")[0]


def fingerprint(file: str | Path) -> str:
    """Return a hash of a file of code; nothing where it cannot be read.

    It is that of its bytes, or, where it imports files or packages that lie in its own folder, of all of them together.
    """
    try:
        first = Path(file).resolve()
        helpers = beside(first)
        if not helpers:
            return hashlib.sha256(first.read_bytes()).hexdigest()
        together = hashlib.sha256()
        for path in (first, *helpers):
            name = path.relative_to(first.parent).as_posix()
            together.update(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n".encode())
        return together.hexdigest()
    except (OSError, ValueError):
        return ""


def of_code(name: Any) -> str:
    """Return the hash of the file that the name of a function stands for, such as `mine.py:attention`; else nothing."""
    place = name.rpartition(":")[0] if isinstance(name, str) else ""
    return fingerprint(place) if place.endswith(".py") else ""


def beside(first: Path) -> list[Path]:
    """Return the files in a file's folder, and in packages there, that it imports, or that those import, in order.

    This package is none of them: in a checkout it may lie there too.
    """
    import sysconfig  # noqa: PLC0415 - most runs have no code of the user's own

    home, helpers, waiting, seen = first.parent, set[Path](), [first], {OURS}
    if home in {Path(place).resolve() for place in sysconfig.get_paths().values()}:
        return []  # what is installed beside a file is not its helper
    while waiting:
        for root in {name.partition(".")[0] for name in imported(waiting.pop())} - seen:
            seen.add(root)
            new = {path.resolve() for path in files_of(home, root)} - helpers - {first}
            inside = {path for path in new if path.is_relative_to(home)}
            helpers |= inside
            waiting += inside
    return sorted(helpers)


def files_of(home: Path, root: str) -> list[Path]:
    """Return the files of a module below a folder: one, or all of a package; none where it is not there."""
    package = home / root
    if package.is_dir():
        return [path for path in package.rglob("*.py") if path.is_file()] if has_code(package) else []
    module = package.with_name(f"{root}.py")
    return [module] if module.is_file() else []


def has_code(folder: Path) -> bool:
    """Say whether a folder is a package: it says so itself, or it holds Python at all."""
    return (folder / "__init__.py").is_file() or any(folder.glob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Yield the full names of what a file imports, wherever in it; nothing where it is no Python."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
