"""How heavy the package is to inherit: lines, files, imports inside functions, and what an ordinary run loads.

python benchmarks/weight.py [CHECKOUT ...]
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IMPORTS = (ast.Import, ast.ImportFrom)


def lines_of(paths: list[Path]) -> int:
    """Return how many lines some files have together."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def lines_of_code(path: Path) -> int:
    """Return how many lines of a file hold code: no docstrings, comments, blank lines or imports."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    code = {number for number, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")}
    for node in ast.walk(ast.parse(text)):
        words = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        if words or isinstance(node, IMPORTS):
            code -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined] # both have
    return len(code)


def late_imports(path: Path) -> int:
    """Return how many imports of a file stand inside a function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {
        node.lineno
        for function in ast.walk(tree)
        if isinstance(function, FUNCTIONS)
        for node in ast.walk(function)
        if isinstance(node, IMPORTS)
    }
    return len(inside)


COUNT = """
import atexit, sys
sys.argv[0] = "attn-exp"
atexit.register(lambda: print(sum(name.split(".")[0] == "attn_exp" for name in sys.modules), file=sys.stderr))
from attn_exp.cli import main
main()
"""


def loaded(checkout: Path, *words: str) -> int:
    """Return how many modules of the package a run loads."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPATH": str(checkout)}
        done = subprocess.run(
            [sys.executable, "-c", COUNT, *words],
            cwd=folder,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
    return int(done.stderr.split()[-1])


def weigh(checkout: Path) -> dict[str, str]:
    """Return what is measured of a checkout, in the words of the table."""
    package, tests = checkout / "attn_exp", checkout / "tests"
    sources = sorted(package.rglob("*.py"))
    rooms = Counter(path.relative_to(package).parts[0] for path in sources if path.parent != package)
    room, most = rooms.most_common(1)[0]
    zoo = sum(lines_of(list(folder.rglob("*.py"))) for folder in tests.rglob("zoo") if folder.is_dir())
    return {
        "lines of the package": f"{lines_of(sources):,}",
        "of code without docstrings, blanks, imports": f"{sum(map(lines_of_code, sources)):,}",
        "files": str(len(sources)),
        "in the largest room": f"{most} ({room})",
        "modules that a default run loads": str(loaded(checkout)),
        "modules that report=none loads": str(loaded(checkout, "report=none")),
        "imports inside functions": str(sum(map(late_imports, sources))),
        "lines of tests": f"{lines_of(list(tests.rglob('*.py'))):,} ({zoo:,} of them wrong functions)",
    }


def main() -> None:
    """Print a row for each figure and a column for each checkout."""
    columns = [weigh(Path(name).resolve()) for name in sys.argv[1:] or [str(HERE)]]
    for name in columns[0]:
        print(f"{name:45}", *(f"{column[name]:>28}" for column in columns))


if __name__ == "__main__":
    main()
