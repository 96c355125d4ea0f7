"""Which pages are run by the tests of which room; `tests/test_docs.py` runs the others.

Those with drawings, and that of sweeps, are run by the tests of reports too.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable

import pytest

from tests import ROOT

PAGES = {
    "config": ("settings",),
    "rules": ("masks", "normalizers", "positions", "scores"),
    "forms": ("forms",),
    "mistakes": ("mistakes",),
    "problem": ("memory", "models", "own-input"),
    "experiment": ("conventions", "metrics", "reproduce"),
    "diagnosis": ("check", "worksheet"),
    "report": ("compare", "long", "memory", "sweep", "table"),
    "runs": ("classroom",),
    "sweeps": ("cluster", "sweep"),
}


def test_of(pages: Iterable[str]) -> Callable[[str], None]:
    """Return the test that each of these pages shows what its commands print today.

    Where it fails, `python docs/produce.py` writes the pages anew; read what it changes.
    """

    @pytest.mark.long
    @pytest.mark.parametrize("page", pages)
    def test(page: str) -> None:
        pytest.importorskip("myst_parser", reason="pip install -e '.[docs,dask]'")
        command = [sys.executable, "docs/produce.py", "--check", page]
        done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=1800)
        assert done.returncode == 0, done.stdout + done.stderr

    return test
