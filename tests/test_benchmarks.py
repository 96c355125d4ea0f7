"""The benchmark of attention: goals are those of the processor, and nothing is met that was not measured."""

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
    ("generation", "maker", "hoped", "met"),
    [
        ("Zen 4", "AMD", 1.0, "yes"),
        ("Zen 3", "AMD", 0.7, "NO"),
        ("", "AMD", 0.7, "NO"),
        ("Emerald Rapids", "Intel", 1.15, "yes"),
        ("", "Apple", None, "-"),
        ("", "other", None, "-"),
    ],
)
def test_a_goal_is_that_of_the_generation_or_else_of_the_maker(
    generation: str, maker: str, hoped: float | None, met: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "maker", lambda: maker)
    monkeypatch.setattr(bench, "generation", lambda: generation)
    parts = bench.Bench(quick=True, one_core=True)
    parts.goal("ours / PyTorch", {"AMD": 0.7, "Zen 4": 1.0, "Intel": 1.15}, 1.0)
    parts.goal("for all", 1.5, 1.5)
    parts.goal("not measured", 1.5, None)
    assert [(goal.goal, goal.met) for goal in parts.goals] == [(hoped, met), (1.5, "yes"), (1.5, "-")]


@pytest.mark.parametrize(
    ("vendor", "family", "model", "expected"),
    [
        ("AuthenticAMD", 23, 49, "Zen 2"),  # EPYC 7742
        ("AuthenticAMD", 25, 1, "Zen 3"),  # EPYC 7763
        ("AuthenticAMD", 25, 17, "Zen 4"),  # EPYC 9654
        ("AuthenticAMD", 25, 33, "Zen 3"),  # Ryzen 9 5950X
        ("AuthenticAMD", 25, 97, "Zen 4"),  # Ryzen 9 7950X
        ("AuthenticAMD", 25, 160, "Zen 4"),  # EPYC 9754
        ("AuthenticAMD", 26, 2, "Zen 5"),  # EPYC 9755
        ("GenuineIntel", 6, 143, "Sapphire Rapids"),  # Xeon Platinum 8480+
        ("GenuineIntel", 6, 207, "Emerald Rapids"),  # Xeon Platinum 8581C
        ("GenuineIntel", 6, 1, ""),
        ("HygonGenuine", 24, 0, ""),
    ],
)
def test_a_generation_is_known_by_family_and_model(vendor: str, family: int, model: int, expected: str) -> None:
    text = f"vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: AMD EPYC\n"
    assert processor.generation(text) == expected
    assert processor.generation("processor\t: 0\n") == ""
