"""What the figures hand to their axes: the run's own numbers under the tokens' names, nothing cut off."""

from __future__ import annotations

import base64
import itertools
import math
import re
from io import BytesIO
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.sharpness import curves
from attn_exp.report import notebook
from attn_exp.report.charts.chart import Plot
from attn_exp.report.charts.matplotlib_figure import SCALE, encoded, figure_of
from attn_exp.report.figures import entropy, sharpness
from attn_exp.report.figures._layouts import Named, short_title, weight_maps
from attn_exp.report.views import Head, same, seen
from tests.compose import comparison
from tests.report.render import drawings_of, markdown_of, page_of
from tests.report.test_report import a_run


@pytest.fixture(scope="module")
def coffee() -> Comparison:
    return comparison()


@pytest.fixture(scope="module")
def drawn(coffee: Comparison) -> dict[str, Figure]:
    return drawings_of(coffee)


def maps(figure: Figure) -> list[Any]:
    return [each for each in figure.axes if each.images and each.get_label() != SCALE]


def test_every_head_is_a_map_of_its_own_weights(coffee: Comparison, drawn: dict[str, Figure]) -> None:
    panels = maps(drawn["weights"])
    titles = [axes.get_title() for axes in panels]
    assert titles == ["looped = matrix = scaled", "multi_head, head 1", "multi_head, head 2"]
    looped, multi_head = (coffee.traces[name].weights for name in ("looped", "multi_head"))
    assert looped is not None and multi_head is not None
    for axes, expected in zip(panels, [looped[0], multi_head[0], multi_head[1]], strict=True):
        np.testing.assert_array_equal(np.asarray(axes.images[0].get_array()), expected)


def test_maps_share_one_scale_from_zero(coffee: Comparison, drawn: dict[str, Figure]) -> None:
    largest = max(float(trace.weights.max()) for trace in coffee.traces.values() if trace.weights is not None)
    assert {axes.images[0].get_clim() for axes in maps(drawn["weights"])} == {(0.0, largest)}


def test_the_colours_are_explained_from_zero_to_the_largest(drawn: dict[str, Figure]) -> None:
    (bar,) = (each for each in drawn["weights"].axes if each.get_label() == SCALE)
    shades = np.asarray(bar.images[0].get_array())
    bottom, top = maps(drawn["weights"])[0].images[0].get_clim()
    assert bar.get_ylim() == bar.images[0].get_clim() == (bottom, top) == (shades[0, 0], shades[-1, 0])
    assert bar.images[0].origin == "lower"
    assert bar.images[0].get_cmap() == maps(drawn["weights"])[0].images[0].get_cmap()
    assert bar.get_title(loc="left") == "weight"


def test_rows_and_columns_are_named_after_tokens(drawn: dict[str, Figure]) -> None:
    first = maps(drawn["weights"])[0]
    assert [text.get_text() for text in first.get_xticklabels()] == ["she", "likes", "coffee"]
    assert [text.get_text() for text in first.get_yticklabels()] == ["she", "likes", "coffee"]


def test_cells_hold_their_numbers(coffee: Comparison, drawn: dict[str, Figure]) -> None:
    weights = coffee.traces["looped"].weights
    assert weights is not None
    expected = [f"{weight:.2f}" for weight in weights[0].ravel().tolist()]
    assert [text.get_text() for text in maps(drawn["weights"])[0].texts] == expected


def test_the_distances_are_those_of_the_table(coffee: Comparison, drawn: dict[str, Figure]) -> None:
    matrix = np.asarray(maps(drawn["distances"])[0].images[0].get_array())
    names = [row.variant for row in coffee.rows]
    for each in coffee.distances:
        assert matrix[names.index(each.variant), names.index(each.other)] == each.difference
        assert matrix[names.index(each.other), names.index(each.variant)] == each.difference
    assert np.diag(matrix).tolist() == [0.0] * len(names)


def test_the_entropy_of_each_query_is_marked(coffee: Comparison, drawn: dict[str, Figure]) -> None:
    lines = {line.get_label(): np.asarray(line.get_ydata(), float) for line in drawn["entropy"].axes[0].lines}
    weights = coffee.traces["looped"].weights
    assert weights is not None
    expected = [-sum(weight * math.log(weight) for weight in row) for row in weights[0].tolist()]
    np.testing.assert_allclose(lines["looped = matrix = scaled"], expected, rtol=1e-13)


