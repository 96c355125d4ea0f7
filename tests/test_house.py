"""The house: which module may import what, and what a small run must not load."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "attn_exp"

EDGES = {
    "hydra": ("cli", "hydra_edge", "hydra_errors", "hydra_sweep"),
    "omegaconf": ("cli", "hydra_edge", "hydra_errors", "hydra_sweep"),
    "pandas": ("tables", "collect", "api"),  # api names its type alone: test_api asserts that it loads none
    "matplotlib": ("plots", "figures", "lettering"),
    "jinja2": ("compiled", "report"),
}

CORE = (
    "compare", "config", "embeddings", "metrics", "mistakes", "normalizers", "oracle", "problem", "projections",
    "intervals", "printed", "published", "reference", "stages", "streams", "variant",
    "arrange", "blame", "conventions", "divergences", "foreign", "functional", "gradients", "heads", "measures",
    "picture", "registry", "rounding", "sameness",
)  # fmt: skip

EDGE = ("cli", "hydra_edge", "hydra_errors", "session", "store", "tables", "figures", "report")


def imported(path: Path) -> set[str]:
    """Return the full names of the modules that a file imports, wherever in the file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize(("library", "homes"), EDGES.items(), ids=EDGES)
def test_each_heavy_library_stays_at_its_edge(library: str, homes: tuple[str, ...]) -> None:
    users = {path.stem for path in sources() if any(name.split(".")[0] == library for name in imported(path))}
    assert users <= set(homes)


@pytest.mark.parametrize("module", CORE)
def test_the_core_does_not_know_the_edge(module: str) -> None:
    assert not {f"attn_exp.{each}" for each in EDGE} & imported(PACKAGE / f"{module}.py")


def test_no_form_knows_a_rule_and_no_rule_a_form() -> None:
    for path in (PACKAGE / "forms").glob("*.py"):
        rules = {name for name in imported(path) if name.startswith("attn_exp.rules")}
        assert all(
            name.startswith(("attn_exp.rules.rule", "attn_exp.rules.Rule")) or name == "attn_exp.rules"
            for name in rules
        )
    for path in (PACKAGE / "rules").glob("*.py"):
        assert not any(name.startswith("attn_exp.forms") for name in imported(path))


def loaded(*arguments: str, folder: Path) -> set[str]:
    """Run the command in a process of its own and return the modules it had loaded at the end."""
    code = (
        "import atexit, sys; sys.argv = ['attn-exp', *sys.argv[1:]];"
        "atexit.register(lambda: open('modules', 'w').write(' '.join(sys.modules)));"
        "from attn_exp.cli import main; main()"
    )
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    subprocess.run([sys.executable, "-c", code, *arguments], cwd=folder, env=environment, check=True, timeout=60)
    return set((folder / "modules").read_text().split())


def test_a_run_without_a_report_loads_no_pandas_and_no_matplotlib(tmp_path: Path) -> None:
    assert not {"pandas", "matplotlib", "jinja2", "hypothesis"} & loaded("report=none", folder=tmp_path)


def test_a_run_with_a_report_loads_them_so_the_test_above_can_fail(tmp_path: Path) -> None:
    assert {"matplotlib", "jinja2"} <= loaded("report=full", folder=tmp_path)
