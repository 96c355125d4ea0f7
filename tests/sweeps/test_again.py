"""A sweep that is there already: drawn for a paper, its time kept, what is left of it told from points of all kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_exp.sweeps import manifest
from attn_exp.sweeps.answers.totals import Moments, mean_and_interval
from attn_exp.sweeps.plan import Job
from attn_exp.sweeps.sweep import spread_out
from tests.sweeps.command import quickly, the_sweep

WORDS = (
    "-m",
    "scale=true,false",
    "seed=range(6)",
    "embeddings=random",
    "variant=[matrix,multi_head]",
    "sweep.engine=serial",
)


@pytest.mark.long
def test_figures_are_drawn_for_a_paper_and_no_point_is_computed_anew(tmp_path: Path) -> None:
    quickly(tmp_path, *WORDS)
    home = the_sweep(tmp_path)
    parts = {path.name: path.stat().st_mtime_ns for path in (home / "parts").iterdir()}
    seconds = manifest.load_manifest(home)["seconds"]
    quickly(tmp_path, *WORDS, "figures.format=pdf", "figures.width=3.3")
    assert the_sweep(tmp_path) == home
    assert {path.name: path.stat().st_mtime_ns for path in (home / "parts").iterdir()} == parts
    assert manifest.load_manifest(home)["seconds"] == seconds
    assert (home / "plots/effects.pdf").read_bytes().startswith(b"%PDF")
    assert b"/MediaBox [ 0 0 237.6 " in (home / "plots/effects.pdf").read_bytes()  # 3.3 inches of 72 points
    quickly(tmp_path, "report", str(home), "figures.width=5")
    assert b"/MediaBox [ 0 0 360 " in (home / "plots/effects.pdf").read_bytes()
    assert manifest.load_manifest(home)["seconds"] == seconds


@pytest.mark.long
@pytest.mark.parametrize("word", ["figures.only=weights", "figures.width=1", "figures.colour=red"])
def test_what_cannot_be_drawn_is_refused(word: str, tmp_path: Path) -> None:
    quickly(tmp_path, *WORDS)
    _, error = quickly(tmp_path, "report", str(the_sweep(tmp_path)), word, code=2)
    assert word.partition("=")[0] in error


@pytest.mark.parametrize("count", [37, 160, 500])
def test_the_first_tenth_of_the_jobs_tells_what_is_left_within_a_factor_of_two(count: int) -> None:
    """The cost grows by steps, evenly, by squares, or doubles eight times along the first setting."""
    order = [job.chunk for job in spread_out([Job(chunk, [chunk]) for chunk in range(count)])]
    assert sorted(order) == list(range(count))
    tenth = max(3, count // 10)
    for cost in (lambda at: 1 + at, lambda at: (1 + at) ** 2, lambda at: 1 + 9 * (at > count / 2)):
        told = sum(map(cost, order[:tenth])) / tenth * (count - tenth)
        assert 0.5 < told / sum(map(cost, order[tenth:])) < 2


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
    moments = Moments()
    for number in numbers:
        moments.add(number)
    assert mean_and_interval(moments) == shown
