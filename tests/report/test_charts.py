"""Charts as SVG: the same cells, colours, words, marks and places as Matplotlib draws of them, and nothing outside."""

from __future__ import annotations

import base64
import io
import xml.etree.ElementTree as ET
from functools import partial
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib import ft2font
from matplotlib.figure import Figure as Drawing
from PIL import Image

from attn_exp import registry
from attn_exp.experiment.row import Comparison
from attn_exp.report import figures
from attn_exp.report.charts.chart import number_ticks
from attn_exp.report.figures.figure import Figure, fit_to_size, size
from attn_exp.report.pixels import palette, palette_indices
from attn_exp.report.views import Views, make_views
from tests.compose import comparison
from tests.report.render import drawings_of
from tests.report.sheet import check_layout
from tests.report.test_figures import HARD, tokens

SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"

NO_SCALE = getattr(ft2font, "LoadFlags", None) or getattr(ft2font, "LOAD_NO_SCALE")  # noqa: B009
NO_SCALE = getattr(NO_SCALE, "NO_SCALE", NO_SCALE)  # a plain number in Matplotlib 3.9


def charts_of(compared: Comparison) -> dict[str, str]:
    """Return the SVG of every figure that is planned as a chart."""
    known, made = figures.figures(), figures.encode_figures(make_views(compared), ("svg",))
    return {name: contents["svg"].decode() for name, contents in made.items() if known[name].plan is not None}


def cells(svg: str) -> list[Any]:
    """Return the pictures of an SVG as red, green, blue and opacity `[row column 4]`, the first row on top."""
    sources = [element.attrib[LINK].partition(",")[2] for element in ET.fromstring(svg).iter(f"{SVG}image")]
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(source))).convert("RGBA")) for source in sources]


def texts(svg: str) -> list[tuple[str, float, float]]:
    """Return what an SVG says and where each text stands."""
    elements = ET.fromstring(svg).iter(f"{SVG}text")
    return [(each.text or "", float(each.get("x", 0)), float(each.get("y", 0))) for each in elements]


def test_rows_and_columns_are_named_beside_their_cells() -> None:
    """The first row is on top, and each name is at the middle of its cells."""
    svg = charts_of(comparison("variant=[matrix]"))["weights"]
    image = next(ET.fromstring(svg).iter(f"{SVG}image"))
    x, y, width, height = (float(image.attrib[name]) for name in ("x", "y", "width", "height"))
    names = [place for place in texts(svg) if place[0] in ("she", "likes", "coffee")]
    rows, columns = names[:3], names[3:]
    assert [name for name, *_ in rows] == [name for name, *_ in columns] == ["she", "likes", "coffee"]
    for place in range(3):
        assert rows[place][2] == pytest.approx(y + (place + 0.5) * height / 3, abs=4) and rows[place][1] < x
        assert columns[place][1] == pytest.approx(x + (place + 0.5) * width / 3, abs=0.1)
        assert columns[place][2] > y + height


@pytest.mark.long
@pytest.mark.parametrize("words", [(), ("figures.preset=slides", "mask=causal"), ("figures.preset=poster", "head=2")])
def test_both_renderers_draw_the_same(words: tuple[str, ...]) -> None:
    """The words, and the cells of each map in the same colours."""
    compared = comparison(*words)
    drawings = drawings_of(compared)
    for name, svg in charts_of(compared).items():
        (axes,) = drawings[name].axes
        said = "".join("".join(element.itertext()) for element in ET.fromstring(svg).iter(f"{SVG}text"))
        assert sorted(said.replace(" ", "")) == sorted("".join(text.get_text() for text in axes.texts).replace(" ", ""))
        for ours, theirs in zip(cells(svg), axes.images, strict=True):
            np.testing.assert_array_equal(ours, theirs.get_array())


@pytest.mark.parametrize("names", [*HARD, ["she", "likes", "coffee"], [f"token {place}" for place in range(64)]])
@pytest.mark.parametrize(
    "words",
    [
        ("head=2", "figures.preset=poster"), ("head=2", "figures.preset=slides"),
        ("figures.height=3", "head=2", "variant=[multi_head,looped]"),
        ("figures.width=3", "head=2", "variant=[looped,matrix,scaled,blockwise,unscaled,multi_head,multi_query]"),
        ("figures.width=12", "mask=causal"),
    ],
)  # fmt: skip
def test_nothing_leaves_a_chart_and_nothing_covers_a_text(words: tuple[str, ...], names: list[str]) -> None:
    compared = tokens(names, 6.3, *words)
    views = make_views(compared)
    for member in figures.choose_figures(views).values():
        if member.plan is not None and member.in_page:
            check_layout(fit_to_size(partial(member.plan, views), size(compared.config.figures)))


@pytest.mark.parametrize("names", HARD, ids=["long", "marked", "odd"])
def test_a_chart_is_well_formed_and_holds_no_more_than_text(names: list[str]) -> None:
    for svg in charts_of(tokens(names)).values():
        assert {element.tag.removeprefix(SVG) for element in ET.fromstring(svg).iter()} <= {
            "svg", "rect", "image", "text", "path", "tspan",
        }  # fmt: skip


def lines(views: Views, width: float) -> Drawing:
    """Draw one line with Matplotlib, as the recipe of a figure does."""
    drawing = Drawing(figsize=(width, 2.0), layout="constrained")
    drawing.add_subplot().plot([1, 2])
    return drawing


@pytest.mark.long
def test_a_figure_drawn_with_matplotlib_stands_among_charts() -> None:
    with registry.undo_registrations():
        registry.add("attn_exp.report.figures", "own", Figure(caption="A line.", draw=lines), registry.Origin())
        made = figures.encode_figures(make_views(comparison()), ("svg", "pdf"))
    assert "Matplotlib" in made["own"]["svg"].decode() and "Matplotlib" not in made["weights"]["svg"].decode()
    assert all(contents["pdf"].startswith(b"%PDF") for contents in made.values())


@pytest.mark.long
def test_a_font_that_was_asked_for_is_drawn_as_shapes() -> None:
    svg = charts_of(comparison('figures.font="DejaVu Serif"'))["weights"]
    assert "Matplotlib" in svg and "DejaVuSerif" in svg


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_a_number_has_the_shade_that_matplotlib_gives_it(gamma: float) -> None:
    numbers = np.random.default_rng(1).normal(size=(200, 30)) ** 2
    numbers[0, :4] = 0.0, numbers.max(), -1.0, 2 * numbers.max()
    end = numbers[1:].max()
    theirs = matplotlib.colormaps["Blues"](matplotlib.colors.PowerNorm(gamma, 0, end)(numbers), bytes=True)
    np.testing.assert_array_equal(palette("Blues")[palette_indices(numbers, end, gamma)], np.asarray(theirs)[..., :3])


@pytest.mark.parametrize(("length", "names"), [(0.9, "0.00 0.25 0.50 0.75 1.00"), (0.5, "0.0 0.5 1.0"), (0.1, "0 1")])
def test_numbers_along_an_axis_are_round_and_as_many_as_fit(length: float, names: str) -> None:
    assert " ".join(number_ticks(0.0, 1.0, length).names) == names
