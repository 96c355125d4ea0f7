"""The house: which room may import which, which library stays at which edge, and what a small run must not load."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests import ROOT

PACKAGE = ROOT / "attn_exp"

ORDER = (
    "errors", "arrays", "machine", "registry", "own_code", "processes",
    "config",
    "rules",
    "forms",
    "mistakes",
    "problem",
    "reference",
    "experiment",
    "diagnosis",
    "report",
    "plugins",
    "runs",
    "sweeps",
    "api", "cli", "__init__", "__main__",
)  # fmt: skip
"""Every room and every file beside them: each imports only from those above it."""

ROOMS_OF_DIAGNOSIS = (
    "asking", "bind", "observe", "recipes",
    "calling", "explaining", "judging", "classroom",
)  # fmt: skip
"""The rooms inside `diagnosis`: each imports only from those above it, and from no file that stands beside them."""

EDGES = {
    "hydra": ("command_line", "compose", "hydra_errors", "loader", "expand"),
    "omegaconf": ("command_line", "compose", "hydra_errors", "loader", "expand"),
    "pandas": (
        "notebook",
        "swept",
        "sheets",
        "execution",
    ),  # execution names its type alone: test_api asserts that it loads none
    "matplotlib": ("plots", "figures", "matplotlib_figure", "sweep_plots"),
    "jinja2": ("templating",),
}
"""Which files, or all files of which folders, may import a library that is slow to load."""


@cache
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


def room(path: Path) -> str:
    """Return the room in which a file lives, or the file's own name where it stands beside the rooms."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def rooms_used(path: Path) -> set[str]:
    """Return the rooms that a file imports from."""
    parts = [name.split(".") for name in imported(path) if name.split(".")[0] == "attn_exp"]
    return {part[1] for part in parts if len(part) > 1 and part[1] in ORDER}


def test_the_list_names_every_room() -> None:
    assert {room(path) for path in sources()} == set(ORDER)


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_from_rooms_above_it(path: Path) -> None:
    assert not rooms_used(path) & set(ORDER[ORDER.index(room(path)) + 1 :])


def test_the_list_names_every_room_of_diagnosis_and_to_open_one_imports_nothing() -> None:
    assert {path.parent.name for path in (PACKAGE / "diagnosis").glob("*/*.py")} == set(ROOMS_OF_DIAGNOSIS)
    assert [name for name in ROOMS_OF_DIAGNOSIS if imported(PACKAGE / "diagnosis" / name / "__init__.py")] == []


def test_no_two_files_of_diagnosis_have_the_same_name_so_that_they_can_be_named_without_their_room() -> None:
    names = [path.stem for path in (PACKAGE / "diagnosis").rglob("*.py") if path.stem != "__init__"]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", ROOMS_OF_DIAGNOSIS)
def test_a_room_of_diagnosis_imports_only_from_rooms_above_it(name: str) -> None:
    above, start = set(ROOMS_OF_DIAGNOSIS[: ROOMS_OF_DIAGNOSIS.index(name) + 1]), "attn_exp.diagnosis."
    for path in (PACKAGE / "diagnosis" / name).rglob("*.py"):
        used = {module.removeprefix(start).split(".")[0] for module in imported(path) if module.startswith(start)}
        assert used <= above, (path.name, used - above)


@pytest.mark.long
@pytest.mark.parametrize(("library", "homes"), EDGES.items(), ids=EDGES)
def test_each_heavy_library_stays_at_its_edge(library: str, homes: tuple[str, ...]) -> None:
    users = [path for path in sources() if any(name.split(".")[0] == library for name in imported(path))]
    assert all(path.stem in homes or path.parent.name in homes for path in users)


def test_no_form_knows_a_rule() -> None:
    for path in (PACKAGE / "forms").glob("[!_]*.py"):
        members = {f"attn_exp.rules.{group}s." for group in ("mask", "score", "position")}
        contracts = ("mask.", "score.", "position.")
        known = {name.removeprefix(start) for name in imported(path) for start in members if name.startswith(start)}
        assert all(f"{name}.".startswith(contracts) for name in known), path


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


def versions(folder: Path) -> dict[str, str]:
    """Return the versions of libraries that the newest run records."""
    about: dict[str, dict[str, str]] = json.loads((folder / "outputs" / "latest" / "run.json").read_text())
    return about["versions"]


NOT_NEEDED = {
    *("pandas", "matplotlib", "jinja2", "hypothesis", "numpy.ma", "difflib", "html.entities"),
    *("attn_exp.diagnosis", "attn_exp.plugins", "attn_exp.mistakes.softmax"),
    *("attn_exp.report.documents", "attn_exp.forms._blocks", "attn_exp.sweeps"),
    *(
        "attn_exp.problem.generators",
        "attn_exp.problem.models",
    ),
}
"""What a run of the usual variants without a report has no use for, and must not wait for."""


@pytest.mark.long
def test_a_run_without_a_report_loads_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    modules = loaded("report=none", folder=tmp_path)
    assert not NOT_NEEDED & modules
    assert sum(name.startswith("attn_exp.") for name in modules) <= 80  # each takes a fifth of a millisecond or more


@pytest.mark.long
def test_a_page_waits_for_no_plotting_library(tmp_path: Path) -> None:
    modules = loaded("report=full", folder=tmp_path)
    assert not {"matplotlib", "pandas", "PIL"} & modules
    assert sum(name.startswith("attn_exp.") for name in modules) <= 110
    assert "matplotlib" not in versions(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("words", [("--cfg", "job"), ("--cfg", "job", "experiment=attention_basics")])
def test_showing_settings_loads_no_numpy_and_no_room_below_config(words: tuple[str, ...], tmp_path: Path) -> None:
    rooms = {f"attn_exp.{name}" for name in ORDER[ORDER.index("config") + 1 : ORDER.index("api")]}
    assert not ({"numpy", "difflib", "attn_exp.api"} | rooms) & loaded(*words, folder=tmp_path)


@pytest.mark.long
def test_runs_that_need_them_load_them_so_the_test_above_can_fail(tmp_path: Path) -> None:
    drawn = loaded("report=full", "figures.format=[svg,pdf]", folder=tmp_path)
    assert {"matplotlib", "jinja2", "attn_exp.report.documents"} <= drawn
    assert {"matplotlib", "jinja2"} <= versions(tmp_path).keys()
    assert "attn_exp.mistakes.softmax" in loaded("report=none", "mistake=no_scale", folder=tmp_path)
