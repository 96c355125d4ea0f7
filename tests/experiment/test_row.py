"""What is said about a column stands once, beside the field of its record."""

from __future__ import annotations

from dataclasses import fields

from attn_exp.config.repeat import Repeat
from attn_exp.experiment.comparison import Run
from attn_exp.experiment.row import COLUMNS, Row
from attn_exp.runs import store
from tests.compose import comparison
from tests.report.render import markdown_of


def test_every_field_of_a_row_says_what_it_is() -> None:
    assert set(COLUMNS) == {field.name for field in fields(Row)}
    assert all(column.name for column in COLUMNS.values())


def test_every_column_has_a_place_of_its_own() -> None:
    assert len({column.place for column in COLUMNS.values()}) == len(COLUMNS)


def test_no_column_explains_itself_twice_in_the_markdown_report() -> None:
    compared = comparison("scale=false", "variant=[matrix,scaled,onnxruntime]")
    text = markdown_of(Run(compared, (), store.about(compared, Repeat(), {})))
    legend = [line.split("**")[1] for line in text.splitlines() if line.startswith("- **")]
    assert {"error", "error (ulp)"} <= set(legend)
    assert len(set(legend)) == len(legend)
