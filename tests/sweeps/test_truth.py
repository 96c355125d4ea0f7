"""Sweeps whose truth is known, drawn by the benchmark: what their sentences are worth."""

from __future__ import annotations

import pytest

from benchmarks.answers import KINDS, SEEDS, counted


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_sweep_is_drawn_worded_and_judged(kind: str) -> None:
    counts = [counted(1, kind, seeds)[0] for seeds in SEEDS]
    assert [count["sweeps"] for count in counts] == [1] * len(SEEDS)
    assert all(count["covering"] <= count["intervals"] for count in counts)
