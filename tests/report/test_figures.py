"""What the figures hand to their axes: the run's own numbers under the tokens' names, nothing cut off."""

from __future__ import annotations

import math

import matplotlib
import numpy as np
import pytest

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.logits import make_curves
from attn_exp.experiment.row import Comparison
from attn_exp.report import notebook
from attn_exp.report.charts.chart import Chart, Heat, Plot
from attn_exp.report.charts.matplotlib_figure import encode_figure
from attn_exp.report.figures import distances, entropy, weights
from attn_exp.report.views import make_views
from tests.compose import comparison
from tests.report.render import drawings_of, markdown_of, page_of
from tests.report.test_report import a_run


@pytest.fixture(scope="module")
def coffee() -> Comparison:
    return comparison()


def maps(chart: Chart) -> list[Heat]:
    return [part for part in chart.parts if isinstance(part, Heat)]


def test_the_distances_are_those_of_the_table(coffee: Comparison) -> None:
    heat, _ = maps(distances.plan(make_views(coffee), 6.3))
    names = [row.variant for row in coffee.rows]
    for each in coffee.distances:
        one, other = names.index(each.variant), names.index(each.other)
        assert heat.matrix[one, other] == heat.matrix[other, one] == each.difference
    assert np.diag(heat.matrix).tolist() == [0.0] * len(names)


def strokes(compared: Comparison) -> dict[str, Array]:
    """Return the heights of what the figure of the entropy names."""
    (plot,) = (part for part in entropy.plan(make_views(compared), 6.3).parts if isinstance(part, Plot))
    return {stroke.label: stroke.y for stroke in plot.strokes}


def test_the_entropy_of_each_query_is_marked(coffee: Comparison) -> None:
    matrix = coffee.traces["looped"].weights
    assert matrix is not None
    expected = [-sum(weight * math.log(weight) for weight in row) for row in matrix[0].tolist()]
    np.testing.assert_allclose(strokes(coffee)["looped = matrix = scaled"], expected, rtol=1e-13)


def test_two_heads_are_drawn_beside_their_mean_and_one_head_only_as_the_mean(coffee: Comparison) -> None:
    (plot,) = (part for part in entropy.plan(make_views(coffee), 6.3).parts if isinstance(part, Plot))
    assert sum(not stroke.label for stroke in plot.strokes) == 2  # those of multi_head


def test_the_most_that_an_entropy_can_be_knows_the_mask() -> None:
    most = strokes(comparison("mask=causal", "variant=[matrix]"))["ln n: uniform over n visible keys"]
    np.testing.assert_allclose(most, [0.0, math.log(2), *[math.log(3)] * 2])


@pytest.mark.parametrize("words", ["normalizer=sigmoid", "score=sink"])
def test_rows_that_share_out_less_or_more_than_one_have_no_entropy(words: str) -> None:
    assert not entropy.wanted(make_views(comparison(words, "variant=[matrix]")))


def test_the_sweep_passes_through_the_run_and_marks_the_root(coffee: Comparison) -> None:
    panels = make_views(coffee).panels
    single, double = make_curves([(panel.title, panel.split) for panel in panels if panel.split is not None])
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


@pytest.mark.long
def test_what_a_user_set_for_matplotlib_changes_no_figure(coffee: Comparison) -> None:
    usual = encode_figure(drawings_of(coffee)["distances"], "svg")
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "svg.fonttype": "none"}):
        assert encode_figure(drawings_of(coffee)["distances"], "svg") == usual


@pytest.mark.long
@pytest.mark.parametrize("tokens", [5, 40])
def test_weights_that_are_no_numbers_are_left_blank(tokens: int) -> None:
    """torch's MultiheadAttention answers NaN where a query may look nowhere."""
    blind = [[place == 2] for place in range(tokens)]  # torch's True: may not look
    compared = comparison(
        "convention=torch_mha", "embeddings=random", f"embeddings.tokens={tokens}", "mask=array", "variant=[matrix]",
        f"mask.array.values={str(blind).lower()}",
    )  # fmt: skip
    matrix = compared.traces["matrix"].weights
    assert matrix is not None and np.isnan(matrix[0, 2]).all()
    assert maps(weights.plan(make_views(compared), 6.3))[0].end == np.nanmax(matrix)
    run = a_run(compared)
    for text in (page_of(run), markdown_of(run), notebook.run(run.comparison, run.timings)):
        assert text
