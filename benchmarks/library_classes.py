"""The classes of attention of an installed library, as a folder for `benchmarks/check.py --world`:

    python benchmarks/library_classes.py transformers FOLDER
    python benchmarks/check.py --world FOLDER

Each class counts once: models copy each other's code, and names of models and of their settings are no difference.
They stand in the folder's table as right, since people use them; what is no softmax attention, or is meant otherwise,
such as without a scale, is for the reader to tell. Nothing is imported, and nothing of the library is copied: a file of
the folder imports its class.
"""

from __future__ import annotations

import argparse
import ast
import csv
import hashlib
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

CALLS = ("forward", "__call__", "call")
SAYS_SOFTMAX = ("softmax", "attention_interface", "scaled_dot", "dot_product_attention")
"""Words of code that weighs keys itself, or has them weighed."""


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("library", help="an installed package, such as transformers")
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    home = home_of(asked.library)
    if home is None:
        parser.error(f"{asked.library} is not installed")
    asked.folder.mkdir(parents=True, exist_ok=True)
    rows = list(rows_of(asked.library, home, asked.folder))
    with (asked.folder / "truth.csv").open("w", newline="", encoding="utf-8") as file:
        columns = ("file", "name", "right_or_wrong", "expected", "words", "framework", "source", "note")
        csv.writer(file).writerows([columns, *rows])
    print(f"{len(rows)} classes")


def home_of(library: str) -> Path | None:
    """Return the folder of an installed package, or None."""
    spec = find_spec(library)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def rows_of(library: str, home: Path, folder: Path) -> Iterator[tuple[str, ...]]:
    """Write a file for each class, and yield its row of the table."""
    seen = set[str]()
    for path in sorted(home.rglob("*.py")):
        module = ".".join((library, *path.relative_to(home).with_suffix("").parts))
        for name, code in classes_in(path.read_text(encoding="utf-8", errors="replace")):
            if code in seen:
                continue
            seen.add(code)
            file = f"{len(seen):04d}_{name}.py"
            (folder / file).write_text(f"from {module} import {name}\n", encoding="utf-8")
            yield file, name, "right", "", "", "torch", module, ""


def classes_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the classes of attention of a file, each with a digest of its code but for the names of its model."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    for one in tree.body:
        if not (isinstance(one, ast.ClassDef) and one.name.endswith("Attention")):
            continue
        told = [part for part in one.body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))]
        code = ast.unparse(ast.Module(body=told, type_ignores=[]))
        is_called = any(isinstance(part, ast.FunctionDef) and part.name in CALLS for part in told)
        if is_called and any(word in code for word in SAYS_SOFTMAX):
            model = re.match(r"[A-Z]+[a-z0-9]*", one.name)
            alike = re.sub(model[0], "Model", code) if model else code
            yield one.name, hashlib.sha256(re.sub(r"\w*Config\b", "Config", alike).encode()).hexdigest()


if __name__ == "__main__":
    main()
