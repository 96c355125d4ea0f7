"""Where nobody can take what is printed: one line on stderr, an exit code that says so, and what was done stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")

RUN = "report=none variant=[matrix]"
CASES = {
    f"{RUN} >/dev/full": (2, True),
    "--help >/dev/full": (2, True),
    "--help | head -n 1": (0, False),
}
"""What is typed: the exit code, and whether a line is seen."""


@pytest.mark.long
@pytest.mark.parametrize("typed", CASES)
def test_a_stream_that_takes_nothing_is_one_line(typed: str, tmp_path: Path) -> None:
    (tmp_path / "outputs" / "runs").mkdir(parents=True)
    code, seen = CASES[typed]
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m attn_exp {typed}"], cwd=tmp_path, check=False, capture_output=True,
        text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert done.stderr.count("error: ") == seen, done.stderr
    runs = list((tmp_path / "outputs" / "runs").iterdir())
    assert all((run / "run.json").is_file() for run in runs)
    assert len(runs) == typed.startswith(RUN)
