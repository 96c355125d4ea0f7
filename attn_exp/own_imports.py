"""Resolve what a file of a user's project imports: from its own package, and from the folders above it.

`from .layers import Norm` needs the package, and `from models.layers import Norm` the top of the project; Python knows
neither if only the file is named. A package's `__init__` often imports everything, so it is run only if something is
missing without it.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from attn_exp import machine, parsing
from attn_exp.errors import UserError

MOST_CODE = 4 * 2**20
"""Size limit of a file that is searched for imports."""
MOST_ABOVE = 6
"""Number of parent folders that are searched."""
TOPS = (".git", "pyproject.toml", "setup.py")
"""Files that mark the top of a project; folders above do not belong to it."""


def package_of(path: Path) -> tuple[str, ...]:
    """Return the names of the packages that contain a file, outermost first; empty if it needs none."""
    levels = max((node.level for node in nodes_of(path) if isinstance(node, ast.ImportFrom)), default=0)
    names, folder = list[str](), path.resolve().parent
    while levels and folder.name and (len(names) < levels or (folder / "__init__.py").is_file()):
        names.insert(0, folder.name.replace(".", "_"))
        folder = folder.parent
    return tuple(names)


def nodes_of(path: Path) -> list[ast.AST]:
    """Return the syntax nodes of a Python file; empty if it cannot be parsed."""
    try:
        return [*ast.walk(ast.parse(machine.read(path, MOST_CODE)))]
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def stand_for_packages(path: Path, names: tuple[str, ...]) -> None:
    """Register stub modules for a file's packages without running their code; installed packages stay as they are."""
    folders = [*reversed(path.resolve().parents)][-len(names) :] if names else []
    if not folders or is_installed(names[0], folders[0]):
        return
    for depth, folder in enumerate(folders):
        name = ".".join(names[: depth + 1])
        if str(folder) not in getattr(sys.modules.get(name), "__path__", ()):
            sys.modules[name] = package = ModuleType(name)
            vars(package)["__path__"] = [str(folder)]
    add_to_path(folders[0].parent)


def is_installed(name: str, folder: Path) -> bool:
    """Return whether Python finds a package in this folder by itself."""
    if name in sys.modules:
        return False
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(name)
        return spec is not None and str(folder) in (spec.submodule_search_locations or ())
    return False


def run_packages(names: tuple[str, ...]) -> bool:
    """Run the `__init__` of stub packages; return whether there was any to run."""
    ran = False
    for depth in range(len(names)):
        package = sys.modules[".".join(names[: depth + 1])]
        init = Path(next(iter(package.__path__))) / "__init__.py"
        if vars(package).get("__file__") or not init.is_file():
            continue
        spec = importlib.util.spec_from_file_location(package.__name__, init)
        assert spec is not None and spec.loader is not None  # every file that ends in .py has one
        ran, package.__file__, package.__spec__ = True, str(init), spec
        with suppress(Exception):  # it may import what is missing, even if the file does not need it
            spec.loader.exec_module(package)
    return ran


def find_above(path: Path, name: str) -> bool:
    """Make a module importable from the nearest folder above a file that contains it; return whether one does."""
    root = name.partition(".")[0]
    for folder in path.resolve().parents[:MOST_ABOVE]:
        inside = any(next((folder / root).glob(pattern), None) for pattern in ("*.py", "*/*.py"))
        if (inside or (folder / f"{root}.py").is_file()) and add_to_path(folder):
            return True
        if any((folder / top).exists() for top in TOPS):
            break
    return False


def add_to_path(folder: Path) -> bool:
    """Append a folder to `sys.path`; return whether it was new."""
    if str(folder) in sys.path:
        return False
    sys.path.append(str(folder))
    return True


# Keras, which needs a backend


@contextmanager
def keras_with_what_is_installed() -> Iterator[None]:
    """If nobody chose a backend, let Keras be imported in the block with an installed one.

    Keras' default, or the one noted at its first import, may not be installed. An imported file may choose a backend
    before it imports Keras, so nothing is chosen earlier.
    """

    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name == "keras" and "KERAS_BACKEND" not in os.environ and (found := library_for_keras()):
            os.environ["KERAS_BACKEND"] = found

    finder: Any = SimpleNamespace(find_spec=find_spec)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def library_for_keras() -> str:
    """Return the backend for Keras: the one in its settings if installed, or else another that is.

    PyTorch comes first, since JAX traces anew for each size, unless the file has already imported JAX.
    """
    noted = "tensorflow"
    with suppress(UserError, OSError, ValueError, AttributeError):
        home = Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser()
        noted = str(parsing.read_json(home / "keras.json", MOST_CODE).get("backend", noted))
    others = ("jax", "torch") if "jax" in sys.modules and "torch" not in sys.modules else ("torch", "jax")
    names = (name for name in (noted, *others) if name.isidentifier())
    return next((name for name in names if importlib.util.find_spec(name) is not None), "")
