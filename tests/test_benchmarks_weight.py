"""The weight budget counts code and not comments, and fails where a cap is exceeded."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import weight

SOURCE = '''"""A docstring."""

import os


class Box:
    """Another."""

    size: int = 0
    """A text behind a field."""

    def grow(self) -> None:
        """A third."""
        import sys

        if os.sep:  # 3 statements: the branch and its two lines
            self.size += 1
            print(lambda: sys)
'''


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("attn_exp/rules/box.py", "attn_exp/cli.py", "tests/test_box.py", "tools/box.py"):
        tmp_path.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        tmp_path.joinpath(name).write_text(SOURCE, encoding="utf-8")
    tmp_path.joinpath("conf").mkdir()
    tmp_path.joinpath("conf/config.yaml").write_text("x" * 2048, encoding="utf-8")
    return tmp_path


def test_docstrings_imports_and_comments_are_no_statements(checkout: Path) -> None:
    measured = weight.measure(checkout)
    one = {"statements": 6, "files": 1, "lines": SOURCE.count("\n")}  # the class, its field, its method, and the branch
    assert {name: measured["rules"][name] for name in one} == one
    assert measured["package"]["statements"] == 12
    assert measured["conf"] == {"KiB": 2.0, "files": 1}


def test_each_exceeded_cap_is_one_line(checkout: Path) -> None:
    measured = weight.measure(checkout)
    caps: dict[str, dict[str, float]] = {
        "package": {"statements": 11, "files": 2},
        "rules": {"density": 0.5},
        "conf": {"KiB": 1.9},
    }
    assert [line.partition(" exceed")[0] for line in weight.find_excesses(measured, caps)] == [
        "package: 12 statements", f"rules: {measured['rules']['density']} density", "conf: 2.0 KiB",
    ]  # fmt: skip
