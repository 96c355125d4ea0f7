"""Reports and plots of sweeps: what they say, what they draw, and that nobody's words run in them."""

from __future__ import annotations

import html.parser
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from attn_exp.report.inline import digest
from attn_exp.report.sweep import plots
from attn_exp.sweeps import collect, manifest, overview
from attn_exp.sweeps.answers.totals import Summary, summarized
from tests.sweeps.command import COMMAND, environment, quickly, the_sweep


def read(folder: Path) -> tuple[dict[str, Any], Summary]:
    """Return the manifest of the only sweep and the summary of its parts."""
    about = manifest.load_manifest(the_sweep(folder))
    shelf = collect.shelf_of(the_sweep(folder), about)
    found = shelf.find(about["parts"]).whole
    return about, summarized(shelf.head, shelf.lines([found[name] for name in about["parts"]]), about["axes"])


def swept(folder: Path, *words: str, code: int = 0) -> tuple[dict[str, Any], Summary]:
    quickly(folder, "-m", *words, "report=none", "sweep.engine=serial", code=code)
    return read(folder)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep with its full report, in which a third of the points failed."""
    folder = tmp_path_factory.mktemp("full")
    quickly(folder, "-m", "head=1,2,3", "scale=true,false", "seed=0,1,2", "title='<script>alert(1)</script>'", code=1)
    return the_sweep(folder)


@pytest.mark.long
def test_the_report_says_what_was_found(full: Path) -> None:
    text = (full / "report.md").read_text()
    assert "18 points, 6 failed" in text
    assert (
        "Means over 3 seeds, each ± half of its 95% confidence interval; of fewer than five numbers, the least" in text
    )
    assert "6 x failed: head=3 does not divide d\\_model=4" in text or "6 x failed: head=3 does not divide" in text
    assert "| head | scale | variant | points |" in text
    assert "title" not in text.split("## Results")[1].split("\n| :")[0]  # only the settings that differ have a column


@pytest.mark.long
def test_each_command_in_the_report_runs(full: Path, tmp_path: Path) -> None:
    text = (full / "report.md").read_text()
    commands = re.findall(r"`(python -m attn_exp [^`]*)`", text)
    assert len(commands) > 10
    for each in (commands[0], commands[-2]):
        words = each.replace("python -m attn_exp", " ".join(COMMAND))
        subprocess.run(
            ["bash", "-c", words], cwd=tmp_path, env=environment(), check=True, capture_output=True, timeout=60
        )


class Page(html.parser.HTMLParser):
    """The tags of a page, and whatever it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_needs_nothing_else_and_runs_nobodys_words(full: Path) -> None:
    text = (full / "report.html").read_text()
    page = Page(text)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert page.tags.count("script") == len(scripts) + 1 == 2  # the page's own, and its numbers
    assert digest(scripts[0]).strip("'") in text.partition("Content-Security-Policy")[2][:400]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert page.loads and all(each.startswith("data:image/svg+xml") for each in page.loads)
    assert len(text) < 1_500_000


@pytest.mark.long
def test_a_sweep_over_documents_says_how_many_printed_results_agree(tmp_path: Path) -> None:
    printed = {"attention_flow": 4, "attention_times_value": 8, "qk_transpose": 7, "the_cat_sat": 8}
    out, _ = quickly(tmp_path, "-m", f"experiment={','.join(printed)}", "report=tables", "sweep.engine=serial")
    assert "27 of 27 published results agree." in out
    assert "disagree" not in out
    _, summary = read(tmp_path)
    assert {key[0]: str(tally) for key, tally in summary.tallies.items()} == {
        name: f"{count} of {count}" for name, count in printed.items()
    }
    assert "27 of 27 published results agree." in (the_sweep(tmp_path) / "report.md").read_text()


