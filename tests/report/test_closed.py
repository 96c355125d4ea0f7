"""What a mask closes looks masked wherever its weights are shown, and one scale of colour holds for all of them."""

from __future__ import annotations

import base64
import re
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attn_exp.experiment.row import find_settled
from attn_exp.report.charts import chart_as_svg
from attn_exp.report.figures import weights
from attn_exp.report.views import make_views
from attn_exp.report.walk import find_masked
from tests.compose import comparison
from tests.report.live_page import show
from tests.report.render import page_of
from tests.report.tab import Tab
from tests.report.test_report import a_run

UPPER = [[column > row for column in range(3)] for row in range(3)]
MASKED = """(selector) => Array.from(document.querySelectorAll(selector), (table) =>
  Array.from(table.tBodies[0].rows, (row) =>
    Array.from(row.cells).slice(1).map((cell) => cell.classList.contains('m'))))"""
STRENGTHS = """Array.from(document.querySelectorAll('#weights td, [id$="-weights"] td'))
  .filter((cell) => cell.textContent && !cell.classList.contains('m'))
  .map((cell) => [cell.textContent, getComputedStyle(cell).getPropertyValue('--w')])"""


@pytest.mark.long
def test_a_causal_mask_closes_what_lies_above_the_diagonal_in_every_table(opened: Tab, tmp_path: Path) -> None:
    show(opened, tmp_path, "variant=[looped,multi_head]", "mask=causal", "head=2")
    # of the map, and in the walks of one head and two
    assert opened.ask(f"({MASKED})('#large table, .of-a table')") == [UPPER] * 4
    opened.ask("attention.choose({ show: 1, with: 0 })")
    assert opened.ask(f"({MASKED})('#large table')")[:3] == [UPPER] * 3  # of both, and of their difference
    assert opened.ask(f"({MASKED})('.step[id*=masked] table')") == [UPPER] * 3


@pytest.mark.long
def test_weights_have_one_scale_of_colour_in_the_whole_page(opened: Tab, tmp_path: Path) -> None:
    """A weight's share of the largest, which is 1 where the first query has one key: there are few keys."""
    show(opened, tmp_path, "variant=[looped,multi_head]", "mask=causal")
    strengths = opened.ask(STRENGTHS)
    assert len(strengths) == 4 * 6
    for text, strength in strengths:
        assert float(strength or 0) == pytest.approx(float(text), abs=0.011)


def test_masked_places_of_a_picture_are_grey_and_others_blue() -> None:
    page = page_of(a_run(comparison("variant=[matrix]", "mask=causal", "embeddings=random", "embeddings.tokens=20")))
    found = re.search(r'<img class="map" src="data:image/png;base64,([^"]+)"', page)
    assert found
    pixels = np.asarray(Image.open(BytesIO(base64.b64decode(found[1]))).convert("RGBA"))
    above = np.triu(np.ones((20, 20), bool), 1)
    assert (pixels[above] == (128, 128, 128, 70)).all()
    assert (pixels[~above][:, :3] == (43, 124, 192)).all()


def test_masked_cells_of_a_figure_are_grey_and_hold_no_number() -> None:
    chart = weights.plan(make_views(comparison("variant=[matrix]", "mask=causal")), 6.3)
    drawn = chart_as_svg(chart).decode()
    first = re.search(r'xlink:href="data:image/png;base64,([^"]+)"', drawn)
    assert first
    pixels = np.asarray(Image.open(BytesIO(base64.b64decode(first[1]))).convert("RGB"))
    assert (np.all(pixels == 0xD0, axis=-1) == np.array(UPPER)).all()
    assert len(re.findall(r'font-size="7"[^>]*>\d\.\d\d<', drawn)) == 6


def test_without_a_mask_nothing_is_closed_and_a_leak_is_not_hidden() -> None:
    plain = comparison("variant=[matrix]")
    weights = np.zeros((1, 3, 3))
    assert find_masked(find_settled(plain, "matrix"), weights) is None
    causal = comparison("variant=[matrix]", "mask=causal")
    weights[0, 0, 2] = 0.1
    found = find_masked(find_settled(causal, "matrix"), weights)
    assert found is not None and found.tolist() == [[[False, True, False], [False, False, True], [False] * 3]]


def test_queries_after_a_past_see_it() -> None:
    """Two past keys and two queries: the first new query sees three keys, the second all four."""
    words = ("mask=causal", "embeddings=random", "embeddings.tokens=4", "past=2")
    found = find_masked(find_settled(comparison("variant=[matrix]", *words), "matrix"), np.zeros((1, 2, 4)))
    assert found is not None and found.tolist() == [[[False, False, False, True], [False] * 4]]
