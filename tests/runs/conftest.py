"""A folder with a file of the user's own code that leaves a mark where it runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder in which commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ran(here: Path) -> Callable[[], bool]:
    """Say whether the code ran since it was asked for the last time."""

    def asked() -> bool:
        mark = here / "ran"
        was_there = mark.exists()
        mark.unlink(missing_ok=True)
        return was_there

    return asked
