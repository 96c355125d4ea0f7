"""Numbers changed with a finger, a pen and buttons; what follows in pictures, and what is said to stay the run's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.report.live_page import CELLS, show, table, type_into
from tests.report.tab import DRAWN, Tab

pytestmark = pytest.mark.long  # it starts processes, browsers or other libraries, or takes seconds

X = "#walk-1-x tbody tr:nth-child(%d) td:nth-child(%d)"
FIRST_X = "attention.live.now.x[0][0]"
NUDGE = ".nudge button:nth-of-type(%d)"
BOXES = "Array.from(document.querySelectorAll('.nudge button'), (one) => one.getBoundingClientRect().toJSON())"
STILL = "document.querySelectorAll('.still, .of-run, ins').length"
NOW = "JSON.stringify(attention.live.now, (_, value) => (Object.is(value, -0) ? '-0' : value))"


def middle(opened: Tab, selector: str) -> dict[str, float]:
    """Return the middle of an element, scrolled into view."""
    opened.ask(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center', behavior: 'instant'}})")
    opened.ask(DRAWN)
    box = opened.ask(f"document.querySelector({selector!r}).getBoundingClientRect().toJSON()")
    return {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}


def tap(opened: Tab, selector: str) -> None:
    """Touch an element with a finger."""
    where = middle(opened, selector)
    opened.tell("Input.dispatchTouchEvent", type="touchStart", touchPoints=[where])
    opened.tell("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    opened.ask(DRAWN)


def test_a_finger_opens_the_editor_and_buttons_beside_it_change_the_number(opened: Tab, tmp_path: Path) -> None:
    opened.screen(390)
    opened.tell("Emulation.setTouchEmulationEnabled", enabled=True)
    show(opened, tmp_path, "variant=[looped]")
    tap(opened, X % (1, 2))
    assert opened.ask("document.activeElement.className") == "edit"
    for button, number in ((2, 0.21), (2, 0.22), (1, 0.21), (3, -0.21), (3, 0.21), (3, -0.21)):
        tap(opened, NUDGE % button)
        assert opened.ask(FIRST_X) == number
        assert opened.ask("document.activeElement.className") == "edit"
    boxes = opened.ask(BOXES)
    assert min(min(box["width"], box["height"]) for box in boxes) >= 24
    assert max(box["right"] for box in boxes) <= 390
    assert opened.overflow() <= 0
    assert opened.violations() == []
    tap(opened, X % (1, 5))
    assert opened.ask("document.querySelectorAll('.nudge').length") == 1
    opened.press("Escape")
    assert opened.ask("document.querySelectorAll('.nudge, .edit').length") == 0
    assert opened.ask(FIRST_X) == -0.21
    opened.tell("Emulation.setTouchEmulationEnabled", enabled=False)
    opened.screen(1280)


GIVEN = (
    "embeddings=inline", "projections=none", "embeddings.q=[[0.5,0.5,1,2],[1,2,3,4]]",
    "embeddings.k=[[1,2,0,1],[3,4,1,1]]", "embeddings.v=[[1,2,0,3],[3,4,1,1]]",
)  # fmt: skip
HINTS = """Array.from(document.querySelectorAll('.walk'), (walk) =>
  (/Change any number in (.*), and everything/.exec(walk.querySelector('figcaption').textContent) || [0, ''])[1])"""


@pytest.mark.parametrize(
    ("words", "tables"),
    [
        (("variant=[matrix]",), ["Q, K, V"]),
        (("variant=[matrix]", "position=rope"), ["V"]),
        (("variant=[matrix,multi_head]", "kv_head=1"), ["Q, K, V", "Q"]),
    ],
)
def test_only_tables_that_show_what_was_given_ask_to_be_typed_into(
    opened: Tab, tmp_path: Path, words: tuple[str, ...], tables: list[str]
) -> None:
    show(opened, tmp_path, *GIVEN, *words)
    assert opened.ask(HINTS) == tables
    type_into(opened, opened.ask(CELLS) - 1, "2.125")
    assert sum(2.125 in row for rows in json.loads(opened.ask(NOW)).values() for row in rows) == 1


def test_what_cannot_follow_is_said_to_be_the_runs_own_until_the_numbers_are_back(opened: Tab, tmp_path: Path) -> None:
    show(opened, tmp_path, "variant=[looped,multi_head]", "mistake=none", "check=mask", "mask=causal")
    before = opened.ask("document.querySelector('body').innerText")
    assert opened.ask(STILL) == 0
    type_into(opened, 0, "2")
    shown = table(opened)
    assert shown["error", "looped"][2] and shown["median_s", "multi_head"][2]
    assert not shown["max_diff", "multi_head"][2]
    assert shown["entropy", "looped"][0] != shown["entropy", "looped"][1]
    assert opened.ask("document.querySelector('header .lead').textContent").startswith("From the run, before the")
    assert opened.ask("document.querySelector('#check-mask .of-run').textContent") == "From the run, before the change."
    bar = opened.ask("document.querySelector('.changed [role=status]').textContent")
    assert "still show the run's numbers from before the change: the sentences at the top, error" in bar
    assert bar.endswith("Check: mask.")
    opened.click(".changed button")
    assert opened.ask(STILL) == 0
    assert opened.ask("document.querySelector('body').innerText") == before
