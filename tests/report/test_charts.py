"""Charts as SVG: the same cells, colours, words, marks and places as Matplotlib draws of them, and nothing outside."""

from __future__ import annotations

import base64
import io
import re
import xml.etree.ElementTree as ET
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pytest
from matplotlib import ft2font
from matplotlib.figure import Figure as Drawing
from matplotlib.font_manager import findfont, get_font
from matplotlib.ticker import MaxNLocator
from PIL import Image

from attn_exp import registry
from attn_exp.experiment.comparison import Comparison
from attn_exp.report import figures
from attn_exp.report.charts.chart import decimals_of_step, number_ticks, round_places
from attn_exp.report.charts.matplotlib_figure import look, sharpen
from attn_exp.report.charts.widths import WIDTHS, letter_width, width
from attn_exp.report.figures.figure import Figure
from attn_exp.report.pixels import ANCHORS, palette, shades
from attn_exp.report.views import Views, seen
from tests.compose import comparison
from tests.report.render import drawings_of
from tests.report.test_figures import HARD, tokens

SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"

RUNS = {
    "default": (),
    "heads": ("embeddings=random", "embeddings.tokens=20", "embeddings.d_model=48", "head=12", "variant=[multi_head]"),
    "causal": ("embeddings=random", "embeddings.tokens=40", "mask=causal", "variant=[matrix,multi_head]"),
    "blocks": ("embeddings=random", "embeddings.tokens=150", "variant=[blockwise,matrix]"),
    "narrow": ("figures.width=3.3", "variant=[looped,unscaled,multi_head,multi_query]", "head=2"),
    "slides": ("figures.preset=slides", "mask=causal"),
    "poster": ("figures.preset=poster", "figures.height=9"),
}

NO_SCALE: Any = getattr(ft2font, "LoadFlags", None) or getattr(ft2font, "LOAD_NO_SCALE")  # noqa: B009
NO_SCALE = getattr(NO_SCALE, "NO_SCALE", NO_SCALE)  # a plain number in Matplotlib 3.9


def charts_of(compared: Comparison) -> dict[str, str]:
    """Return the SVG of every figure that is planned as a chart."""
    known, made = figures.figures(), figures.files(seen(compared), ("svg",))
    return {name: contents["svg"].decode() for name, contents in made.items() if known[name].plan is not None}


def of_matplotlib(drawing: Drawing) -> str:
    """Return what Matplotlib writes as SVG, its text as text."""
    stream = io.BytesIO()
    sharpen(drawing, "none")
    with look(), matplotlib.rc_context({"svg.fonttype": "none"}):
        drawing.savefig(stream, format="svg")
    return stream.getvalue().decode()


@pytest.mark.long
@pytest.mark.parametrize("words", RUNS.values(), ids=RUNS)
def test_a_chart_is_what_matplotlib_draws(words: tuple[str, ...]) -> None:
    compared = comparison(*words)
    ours, drawings = charts_of(compared), drawings_of(compared)
    assert ours
    for name, svg in ours.items():
        theirs = of_matplotlib(drawings[name])
        compare_texts(svg, theirs)
        compare_cells(svg, theirs)
        compare_marks(svg, theirs, len(compared.rows))


class Place(NamedTuple):
    """A text or a mark and where it is drawn, in points: across its middle, down the line that it stands on."""

    what: str
    x: float
    y: float


NUMBER = re.compile(r"-?\d[\d.]*(?:e-?\d+)?")


def numbers_in(text: str) -> list[float]:
    return [float(number) for number in NUMBER.findall(text)]


def texts(svg: str) -> list[Place]:
    """Return what an SVG says and where on its page; of text that reads upwards its place across alone."""
    root = ET.fromstring(svg)
    left, top, *_ = numbers_in(root.attrib["viewBox"])
    shown = []
    for element in root.iter(f"{SVG}text"):
        moved, words = numbers_in(element.get("transform", "0 0")), (element.text or "").replace("\N{MINUS SIGN}", "-")
        upwards, looks = -90 in moved, f"{element.get('style', '')} {element.get('text-anchor', '')}"
        x, y = (float(element.get(name, moved[place])) for place, name in enumerate("xy"))
        if upwards and "translate" not in element.attrib["transform"]:
            x = moved[1]
        size = float(element.get("font-size") or numbers_in(looks)[0])
        beside = 0.0 if "middle" in looks else -0.5 if "end" in looks else 0.5
        middle = x if upwards else x + beside * 72 * width(words, size)
        shown.append(Place(words, middle - left, 0 if upwards else y - top))
    return sorted(shown)


