"""A new source of embeddings is one file; what it makes is refused before it is made where it would not fit."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from attn_exp.experiment import long_runs
from attn_exp.problem import sources
from tests.compose import comparison
from tests.refusal import refusal

WAVES = '''
"""Waves: token t holds sin(t), sin(2 t), ... as often as there are columns."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from attn_exp.config.kinds import above
from attn_exp.problem.sources.source import Source, Vectors


@dataclass(frozen=True)
class Waves:
    speed: Annotated[float, above(0)] = 1.0


def read(asked):
    steps = np.arange(1, asked.settings.d_model + 1)
    return Vectors(np.sin(asked.own.speed * np.arange(asked.rows)[:, None] * steps))


SOURCE = Source(read=read, needs=("tokens", "d_model"), settings=Waves)
'''
WORDS = ("embeddings=inline", "+embeddings.source.waves.speed=2", "embeddings.tokens=5", "+embeddings.d_model=4")


@pytest.fixture(autouse=True)
def waves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Add the file as if it lay in the folder of sources."""
    (tmp_path / "waves.py").write_text(WAVES, encoding="utf-8")
    monkeypatch.setattr(sources, "__path__", [*sources.__path__, str(tmp_path)])
    monkeypatch.setattr(sources, "NAMES", (*sources.NAMES, "waves"))
    importlib.invalidate_caches()
    yield
    sys.modules.pop("attn_exp.problem.sources.waves", None)


def refused(*words: str, act: Callable[..., object] = comparison) -> str:
    message = refusal(act, *words)
    assert len(message) < 300
    return message


def test_a_new_source_is_one_file() -> None:
    found = comparison(*WORDS)
    np.testing.assert_array_equal(found.problem.x, np.sin(2 * np.arange(5)[:, None] * np.arange(1, 5)))
    assert all(row.error < 1e-13 for row in found.rows)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("+embeddings.source.waves.speed=0", "embeddings.source.waves.speed=0: expected a number above 0"),
        (
            "+embeddings.source.wave={}",
            "unknown source 'embeddings.source.wave'; did you mean embeddings.source.waves?",
        ),
        ("+embeddings.source.waves.speed=1 embeddings.vectors=[[1]]", "both define x; give only one of them"),
        ("+embeddings.source.waves={} embeddings.tokens=null", "embeddings.source.waves needs embeddings.tokens and"),
        ("+embeddings.source.waves={} embeddings.columns=true", "but these are drawn"),
    ],
)
def test_what_it_does_not_take_is_refused_in_one_line(words: str, message: str) -> None:
    start = ("embeddings=inline", "embeddings.tokens=5", "+embeddings.d_model=4")
    assert message in refused(*start, *words.split())


NONE = ("variant=[blockwise]", "projections=identity")
"""Forms no matrix, and no projection of more than 200 MB."""


def free(monkeypatch: pytest.MonkeyPatch, gib: int) -> None:
    monkeypatch.setattr(long_runs, "free_bytes", lambda: gib * 2**30)


def test_what_it_would_make_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 4)
    monkeypatch.setattr("attn_exp.experiment.compare.build", lambda config: pytest.fail("it was made"))
    assert "embeddings.tokens=60000: variant" in refused(*WORDS, "embeddings.tokens=60000")
    assert "needs 22.4 GiB for its vectors" in refused(
        *WORDS, "embeddings.tokens=60000", "embeddings.d_model=5000", *NONE
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "embeddings=random embeddings.d_model=100000",
            "d_model=100000 with projections of 100000 columns needs 819.6 GiB",
        ),
        ("embeddings=udl embeddings.vectors.shape=[60000,4]", "embeddings.tokens=60000: variant"),
        ("embeddings=udl_multi_head embeddings.vectors.shape=[8,60000]", "embeddings.tokens=60000: variant"),
        (
            "embeddings=attention_times_value embeddings.v.shape=[90000,90000]",
            "v.shape=[90000, 90000] needs 603.5 GiB to draw",
        ),
    ],
)
def test_every_array_that_is_drawn_is_refused_before(words: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 4)
    monkeypatch.setattr("attn_exp.experiment.compare.build", lambda config: pytest.fail("it was drawn"))
    assert message in refused(*words.split())


def test_a_numpy_file_says_its_size_before_it_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    free(monkeypatch, 4)
    np.save(tmp_path / "x.npy", np.zeros((60000, 2)))
    assert "embeddings.tokens=60000: variant" in refused(
        "embeddings=file", f"embeddings.file={tmp_path}/x.npy", "head=1"
    )
