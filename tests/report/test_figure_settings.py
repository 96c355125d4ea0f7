"""Figures for paper, slides and posters: how large they and their letters are, which are drawn, in which font."""

from __future__ import annotations

import io
import itertools
import re
from pathlib import Path
from typing import cast

import pytest
from matplotlib.figure import Figure as Drawing
from matplotlib.text import Text
from PIL import Image

from attn_exp.config.schema import PRESETS
from attn_exp.config.spelling import Repeat
from attn_exp.errors import UserError
from attn_exp.report.charts.matplotlib_figure import encode_figure
from attn_exp.report.views import Views
from attn_exp.runs import execution
from tests.compose import comparison, config
from tests.report.render import drawings_of
from tests.report.test_figures import HARD, tokens

SLIDES = "figures.preset=slides"


def shown_size(drawing: Drawing) -> tuple[float, float]:
    """Return how large a figure is where it is shown, in inches: the pixels of its PNG, which has 160 an inch."""
    width, height = Image.open(io.BytesIO(encode_figure(drawing, "png"))).size
    return width / 160, height / 160


def letters(drawing: Drawing) -> float:
    """Return how large the smallest text of a figure is where it is shown, in points."""
    texts = [text for text in cast("list[Text]", drawing.findobj(Text)) if text.get_text().strip()]
    return min(float(text.get_fontsize()) for text in texts)


RANDOM = ("embeddings=random", "embeddings.tokens=10", "embeddings.d_model=48", "mask=causal")
SHOWN = {
    "default": (),
    "two heads": ("head=2", "variant=[looped,multi_head,multi_query]"),
    "8 heads": (*RANDOM, "head=8", "variant=[multi_head]"),
    "24 heads": (*RANDOM, "head=24", "variant=[multi_head]", "bias=true", "score=softcap", "position=rope"),
    "blocks": (*RANDOM, "variant=[blockwise]", "weights=blocks"),
}
LEAST = {"paper": 7, "slides": 18, "poster": 22}
"""Points that the smallest letters have where a preset is shown: on A4, on a slide of 13.33 inches, on A0."""
SHOWN_SO = list(zip(SHOWN.values(), itertools.cycle(LEAST), strict=False))


@pytest.mark.long
@pytest.mark.parametrize(("words", "preset"), SHOWN_SO, ids=SHOWN)
def test_every_text_of_every_figure_is_read_where_it_is_shown(words: tuple[str, ...], preset: str) -> None:
    """What is said of slides everywhere: letters of 18 points at least where the slide is 540 high, a thirtieth.

    The picture of the flow is too high for that.
    """
    compared = comparison(*words, f"figures.preset={preset}")
    least, width = 0.997 * LEAST[preset], PRESETS[preset].width + 0.01  # a PNG has whole pixels
    for name, drawing in drawings_of(compared).items():
        assert shown_size(drawing)[0] <= width and letters(drawing) >= (
            8 if name == "flow" and preset == "slides" else least
        ), name


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "size"),
    [
        ((SLIDES, "figures.width=8"), (8, 7.5)),
        ((SLIDES, "figures.height=5"), (13.333, 5)),
        (("figures.height=4",), (6.3, 4)),
        (("figures.preset=poster", "figures.width=10", "figures.height=10"), (10, 10)),
        (("figures.height=2", "figures.width=3"), (3, 2)),
    ],
)
def test_a_single_setting_overrides_the_preset(words: tuple[str, ...], size: tuple[float, float]) -> None:
    for drawing in drawings_of(comparison(*words, "figures.only=[weights,entropy]")).values():
        assert shown_size(drawing) == pytest.approx(size, abs=0.01)


def plain(views: Views, width: float) -> Drawing:
    """Draw one line, twice as high as it is wide."""
    drawing = Drawing(figsize=(width, 2 * width))
    drawing.add_subplot().plot([1, 2])
    return drawing


def test_figures_that_are_named_are_drawn_alone() -> None:
    assert list(drawings_of(comparison("figures.only=weights"))) == ["weights"]
    assert set(drawings_of(comparison("figures.only=[entropy,weights]"))) == {"entropy", "weights"}


@pytest.mark.long
def test_a_named_figure_is_drawn_again_and_nothing_else_is_written(tmp_path: Path) -> None:
    folder = execution.run(config(f"output_dir={tmp_path}", "report=tables"), Repeat()).folder
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    said = execution.render_again(folder, ["figures.only=[weights,blocks]", "figures.format=pdf"])
    assert said == str(folder / "figures" / "weights.pdf")
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {path: after[path] for path in before} == before
    assert after.keys() - before.keys() == {folder / "figures" / "weights.pdf"}


def test_a_figure_with_nothing_to_show_is_said(tmp_path: Path) -> None:
    settings = config(f"output_dir={tmp_path}", "figures.only=[weights,blocks]", "variant=[matrix]")
    assert "this run has nothing to show in blocks\n" in execution.run(settings, Repeat()).text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "figures.only=wieghts",
            "unknown figure 'wieghts'; did you mean weights? choose one of flow, blocks, overview, weights",
        ),
        ("figures.font=Arail Nova", "unknown figures.font 'Arail Nova'; choose one of DejaVu Sans, "),
    ],
)
def test_a_wrong_name_is_refused_before_anything_is_computed(words: str, said: str) -> None:
    key, _, value = words.partition("=")
    settings = config(f'{key}="{value}"', "report=none")
    with pytest.raises(UserError, match=re.escape(said)):
        execution.check_figures(settings.figures)


def test_an_installed_font_is_used_and_others_stand_in_for_what_it_lacks() -> None:
    drawing = drawings_of(tokens(HARD[0], 6.3, 'figures.font="DejaVu Serif"'))["weights"]
    assert drawing.axes[0].texts[0].get_fontfamily()[:2] == ["DejaVu Serif", "DejaVu Sans"]
