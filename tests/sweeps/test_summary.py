"""The summary of a sweep: its moments against the statistics module, its interval against printed tables."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

import pytest

from attn_exp.sweeps.answers.student import t_quantile
from attn_exp.sweeps.answers.totals import MOST_CELLS, Failure, Moments, folds, summarized

HEAD = ["point", "head", "seed", "status", "message", "variant", "error", "entropy"]
AXES: list[dict[str, Any]] = [
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


@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_moments_are_those_of_the_statistics_module(offset: float) -> None:
    numbers = [offset + random.Random(3).gauss(2, 5) * place for place in range(40)]
    moments = Moments()
    for each in numbers:
        moments.add(each)
    assert moments.count == 40
    assert math.isclose(moments.mean, statistics.fmean(numbers), rel_tol=1e-14)
    assert math.isclose(moments.squares / 39, statistics.variance(numbers), rel_tol=1e-9 if offset == 0 else 1e-6)
    assert (moments.least, moments.most) == (min(numbers), max(numbers))


@pytest.mark.parametrize(
    ("freedom", "printed"),
    [
        (1, 12.706),
        (2, 4.303),
        (10, 2.228),
        (30, 2.042),
        (31, 2.040),
        (40, 2.021),
        (60, 2.000),
        (120, 1.980),
        (10**6, 1.960),
    ],
)
def test_students_t_is_that_of_printed_tables(freedom: int, printed: float) -> None:
    assert round(t_quantile(freedom), 3) == printed


def test_the_interval_of_a_textbook_sample() -> None:
    """1..5: s = sqrt(2.5), so half of the interval is 2.776 sqrt(2.5 / 5) = 1.963."""
    moments = Moments()
    for each in range(1, 6):
        moments.add(each)
    assert round(moments.half_width, 3) == 1.963


def test_cells_extremes_and_failures() -> None:
    found = summarized(HEAD, lines(), AXES)
    assert (found.points, found.failed, found.seeds, found.variants) == (6, 1, 3, ["a", "b"])
    assert {key: cell["entropy"].count for key, cell in found.cells.items()} == {
        ("1", "a"): 3, ("1", "b"): 3, ("2", "a"): 2, ("2", "b"): 2
    }  # fmt: skip
    assert found.cells["1", "a"]["entropy"].mean == 1.5
    assert found.cells["2", "b"]["entropy"].mean == 45.0
    assert found.first == {("1", "a"): 0, ("1", "b"): 0, ("2", "a"): 3, ("2", "b"): 3}
    assert found.least["entropy"][0] == (0.5, 0, "a")
    assert found.most["entropy"][0] == (55.0, 5, "b")
    assert list(found.most) == ["entropy"]  # NaN is no number
    assert found.failures == {"failed: no": Failure(1, 4, {"head": "2", "seed": "1"})}


def test_failures_of_one_message_say_what_they_share() -> None:
    failed = [
        [str(point), str(head), str(point), "failed", "no room", "", "", ""] for point, head in enumerate((2, 2, 2))
    ]
    found = summarized(HEAD, [*failed, *lines()[:2]], AXES)
    assert found.failures == {"failed: no room": Failure(3, 0, {"head": "2"})}


def test_long_axes_are_cut_so_that_a_report_stays_small() -> None:
    axes: list[dict[str, Any]] = [
        {"key": "scale", "column": "head", "count": 1_000_000, "low": 0, "high": 999_999},
        {"key": "title", "column": "message", "count": 30_000},
        {"key": "seed", "column": "seed", "count": 5, "low": 0, "high": 4},
    ]
    found = folds(HEAD, axes)
    assert list(found) == ["head"]  # too many words to be shown
    fold = found["head"]
    assert 1 < fold.bins <= MOST_CELLS
    assert fold.label("0") != fold.label("999999")
    assert len({fold.label(str(place)) for place in range(0, 1_000_000, 999)}) <= fold.bins