@pytest.mark.long
def test_points_that_disagree_with_a_printed_result_are_named_and_end_as_a_run_does(tmp_path: Path) -> None:
    words = ["experiment=the_cat_sat", "mistake=none,weights_transposed", "seed=0,1", "sweep.engine=serial"]
    out, _ = quickly(tmp_path, "-m", *words, code=0)
    assert "4 points, 0 failed" in out
    assert "30 of 32 published results agree. 2 points disagree with a published result." in out
    again = "python -m attn_exp experiment=the_cat_sat mistake=weights_transposed seed=1"
    assert f"mistake=weights_transposed seed=1: 7 of 8 published results agree\n    {again}\n" in out
    assert re.search(r"weights_transposed +matrix +2  14 of 16 ", out)
    page, text = ((the_sweep(tmp_path) / f"report.{form}").read_text() for form in ("html", "md"))
    assert f"<li>mistake=weights_transposed seed=1: 7 of 8 agree: <code>{again}</code></li>" in page
    assert f"mistake=weights_transposed seed=1: 7 of 8 agree: `{again}`" in text
    alone, _ = quickly(tmp_path, *again.split()[3:], "report=none", code=0)
    assert "7 of 8 published results agree." in alone


def test_one_key_of_numbers_gets_a_line_for_each_variant(tmp_path: Path) -> None:
    about, summary = swept(tmp_path, "scale=0.5,1,2", "seed=0,1,2,3", "variant=[matrix,multi_head]")
    figure = plots.draw(overview.plotted(about, summary, "all"))["against"]
    panel = figure.axes[0]
    assert panel.get_xlabel() == "scale"
    lines = {str(line.get_label()): line for line in panel.get_lines()}
    assert set(lines) == {"matrix", "multi_head"}
    metric = overview.worth_plotting(summary)[0]
    expected = [summary.cells[scale, "matrix"][metric].mean for scale in ("0.5", "1", "2")]
    assert list(np.asarray(lines["matrix"].get_xdata())) == [0.5, 1, 2]
    assert list(np.asarray(lines["matrix"].get_ydata())) == expected


def test_two_keys_of_numbers_get_heat_maps_on_one_scale(tmp_path: Path) -> None:
    about, summary = swept(tmp_path, "scale=0.5,1,2", "head=1,2,4", "seed=0,1", "variant=[matrix,multi_head]")
    figure = plots.draw(overview.plotted(about, summary, "all"))["heat"]
    images = [image for panel in figure.axes for image in panel.get_images()]
    assert [panel.get_title() for panel in figure.axes[:2]] == ["matrix", "multi_head"]
    assert len({image.get_clim() for image in images}) == 1
    metric = overview.worth_plotting(summary)[0]
    assert float(np.asarray(images[1].get_array())[2, 1]) == summary.cells["2", "2", "multi_head"][metric].mean


def test_a_key_of_words_gets_a_mark_for_each_choice(tmp_path: Path) -> None:
    about, summary = swept(tmp_path, "mask=none,causal", "seed=0,1", "variant=[matrix]")
    panel = plots.draw(overview.plotted(about, summary, "all"))["choices"].axes[0]
    assert [each.get_text() for each in panel.get_yticklabels()] == ["none", "causal"]


def test_numbers_and_words_get_a_panel_for_each_word(tmp_path: Path) -> None:
    about, summary = swept(tmp_path, "scale=0.5,1,2", "mask=none,causal", "seed=0,1", "variant=[matrix]")
    figure = plots.draw(overview.plotted(about, summary, "all"))["against"]
    assert [panel.get_title() for panel in figure.axes] == ["mask=none", "mask=causal"]
    assert len({panel.get_ylim() for panel in figure.axes}) == 1


@pytest.mark.long
def test_three_keys_get_parallel_coordinates(tmp_path: Path) -> None:
    about, summary = swept(
        tmp_path, "scale=0.5,1,2", "head=1,2,4", "bias=true,false", "kv_head=1", "sweep.plot=[parallel]"
    )
    figures = plots.draw(overview.plotted(about, summary, "all"))
    assert list(figures) == ["effects", "against", "parallel"]
    panel = figures["parallel"].axes[0]
    assert [each.get_text() for each in panel.get_xticklabels()] == ["scale", "head", "bias", "variant"]
    titles = [panel.get_title() for panel in figures["against"].axes if panel.get_visible()]
    assert titles == [f"head={head}\nbias={bias}" for head in (1, 2, 4) for bias in ("true", "false")]


