"""The summary of a sweep: its moments against the statistics module, its interval against printed tables."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from attn_exp.report.sweep_plots import Numbers
from attn_exp.sweeps.summary import format_mean, summarize

HEAD = ["point", "head", "seed", "status", "message", "variant", "error", "entropy"]
AXES = [
    {"key": "head", "column": "head", "count": 2, "low": 1, "high": 2},
    {"key": "seed", "column": "seed", "count": 3, "low": 0, "high": 2},
]


def lines() -> list[list[str]]:
    """A table of two heads and three seeds in which one point failed."""
    found = []
    for point in range(6):
        head, seed = 1 + point // 3, point % 3
        if point == 4:
            found.append([str(point), str(head), str(seed), "failed", "no", "", "", ""])
            continue
        for variant, factor in (("a", 1.0), ("b", 10.0)):
            found.append([str(point), str(head), str(seed), "ok", "", variant, "nan", repr(factor * (point + 0.5))])
    return found


def measured(numbers: list[float]) -> Numbers:
    """The moments of the entropies of one setting."""
    rows = [[str(seed), "1", str(seed), "ok", "", "a", "", repr(number)] for seed, number in enumerate(numbers)]
    return summarize(HEAD, rows, [AXES[0], {**AXES[1], "count": len(numbers)}]).cells["1", "a"]["entropy"]


@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_moments_are_those_of_the_statistics_module(offset: float) -> None:
    numbers = [offset + random.Random(3).gauss(2, 5) * place for place in range(40)]
    moments = measured(numbers)
    assert moments.count == 40
    assert math.isclose(moments.mean, statistics.fmean(numbers), rel_tol=1e-14)
    assert math.isclose(moments.squares / 39, statistics.variance(numbers), rel_tol=1e-9 if offset == 0 else 1e-6)
    assert (moments.least, moments.most) == (min(numbers), max(numbers))


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ([2.0, 2.2, 2.4, 2.1, 2.3], "2.2 ± 0.2"),
        ([1.0, 1.0 + 1e-16, 1.0, 1.0, 1.0 - 1e-16], "1"),
        ([0.5, 0.5], "0.5"),
        ([100.0, 200.0, 300.0, 150.0, 250.0], "200 ± 100"),
        ([1.0, 2.0, 3.0], "2 (1..3)"),
        ([2.8931, 2.85, 2.93], "2.89 (2.85..2.93)"),
        ([1.001, 1.002, 1.0015, 1.0012, 1.0018], "1.0015 ± 0.0005"),
    ],
)
def test_a_mean_has_the_digits_that_its_uncertainty_allows(numbers: list[float], shown: str) -> None:
    assert format_mean(measured(numbers)) == shown


def test_cells_extremes_and_failures() -> None:
    found = summarize(HEAD, lines(), AXES)
    assert (found.points, found.failed, found.seeds, found.variants) == (6, 1, 3, ("a", "b"))
    assert {key: cell["entropy"].count for key, cell in found.cells.items()} == {
        ("1", "a"): 3, ("1", "b"): 3, ("2", "a"): 2, ("2", "b"): 2
    }  # fmt: skip
    assert found.cells["1", "a"]["entropy"].mean == 1.5
    assert found.cells["2", "b"]["entropy"].mean == 45.0
    assert found.first == {("1", "a"): 0, ("1", "b"): 0, ("2", "a"): 3, ("2", "b"): 3}
    assert found.least["entropy"] == 0.5
    assert found.most["entropy"] == 55.0
    assert list(found.most) == ["entropy"]  # NaN is no number
    assert found.failures == {"failed: no": [4]}


def test_long_axes_are_left_out_so_that_a_report_stays_small() -> None:
    head = ["point", "scale", "title", "seed", "status", "message", "variant", "entropy"]
    counts = {"scale": 3, "title": 30_000, "seed": 5}
    axes = [{"key": key, "column": key, "count": count} for key, count in counts.items()]
    rows = [[str(at), str(at % 3), f"t{at}", "0", "ok", "", "a", "1.0"] for at in range(1002)]
    found = summarize(head, rows, axes)
    assert (found.axes, len(found.cells)) == (("scale",), 3)
