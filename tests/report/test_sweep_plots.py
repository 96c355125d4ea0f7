"""Plots of sweeps: what they draw, in which panels and with which names."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from attn_exp.config.schema import PRESETS, Size
from attn_exp.report import sweep_plots as plots
from attn_exp.report.charts.chart import Chart, Plot, Stroke, Text
from attn_exp.report.charts.layout import TICK
from attn_exp.sweeps import overview
from attn_exp.sweeps.summary import Summary, summarize
from attn_exp.sweeps.swept import load
from tests.report.sheet import check_layout
from tests.sweeps.command import quickly, the_sweep


def read(folder: Path) -> tuple[dict[str, Any], Summary]:
    """Return the manifest of the only sweep and the summary of its parts."""
    found = load(the_sweep(folder))
    return dict(found.about), summarize(*found.read_lines(), found.about["axes"])


def swept(folder: Path, *words: str, code: int = 0) -> tuple[dict[str, Any], Summary]:
    quickly(folder, "-m", *words, "report=none", "sweep.engine=serial", code=code)
    return read(folder)


def lines_of(chart: Chart) -> tuple[Plot, list[Stroke]]:
    """Return the first panel of a chart, and its lines with marks."""
    panel = next(part for part in chart.parts if isinstance(part, Plot))
    return panel, [stroke for stroke in panel.strokes if stroke.width and stroke.mark]


def named_in(chart: Chart) -> list[str]:
    """Return the names in the legend of a chart."""
    return [part.text for part in chart.parts if isinstance(part, Text) and part.size == TICK]


def test_one_key_of_numbers_gets_a_line_for_each_variant(tmp_path: Path) -> None:
    about, summary = swept(tmp_path, "scale=0.5,1,2", "seed=0,1,2,3", "variant=[matrix,multi_head]")
    chart = plots.draw(overview.make_plot_data(about, summary, "all"))["against"]
    panel, lines = lines_of(chart)
    assert panel.x.name == "scale"
    assert named_in(chart) == ["matrix", "multi_head"]
    metric = overview.metrics_to_plot(summary)[0]
    expected = [summary.cells[scale, "matrix"][metric].mean for scale in ("0.5", "1", "2")]
    assert lines[0].x.tolist() == [0.5, 1, 2]
    assert lines[0].y.tolist() == expected


@pytest.mark.long
@pytest.mark.parametrize(
    ("plot", "message"),
    [
        ("heat", "sweep.plot=heat needs two settings that vary; this sweep varies: head"),
        ("pie", "pie"),
        ("against", ""),
    ],
)
def test_a_plot_that_cannot_be_drawn_is_refused_at_once(plot: str, message: str, tmp_path: Path) -> None:
    _, error = quickly(tmp_path, "-m", "head=1,2", "seed=0,1", f"sweep.plot=[{plot}]", code=2 if message else 0)
    assert message in error
    assert (tmp_path / "outputs/sweeps").exists() == (not message)


def test_one_figure_of_one_metric_along_one_setting(tmp_path: Path) -> None:
    """The line is the mean over the other settings, and `by` parts it."""
    about, summary = swept(tmp_path, "head=1,2", "scale=0.5,1", "seed=0,1", "variant=[multi_head]")
    plotted = overview.make_plot_data(about, summary, "all")
    (alone,) = lines_of(plots.draw_along(plotted, "entropy", [0]))[1]
    means = [
        np.mean([summary.cells[head, scale, "multi_head"]["entropy"].mean for scale in ("0.5", "1")]) for head in "12"
    ]
    assert alone.y.tolist() == pytest.approx(means)
    assert named_in(plots.draw_along(plotted, "entropy", [0, 1])) == ["scale=0.5", "scale=1"]
    folder = str(the_sweep(tmp_path))
    out, _ = quickly(tmp_path, "plot", folder, "x=head", "y=entropy", "by=scale", "figures.format=[pdf,svg]")
    assert [Path(line).name for line in out.split()] == ["entropy-head-scale.pdf", "entropy-head-scale.svg"]
    assert (tmp_path / out.split()[0]).read_bytes().startswith(b"%PDF")
    for words, said in (
        (("x=pie", "y=entropy"), "unknown setting in x 'pie'"),
        (("x=head", "y=pie"), "unknown metric in y"),
    ):
        assert said in quickly(tmp_path, "plot", folder, *words, code=2)[1]
    assert "expected attn-exp plot DIR x=SETTING" in quickly(tmp_path, "plot", folder, "x=head", "by=scale", code=2)[1]


def test_figures_only_draws_the_plots_that_it_names(tmp_path: Path) -> None:
    quickly(tmp_path, "-m", "scale=true,false", "seed=0,1", "sweep.engine=serial", "figures.only=effects")
    plots = the_sweep(tmp_path) / "plots"
    assert {path.stem for path in plots.iterdir()} == {"effects"}
    assert "nan" not in (plots / "effects.svg").read_text()
    _, error = quickly(tmp_path, "-m", "scale=true,false", "seed=0,1", "figures.only=pie", code=2)
    assert "unknown plot of a sweep in figures.only 'pie'" in error


def plotted(size: Size, count: int, axes: dict[str, str]) -> plots.Plotted:
    """Return made-up numbers of two metrics: each mean has a deviation of 0.1, and an interval of 0.3 on each side."""
    keys = itertools.product(*(labels.split() for labels in axes.values()), ("matrix", "multi_head"))
    metrics, squares = ["entropy", "cosine"], 0.01 * (count - 1)
    cells = {
        key: dict.fromkeys(metrics, plots.Numbers(count, place / 7, squares, place / 7 - 1, place / 7 + 2, 0.3))
        for place, key in enumerate(keys)
    }
    changes = [plots.Change(f"scale: true to {row}", row - 1, row - 2, row + 1, row > 1) for row in range(4)]
    maps = {"first": np.eye(2, 3)}
    return plots.Plotted(
        list(axes), ["matrix", "multi_head"], cells, metrics, dict.fromkeys(metrics, changes), "01", maps, size=size
    )


WORDS = {"mask": "none causal", "position": "rope none"}
KINDS = [
    ("against", {"scale": "0.5 1 2"}), ("against", {"scale": "0.1 1 2 8 99", "mask": "none causal"}),
    ("choices", {"mask": "none causal"}), ("heat", WORDS), ("parallel", WORDS | {"score": "alibi none sink"}),
    ("spread", {}),
]  # fmt: skip


@pytest.mark.parametrize("size", [PRESETS["paper"], PRESETS["slides"], replace(PRESETS["paper"], height=4.0)], ids=str)
@pytest.mark.parametrize(("kind", "axes"), KINDS)
def test_nothing_leaves_a_plot_and_nothing_covers_a_text(kind: str, axes: dict[str, str], size: Size) -> None:
    drawn = plots.draw(plotted(size, 5, axes))
    assert list(drawn) == ["heads", "effects", kind]
    for chart in drawn.values():
        check_layout(chart)


@pytest.mark.parametrize(("count", "below", "above"), [(4, -1, 2), (5, -0.3, 0.3)])
def test_a_line_has_an_interval_from_five_seeds_on_and_the_spread_has_quartiles(
    count: int, below: float, above: float
) -> None:
    first = plots.draw(plotted(PRESETS["paper"], count, {"scale": "1 2"}))["against"].parts
    interval = next(part for part in first if isinstance(part, Plot)).strokes[0]
    np.testing.assert_allclose(interval.y, [below, above, np.nan, 2 / 7 + below, 2 / 7 + above, np.nan])
    second = plots.draw(plotted(PRESETS["paper"], count, {}))["spread"].parts
    quartiles = next(part for part in second if isinstance(part, Plot)).strokes[1]
    half = 0.1 * NormalDist().inv_cdf(0.75)
    np.testing.assert_allclose(quartiles.x[:2], [-half, half], rtol=1e-3)
