"""The index as a reader meets it: in a browser, with a mouse, a keyboard, a small screen, and without JavaScript."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from attn_exp.runs import folders
from tests.letters import WIDTHS, set_in
from tests.report.tab import Tab, tab
from tests.runs.test_index import add

pytestmark = pytest.mark.long  # it starts processes, browsers or other libraries, or takes seconds

RUNS = {
    "a-run": "head=12",
    "b-run": "head=2 bias=true",
    "c-run": "head=1 variant=[looped,unscaled,multi_head,multi_query] embeddings=random embeddings.tokens=64",
    "d-run": "bias=true mask=causal score=alibi dtype=float16 experiment=she_likes_coffee",
}
NAMES = "[...document.querySelectorAll('tbody tr:not([hidden]) a')].map((each) => each.textContent[0]).join('')"
SORTED = "[...document.querySelectorAll('thead [aria-sort]')].map((each) => [each.textContent, each.ariaSort])"
FOCUS = "[document.activeElement.tagName, document.activeElement.textContent.trim()]"
OUTLINED = "getComputedStyle(document.activeElement).outlineStyle"
COUNT = "document.getElementById('shown').value"


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with tab(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outputs")
    for place, (name, words) in enumerate(RUNS.items()):
        add(folder, name, words, f"2026-11-21T04:00:0{place}+0000", title="Two heads" if name == "b-run" else "")
    return folders.rebuild_index(folder)


@pytest.fixture
def opened(reader: Tab, page: Path) -> Tab:
    """The index on a laptop's screen, newest runs first."""
    reader.screen(1280)
    reader.console.clear()
    reader.requests.clear()
    reader.open(page)
    return reader


HEAD = "thead th:nth-child(3) button"
"""What sorts by `head`, the setting that most runs choose."""


def test_it_opens_without_a_complaint_or_a_request(opened: Tab, page: Path) -> None:
    assert opened.ask(NAMES) == "dcba"
    assert opened.console == []
    assert [each for each in opened.requests if not each.startswith("data:")] == [page.as_uri()]


def test_the_keyboard_reaches_the_filter_the_heads_and_the_links(opened: Tab) -> None:
    opened.press("Tab")
    assert opened.ask("document.activeElement.id") == "filter"
    opened.type("TRUE")
    assert (opened.ask(NAMES), opened.ask(COUNT)) == ("db", "2")
    opened.press("Tab")
    assert opened.ask("document.activeElement.getAttribute('role')") == "region"
    assert opened.ask(OUTLINED) == "solid"
    opened.press("Tab", "Tab")
    assert opened.ask(FOCUS) == ["BUTTON", "title"]
    assert opened.ask(OUTLINED) == "solid"
    opened.press("Enter")
    assert (opened.ask(NAMES), opened.ask(SORTED)) == ("bd", [["title", "ascending"]])
    opened.press(" ")
    assert (opened.ask(NAMES), opened.ask(SORTED)) == ("bd", [["title", "descending"]])  # nothing comes last
    opened.press(*["Tab"] * 9)
    assert opened.ask(FOCUS) == ["A", "b-run"]
    assert opened.ask(OUTLINED) == "solid"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(opened: Tab, scheme: str) -> None:
    opened.screen(1280, scheme=scheme)
    assert opened.violations() == []
    dark = opened.ask("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    assert dark == (scheme == "dark")


@pytest.mark.parametrize("letters", WIDTHS)
@pytest.mark.parametrize("width", [1280, 768, 360, 320])
def test_nothing_is_wider_than_the_screen(opened: Tab, width: int, letters: str) -> None:
    opened.screen(width)
    set_in(opened, letters)
    assert opened.ask("document.documentElement.clientWidth") == width
    assert opened.overflow() <= 0