@pytest.mark.long
@pytest.mark.parametrize(
    ("plot", "message"),
    [("heat", "sweep.plot=heat needs two settings that vary; here vary: head"), ("pie", "pie"), ("against", "")],
)
def test_a_plot_that_cannot_be_drawn_is_refused_at_once(plot: str, message: str, tmp_path: Path) -> None:
    _, error = quickly(tmp_path, "-m", "head=1,2", "seed=0,1", f"sweep.plot=[{plot}]", code=2 if message else 0)
    assert message in error
    assert (tmp_path / "outputs/sweeps").exists() == (not message)


def test_seeds_alone_get_their_spread(tmp_path: Path) -> None:
    about, summary = swept(tmp_path, "seed=range(5)", "variant=[matrix]")
    assert list(plots.draw(overview.plotted(about, summary, "all"))) == ["spread"]


def thousand(kind: str) -> Figure:
    """Return the plot of a summary with a thousand lines."""
    head = ["point", "scale", "status", "message", "variant", "entropy"]
    axes = [{"key": "scale", "column": "scale", "count": 3, "low": 1, "high": 3}]
    if kind == "parallel":
        head[2:2] = ["head", "bias"]
        axes += [{"key": name, "column": name, "count": 10} for name in ("head", "bias")]
    rows = []
    for line in range(1000):
        more = [str(line % 10), str(line // 10 % 10)] if kind == "parallel" else []
        variant = "one" if more else f"v{line}"
        rows += [[str(line), str(scale), *more, "ok", "", variant, str(line + scale)] for scale in (1, 2, 3)]
    return plots.draw(overview.plotted({"figures": {}}, summarized(head, rows, axes), "all"))[kind]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["against", "parallel"])
def test_a_thousand_lines_are_drawn_as_a_few(kind: str) -> None:
    drawn = thousand(kind).axes[0]
    assert len(drawn.get_lines()) <= 250
    if kind == "against":
        (median,) = drawn.get_lines()
        assert list(np.asarray(median.get_ydata())) == [500.5, 501.5, 502.5]


def test_one_figure_of_one_metric_along_one_setting(tmp_path: Path) -> None:
    """The line is the mean over the other settings, and `by` parts it."""
    about, summary = swept(tmp_path, "head=1,2", "scale=0.5,1", "seed=0,1", "variant=[multi_head]")
    plotted = overview.plotted(about, summary, "all")
    (alone,) = plots.draw_along(plotted, "entropy", [0]).axes
    means = [
        np.mean([summary.cells[head, scale, "multi_head"]["entropy"].mean for scale in ("0.5", "1")]) for head in "12"
    ]
    assert list(np.asarray(alone.get_lines()[0].get_ydata())) == pytest.approx(means)
    (parted,) = plots.draw_along(plotted, "entropy", [0, 1]).axes
    assert [str(line.get_label()) for line in parted.get_lines()] == ["scale=0.5", "scale=1"]
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
    assert {path.stem for path in (the_sweep(tmp_path) / "plots").iterdir()} == {"effects"}
    _, error = quickly(tmp_path, "-m", "scale=true,false", "seed=0,1", "figures.only=pie", code=2)
    assert "unknown plot of a sweep in figures.only 'pie'" in error


def test_the_page_begins_with_a_picture_and_then_the_effects(full: Path) -> None:
    text = (full / "report.html").read_text()
    places = [text.index(f'<section id="{name}"') for name in ("explore", "effects", "results", "plots")]
    assert places == sorted(places)


def test_a_wrong_output_stands_in_the_terminal_the_page_and_the_markdown(tmp_path: Path) -> None:
    out, _ = quickly(tmp_path, "-m", "mistake=none,no_scale", "seed=0,1", "variant=[matrix]", "sweep.engine=serial")
    for text in (out, *((the_sweep(tmp_path) / f"report.{form}").read_text() for form in ("html", "md"))):
        assert "The output is wrong in 2 of 4 rows, by up to " in text
