"""Long sequences: what is kept of the weights, what is refused beforehand, and what comes back from the disk."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_exp.config.spelling import Repeat
from attn_exp.experiment import long_runs
from attn_exp.experiment.compare import tabulate
from attn_exp.experiment.long_runs import Progress
from attn_exp.runs import execution, store
from tests import ROOT
from tests.compose import config
from tests.refusal import refusal
from tests.report.render import drawings_of

LONG = ("embeddings=random", "embeddings.tokens=300", "mask=causal", "report=none")


def heat_of(weights: Any, cells: int) -> Any:
    """Mean by cutting, a cell at a time."""
    edges = [round(np.floor(place * weights.shape[-1] / cells)) for place in range(cells + 1)]
    return np.array([[weights[a:b, c:d].mean() for c, d in pairwise(edges)] for a, b in pairwise(edges)])


@pytest.mark.long
def test_full_keeps_matrices_and_blocks_keep_none() -> None:
    whole: Any = tabulate(config(*LONG, "variant=[matrix,blockwise]", "weights=full")).traces
    blocks = tabulate(config(*LONG, "variant=[matrix,blockwise]", "weights=blocks")).traces
    auto = tabulate(config(*LONG, "variant=[matrix,blockwise]")).traces
    expected: Any = whole["matrix"].weights
    np.testing.assert_allclose(whole["blockwise"].weights, expected, rtol=1e-12, atol=1e-15)
    assert auto["matrix"].weights is not None and auto["blockwise"].weights is None
    for name in ("matrix", "blockwise"):
        summary = blocks[name].summary
        assert blocks[name].weights is None and blocks[name].scores is None and summary is not None
        np.testing.assert_allclose(summary.heat[0], heat_of(expected[0], 128), rtol=1e-11, atol=1e-16)
        np.testing.assert_allclose(summary.sink_mass, expected[..., 0], rtol=1e-11)
        np.testing.assert_allclose(summary.largest_weight, expected.max(-1), rtol=1e-11)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["variant=[matrix]"],
            "embeddings.tokens=65536: variant matrix needs 160.0 GiB for full matrices of 65536 x 65536",
        ),
        (["variant=[matrix]"], "use variant=[blockwise] with weights=auto, which stores no full matrix"),
        (["variant=[blockwise]", "weights=full"], "weights=full needs 32.0 GiB for full matrices of 65536 x 65536"),
        (
            ["variant=[matrix]", "weights=full"],
            "use variant=[blockwise] with weights=auto, which stores no full matrix",
        ),
        (["variant=[blockwise]", "metrics=[gini]"], "metrics= needs 320.0 GiB for full matrices"),
        (["variant=[blockwise]", "embeddings.tokens=1000000000"], "needs 735.7 GiB for its vectors"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_drawn(
    words: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_runs, "free_bytes", lambda: 2 << 30)
    monkeypatch.setattr("attn_exp.experiment.compare.build", lambda config: pytest.fail("drawn"))
    said = refusal(tabulate, config("embeddings=random", "embeddings.tokens=65536", *words))
    assert told in said and "2.0 GiB are free" in said


@pytest.mark.long
def test_the_summary_comes_back_from_the_disk_and_is_drawn(tmp_path: Path) -> None:
    words = (*LONG, "variant=[blockwise]", f"output_dir={tmp_path}")
    again = store.load(execution.run(config(*words), Repeat()).folder).comparison
    now = tabulate(config(*words)).traces["blockwise"].summary
    summary = again.traces["blockwise"].summary
    assert summary is not None and now is not None
    for name, array in vars(now).items():
        np.testing.assert_array_equal(getattr(summary, name), array)
    drawn = drawings_of(again)["blocks"].axes[0]
    assert np.asarray(drawn.images[0].get_array()).shape[:2] == summary.heat[0].shape


def test_progress_is_told_after_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now, stream = [0.0], io.StringIO()
    monkeypatch.setattr("attn_exp.experiment.long_runs.monotonic", lambda: now[0])
    progress = Progress(stream, started=0.0)
    for tick in range(1, 6):
        now[0] = float(tick)
        progress.tell("blockwise", 1, 0, tick / 10)
        assert bool(stream.getvalue()) is (tick >= 2)
    assert "20 %, 8 s left" in stream.getvalue()


@pytest.mark.long
def test_sixteen_thousand_tokens_stay_small(tmp_path: Path) -> None:
    """A quarter of the length and a quarter of the memory of what the documentation promises of 65,536 tokens."""
    code = (
        "import sys; from attn_exp.cli import main\n"
        "words = 'embeddings=random embeddings.tokens=16384 variant=[blockwise] report=none'\n"
        "sys.argv = ['attn-exp', *words.split()]\n"
        "main(); print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"  # ru_maxrss counts the parent
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert int(done.stdout.split()[-1]) * 1024 < 1 << 29
