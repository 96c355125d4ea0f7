"""The report on paper: pages are filled, since a step of many tables breaks between two of them."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from tests.compose import comparison
from tests.letters import set_in
from tests.report.browser import need_chromium
from tests.report.render import page_of
from tests.report.tab import tab
from tests.report.test_report import a_run

A4, MARGINS, DOTS = (8.27, 11.69), 0.79, 96
"""Inches of the paper and of both margins, and how many dots of a page one inch holds."""

SPARE = 1.25
"""How many pages a report may take for each page that its contents would fill."""

FOUR_HEADS = ("variant=[multi_head]", "head=4", "embeddings=random", "embeddings.tokens=16", "embeddings.d_model=8")


@pytest.mark.parametrize("words", [(), FOUR_HEADS])
def test_pages_are_not_left_half_empty(tmp_path: Path, words: tuple[str, ...]) -> None:
    need_chromium()
    (tmp_path / "page.html").write_text(page_of(a_run(comparison(*words))), encoding="utf-8")
    wide, high = (round((side - MARGINS) * DOTS) for side in A4)
    with tab(tmp_path) as opened:
        opened.open(tmp_path / "page.html")
        set_in(opened, "narrow")  # where pages break depends on the font
        opened.screen(wide, media="print")
        full = opened.ask("document.documentElement.scrollHeight") / high
        printed = opened.tell("Page.printToPDF", paperWidth=A4[0], paperHeight=A4[1])
    assert len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(printed["data"]))) <= SPARE * full
