"""One scale of colour: a weight has the same colour in each table and picture of a page, and in its figure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_exp.report.charts.chart import Heat
from attn_exp.report.figures import weights as figure
from attn_exp.report.pixels import INK
from attn_exp.report.views import colours, seen
from tests.compose import comparison
from tests.report.browser import need_chromium
from tests.report.render import page_of
from tests.report.tab import visit
from tests.report.test_report import a_run

RANDOM = ("variant=[matrix]", "embeddings=random")

SEEN = """
  const place = [ROW, COLUMN];
  const over = (rgba) => rgba.slice(0, 3).map((part, at) => part * rgba[3] / 255 + 255 * (1 - rgba[3] / 255));
  const read = (source, width, height) => {
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width, height });
    const context = canvas.getContext("2d");
    context.drawImage(source, 0, 0);
    return over([...context.getImageData(place[1], place[0], 1, 1).data]);
  };
  const picture = new Image(), canvas = document.querySelector("#large canvas");
  picture.src = SOURCE;
  await picture.decode();
  const cell = document.querySelector("[id$=-weights] tbody").rows[place[0]].cells[place[1] + 1];
  const parts = getComputedStyle(cell).backgroundColor.match(/[\\d.]+/g).map(Number);
  return { picture: read(picture, picture.naturalWidth, picture.naturalHeight),
           canvas: read(canvas, canvas.width, canvas.height),
           cell: parts.map((part) => 255 * part).slice(0, 3), text: cell.textContent,
           says: document.querySelector("#weights > p").textContent };
"""
"""The picture is the one that a page without its script begins with."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((*RANDOM, "embeddings.tokens=3"), 1.0),
        ((*RANDOM, "embeddings.tokens=16", "mask=causal"), 1.0),
        ((*RANDOM, "embeddings.tokens=128", "mask=causal"), 0.57),  # ln 16 / ln 128 = 4 / 7
        ((*RANDOM, "embeddings.tokens=512", "mask=causal"), 0.44),  # ln 16 / ln 512 = 4 / 9
    ],
)
def test_colour_is_in_step_with_few_weights_and_shows_small_ones_of_many(words: Any, expected: float) -> None:
    scale = colours(seen(comparison(*words), 0))
    assert scale.power == expected
    shares = scale.shares(np.array([0.0, 0.004, 0.31, 0.40, 1.0, np.nan]) * scale.top)
    assert shares[0] == shares[5] == 0 and shares[4] == 1
    assert (np.diff(shares[:5]) > 0).all()
    if expected == 1:
        assert shares[3] - shares[2] == pytest.approx(0.09)
    if expected == 0.44:
        assert shares[1] > 0.08  # a twelfth of the full colour: seen


@pytest.mark.long
@pytest.mark.parametrize("mask", ["none", "causal"])
def test_a_weight_has_one_colour_in_a_table_a_picture_and_what_the_script_draws(mask: str, tmp_path: Path) -> None:
    need_chromium()
    run = a_run(comparison(*RANDOM, "embeddings.tokens=30", f"mask={mask}", "embeddings.d_model=4"))
    views = seen(run.comparison)
    (matrix,) = views.panels[0].weights
    power = 1.0 if mask == "none" else 0.82  # ln 16 / ln 30, where the first query has one key
    row, column = 5, 2
    page = page_of(run)
    source = re.search(r'<img class="map" src="([^"]+)"', page)
    assert source
    script = SEEN.replace("ROW", str(row)).replace("COLUMN", str(column)).replace("SOURCE", repr(source[1]))
    found = visit(page, script, tmp_path)
    strength = 0.85 * (matrix[row, column] / matrix.max()) ** power
    expected = [255 + strength * (ink - 255) for ink in INK]
    assert found.console == []
    assert float(found.answer["text"]) == pytest.approx(matrix[row, column], abs=1e-3)
    for kind in ("picture", "canvas", "cell"):
        assert found.answer[kind] == pytest.approx(expected, abs=2), kind
    assert ("to the power 0.82" in found.answer["says"]) == (power != 1)
    heat, _ = (part for part in figure.plan(views, 7.0).parts if isinstance(part, Heat))
    assert (heat.end, heat.gamma) == (matrix.max(), power)
