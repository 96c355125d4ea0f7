"""The benchmark of attention: goals are those of the processor's maker, and nothing is met that was not measured."""

from __future__ import annotations

import pytest

from benchmarks import bench, processor


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("AMD EPYC 9B45 128-Core Processor", "AMD"),
        ("Intel(R) Xeon(R) Platinum 8581C CPU @ 2.10GHz", "Intel"),
        ("Apple M3 Pro", "Apple"),
        ("Neoverse-V2", "other"),
        ("", "other"),
    ],
)
def test_a_processor_is_known_by_its_name(name: str, expected: str) -> None:
    assert processor.maker(name) == expected


@pytest.mark.parametrize(
    ("maker", "hoped", "met"), [("AMD", 0.7, "NO"), ("Intel", 1.15, "yes"), ("Apple", None, "-"), ("other", None, "-")]
)
def test_a_goal_is_that_of_the_maker(
    maker: str, hoped: float | None, met: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "maker", lambda: maker)
    parts = bench.Bench(quick=True, one_core=True)
    parts.goal("ours / PyTorch", {"AMD": 0.7, "Intel": 1.15}, 1.0)
    parts.goal("for all", 1.5, 1.5)
    parts.goal("not measured", 1.5, None)
    assert [(goal.goal, goal.met) for goal in parts.goals] == [(hoped, met), (1.5, "yes"), (1.5, "-")]


def test_the_processor_is_described_with_its_tiles() -> None:
    assert "second-level cache" in processor.described() and "keys" in processor.described()
