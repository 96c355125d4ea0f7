"""Random arrays, settings and sizes with fixed seeds; `python -m tools.fuzz --only arrays` tries more."""

from __future__ import annotations

import pytest

from tools.fuzz.arrays import attempt

pytestmark = pytest.mark.long  # it starts processes, browsers or other libraries, or takes seconds


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_no_random_run_falls(first: int) -> None:
    fallen = {seed: message for seed in range(first, first + 100) if (message := attempt(seed))}
    assert not fallen