def white(svg: str) -> list[str]:
    """Return the texts of an SVG that are white."""
    elements = list(ET.fromstring(svg).iter(f"{SVG}text"))
    return sorted(
        element.text or ""
        for element in elements
        if element.get("fill") == "#fff" or "fill: #ffffff" in element.get("style", "")
    )


def cells(svg: str) -> list[Any]:
    """Return the pictures of an SVG as red, green, blue and opacity `[row column 4]`, the first row on top."""
    pictures = []
    for element in ET.fromstring(svg).iter(f"{SVG}image"):
        picture = Image.open(io.BytesIO(base64.b64decode(element.attrib[LINK].partition(",")[2]))).convert("RGBA")
        array = np.asarray(picture).astype(int)
        turned = re.search(r" -[\d.]+ [\d.]+ [\d.]+\)$", element.get("transform", ""))
        pictures.append(array[::-1] if turned else array)
    return pictures


def marks(svg: str, ours: bool) -> list[Place]:
    """Return the marks of data of an SVG: their colour and their place."""
    root = ET.fromstring(svg)
    left, top, *_ = numbers_in(root.attrib["viewBox"])
    shown = []
    for group in root.iter(f"{SVG}g"):
        for element in group.findall(f"{SVG}use"):
            fill = group.get("fill", "") if ours else element.get("style", "").partition("fill: ")[2][:7]
            if fill.startswith("#"):
                x, y = (float(element.attrib[name]) for name in "xy")
                shown.append(Place(fill.lower(), x - left, y - top))
    return sorted(shown)


def compare_texts(ours: str, theirs: str) -> None:
    said, expected = texts(ours), texts(theirs)
    assert [place.what for place in said] == [place.what for place in expected]
    for place, other in zip(said, expected, strict=True):
        assert (place.x, place.y) == pytest.approx((other.x, other.y), abs=2.5), place
    assert white(ours) == white(theirs)


def compare_cells(ours: str, theirs: str) -> None:
    for array, expected in zip(cells(ours), cells(theirs), strict=True):
        if array.shape == expected.shape:  # Matplotlib stores large maps by pixels of its own
            opaque = expected[..., 3] > 0
            np.testing.assert_array_equal(array[..., 3] > 0, opaque)
            assert np.abs(array - expected)[opaque].max() <= 1


def compare_marks(ours: str, theirs: str, rows: int) -> None:
    shown, expected = marks(ours, True), marks(theirs, False)
    keys = [place for place in expected if not any(near(place, other) for other in shown)]
    assert len(keys) <= rows  # those of the legend, which Matplotlib draws alike
    assert [place.what for place in shown] == [place.what for place in expected if place not in keys]


def near(place: Place, other: Place) -> bool:
    return place.what == other.what and abs(place.x - other.x) < 0.1 and abs(place.y - other.y) < 0.1


@pytest.mark.parametrize("name", ANCHORS)
def test_maps_of_colours_are_matplotlibs(name: str) -> None:
    theirs = matplotlib.colormaps[name](np.arange(256), bytes=True)
    np.testing.assert_array_equal(palette(name), np.asarray(theirs)[:, :3])


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_a_number_has_the_shade_that_matplotlib_gives_it(gamma: float) -> None:
    numbers = np.random.default_rng(1).normal(size=(200, 30)) ** 2
    numbers[0, :4] = 0.0, numbers.max(), -1.0, 2 * numbers.max()
    end = numbers[1:].max()
    theirs = matplotlib.colormaps["Blues"](matplotlib.colors.PowerNorm(gamma, 0, end)(numbers), bytes=True)
    np.testing.assert_array_equal(palette("Blues")[shades(numbers, end, gamma)], np.asarray(theirs)[..., :3])


