"""Two runs in one explorer: a layer beside a layer, with the difference that NumPy gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attn_exp.experiment.row import Run
from attn_exp.report.versus import Versus, versus_page
from attn_exp.sweeps.compare import compare_runs
from tests.compose import comparison
from tests.report.tab import Tab
from tests.report.test_explore import VISIBLE, texts
from tests.report.test_report import a_run

TWO_HEADS = ("variant=[multi_head]", "head=2")


def beside(*words: str, first: tuple[str, ...] = TWO_HEADS) -> tuple[Run, Run, Versus]:
    one, other = a_run(comparison(*first)), a_run(comparison(*first, *words))
    return one, other, compare_runs(("a", "b"), one, other)


def weights_of(run: Run, head: int) -> np.ndarray:
    weights = run.comparison.traces["multi_head"].weights
    assert weights is not None
    return np.asarray(weights[head])


def show(opened: Tab, folder: Path, versus: Versus) -> None:
    (folder / "page.html").write_text(versus_page(versus), encoding="utf-8")
    opened.tell("Page.navigate", url="about:blank")
    opened.wait()
    opened.open(folder / "page.html")


@pytest.mark.long
def test_a_head_of_one_run_stands_beside_a_head_of_the_other(opened: Tab, tmp_path: Path) -> None:
    one, other, versus = beside("mask=causal", "scale=false")
    show(opened, tmp_path, versus)
    titles = ["first: multi_head, head 1", "second: multi_head, head 1"]
    assert texts(opened, "#large figcaption") == titles
    assert len(texts(opened, "#overview button")) == 4
    opened.click("#overview button[aria-label='first: multi_head, head 2']")
    tables = opened.ask(f"{VISIBLE % '#large tbody'}.map((body) => Array.from(body.querySelectorAll('td'), "
                        "(cell) => Number(cell.textContent.replace('−', '-'))))")  # fmt: skip
    mine, yours = weights_of(one, 1), weights_of(other, 0)
    for shown, expected in zip(tables, (mine, yours, mine - yours), strict=False):
        np.testing.assert_allclose(shown, expected.ravel(), atol=0.0051)
    assert len(tables) == 4  # and the outputs
    assert opened.console == []


@pytest.mark.long
def test_nan_in_one_run_alone_is_a_difference(opened: Tab, tmp_path: Path) -> None:
    """A library that gives NaN where a query sees no key, beside one that gives zeros."""
    blind = ("mask=padding", "mask.padding.lengths=[0]", "variant=[matrix]")
    one, other = a_run(comparison(*blind, "convention=udl")), a_run(comparison(*blind))
    weights = one.comparison.traces["matrix"].weights
    assert weights is not None and np.isnan(weights).all()
    show(opened, tmp_path, compare_runs(("a", "b"), one, other))
    told = opened.ask("document.getElementById('told').textContent")
    assert "weights: NaN in only one of them, elsewhere 0" in told
    opened.ask("attention.choose({ with: 0 })")
    assert "weights: none" in opened.ask("document.getElementById('told').textContent")
    assert opened.console == []


@pytest.mark.long
def test_runs_of_other_tokens_are_not_subtracted_and_the_page_says_why() -> None:
    versus = beside("embeddings=random", "embeddings.tokens=3")[2]
    assert versus.explorer is None
    said = "The page shows no maps of the two runs: their tokens differ"
    assert said in " ".join(versus.sentences) and said in versus_page(versus)
    never = beside("variant=[blockwise]", first=("variant=[matrix]",))[2]
    assert never.explorer is None
    assert "The page shows no maps of the two runs: the second run never computed its weights." in never.sentences
    assert not any("no maps" in sentence for sentence in beside("scale=false")[2].sentences)


@pytest.mark.long
@pytest.mark.parametrize("words", [("mask=causal", "scale=false"), ("embeddings.tokens=20",)], ids=["small", "large"])
def test_a_page_of_two_runs_is_sound(opened: Tab, tmp_path: Path, words: tuple[str, ...]) -> None:
    first = (*TWO_HEADS, "embeddings=random", *words)
    show(opened, tmp_path, beside("seed=1", first=first)[2])
    for scheme in ("light", "dark"):
        opened.screen(1280, 900, scheme)
        assert opened.violations() == []
    for width in (390, 1920):
        opened.screen(width, 900)
        assert opened.overflow() <= 0
    opened.screen(1280, 900)
    assert opened.console == []
