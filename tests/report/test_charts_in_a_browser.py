"""Charts where they are read: in a browser, in letters as wide as any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attn_exp.experiment.row import Comparison
from tests.compose import comparison
from tests.letters import WIDTHS, set_in
from tests.report.tab import tab
from tests.report.test_charts import charts_of
from tests.report.test_figures import HARD, tokens

BEYOND = """[...document.querySelectorAll("svg")].flatMap((svg) => {
  const page = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter((text) => {
    const box = text.getBoundingClientRect();
    const across = box.left >= page.left - 1 && box.right <= page.right + 1;
    return !across || box.top < page.top - 1 || box.bottom > page.bottom + 1;
  }).map((text) => text.textContent);
})"""
STRETCHED = """[...document.querySelectorAll("text[textLength]")].map(
  (text) => Math.abs(text.getBBox().width - text.getAttribute("textLength"))
)"""
"""How far each text is from the width that was planned for it."""

pytestmark = pytest.mark.long  # it starts processes, browsers or other libraries, or takes seconds

SHOWN = 'document.querySelectorAll("svg text").length'


def asked(runs: list[Comparison], letters: str, folder: Path, *questions: str) -> list[Any]:
    """Return the answers to questions about the charts of some runs, set in such letters."""
    charts = [svg.partition("?>")[2] for run in runs for svg in charts_of(run).values()]
    inherited = [svg.replace(' font-family="DejaVu Sans, Verdana, sans-serif"', "") for svg in charts]
    assert charts != inherited
    (folder / "page.html").write_text(
        f"<!doctype html><meta charset=utf-8><body>{''.join(inherited)}", encoding="utf-8"
    )
    with tab(folder) as opened:
        opened.open(folder / "page.html")
        set_in(opened, letters)
        return [opened.ask(question) for question in questions]


@pytest.mark.parametrize("letters", WIDTHS)
def test_no_text_reaches_out_of_its_chart_in_any_letters(letters: str, tmp_path: Path) -> None:
    runs = [tokens(names, inches) for names in HARD for inches in (3.0, 6.3)]
    runs += [tokens([f"token {place}" for place in range(64)], 3.4), tokens(["Щука", "שלום", "தமிழ்"], 3.0)]
    slides = comparison("figures.preset=slides", "mask=causal", "variant=[looped,unscaled,multi_head]")
    shown, out, stretched = asked([*runs, slides], letters, tmp_path, SHOWN, BEYOND, STRETCHED)
    assert shown > 500 and out == []
    assert len(stretched) > 400 and max(stretched) < 1.5  # letters of the flow are larger than those of charts
