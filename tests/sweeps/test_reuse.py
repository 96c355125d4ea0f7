"""Another sweep under the name of an earlier one reuses every point that both have, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sweeps.command import quickly, the_sweep

SWEEP = ("-m", "variant=[matrix,multi_head]", "report=none", "sweep.engine=serial")
NAMED = (*SWEEP, "sweep.name=mine")
FIRST = ("head=1,2,3", "seed=range(0,5)")  # 3 heads fail


@pytest.mark.parametrize(
    ("words", "cached"),
    [
        (("head=1,2,3", "seed=range(0,7)"), 10),
        (("head=1,2", "seed=range(2,9)"), 6),
        (("seed=4,3,2,1,0", "head=2,1"), 10),
        (("head=2", "seed=range(0,5)"), 5),
        (("head=1,2", "seed=3"), 2),
        (("scale=true,false", "head=1,2", "seed=range(0,5)"), 10),
        (("head=1,2", "seed=range(0,5)", "mask=none,causal"), 10),
    ],
    ids=str,
)
def test_points_of_both_are_not_computed_again(words: tuple[str, ...], cached: int, tmp_path: Path) -> None:
    code = int("head=1,2,3" in words)
    quickly(tmp_path, *NAMED, *FIRST, code=1)
    _, told = quickly(tmp_path, *NAMED, *words, code=code)
    assert f" {cached} cached" in told.splitlines()[-1]
    again = (the_sweep(tmp_path) / "results.csv").read_bytes()
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    quickly(fresh, *NAMED, *words, code=code)
    assert again == (the_sweep(fresh) / "results.csv").read_bytes()


def test_another_sweep_under_the_same_name_is_refused(tmp_path: Path) -> None:
    quickly(tmp_path, *NAMED, "head=1,2", "seed=0,1")
    before = (the_sweep(tmp_path) / "results.csv").read_bytes()
    _, said = quickly(tmp_path, *NAMED, "head=1,2", "seed=0,1", "embeddings=random", code=2)
    assert "mine holds another sweep: python -m attn_exp -m" in said
    assert "choose another sweep.name" in said
    assert (the_sweep(tmp_path) / "results.csv").read_bytes() == before
