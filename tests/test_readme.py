"""Every command in the README's console blocks runs, and prints what the README shows.

`python -m tests.test_readme` runs them all and writes what they print into the README.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT

README = ROOT / "README.md"
BLOCK = re.compile(r"```console\n\$ (?P<command>[^\n]*)\n(?P<output>.*?)```", re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """Return each console block's command and the output shown below it."""
    return [(found["command"], found["output"]) for found in BLOCK.finditer(README.read_text(encoding="utf-8"))]


def printed(command: str, folder: Path) -> str:
    """Run a command in an empty folder and return what it prints."""
    words = command.replace("python -m attn_exp", f"{sys.executable} -m attn_exp", 1)
    words = re.sub("^attn-exp", f"{sys.executable} -m attn_exp", words)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    done = subprocess.run(
        ["bash", "-c", words], cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=120
    )
    return done.stdout + re.sub(r".*\r(\x1b\[K)?", "", done.stderr)  # the last state of a line that is overwritten


def settled(text: str) -> str:
    """Return a text without what may differ from run to run: folders named by the time, seconds, and rounding."""
    text = re.sub(r"\d{8}-\d{6}-[0-9a-f]{6}", "<run>", text)
    text = re.sub(r"\b\d+(\.\d+)?( m?s|/s)\b", "<time>", text)
    words = " ".join(without_errors(text.splitlines())).split()
    return " ".join("<rounding>" if re.fullmatch(r"\d(\.\d)?e-1[4-9]|0", word) else word for word in words)


def without_errors(lines: list[str]) -> Iterator[str]:
    """Yield lines without the column `error_ulp` of a table; the last letters of a column lie below each other."""
    column: re.Match[str] | None = None
    for line in lines:
        column = re.search(r" +error_ulp\b", line) or (column if line else None)
        yield line[: column.start()] + " " + line[column.end() :] if column else line


def test_other_numbers_are_noticed_and_other_rounding_is_not() -> None:
    table = "variant    error  error_ulp   shift  entropy\n matrix  {}     {}  {}   {}\n"
    right = settled(table.format("5.6e-17", "0.5000", "0.0537", "1.0798"))
    assert right == settled(table.format("1.1e-16", "1.0820", "0.0537", "1.0798"))
    assert right != settled(table.format("5.6e-17", "0.5000", "0.0538", "1.0798"))
    assert right != settled(table.format("5.6e-17", "0.5000", "0.0537", "1.0799"))
    assert right != settled(table.format("5.6e-12", "0.5000", "0.0537", "1.0798"))


@pytest.mark.parametrize(("command", "shown"), blocks(), ids=[command for command, _ in blocks()])
def test_the_command_prints_what_the_readme_shows(command: str, shown: str, tmp_path: Path) -> None:
    assert settled(printed(command, tmp_path)) == settled(shown)


def test_the_picture_in_the_readme_is_there() -> None:
    for path in re.findall(r"!\[[^\]]*\]\(([^)]*)\)", README.read_text(encoding="utf-8")):
        assert (ROOT / path).is_file()


def test_ci_runs_the_readmes_own_test_command() -> None:
    found = re.findall(r"^python3 -m venv .*pytest$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(found) == 1
    assert "grep -m 1 -E '^python3 -m venv .*pytest$' README.md" in (ROOT / ".ci/run").read_text(encoding="utf-8")


def test_ci_runs_the_long_tests_too() -> None:
    assert '"${test_command##* && } --all"\n' in (ROOT / ".ci/run").read_text(encoding="utf-8")


def test_the_readme_is_short_and_every_page_that_it_names_is_there() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    pages = re.findall(r"[^!]\[[^\]]*\]\((?!http)([^)]*)\)", text)
    assert len(pages) >= 20
    assert [page for page in pages if not (ROOT / page).is_file()] == []


def rewrite(folder: Path) -> None:
    """Write what the commands print today into the README."""
    text = README.read_text(encoding="utf-8")
    new = BLOCK.sub(lambda found: f"```console\n$ {found['command']}\n{printed(found['command'], folder)}```", text)
    README.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as empty:
        rewrite(Path(empty))
