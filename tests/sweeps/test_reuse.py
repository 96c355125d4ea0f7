"""Another sweep under the name of an earlier one reuses every point that both have, and no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attn_exp import system
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


def test_points_of_a_sweep_before_the_last_one_are_not_computed_again(tmp_path: Path) -> None:
    quickly(tmp_path, *NAMED, "head=1,2", "seed=range(0,5)")
    quickly(tmp_path, *NAMED, "head=1", "seed=range(0,2)")
    words = ("head=1,2", "seed=range(0,6)")
    _, told = quickly(tmp_path, *NAMED, *words)
    assert " 10 cached" in told.splitlines()[-1]
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    quickly(fresh, *NAMED, *words)
    assert (the_sweep(tmp_path) / "results.csv").read_bytes() == (the_sweep(fresh) / "results.csv").read_bytes()


def test_an_end_while_parts_are_set_aside_loses_no_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quickly(tmp_path, *NAMED, "head=1,2", "seed=range(0,5)")
    left, replace = [4], system.replace

    def replace_a_few(source: Path, target: Path) -> None:
        left[0] -= "parts-of-other-versions" in str(target) and target.suffix == ".csv"
        if left[0] < 0:
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(system, "replace", replace_a_few)
        quickly(tmp_path, *NAMED, "head=1,2", "seed=range(0,6)", code=130)
    _, told = quickly(tmp_path, *NAMED, "head=1,2", "seed=range(0,6)")
    assert " 10 cached" in told.splitlines()[-1]


@pytest.mark.parametrize(
    "keys",
    ['{"bases": {}, "composed": [false, false], "files": {}}', '{"bases": {"": "x"}, "composed": [], "files": {}}'],
)
def test_keys_that_somebody_else_wrote_reuse_nothing(keys: str, tmp_path: Path) -> None:
    quickly(tmp_path, *NAMED, "head=1,2", "seed=0,1")
    path = the_sweep(tmp_path) / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"keys": json.loads(keys)}))
    _, told = quickly(tmp_path, *NAMED, "head=1,2", "seed=0,1,2")
    assert " 0 cached" in told.splitlines()[-1]


def test_another_sweep_under_the_same_name_is_refused(tmp_path: Path) -> None:
    quickly(tmp_path, *NAMED, "head=1,2", "seed=0,1")
    before = (the_sweep(tmp_path) / "results.csv").read_bytes()
    _, said = quickly(tmp_path, *NAMED, "head=1,2", "seed=0,1", "embeddings=random", code=2)
    assert "mine holds another sweep: python -m attn_exp -m" in said
    assert "choose another sweep.name" in said
    assert (the_sweep(tmp_path) / "results.csv").read_bytes() == before
