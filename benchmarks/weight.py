"""Count what a maintainer has to read, and fail where it exceeds the budget in pyproject.toml.

    python benchmarks/weight.py [CHECKOUT]

A statement is an `ast.stmt` node that is neither a docstring nor an import, so deleting comments gains nothing. Syntax
nodes per statement have a cap as well, so neither does denser code. `[tool.weight.caps]` binds. `[tool.weight.goals]`
has the rooms that are still to be rebuilt; when a room is, its goal becomes its cap. Caps only go down.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent.parent
TOTALS = {"package": ("attn_exp",), "tests": ("tests",), "tools and benchmarks": ("tools", "benchmarks")}
KIB = {"templates": "attn_exp/report/templates", "conf": "conf"}


class Weight(NamedTuple):
    """The size of some source files."""

    statements: int = 0
    files: int = 0
    lines: int = 0
    nodes: int = 0


def weigh(path: Path) -> Weight:
    """Count one source file."""
    text = path.read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    bodies = [body for node in nodes if isinstance(body := getattr(node, "body", None), list)]
    docstrings = {id(node) for body in bodies for node in body if is_text(node)}
    statements = [node for node in nodes if isinstance(node, ast.stmt) and id(node) not in docstrings]
    code = [node for node in statements if not isinstance(node, ast.Import | ast.ImportFrom)]
    return Weight(len(code), 1, text.count("\n"), len(nodes))


def is_text(node: ast.AST) -> bool:
    """Return whether a statement is a string and nothing else, as a docstring is."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def add_up(weights: Iterator[Weight]) -> Weight:
    return Weight(*map(sum, zip(Weight(), *weights, strict=True)))


def measure(checkout: Path) -> dict[str, dict[str, float]]:
    """Return the sizes of a checkout: of the package and each of its rooms, of the tests and tools, and of data."""
    measured: dict[str, dict[str, float]] = {}
    for name, folders in TOTALS.items():
        files = {path: weigh(path) for folder in folders for path in sorted(checkout.joinpath(folder).rglob("*.py"))}
        measured[name] = format_row(add_up(iter(files.values())))
        if name == "package":
            rooms = sorted({find_room(path, checkout) for path in files})
            for room in rooms:
                chosen = (weight for path, weight in files.items() if find_room(path, checkout) == room)
                measured[room] = format_row(add_up(chosen))
    for name, folder in KIB.items():
        paths = (path for path in checkout.joinpath(folder).rglob("*") if "__pycache__" not in path.parts)
        sizes = [path.stat().st_size for path in paths if path.is_file()]
        measured[name] = {"KiB": round(sum(sizes) / 1024, 1), "files": len(sizes)}
    return measured


def find_room(path: Path, checkout: Path) -> str:
    """Return the room of a file of the package; files beside the rooms are `support`, `api` and `cli` among them."""
    folder, *rest = path.relative_to(checkout / "attn_exp").parts
    return folder if rest else "support"


def format_row(weight: Weight) -> dict[str, float]:
    """Return a size as a row of the table, with the syntax nodes per statement."""
    return {**weight._asdict(), "density": round(weight.nodes / max(weight.statements, 1), 2)}


def find_excesses(
    measured: Mapping[str, Mapping[str, float]], caps: Mapping[str, Mapping[str, float]]
) -> Iterator[str]:
    """Yield one line for each cap that is exceeded, and for each that limits something that does not exist."""
    for name, limits in caps.items():
        for unit, cap in limits.items():
            value = measured.get(name, {}).get(unit)
            if value is None:
                yield f"pyproject.toml caps {unit} of {name!r}, which does not exist"
            elif value > cap:
                yield f"{name}: {value:,} {unit} exceed the cap of {cap:,}: delete something that is worth less"


def format_table(measured: Mapping[str, Mapping[str, float]], budget: Mapping[str, Any]) -> Iterator[str]:
    yield f"{'':22}{'statements':>12}{'cap':>9}{'goal':>9}{'files':>8}{'lines':>9}{'nodes':>10}{'nodes/stmt':>12}"
    for name, row in measured.items():
        unit = "statements" if "statements" in row else "KiB"
        cap, goal = (budget[kind].get(name, {}).get(unit, "") for kind in ("caps", "goals"))
        cells = [row[unit], cap, goal, *(row.get(key, "") for key in ("files", "lines", "nodes", "density"))]
        title = f"{name} (KiB)" if unit == "KiB" else name
        widths = (12, 9, 9, 8, 9, 10, 12)
        yield f"{title:22}" + "".join(
            f"{cell:>{width},}" if cell != "" else " " * width for cell, width in zip(cells, widths, strict=True)
        )


def main() -> None:
    """Print the table and exit with 1 where a cap is exceeded."""
    checkout = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else HERE
    budget = tomllib.loads(HERE.joinpath("pyproject.toml").read_text(encoding="utf-8"))["tool"]["weight"]
    measured = measure(checkout)
    print("\n".join(format_table(measured, budget)))
    problems = list(find_excesses(measured, budget["caps"]))
    print("\n".join(problems) or "within the budget")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
