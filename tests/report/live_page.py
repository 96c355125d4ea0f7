"""A page whose numbers are changed by hand, and what it then shows, for the tests of it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from attn_exp.experiment.row import Comparison
from tests.compose import comparison
from tests.report.render import page_of
from tests.report.tab import Tab
from tests.report.test_report import a_run

TOUCHED = (
    """(() => { const cell = document.querySelectorAll('.changing tbody td')[%d]; cell.id = 'hand'; return 0; })()"""
)
EVERYTHING = """(() => {
  const { data, steps } = attention;
  data.walks.forEach((walk, place) => Object.entries(walk.steps).forEach(([stage, { shape }]) => {
    for (let head = 0; head < shape[0]; head++) steps.table(place, stage, head);
  }));
  document.querySelectorAll('.walk').forEach((walk) => walk.classList.add('chosen'));
  document.querySelectorAll('.other, .many').forEach((each) => each.classList.remove('other', 'many'));
  steps.show = () => {};
  attention.follow.marked.splice(0); // a sum that is told anew moves what stands below it
})()"""
"""Shows all variants and heads at once, where a reader sees one."""
LET_GO = "document.getElementById('hand').removeAttribute('id')"
CELLS = "Array.from(document.querySelectorAll('.changing tbody td')).length"
TABLE = """Array.from(document.querySelectorAll('#comparison th[data-column]'), (head) =>
  Array.from(head.closest('table').tBodies[0].rows, (line) => { const cell = line.cells[head.cellIndex]; return [
    head.dataset.column, line.cells[0].textContent, (cell.querySelector('del') || cell).textContent,
    (cell.querySelector('ins') || cell).textContent, cell.classList.contains('still')]; })).flat()"""
"""Of each number of the comparison: its column, its variant, the run's text, the text now, whether it is the run's."""
LIVE = """JSON.stringify(attention.live.numbers(), (_, value) =>
  (typeof value === 'number' && !Number.isFinite(value) ? String(value) : value))"""


def show(opened: Tab, folder: Path, *words: str) -> Comparison:
    """Open the page of a run with these words, and return the run; its vectors have digits that sums round."""
    if not any(word.startswith(("embeddings=", "experiment=", "model=")) for word in words):
        words = ("embeddings=she_likes_coffee", *words)
    run = a_run(comparison(*words))
    run = replace(run, about={**run.about, "command": shlex.join(["python", "-m", "attn_exp", *words])})
    (folder / "page.html").write_text(page_of(run), encoding="utf-8")
    opened.open(folder / "page.html")
    opened.ask(EVERYTHING)
    return run.comparison


def type_into(opened: Tab, cell: int, text: str) -> None:
    """Click on a cell that can be changed, type, and press Enter."""
    opened.ask(TOUCHED % cell)
    opened.click("#hand")
    opened.type(text)
    opened.press("Enter")
    opened.ask(LET_GO)


def table(opened: Tab) -> dict[tuple[str, str], Any]:
    """Return the comparison as the page shows it: of each column and variant the run's text, the text now, greyness."""
    return {(column, variant): (old, new, still) for column, variant, old, new, still in opened.ask(TABLE)}
