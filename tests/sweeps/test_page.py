"""A sweep's page as a reader meets it: in a browser, with a mouse, a keyboard, a small screen, and on paper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.letters import WIDTHS, set_in
from tests.report.tab import Tab, tab
from tests.sweeps.command import quickly, the_sweep

pytestmark = pytest.mark.long  # it starts processes, browsers or other libraries, or takes seconds

ANGRY = "<script>alert(1)</script><img src=x onerror=alert(1)>" + "x" * 500
SHOWN = "[...document.querySelectorAll('.again code')].filter((each) => each.checkVisibility()).length"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a sweep of which a third failed."""
    folder = tmp_path_factory.mktemp("sweep")
    quickly(folder, "-m", "head=1,2,3", "scale=true,false", "seed=0,1,2", f"title='{ANGRY}'", code=1)
    return the_sweep(folder) / "report.html"


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with tab(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture
def opened(reader: Tab, page: Path) -> Tab:
    reader.screen(1100)
    reader.console.clear()
    reader.requests.clear()
    reader.open(page)
    return reader


def test_it_opens_without_a_complaint_or_a_request_and_runs_nothing(opened: Tab, page: Path) -> None:
    assert opened.ask("document.querySelector('h1').textContent") == ANGRY
    scripts = opened.ask("[...document.querySelectorAll('script')].map((each) => each.textContent.slice(0, 20))")
    assert len(scripts) == 2  # the numbers that the page draws with, and what draws them
    assert scripts[1].strip().startswith('"use strict"')
    assert opened.console == []
    assert [each for each in opened.requests if not each.startswith("data:")] == [page.as_uri()]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(opened: Tab, scheme: str) -> None:
    opened.screen(1100, scheme=scheme)
    assert opened.violations() == []


@pytest.mark.parametrize("letters", WIDTHS)
@pytest.mark.parametrize("width", [1100, 360])
def test_nothing_is_wider_than_the_screen(opened: Tab, width: int, letters: str) -> None:
    opened.screen(width)
    set_in(opened, letters)
    assert opened.ask("document.documentElement.clientWidth") == width
    assert opened.overflow() <= 0


def test_a_command_opens_by_mouse_and_by_keyboard(opened: Tab) -> None:
    assert opened.ask(SHOWN) == 0
    opened.click("#results summary")
    assert opened.ask(SHOWN) == 1
    opened.press("Tab")
    assert opened.ask("document.activeElement.tagName") == "SUMMARY"
    opened.press("Enter")
    assert opened.ask(SHOWN) == 2