def test_the_most_that_an_entropy_can_be_knows_the_mask() -> None:
    axes = drawings_of(comparison("mask=causal", "variant=[matrix]"))["entropy"].axes[0]
    most = axes.lines[-1]
    np.testing.assert_allclose(np.asarray(most.get_ydata(), float), [0.0, math.log(2), *[math.log(3)] * 2])
    assert axes.get_ylim()[1] == pytest.approx(1.08 * math.log(3))


@pytest.mark.parametrize("words", ["normalizer=sigmoid", "score=sink"])
def test_rows_that_share_out_less_or_more_than_one_have_no_entropy(words: str) -> None:
    assert "entropy" not in drawings_of(comparison(words, "variant=[matrix]"))


def test_the_sweep_passes_through_the_run_and_marks_the_root(coffee: Comparison) -> None:
    panels = seen(coffee).panels
    single, double = curves([(panel.title, panel.split) for panel in panels if panel.split is not None])
    assert (single.standard, double.standard) == (1 / math.sqrt(4), 1 / math.sqrt(2))
    rows = {row.variant: row for row in coffee.rows}
    for sweep, variant in ((single, "looped"), (double, "multi_head")):
        at_own = np.interp(math.log(sweep.own), np.log(sweep.multipliers), sweep.entropy)
        assert at_own == pytest.approx(rows[variant].entropy, abs=2e-3)
        assert np.all(np.diff(sweep.entropy) < 1e-12)


HARD = [
    ["a token much longer than any figure could hold beside its map", "$x_1$", "你好"],
    ["<script>alert(1)</script>", "line\nbreak\x00", "שלום \ud800"],
    ["🙂", "x" * 10_000, ""],
]


def tokens(names: list[str], width: float = 6.3, *words: str) -> Comparison:
    vectors = [[math.sin(row), math.cos(row)] for row in range(len(names))]
    found = comparison(
        "embeddings=inline",
        f"embeddings.vectors={vectors}",
        f"embeddings.tokens={len(names)}",
        f"figures.width={width}",
        *words,
    )
    problem = type(found.problem)(**(vars(found.problem) | {"tokens": tuple(names), "key_tokens": tuple(names)}))
    return type(found)(**(vars(found) | {"problem": problem}))


LABELS = [*HARD, [f"token {place}" for place in range(64)]]


@pytest.mark.long
@pytest.mark.parametrize(
    ("names", "inches"),
    [*itertools.product(LABELS, [3.0]), (HARD[0], 3.4), (HARD[1], 6.3), (LABELS[-1], 12.0)],
)
def test_no_label_is_cut_off(names: list[str], inches: float) -> None:
    for figure in drawings_of(tokens(names, inches)).values():
        assert figure.get_figwidth() <= inches
        figure.draw_without_rendering()  # a layout engine makes room where it is drawn, and not before
        box = figure.get_tightbbox()
        width, height = figure.get_size_inches()
        assert box.x0 >= -0.01 and box.x1 <= width + 0.01
        assert box.y0 >= -0.01 and box.y1 <= height + 0.01


@pytest.mark.long
def test_equal_figures_are_equal_bytes(coffee: Comparison, drawn: dict[str, Figure]) -> None:
    for name, figure in drawings_of(coffee).items():
        for form in ("svg", "png", "pdf") if name == "weights" else ("svg",):
            assert encoded(figure, form) == encoded(drawn[name], form)


def test_an_svg_keeps_small_maps_cell_by_cell(drawn: dict[str, Figure]) -> None:
    svg = encoded(drawn["distances"], "svg").decode()
    (image,) = re.findall(r'<image[^>]*href="data:image/png;base64,([^"]+)"[^>]*pixelated', svg)
    assert Image.open(BytesIO(base64.b64decode(image))).size == (4, 4)
    encoded(drawn["distances"], "pdf")
    assert {axes.images[0].get_interpolation() for axes in maps(drawn["distances"])} == {"nearest"}


def test_a_large_map_is_not_kept_cell_by_cell() -> None:
    figure = figure_of(weight_maps([Head("large", None, np.eye(1000))], Named(["a"] * 1000, ["b"] * 1000), 3.0))
    assert len(encoded(figure, "svg")) < 100_000
    assert maps(figure)[0].images[0].get_interpolation() == "nearest"


@pytest.mark.long
def test_what_a_user_set_for_matplotlib_changes_no_figure(coffee: Comparison) -> None:
    usual = encoded(drawings_of(coffee)["distances"], "svg")
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "svg.fonttype": "none"}):
        assert encoded(drawings_of(coffee)["distances"], "svg") == usual


