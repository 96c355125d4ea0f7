"""Resolve what a file of a user's project imports: from its own package, and from the folders above it.

`from .layers import Norm` needs the package, and `from models.layers import Norm` the top of the project; Python knows
neither if only the file is named.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from attn_exp import machine

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


def run_packages(path: Path, names: tuple[str, ...]) -> None:
    """Import the packages that contain a file; what their `__init__` lacks may not be needed."""
    for depth in range(1, len(names) + 1):
        folder, package = path.resolve().parents[len(names) - depth], ".".join(names[:depth])
        if str(folder) not in getattr(sys.modules.get(package), "__path__", ()):
            init = folder / "__init__.py"
            spec = importlib.util.spec_from_file_location(package, init, submodule_search_locations=[str(folder)])
            assert spec is not None and spec.loader is not None  # every file that ends in .py has one
            sys.modules[package] = module = importlib.util.module_from_spec(spec)
            with suppress(Exception):
                spec.loader.exec_module(module)


def run_file(module: ModuleType, path: Path) -> None:
    """Run a module's file, and again after each missing import that is found in its project."""
    assert module.__spec__ is not None and module.__spec__.loader is not None
    try:
        module.__spec__.loader.exec_module(module)
    except ModuleNotFoundError as error:
        if not error.name or not find_above(path, error.name.partition(".")[0]):
            raise
        run_file(module, path)


def find_above(path: Path, root: str) -> bool:
    """Make a module importable from the nearest folder above a file that contains it; return whether one does."""
    for folder in path.resolve().parents[:MOST_ABOVE]:
        found = [(folder / root).glob("*.py"), (folder / root).glob("*/*.py"), folder.glob(f"{root}.py")]
        if any(map(any, found)) and add_to_path(folder):
            return True
        if any((folder / top).exists() for top in TOPS):
            break
    return False


def add_to_path(folder: Path, first: bool = False) -> bool:
    """Add a folder to `sys.path`, as the last or the first; return whether it was new."""
    if str(folder) in sys.path:
        return False
    sys.path.insert(0 if first else len(sys.path), str(folder))
    return True


def choose_keras_backend(place: str) -> None:
    """Let a file use Keras without TensorFlow, its default, unless the user or the file chooses a backend.

    PyTorch comes first, since JAX traces anew for each size, unless the file itself imports JAX.
    """
    nodes = nodes_of(Path(place))
    is_chosen = any(isinstance(node, ast.Constant) and node.value == "KERAS_BACKEND" for node in nodes)
    if is_chosen or "KERAS_BACKEND" in os.environ or importlib.util.find_spec("tensorflow") is not None:
        return
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    others = sorted(("torch", "jax"), key=lambda name: name == "torch" and "jax" in names)
    if found := next((name for name in others if importlib.util.find_spec(name) is not None), ""):
        os.environ["KERAS_BACKEND"] = found
