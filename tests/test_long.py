"""What a first `pytest` leaves out: nothing that `--all` does not run, and no member of a list."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.long import each_once, thinned, thinned_rows


def values(case: Any) -> Any:
    """Return what a case holds, marked or not; one value alone as it is."""
    marked = isinstance(case, type(pytest.param()))
    return (case.values[0] if len(case.values) == 1 else case.values) if marked else case


def short(cases: list[Any]) -> list[Any]:
    return [case for case in cases if not isinstance(case, type(pytest.param()))]


def test_of_some_cases_every_so_many_runs_at_once_and_all_run() -> None:
    cases = thinned("abcdefg", 3)
    assert short(cases) == ["a", "d", "g"]
    assert "".join(map(values, cases)) == "abcdefg"
    assert all([mark.name for mark in case.marks] == ["long"] for case in cases if case not in short(cases))


def test_cases_of_several_arguments_are_thinned_alike() -> None:
    cases = thinned_rows([("a", 1), ("b", 2), ("c", 3)], 2)
    assert short(cases) == [("a", 1), ("c", 3)]
    assert list(map(values, cases)) == [("a", 1), ("b", 2), ("c", 3)]


@pytest.mark.parametrize("axes", [("abc", (1, 2)), ("ab", (1, 2, 3)), ("abcd", (1, 2, 3, 4)), ("a", (1, 2), "xyz")])
def test_of_combinations_each_member_runs_at_once_and_all_run(axes: tuple[Any, ...]) -> None:
    cases = each_once(*axes)
    assert sorted(map(values, cases)) == sorted(itertools.product(*axes))
    assert len(short(cases)) == max(map(len, axes))
    assert [set(members) for members in zip(*short(cases), strict=True)] == [set(axis) for axis in axes]


FILE = """
import pytest

def worked(seconds):
    import time
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

def test_a_slow_one():
    worked(2.1)

def test_a_quick_one():
    pass

@pytest.mark.long
def test_a_long_one():
    worked(2.1)
"""


@pytest.mark.long
def test_a_slow_test_that_is_not_marked_is_said_where_all_run(tmp_path: Path) -> None:
    for name in ("__init__.py", "test_three.py"):
        (tmp_path / name).write_text(FILE if "three" in name else "", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider", "-n0"]
    conftest = f"--confcutdir={tmp_path}", "-p", "tests.conftest", str(tmp_path)
    told = [
        subprocess.run([*command, *conftest, *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for words in ([], ["--all"])
    ]
    assert "2 passed, 1 deselected" in told[0] and "a first pytest" not in told[0]
    assert re.search(r"^a first pytest: 2 tests, \d+ s of a processor's time$", told[1], re.MULTILINE)
    assert re.findall(r"s: .*::(\w+); over 2 s", told[1]) == ["test_a_slow_one"]
    assert "3 passed" in told[1]
