"""Two runs, or two sweeps, side by side: what moved, and where, against numbers put there by hand."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.errors import UserError
from attn_exp.experiment.row import Run
from attn_exp.report.versus import Versus, versus_text
from attn_exp.runs import store
from attn_exp.sweeps.compare import Side, compare, compare_runs, compare_sides, compare_sweeps, differing_settings
from attn_exp.sweeps.plan import load_manifest
from attn_exp.sweeps.rows import read_rows
from attn_exp.sweeps.sweep import sweep


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of two variants."""
    result = attn_exp.run("report=none", variant=["matrix", "multi_head"])
    return result.save(tmp_path_factory.mktemp("saved"))


def bent(run: Run, variant: str, stage: str, change: Callable[[Any], Any]) -> Run:
    """The run with one stage of one variant changed."""
    traces = dict(run.comparison.traces)
    traces[variant] = replace(traces[variant], **{stage: change(np.array(getattr(traces[variant], stage)))})
    return replace(run, comparison=replace(run.comparison, traces=traces))


def test_a_run_and_itself_are_the_same_to_the_bit(saved: Path) -> None:
    versus = compare_sides(saved, saved)
    assert not versus.moved
    assert versus.sentences[0].startswith("No number changed: ")
    assert versus.sentences[1:] == (
        "matrix: bit-identical.", "multi_head: bit-identical.", "All settings are the same."
    )  # fmt: skip
    assert versus.tables == ()


def test_a_number_that_moved_is_found_in_its_cell(saved: Path) -> None:
    run = store.load(saved)

    def raised(weights: Any) -> Any:
        weights[1, 2, 0] += 0.25
        return weights

    versus = compare_runs(("a", "b"), run, bent(run, "multi_head", "weights", raised))
    tokens, before = run.comparison.problem.tokens, run.comparison.traces["multi_head"].weights
    assert before is not None
    number = before[1, 2, 0]
    assert versus.moved
    assert versus.sentences[0] == "Numbers differ in 1 of 2 variants that both have."
    assert versus.sentences[2] == (
        f"multi_head first differs in the weights, most at head 2, {tokens[2]}, {tokens[0]}: "
        f"{number:.6g} and {number + 0.25:.6g}."
    )


def test_the_last_bit_is_rounding_and_no_move(saved: Path) -> None:
    run = store.load(saved)
    versus = compare_runs(("a", "b"), run, bent(run, "matrix", "logits", lambda array: np.nextafter(array, 9.0)))
    assert not versus.moved
    assert versus.sentences[0] == "No number changed: 2 variants agree within rounding."
    assert versus.sentences[1] == "matrix: within 1 ulp from the logits on, bit-identical before."


def swept(folder: Path, *words: str) -> Path:
    assert sweep([*words, f"output_dir={folder}", "sweep.engine=serial", "report=none"], []).code == 0
    return next((folder / "sweeps").iterdir())


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep of six points."""
    return swept(tmp_path_factory.mktemp("swept"), "seed=range(0,3)", "head=1,2", "variant=[multi_head]")


def changed(folder: Path, change: Callable[[dict[str, str]], None]) -> Versus:
    """A sweep beside itself with some lines changed."""
    about = load_manifest(folder)
    with (folder / "results.csv").open(newline="") as file:
        head, *lines = csv.reader(file)
    others = [dict(zip(head, line, strict=True)) for line in lines]
    for line in others:
        change(line)
    sides = (lines, [list(line.values()) for line in others])
    first, second = (Side("a", about, read_rows(head, each, about["axes"], ())) for each in sides)
    return compare_sweeps(first, second)


def test_a_sweep_and_itself_are_the_same_to_the_bit(table: Path) -> None:
    versus = compare_sides(table, table)
    assert (versus.moved, versus.sentences[0]) == (False, "No number changed: 6 rows are bit-identical.")


def test_a_cell_that_moved_is_named_with_its_point(table: Path) -> None:
    def raise_one(line: dict[str, str]) -> None:
        if line["seed"] == "1" and line["head"] == "2":
            line["entropy"] = repr(float(line["entropy"]) + 0.5)

    versus = changed(table, raise_one)
    assert versus.sentences[0] == "Numbers differ in 1 of 6 rows that both have: entropy."
    (line,) = versus.tables[0].lines
    assert line[:5] == ("entropy", "6", "1", "0.5000", "seed=1 head=2 variant=multi_head")


def test_points_of_one_side_alone_are_counted(table: Path, tmp_path: Path) -> None:
    other = swept(tmp_path, "seed=range(1,5)", "head=1,2", "variant=[multi_head]", "sweep.name=other")
    versus = compare_sides(table, other)
    assert "1 setting differs: seed." in versus.sentences
    assert versus.moved
    assert versus.sentences[0] == "No number changed: 4 rows are bit-identical."
    assert {"Only in the first sweep: 2 rows.", "Only in the second sweep: 4 rows."} <= set(versus.sentences)


def test_the_page_says_what_the_terminal_says(saved: Path, table: Path) -> None:
    text, passed = compare([str(saved), str(saved)])
    place = Path(text.splitlines()[-1])
    written = place.read_text()
    assert passed
    assert place.parent.name == "comparisons"
    assert "bit-identical" in written
    assert "<script" not in written
    assert versus_text(compare_sides(table, table)) in compare([str(table), str(table), "--exit-code"])[0]


def test_python_compares_results_and_folders_as_the_command_does(saved: Path, table: Path) -> None:
    other = attn_exp.run("report=none", variant=["matrix", "multi_head"], seed=3)
    found = attn_exp.compare(attn_exp.load(saved), other)
    assert found.moved and "1 setting differs: seed." in found.sentences
    assert repr(found) == repr(attn_exp.compare(saved, other)) == versus_text(found)
    assert attn_exp.compare(str(saved), saved) == compare_sides(saved, saved)
    assert attn_exp.compare(attn_exp.load(table), table) == compare_sides(table, table)
    for first, second in ((saved, table), (other, table)):
        with pytest.raises(UserError, match="is a sweep, but the other is a run"):
            attn_exp.compare(first, second)


def test_exit_code_says_that_a_number_moved(saved: Path, tmp_path: Path) -> None:
    other = attn_exp.run("report=none", variant=["matrix", "multi_head"], seed=3).save(tmp_path)
    assert compare([str(saved), str(other)])[1]
    assert not compare([str(saved), str(other), "--exit-code"])[1]


def test_two_folders_are_compared(saved: Path) -> None:
    with pytest.raises(UserError, match="expected attn-exp compare DIR DIR"):
        compare([str(saved)])


def test_another_layer_of_a_model_is_one_setting() -> None:
    model = {"family": "bert", "layer": 0}
    first = {"model": model, "embeddings": {"vectors": [[1.0]]}, "projections": {"given": {"W_q": [[2.0]]}}}
    second = first | {"model": {**model, "layer": 5}, "embeddings": {"vectors": [[3.0]]}}
    second["projections"] = {"given": {"W_q": [[4.0]]}}
    assert differing_settings(first, second) == {"model.layer": (0, 5)}
    changed = {**first, "embeddings": {"vectors": [[3.0]]}}
    assert list(differing_settings(first, changed)) == ["embeddings.vectors"]
