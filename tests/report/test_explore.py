"""One thing at a time: the page shows one choice large, remembers it in its address, and is short."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compose import comparison
from tests.report.render import page_of
from tests.report.tab import Tab
from tests.report.test_report import a_run

SCREEN = 900
VISIBLE = "Array.from(document.querySelectorAll('%s')).filter((each) => each.checkVisibility())"
LINES = """Array.from(document.querySelectorAll('#large .lines .all path'), (path) =>
  [Number(path.getAttribute('stroke-width')), (path.getAttribute('d').match(/M/g) || []).length])"""
MASKED = ("mask=causal", "head=2")
TWELVE = ("embeddings=random", "embeddings.tokens=16", "embeddings.d_model=96", "head=12", "variant=[multi_head]")


def show(opened: Tab, folder: Path, *words: str, address: str = "") -> None:
    """Open the page of a run with these words as a reader does, at an address within it."""
    run = a_run(comparison(*words))
    (folder / "page.html").write_text(page_of(run), encoding="utf-8")
    opened.screen(1280, SCREEN)
    opened.tell("Page.navigate", url="about:blank")
    opened.wait()
    opened.tell("Page.navigate", url=(folder / "page.html").absolute().as_uri() + address)
    opened.wait()


def texts(opened: Tab, selector: str) -> list[str]:
    return list(opened.ask(f"{VISIBLE % selector}.map((each) => each.innerText.trim())"))


def test_the_default_page_is_no_larger_than_it_was_and_a_layer_goes_without_what_it_cannot_use() -> None:
    default = page_of(a_run(comparison()))
    assert len(default.encode()) <= 160 * 1024  # and 14 of figures
    layer = page_of(a_run(comparison(*TWELVE)))
    assert len(layer.encode()) <= 220 * 1024
    assert "live.stages" not in layer and "live.stages" in default


@pytest.mark.long
def test_a_click_shows_a_head_its_steps_and_its_sum_and_hides_the_rest(opened: Tab, tmp_path: Path) -> None:
    show(opened, tmp_path, *MASKED)
    assert texts(opened, ".walk > h2") == ["looped = matrix = scaled, step by step"]
    opened.click("#overview button[aria-label='multi_head, head 2']")
    assert texts(opened, ".walk > h2") == ["multi_head, step by step"]
    assert set(texts(opened, ".walk .step caption")) == {"head 2"}
    assert len(texts(opened, ".walk .sums li")) == 1
    weights = comparison(*MASKED).traces["multi_head"].weights
    assert weights is not None  # opens on the last word, as the first sees only itself under this mask
    assert texts(opened, ".walk .sums li")[0].startswith(f"context 2(likes) = {weights[1, 1, 0]:.2f} v(she) + ")
    assert texts(opened, "#large figcaption") == ["multi_head, head 2"]
    opened.click("nav a[href='#walk-1']")
    assert texts(opened, "#large figcaption") == ["multi_head, head 2"]
    assert opened.ask("Math.abs(document.getElementById('walk-2').getBoundingClientRect().top)") < SCREEN
    assert [text.split()[0] for text in texts(opened, ".walk h3")][:4] == ["X", "W_q", "W_k", "W_v"]
    shown = [float(text) for text in texts(opened, "#large tbody td")]
    np.testing.assert_allclose(shown, weights[1].ravel(), atol=0.0051)


@pytest.mark.long
def test_a_link_shows_what_was_chosen(opened: Tab, tmp_path: Path) -> None:
    show(opened, tmp_path, *MASKED)
    opened.ask("attention.choose({ show: 1, with: 2, view: 'map' })")
    opened.click("#follow button:nth-of-type(3)")
    address = opened.ask("location.hash")
    assert address == "#show=multi_head.1&with=multi_head.2&query=3&view=map"
    weights = comparison(*MASKED).traces["multi_head"].weights
    shown = [float(text.replace("−", "-")) for text in texts(opened, "#large .minus tbody td")]
    assert weights is not None and shown == pytest.approx((weights[0] - weights[1]).ravel(), abs=0.0051)
    before = texts(opened, "#large figcaption, #large td, .sums li")
    show(opened, tmp_path, *MASKED, address=address)
    assert texts(opened, "#large figcaption, #large td, .sums li") == before
    assert texts(opened, "#large .lines") == []
    for wrong in ("#show=nobody&with=&query=99&view=<b>", "#walk-2", "#%"):
        show(opened, tmp_path, *MASKED, address=wrong)
        assert opened.console == []
        assert len(texts(opened, "#large figcaption")) == 1
    show(opened, tmp_path, *MASKED, address="#walk-2")
    assert texts(opened, ".walk > h2") == ["multi_head, step by step"]


TOP = "document.getElementById('%s').getBoundingClientRect().top"


@pytest.mark.long
def test_a_link_to_a_section_keeps_the_choice_and_a_link_with_a_choice_shows_it(opened: Tab, tmp_path: Path) -> None:
    show(opened, tmp_path, *MASKED, address="#show=multi_head.2&query=3")
    assert abs(opened.ask(TOP % "weights")) < SCREEN / 4
    opened.click("nav a[href='#comparison']")
    assert opened.ask("location.hash") == "#show=multi_head.2&query=3&at=comparison"
    assert abs(opened.ask(TOP % "comparison")) < SCREEN / 2  # the page may end below it
    opened.click("nav a[href='#weights']")
    assert abs(opened.ask(TOP % "weights")) < SCREEN / 4
    opened.ask("history.back()")
    opened.ask("new Promise((done) => setTimeout(done, 200))")
    assert texts(opened, "#large figcaption") == ["multi_head, head 2"]
    assert abs(opened.ask(TOP % "comparison")) < SCREEN / 2
    show(opened, tmp_path, *MASKED, address="#show=multi_head.2&query=3&at=walk-2-weights")
    assert texts(opened, "#large figcaption") == ["multi_head, head 2"]
    assert abs(opened.ask(TOP % "walk-2-weights")) < SCREEN / 2
    opened.click(".walk.chosen .flow a")
    assert opened.ask("location.hash").startswith("#show=multi_head.2&query=3&at=walk-")
    assert opened.console == []


@pytest.mark.long
def test_of_many_queries_steps_show_one_until_all_are_wanted(opened: Tab, tmp_path: Path) -> None:
    show(opened, tmp_path, *TWELVE, address="#show=multi_head.7&query=5")
    assert texts(opened, "#walk-1-scores tbody th") == ["x4"]
    assert len(texts(opened, "#walk-1-k tbody th")) == 16
    assert texts(opened, "#walk-1-q caption") == ["head 7"]
    opened.click("#all-rows")
    assert len(texts(opened, "#walk-1-scores tbody th")) == 16


@pytest.mark.long
def test_a_long_text_opens_on_its_last_word(opened: Tab, tmp_path: Path) -> None:
    show(opened, tmp_path, "embeddings=words", "embeddings.text='[CLS] the cat sat on a red mat. [SEP]'")
    assert texts(opened, "#walk-1-scores tbody th") == ["mat"]


@pytest.mark.long
def test_a_wide_projection_shows_the_columns_of_the_head_that_is_chosen(opened: Tab, tmp_path: Path) -> None:
    """Head 7 of twelve heads of 8 columns reads the columns from 49 on."""
    show(opened, tmp_path, *TWELVE, "bias=true", address="#show=multi_head.7&query=5")
    problem = comparison(*TWELVE, "bias=true").problem
    for name in ("W_q", "W_k", "W_v", "b_q"):
        assert texts(opened, f"#walk-1-{name} thead th") == ["49", "50", "51", "52"]
        assert texts(opened, f"#walk-1-{name} tfoot th") == ["head 7"]
        shown = [float(text.replace("−", "-")) for text in texts(opened, f"#walk-1-{name} tbody td")]
        np.testing.assert_allclose(shown, np.atleast_2d(problem.projections[name])[:4, 48:52].ravel(), atol=0.00051)
    opened.click("#walk-1-q [data-head='6'] tr.now td")
    x, matrix = problem.x, problem.projections["W_q"]
    assert x is not None
    said = opened.ask("document.querySelector('p.why').textContent").replace("−", "-")
    assert f"{x[4, 0]:.3f} × " in said and f"{matrix[0, 48]:.4f}" in said
    assert said.endswith(f"{x[4] @ matrix[:, 48] + problem.projections['b_q'][48]:.3f}")
    opened.ask("attention.choose({ show: 0 })")
    assert texts(opened, "#walk-1-W_k thead th") == ["1", "2", "3", "4"]


@pytest.mark.long
def test_the_walk_of_y_shows_what_it_is_made_of(opened: Tab, tmp_path: Path) -> None:
    """Of two small heads the context of both, and of twelve that of the chosen one, beside its rows of W_o."""
    show(opened, tmp_path, *MASKED, address="#show=multi_head.1")
    assert texts(opened, "#walk-2-context caption") == ["head 1"]
    opened.click("#walk-2-output tbody td")
    assert texts(opened, "#walk-2-context caption") == ["head 1", "head 2"]
    assert len(texts(opened, "#walk-2-context .source")) == 4
    opened.press("Escape")
    assert texts(opened, "#walk-2-context caption") == ["head 1"]
    show(opened, tmp_path, *TWELVE, address="#show=multi_head.7&query=5")
    found = comparison(*TWELVE)
    matrix, trace = found.problem.projections["W_o"], found.traces["multi_head"]
    assert trace.context is not None and trace.output is not None
    assert texts(opened, "#walk-1-W_o tbody th") == ["49", "50", "51", "52"]
    shown = [float(text.replace("−", "-")) for text in texts(opened, "#walk-1-W_o tbody td")]
    np.testing.assert_allclose(shown, matrix[48:52, :4].ravel(), atol=0.0006)
    assert texts(opened, "#walk-1-W_o > .note")[0].startswith("Shown: rows 49 to 52 of 96, 4 of 96 columns;")
    opened.click("#walk-1-output tr.now td:nth-of-type(2)")
    said = opened.ask("document.querySelector('p.why').textContent").replace("−", "-")
    assert said.startswith(f"Y[x4, 2] = {trace.context[6, 4, 0]:.3f} × ") and f"{matrix[48, 1]:.4f}" in said
    assert "from 92 terms" in said and said.endswith(f"{trace.output[4, 1]:.3f}")
    opened.ask("attention.choose({ show: 0 })")
    assert texts(opened, "#walk-1-W_o tbody th") == ["1", "2", "3", "4"]
