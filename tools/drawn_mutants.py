"""Draw small faults by a seed, evenly over the statements of the package, and check that the tests notice.

    python tools/drawn_mutants.py [--count 40] [--seed 44] [--only ROOM] [--suite]

Each fault changes one expression or drops one statement; where that leaves the same code or constant (`return None`,
`1e38 + 1`), another is drawn. A fault meets the tests of its room (`--all -x`, those that name the changed module
before the others). With `--suite` a survivor meets the whole suite, which takes long.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 1800.0
"""Seconds for the tests of a room, and again for the whole suite; a fault that takes longer is undecided."""
OPPOSITES: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult, ast.MatMult: ast.Mult, ast.Mod: ast.Mult,
}  # fmt: skip


class Fault(NamedTuple):
    """A piece of a source file, by its bytes, and what stands there instead."""

    path: Path
    line: int
    start: int
    stop: int
    text: str

    def __str__(self) -> str:
        source = (ROOT / self.path).read_bytes()[self.start : self.stop].decode()
        return f"{self.path}:{self.line} {source!r} -> {self.text!r}"


def list_expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield the expressions of a statement without those of statements inside it, and without annotations."""
    fields = [getattr(statement, name, None) for name in ("test", "iter", "value", "items", "targets", "exc")]
    rest = [node for one in fields for node in (one if isinstance(one, list) else [one]) if isinstance(node, ast.AST)]
    for node in rest:
        rest.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.expr):
            yield node


def mutate(node: ast.expr) -> ast.expr | None:  # noqa: PLR0911 - a table of kinds
    """Return an expression that means something else; None of one that is left as it is."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return ast.Compare(node.left, [swap_operator(node.ops[0])], node.comparators)
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(swap_operator(node.op), node.values)
    if isinstance(node, ast.BinOp) and type(node.op) in OPPOSITES:
        return ast.BinOp(node.left, swap_operator(node.op), node.right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        return node.operand
    if isinstance(node, ast.IfExp):
        return ast.IfExp(node.test, node.orelse, node.body)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        return ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
    return None


def swap_operator(operator: ast.AST) -> ast.AST:
    return OPPOSITES[type(operator)]()


def list_faults(path: Path, statement: ast.stmt, offset: Callable[[int, int], int]) -> list[Fault]:

    def fault(node: ast.stmt | ast.expr, text: str) -> Fault:
        stop = offset(node.end_lineno or 0, node.end_col_offset or 0)
        return Fault(path, statement.lineno, offset(node.lineno, node.col_offset), stop, text)

    pairs = [(node, mutate(node)) for node in list_expressions(statement)]
    found = [
        fault(node, f"({ast.unparse(ast.fix_missing_locations(new))})")
        for node, new in pairs
        if new is not None and ast.dump(new) != ast.dump(node)  # 1e38 + 1 is 1e38
    ]
    if isinstance(statement, ast.If | ast.While):
        found.append(fault(statement.test, f"(not ({ast.unparse(statement.test)}))"))
    if isinstance(statement, ast.Return) and ast.unparse(statement) not in ("return", "return None"):
        found.append(fault(statement, "return None"))
    is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    if is_call or isinstance(statement, ast.AugAssign | ast.Raise | ast.Continue | ast.Break):
        found.append(fault(statement, "pass"))
    return found


def draw(count: int, seed: int, only: str) -> list[Fault]:
    statements = []
    for path in sorted(ROOT.joinpath("attn_exp", only).rglob("*.py")):
        source = path.read_bytes()
        starts = [0]
        for line in source.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        offset = lambda line, column, starts=tuple(starts): starts[line - 1] + column  # noqa: E731
        nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt))
        several = (list_faults(path.relative_to(ROOT), node, offset) for node in nodes)
        statements += [faults for faults in several if faults]
    rng = random.Random(seed)
    return [rng.choice(faults) for faults in rng.sample(statements, count)]


def find_tests(fault: Fault) -> list[str]:
    room = fault.path.parts[1] if len(fault.path.parts) > 2 else ""
    folder = ROOT / "tests" / room
    files = sorted(folder.rglob("test_*.py") if room and folder.is_dir() else ROOT.joinpath("tests").glob("test_*.py"))
    files.sort(key=lambda file: fault.path.stem not in file.read_text(encoding="utf-8"))
    return [str(file.relative_to(ROOT)) for file in files]


def try_fault(fault: Fault, suite: bool) -> tuple[Fault, str]:
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for part in (".ci", "attn_exp", "conf", "tests", "tools", "benchmarks", "docs"):
            shutil.copytree(ROOT / part, Path(folder, part))  # with what is compiled, as compiling takes seconds
        for file in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md"):
            shutil.copy(ROOT / file, folder)
        source = (ROOT / fault.path).read_bytes()
        target = Path(folder, fault.path)
        target.write_bytes(source[: fault.start] + fault.text.encode() + source[fault.stop :])
        for compiled in target.parent.glob(f"__pycache__/{target.stem}.*"):
            compiled.unlink()
        for who, tests in (("its room", find_tests(fault)), *([("the whole suite", ["tests"])] if suite else [])):
            command = [sys.executable, "-m", "pytest", "--all", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
            environment = os.environ | {"PYTHONPATH": folder}
            try:
                done = subprocess.run(
                    command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT
                )
            except subprocess.TimeoutExpired:
                return fault, f"undecided: {who} took over {LIMIT:.0f} s"
            if done.returncode:
                (test,) = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)[:1] or ["no test ran"]
                return fault, f"noticed by {who} in {time.monotonic() - start:.0f} s: {test}"
    return fault, "SURVIVED"


def main() -> None:
    """Try the faults, two at a time, and print what became of each."""
    parser = argparse.ArgumentParser(description="Draw faults and see the tests notice.")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=44)
    parser.add_argument("--only", default="", help="a room, such as forms")
    parser.add_argument("--suite", action="store_true", help="let survivors meet the whole suite")
    given = parser.parse_args()
    print(f"seed {given.seed}")
    fates = []
    with ThreadPoolExecutor(2) as pool:
        for fault, fate in pool.map(partial(try_fault, suite=given.suite), draw(given.count, given.seed, given.only)):
            fates.append(fate)
            print(f"{fault}\n    {fate}", flush=True)
    print(f"{sum('noticed by its room' in fate for fate in fates)} of {len(fates)} noticed by the tests of their room, "
          f"{fates.count('SURVIVED')} survived")  # fmt: skip


if __name__ == "__main__":
    main()
