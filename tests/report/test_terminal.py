"""What a run prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from attn_exp.config.spelling import Repeat
from attn_exp.experiment.row import Agreement, Row
from attn_exp.report import sentences
from attn_exp.report.escapes import brief
from attn_exp.runs.execution import run
from tests.compose import comparison
from tests.runs.test_store import config

LOOPED = Row(
    variant="looped",
    form="looped",
    head=1,
    scale=True,
    multiplier=0.5,
    bias=False,
    output_projection=False,
    mistake="none",
    same_as="A",
    error=0.0,
    error_ulp=0.0,
    checked=3,
    max_diff=0.0,
    cosine=1.0,
    entropy=1.0,
    effective_keys=2.7,
    largest_weight=0.5,
    row_sum_error=0.0,
    flops=144,
)
MATRIX, SCALED = (replace(LOOPED, variant=name) for name in ("matrix", "scaled"))
MULTI_HEAD = replace(LOOPED, variant="multi_head", same_as="B", max_diff=0.8897)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            [LOOPED, MATRIX, SCALED, MULTI_HEAD],
            (
                "looped, matrix and scaled give the same result (group A). "
                "multi_head differs from looped by up to 0.8897 in the output."
            ),
        ),
        ([LOOPED, MATRIX], "looped and matrix give the same result (group A)."),
        ([LOOPED], ""),
        ([LOOPED, MULTI_HEAD], "multi_head differs from looped by up to 0.8897 in the output."),
        (
            [LOOPED, replace(MULTI_HEAD, max_diff=float("nan"))],
            "multi_head differs from looped in the shape of the output.",
        ),
        (
            [LOOPED, MULTI_HEAD, replace(MULTI_HEAD, variant="wide", max_diff=1.5)],
            (
                "multi_head and wide give the same result (group B). "
                "multi_head and wide differ from looped by up to 1.5000 in the output."
            ),
        ),
    ],
)
def test_the_sentence_says_what_agrees(rows: list[Row], expected: str) -> None:
    assert sentences.describe_groups(rows) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, "yes"),
        (2.2e-16, "2.2e-16"),
        (0.0, "0"),
        (0.36189, "0.3619"),
        (123456.0, "1.2e+05"),
        (12.34, "12.3"),
        (7, "7"),
    ],
)
def test_numbers_are_short(value: object, expected: str) -> None:
    assert brief(value) == expected


def test_published_results_are_counted() -> None:
    right = Agreement("weights", "0.50", "0.501", 0.001, 0.005, True, "")
    told = sentences.published([right, replace(right, quantity="output", agrees=False)])
    assert "1 of 2 published results agree." in told
    assert [line.split()[-1] for line in told.splitlines()[1:3]] == ["yes", "no"]


def test_reading_leaves_out_what_a_student_has_no_use_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # a worker of pytest has 80
    whole, brief = (sentences.summary(comparison(f"report.depth={depth}")) for depth in ("all", "reading"))
    assert "error_ulp" in whole and "ulp" not in brief and "max_diff" in brief


def test_a_run_prints_one_table_one_sentence_and_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # a worker of pytest has 80
    outcome = run(
        config(output_dir=str(tmp_path), report={"tables": False, "figures": False, "pages": False}), Repeat()
    )
    table, sentence, path = outcome.text.split("\n\n")
    assert [line.split()[0] for line in table.splitlines()] == ["variant", "looped", "multi_head"]
    assert "multi_head differs from looped" in sentence
    assert path == str(outcome.folder)
