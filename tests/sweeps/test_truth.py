"""Sweeps whose truth is known, drawn by the benchmark: what their sentences are worth."""

from __future__ import annotations

import pytest

from benchmarks.answers import KINDS, SEEDS, Count, counted


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_sweep_is_drawn_worded_and_judged(kind: str) -> None:
    total = Count()
    for seeds in SEEDS:
        total.add(counted(1, kind, seeds))
    assert total.sweeps == len(SEEDS)
    assert total.covering <= total.intervals
