"""The page as a reader meets it: in a browser, by mouse and keyboard, small screens, on paper, without JavaScript."""

from __future__ import annotations

import math
import re
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compose import comparison
from tests.letters import WIDTHS, set_in
from tests.report.browser import need_chromium
from tests.report.render import page_of
from tests.report.tab import tab, visit
from tests.report.test_report import a_run

pytestmark = pytest.mark.long  # it starts processes, browsers or other libraries, or takes seconds

SETTINGS = ("variant=[looped,unscaled,multi_head]", "mask=causal")


@pytest.fixture(scope="module")
def page() -> str:
    need_chromium()
    return page_of(a_run(comparison(*SETTINGS)))


MULTIPLIERS = [0.01, 0.5, 1 / math.sqrt(2), 1.0, 7.3, 400.0]


def test_the_slider_computes_what_numpy_does(page: str, tmp_path: Path) -> None:
    script = f"""
    return {MULTIPLIERS}.map((multiplier) =>
      attention.panels.map((panel) => Array.from(attention.weightsAt(panel, multiplier))));
    """
    shown = visit(page, script, tmp_path).answer
    traces = comparison(*SETTINGS).traces
    names = ("looped", "unscaled", "multi_head")
    for (multiplier, name), weights in zip(product(MULTIPLIERS, names), chain(*shown), strict=True):
        scores = traces[name].scores
        assert scores is not None
        logits = np.where(np.tril(np.ones((3, 3), bool)), multiplier * scores, -np.inf)
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        expected = powers / powers.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(weights, expected.ravel(), rtol=0, atol=1e-12)


def test_moving_the_slider_moves_the_table_and_a_preset_takes_it_back(page: str, tmp_path: Path) -> None:
    """Three causal queries see one, two and three keys: (ln 1 + ln 2 + ln 3) / 3 = 0.5973."""
    script = """
    const slider = document.getElementById("touch-scale"), text = (id) => document.getElementById(id).textContent;
    const cells = () => Array.from(document.querySelectorAll("#large tbody td"), (cell) => cell.textContent);
    const states = [[cells(), text("touch-value"), text("told")]];
    slider.value = 8;
    slider.dispatchEvent(new Event("input"));
    states.push([cells(), text("touch-value")]);
    document.querySelector('[data-preset="standard"]').click();
    states.push([cells(), text("touch-value")]);
    return states;
    """
    found = visit(page, script, tmp_path)
    (before, _, told), (moved, value, *_), (after, standard, *_) = found.answer
    assert moved != before == after
    assert (value, standard) == ("128.0 = 256/√d", "0.5000 = 1/√d")
    assert "of at most 0.5973 nats" in told
    assert found.console == []


FOLLOW = """
const lit = () => ({
  queries: [...new Set(Array.from(document.querySelectorAll("tr.lit"), (row) => row.dataset.q))],
  tables: document.querySelectorAll("tr.lit").length,
  sums: Array.from(document.querySelectorAll("li.lit"), (item) => item.textContent.trim().split(" =")[0]),
  keys: Array.from(
    document.querySelectorAll("#walk-1 tr.key"),
    (row) => [row.dataset.k, row.style.getPropertyValue("--share")],
  ),
});
"""


def expected_shares() -> list[float]:
    weights = comparison(*SETTINGS).traces["looped"].weights
    assert weights is not None
    return [float(share) for share in weights[0, 1] / weights[0, 1].max()]


def check_followed(found: dict[str, Any]) -> None:
    assert found["queries"] == ["1"]
    assert found["tables"] > 7
    assert found["sums"] == ["output(likes)"]
    assert [key for key, _ in found["keys"]] == ["0", "1", "2"] * 2  # of K and V
    np.testing.assert_allclose([float(share) for _, share in found["keys"][:3]], expected_shares(), atol=1e-12)


def test_focusing_a_query_does_the_same_and_escape_ends_it(page: str, tmp_path: Path) -> None:
    script = """
    const button = document.querySelectorAll("#follow button")[1];
    button.focus();
    if (!document.hasFocus()) button.dispatchEvent(new FocusEvent("focus")); // a window behind others sends none
    const focused = lit();
    button.click();
    const pressed = button.getAttribute("aria-pressed");
    document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
    return [focused, pressed, lit().tables, button.getAttribute("aria-pressed")];
    """
    focused, pressed, after, released = visit(page, FOLLOW + script, tmp_path).answer
    check_followed(focused)
    assert (pressed, after, released) == ("true", 0, "false")


BARS = "Math.max(...Array.from(document.querySelectorAll('nav ul, .controls:not(#touch)'), (bar) => bar.offsetHeight))"
WIDE = ("mask=causal", "scale=false", "variant=[looped,scaled,linear,decode,blockwise,multi_head,multi_query]")


@pytest.mark.parametrize("letters", WIDTHS)
@pytest.mark.parametrize(
    "words", [("head=2", "scale=false"), SETTINGS, ("experiment=she_likes_coffee",), WIDE], ids=str
)
def test_the_comparison_fits_a_laptop_and_paper_shows_the_columns_that_stand_aside(
    words: tuple[str, ...], letters: str, tmp_path: Path
) -> None:
    (tmp_path / "page.html").write_text(page_of(a_run(comparison(*words))), encoding="utf-8")
    with tab(tmp_path) as opened:
        opened.screen(1100)
        opened.open(tmp_path / "page.html")
        set_in(opened, letters)
        assert opened.overflow("#comparison .scroll") == 0 >= opened.overflow()
        aside = "document.querySelector('#comparison .more table').checkVisibility({contentVisibilityAuto: true})"
        assert opened.ask(aside) is False
        opened.click("#comparison .more summary")
        assert opened.ask(aside) is True
        opened.click("#comparison .more summary")
        opened.screen(360)
        assert (
            opened.overflow() <= 0 and opened.ask(BARS) < 56 and opened.overflow("#touch") <= 0
        )  # one line each, but for the multiplier
        opened.screen(700, media="print")
        assert opened.ask(aside) is True
        assert opened.ask("document.getElementById('follow').checkVisibility()") is False
        assert opened.overflow() <= 0


def test_without_javascript_the_page_is_whole(page: str, tmp_path: Path) -> None:
    still = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    script = """
    const shown = (each) => each.checkVisibility();
    const count = (name) => document.querySelectorAll(name).length;
    const term = document.querySelector("abbr");
    const tip = (term) => { term.focus(); return getComputedStyle(term, "::after").content; }; // by a tap, say
    const tips = tip(term) + tip(document.querySelector("th abbr"));
    return [shown(document.getElementById("touch")), count("section"), count("math"), tips];
    """
    touch, sections, formulas, term = visit(still, script, tmp_path).answer
    assert touch is False
    assert sections >= 6 and formulas >= 15 and "(the output projection, " in term and "the same function" in term


TWELVE = ("embeddings=random", "embeddings.tokens=16", "embeddings.d_model=48", "head=12", "variant=[multi_head]")


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("words", [(), TWELVE, ("position=rope", "past=1", "variant=[matrix]")], ids=str)
def test_axe_finds_nothing_however_slight(words: tuple[str, ...], tmp_path: Path, scheme: str) -> None:
    need_chromium()
    (tmp_path / "page.html").write_text(page_of(a_run(comparison(*words))), encoding="utf-8")
    with tab(tmp_path) as opened:
        opened.screen(1100, scheme=scheme)
        opened.open(tmp_path / "page.html")
        assert opened.violations() == []


A4, MARGINS, DOTS = (8.27, 11.69), 0.79, 96
"""Inches of the paper and of both margins, and how many dots of a page one inch holds."""
