"""A run from Python: the same composition, computation and sentences as the command line, and shown in a notebook."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp import Result, UserError, cli, run
from attn_exp.runs import store
from tests import ROOT
from tests.compose import comparison

CALLS: list[tuple[tuple[str, ...], dict[str, Any], str]] = [
    ((), {}, ""),
    ((), {"head": 2, "scale": False}, "head=2 scale=false"),
    (("mask=causal",), {"seed": 3, "bias": True}, "mask=causal seed=3 bias=true"),
    ((), {"embeddings": "udl", "variant": ["looped", "multi_head"]}, "embeddings=udl variant=[looped,multi_head]"),
    ((), {"experiment": "udl_self_attention"}, "experiment=udl_self_attention"),
    ((), {"head": np.int64(4), "scale": np.float64(0.25)}, "head=4 scale=0.25"),
    (("mask=window", "mask.window.left=1"), {"variant": "looped"}, "mask=window mask.window.left=1 variant=looped"),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("words", "settings", "typed"), CALLS, ids=[call[2] for call in CALLS])
def test_a_call_is_the_command_line(
    words: tuple[str, ...], settings: dict[str, Any], typed: str, tmp_path: Path
) -> None:
    result = run(*words, **settings)
    command = [sys.executable, "-m", "attn_exp", "report=none", *typed.split()]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=60)
    found = store.load(tmp_path / "outputs/latest").comparison
    assert result.comparison.rows == found.rows or repr(result.comparison.rows) == repr(found.rows)
    assert result.comparison.distances == found.distances
    assert result.comparison.published == found.published
    assert shlex.split(result.command) == ["python", "-m", "attn_exp", *typed.split()]


X = np.array([[1, 0, 0.5, 2], [0.25, -1, 0, 1], [3, 1, 1, 0]])
RNG = np.random.default_rng(0)

OWN: list[dict[str, Any]] = [
    {"vectors": X, "tokens": ["a", "two words", "it's, [so]"]},
    {"q": X, "k": X[:2], "v": RNG.normal(size=(2, 3)), "head": 1, "variant": ["looped", "matrix"]},
    {"weights": [[0.5, 0.5], [1, 0]], "v": [[1, 2], [3, 4]], "head": 1, "variant": ["looped"]},
    {"vectors": X, "W_q": RNG.normal(size=(4, 4)), "W_o": np.eye(4), "b_q": [0.0, 1, 2, 3], "bias": True},
    {"embeddings": "the_cat_sat", "tokens": ["un", "deux", "trois"], "experiment": "the_cat_sat"},
]


@pytest.mark.long
@pytest.mark.parametrize("settings", OWN, ids=[" ".join(each) for each in OWN])
def test_the_command_of_a_run_on_own_arrays_repeats_it(settings: dict[str, Any]) -> None:
    result = run(**settings)
    again = comparison(*shlex.split(result.command)[3:])
    assert repr(again.rows) == repr(result.comparison.rows)
    assert again.problem.tokens == result.comparison.problem.tokens


def test_own_arrays_are_what_is_computed() -> None:
    q, k, v = X, 2 * X[:2], RNG.normal(size=(2, 3))
    result = run(q=q, k=k, v=v, head=1, scale=False, variant=["matrix"])
    logits = q @ k.T
    weights = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(result.array("matrix", "weights")[0], weights, rtol=1e-14)
    np.testing.assert_allclose(result.array("matrix", "output"), weights @ v, rtol=1e-13)
    result = run(vectors=X, tokens=["a", "b", "c"], W_q=np.eye(4), head=1, variant=["matrix"])
    np.testing.assert_array_equal(result.array("matrix", "q")[0], X)
    assert result.comparison.problem.tokens == ("a", "b", "c")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"heads": 2}, "heads=2"),
    ({"head": 5}, "head=5"),
    ({"variant": ["loopd"]}, "variant=[loopd]"),
    ({"embeddings": "she_likes_tea"}, "embeddings=she_likes_tea"),
    ({"seed": -1}, "seed=-1"),
    ({"scale": "maybe"}, "scale=maybe"),
    ({"vectors": [[1, 2], [3]]}, "embeddings=inline embeddings.vectors=[[1,2],[3]]"),
    ({"config_dir": "nowhere"}, "--config-dir nowhere"),
]


@pytest.mark.parametrize(("settings", "typed"), WRONG, ids=[each[1] for each in WRONG])
def test_a_mistake_is_said_in_the_words_of_the_command_line(
    settings: dict[str, Any], typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["attn-exp", *typed.split()])
    with pytest.raises(SystemExit):
        cli.main()
    with pytest.raises(UserError) as refused:
        run(**settings)
    assert capsys.readouterr().err == f"attn_exp: error: {refused.value}\n"


@pytest.fixture(scope="module")
def result() -> Result:
    return run(head=2, scale=False)


def test_frames_and_arrays(result: Result) -> None:
    assert list(result.table.index) == ["looped", "matrix", "scaled", "multi_head"]
    assert list(result.table["scale"]) == [False, False, True, False]
    assert len(result.distances) == 6
    assert result.published.empty
    assert result.array("multi_head", "weights").shape == (2, 3, 3)
    frame = result.stage("multi_head", "weights", head=2)
    assert list(frame.index) == list(frame.columns) == ["she", "likes", "coffee"]
    np.testing.assert_array_equal(frame.to_numpy(), result.array("multi_head", "weights")[1])
    first, usual = result.stage("multi_head", "weights", head=np.int64(1)), result.stage("multi_head", "weights")
    np.testing.assert_array_equal(first.to_numpy(), result.array("multi_head", "weights")[0])
    assert first.equals(usual)
    result.array("looped", "output")[:] = 0
    assert result.array("looped", "output").any(), "a result is not changed by what is done to its arrays"
    for wrong, said in (("nobody", "unknown variant 'nobody'"), ("looped", "unknown stage of looped 'nothing'")):
        with pytest.raises(UserError, match=said):
            result.array(wrong, "nothing")


def test_nothing_is_written_until_it_is_saved(result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("report=none")
    assert not list(tmp_path.iterdir())
    folder = result.save(tmp_path / "mine")
    assert folder.parent == tmp_path / "mine/runs"
    assert (folder / "report.html").is_file()
    assert store.load(folder).comparison.rows == result.comparison.rows
    assert store.load(folder).about["command"] == "python -m attn_exp head=2 scale=false"
    assert folder.name in (tmp_path / "mine/index.html").read_text(encoding="utf-8")


@pytest.mark.long
def test_a_large_array_is_named_in_the_command_and_lies_among_the_results(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).normal(size=(300, 400))
    result = run("report=none", "weights=blocks", vectors=vectors, variant=["matrix"], head=1)
    word = re.search(r"embeddings.vectors=array:([0-9a-f]{32})", result.command)
    assert word and len(result.command) < 300
    folder = result.save(tmp_path)
    assert (folder / "run.json").stat().st_size < 10_000
    again = store.load(folder)
    assert again.about["command"] == result.command
    assert again.comparison.config.embeddings.vectors == vectors.tolist()
    with np.load(folder / "results.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays[f"array:{word[1]}"], vectors)


class Texts(HTMLParser):
    """Collects what a page shows, and its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: set[tuple[str, tuple[str, ...]]] = set()

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add((tag, tuple(name for name, _ in attrs)))


def read(html: str) -> Texts:
    found = Texts()
    found.feed(html)
    return found


def test_a_notebook_shows_the_table_the_sentence_and_every_weight(result: Result) -> None:
    shown = read(result._repr_html_())
    assert repr(result).split("\n\n")[1] in shown.texts
    for row in result.comparison.rows:
        assert row.variant in shown.texts
    for weight in result.array("multi_head", "weights").ravel():
        assert weight < 1e-3 or f"{weight:.4f}" in shown.texts
    assert "multi_head, head 2" in shown.texts


@pytest.mark.long
def test_public_names_are_in_order_and_load_nothing_by_themselves() -> None:
    assert list(attn_exp.__all__) == sorted(attn_exp.__all__) == sorted([*attn_exp.HOMES, "__version__"])
    for name in attn_exp.HOMES:
        assert getattr(attn_exp, name).__name__ == name
    assert attn_exp.__version__ == metadata.version("attn-exp")
    code = "import sys, attn_exp; print('numpy' in sys.modules); attn_exp.run; print('pandas' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["False", "False"]
