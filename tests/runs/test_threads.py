"""The BLAS's own threads: asleep where a run is small, and as they were after it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
@pytest.mark.parametrize(("said", "kept"), [({}, "16"), ({"OPENBLAS_THREAD_TIMEOUT": "20"}, "20")])
def test_threads_without_work_sleep_soon_unless_the_user_says_otherwise(
    said: dict[str, str], kept: str, tmp_path: Path
) -> None:
    program = "import os, sys; sys.argv[1:] = ['--version']; from attn_exp import cli; cli.main()"
    program += "; print(os.environ['OPENBLAS_THREAD_TIMEOUT'])"
    silent = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS")}
    printed = subprocess.run(
        [sys.executable, "-c", program],
        env={**silent, **said},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert printed.split()[-1] == kept