@pytest.mark.long
def test_tokens_are_text_in_a_picture_never_markup() -> None:
    svg = encoded(drawings_of(tokens(HARD[1]))["weights"], "svg").decode()
    assert "<script" not in svg


def test_a_problem_that_starts_late_is_drawn() -> None:
    found = comparison(
        "embeddings=inline", "projections=none", "embeddings.weights=[[0.5,0.5],[1,0]]", "embeddings.v=[[1,2],[3,4]]",
        "variant=[matrix]",
    )  # fmt: skip
    drawn = drawings_of(found).keys()
    assert drawn >= {"entropy", "weights"} and "sharpness" not in drawn


def test_a_flat_plot_says_that_it_is_flat() -> None:
    """Equal rows of x give even weights at any scale: ln 3 = 1.0986."""
    words = ("variant=[matrix]", "embeddings.vectors=[[1,0,1,0],[1,0,1,0],[1,0,1,0]]")
    for plan in (entropy.plan, sharpness.plan):
        (plot,) = (part for part in plan(seen(comparison(*words)), 6.3).parts if isinstance(part, Plot))
        labels = [stroke.label for stroke in plot.strokes if stroke.label]
        assert "matrix, flat at 1.1" in labels
        (plot,) = (part for part in plan(seen(comparison("variant=[matrix]")), 6.3).parts if isinstance(part, Plot))
        assert not any("flat" in stroke.label for stroke in plot.strokes)


@pytest.mark.long
def test_a_figure_of_one_cell_is_not_drawn() -> None:
    assert "distances" not in drawings_of(comparison("variant=[matrix]"))
    lone = drawings_of(comparison("embeddings=random", "embeddings.tokens=1", "variant=[matrix,multi_head]"))
    assert lone.keys() == {"distances", "flow"}
    one = comparison("variant=[matrix]", "embeddings=random", "embeddings.tokens=3", "past=2")
    assert "entropy" not in drawings_of(one) and "sharpness" in drawings_of(one)


@pytest.mark.long
@pytest.mark.parametrize("tokens", [5, 40])
def test_weights_that_are_no_numbers_are_left_blank(tokens: int) -> None:
    """torch's MultiheadAttention answers NaN where a query may look nowhere."""
    blind = [[place == 2] for place in range(tokens)]  # torch's True: may not look
    compared = comparison(
        "convention=torch_mha", "embeddings=random", f"embeddings.tokens={tokens}", "mask=array", "variant=[matrix]",
        f"mask.array.values={str(blind).lower()}",
    )  # fmt: skip
    weights = compared.traces["matrix"].weights
    assert weights is not None and np.isnan(weights[0, 2]).all()
    shown = maps(drawings_of(compared)["weights"])[0].images[0]
    assert shown.get_clim() == (0.0, np.nanmax(weights))
    run = a_run(compared)
    for text in (page_of(run), markdown_of(run), notebook.run(run.comparison, run.timings)):
        assert text


def test_weights_with_nan_at_the_same_places_are_shown_once() -> None:
    left = np.array([[[0.5, 0.5], [np.nan, np.nan]]])
    assert same(left, left + 1e-16) and not same(left, np.nan_to_num(left)) and not same(left, left[:, :1])


def test_a_short_title_keeps_the_number_of_its_head() -> None:
    head = Head("multi_head", 12, np.eye(2))
    assert short_title(head, 9.0) == "multi_head, head 12"
    assert short_title(head, 0.6).endswith("… 12")


def test_a_short_title_is_made_of_whole_names() -> None:
    head = Head("looped = matrix = scaled", None, np.eye(2))
    shown = {short_title(head, width / 10) for width in range(8, 20)}
    assert shown == {"looped = …", "looped = matrix = …", "looped = matrix = scaled"}


@pytest.mark.parametrize("preset", ["paper", "slides", "poster"])
def test_entropies_under_a_mask_are_whole_marks_and_a_legend_without_cuts(preset: str) -> None:
    run = comparison("mask=causal", f"figures.preset={preset}", "figures.only=entropy")
    drawing = drawings_of(run)["entropy"]
    (axes,), legend = drawing.axes, drawing.axes[0].get_legend()
    assert legend is not None
    assert all("…" not in text.get_text() for text in legend.get_texts())
    low, high = axes.get_ylim()
    size = max(line.get_markersize() for line in axes.lines) / 72 / 2
    inches = axes.get_position().height * drawing.get_size_inches()[1]
    assert -low / (high - low) * inches >= size  # the first token sees itself alone: an entropy of 0