def test_what_is_no_number_is_clear() -> None:
    blind = [[place == 2] for place in range(5)]
    words = ("convention=torch_mha", "embeddings=random", "embeddings.tokens=5", "mask=array", "variant=[matrix]")
    (picture, _) = cells(charts_of(comparison(*words, f"mask.array.values={str(blind).lower()}"))["weights"])
    assert (picture[..., 3] > 0).all(axis=1).tolist() == [True, True, False, True, True]


@pytest.mark.parametrize("most", [1, 3, 5, 9])
def test_numbers_stand_where_matplotlib_puts_them(most: int) -> None:
    locator = MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10])
    for end in (1.0, 0.5, 0.25, *np.geomspace(1.3e-6, 1.3e4, 101).tolist()):
        theirs = [place for place in locator.tick_values(0, end) if -1e-9 * end <= place <= end * (1 + 1e-9)]
        assert round_places(0.0, end, most) == pytest.approx(theirs)


def test_an_axis_of_any_length_has_numbers() -> None:
    for end in (5e-324, 1e-308, *np.geomspace(1.3e-300, 1.3e300, 401).tolist()):
        names = number_ticks(0.0, end, 2.0).names
        assert len(set(names)) == len(names) >= (2 if end > 1e-299 else 1)
    assert number_ticks(0.0, 1.1e-24, 2.0).names == ("0", "2e-25", "4e-25", "6e-25", "8e-25", "1e-24")


@pytest.mark.parametrize(("step", "digits"), [(5.0, 0), (1.0, 0), (0.5, 1), (0.25, 2), (0.2, 1), (2.5, 1), (0.01, 2)])
def test_numbers_have_as_many_digits_as_their_step(step: float, digits: int) -> None:
    assert decimals_of_step(step) == digits


def test_no_letter_is_wider_than_the_table_says() -> None:
    """DejaVu Sans, which comes with Matplotlib, is as wide as any font that systems come with."""
    font = get_font(findfont("DejaVu Sans"))
    assert all(chr(code) in WIDTHS for code in range(32, 127))
    for code in font.get_charmap():
        if code < 0x20000 and chr(code).isprintable():
            advance = font.load_char(code, flags=NO_SCALE).horiAdvance / font.units_per_EM
            assert letter_width(chr(code)) >= advance - 1e-3, chr(code)
            assert chr(code) not in WIDTHS or letter_width(chr(code)) <= advance + 0.05, chr(code)


@pytest.mark.parametrize(("text", "least"), [("你好", 2.0), ("한국", 2.0), ("🙂", 1.37), ("ﷺ", 4.0), ("தமிழ்", 3.0)])
def test_letters_beyond_the_table_have_room_enough(text: str, least: float) -> None:
    assert width(text, 72) >= least


@pytest.mark.parametrize("names", HARD, ids=["long", "marked", "odd"])
def test_a_chart_is_well_formed_and_holds_no_more_than_text(names: list[str]) -> None:
    for svg in charts_of(tokens(names)).values():
        assert {element.tag.removeprefix(SVG) for element in ET.fromstring(svg).iter()} <= {
            "svg", "rect", "image", "text", "path", "g", "use", "defs", "clipPath",
        }  # fmt: skip


def test_equal_charts_are_equal_bytes() -> None:
    assert charts_of(comparison()) == charts_of(comparison())


def lines(views: Views, width: float) -> Drawing:
    """Draw one line with Matplotlib, as the recipe of a figure does."""
    drawing = Drawing(figsize=(width, 2.0), layout="constrained")
    drawing.add_subplot().plot([1, 2])
    return drawing


@pytest.mark.long
def test_a_figure_drawn_with_matplotlib_stands_among_charts() -> None:
    with registry.kept():
        registry.add("attn_exp.report.figures", "own", Figure(caption="A line.", draw=lines), registry.Origin())
        made = figures.files(seen(comparison()), ("svg", "pdf"))
    assert "Matplotlib" in made["own"]["svg"].decode() and "Matplotlib" not in made["weights"]["svg"].decode()
    assert all(contents["pdf"].startswith(b"%PDF") for contents in made.values())


@pytest.mark.long
def test_a_font_that_was_asked_for_is_drawn_as_shapes() -> None:
    svg = charts_of(comparison('figures.font="DejaVu Serif"'))["weights"]
    assert "Matplotlib" in svg and "DejaVuSerif" in svg
