"""A sweep that is there already: drawn for a paper, its time kept, what is left of it told from points of all kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_exp.sweeps import manifest
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
