"""Long texts: steps, sums, lines and differences of whichever token is followed, and what is not drawn is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attn_exp.arrays import Array
from tests.compose import comparison
from tests.report.tab import Tab
from tests.report.test_explore import show, texts

MANY = ("embeddings=random", "embeddings.d_model=48", "head=12", "variant=[multi_head]")
LONG = (*MANY, "embeddings.tokens=40")


def numbers(opened: Tab, selector: str) -> Array:
    return np.array([float(text.replace("−", "-")) for text in texts(opened, selector)])


def stages(words: tuple[str, ...]) -> dict[str, Array]:
    return dict(comparison(*words).traces["multi_head"].stages())


@pytest.mark.long
def test_a_number_far_down_says_how_it_came_about(opened: Tab, tmp_path: Path) -> None:
    show(opened, tmp_path, *LONG, address="#show=multi_head.7&query=31")
    array = stages(LONG)
    said = "document.querySelector('p.why').textContent"
    opened.click("#walk-1-scores [data-head='6'] tr.now td:nth-of-type(3)")
    told = opened.ask(said).replace("−", "-")
    assert told.startswith("S[x30, x24] of head 7 = ")
    assert f"{array['q'][6, 30, 0]:.3f} × " in told and told.endswith(f"{array['scores'][6, 30, 24]:.2f}")
    opened.click("#walk-1-weights [data-head='6'] tr.now td:nth-of-type(3)")
    told = opened.ask(said).replace("−", "-")
    assert "keys that are not shown" in told and told.endswith(f"{array['weights'][6, 30, 24]:.4f}")


@pytest.mark.long
def test_of_too_many_weights_the_page_says_what_it_leaves_out(
    opened: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attn_exp.report.page_data.MOST_COARSE", 1000)
    show(opened, tmp_path, *LONG, address="#show=multi_head.2&query=31")
    assert texts(opened, "#large .note") == ["There are too many weights to draw lines or to change the scale."]
    assert texts(opened, ".sums li") == ["This page has too many weights to write out a sum."]
    assert texts(opened, "#walk-1-weights tbody th") == ["x30"]
    weights = stages(LONG)["weights"]
    np.testing.assert_allclose(numbers(opened, "#walk-1-weights tbody td"), weights[1, 30, 22:38], atol=0.0006)
    assert opened.console == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("most", "rows", "columns"),
    [
        (7000, "1 of 40 rows, that of x30", "columns x0 to x13 of 40"),
        (500, "1 of 12 heads, rows x0 to x15 of 40", "columns"),
    ],
    ids=["fewer keys", "the first queries"],
)
def test_what_does_not_travel_is_said(
    opened: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, rows: str, columns: str
) -> None:
    monkeypatch.setattr("attn_exp.report.page_data.MOST_COARSE", 1000)
    monkeypatch.setattr("attn_exp.report.page_data.MOST_CELLS", most)
    show(opened, tmp_path, *LONG, address="#show=multi_head.1&query=31")
    assert texts(opened, "#walk-1-weights > .note")[0].startswith(f"Shown: {rows}, {columns}")
    weights, first = stages(LONG)["weights"][0], most == 500
    shown = numbers(opened, "#walk-1-weights tbody td")
    np.testing.assert_allclose(shown, (weights[:16, :16] if first else weights[30, :14]).ravel(), atol=0.0006)
    assert opened.console == []


@pytest.mark.long
def test_a_number_far_down_is_changed_where_it_stands(opened: Tab, tmp_path: Path) -> None:
    words = ("embeddings=random", "embeddings.tokens=30", "variant=[matrix]")
    show(opened, tmp_path, *words, address="#show=matrix&query=25")
    cell = "document.querySelector('#walk-1-x tr.now td')"
    opened.ask(f"{cell}.dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
    opened.ask("document.querySelector('.edit').value = '2'")
    opened.ask("document.querySelector('.edit').dispatchEvent(new InputEvent('input', {bubbles: true}))")
    opened.press("Enter")
    before = comparison(*words).problem
    assert before.x is not None
    x = before.x.copy()
    x[24, 0] = 2
    q, k = (x @ before.projections[name] for name in ("W_q", "W_k"))
    now = """Array.from(document.querySelectorAll('#walk-1-scores tr.now td'),
      (cell) => (cell.querySelector('ins') || cell).textContent)"""
    for row in (24, 5):
        opened.ask(f"attention.choose({{ token: {row} }})")
        first = {24: 14, 5: 0}[row]
        shown = [float(text.replace("−", "-")) for text in opened.ask(now)]
        np.testing.assert_allclose(shown, q[row] @ k[first : first + 16].T, atol=0.006)
    assert "X[x24, 1]" in opened.ask("document.querySelector('.changed p').textContent")
    assert opened.console == []
