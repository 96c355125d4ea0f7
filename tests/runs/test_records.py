"""Tables on disk: a file may lack a column that was added later, and nothing else."""

from __future__ import annotations

import csv
from io import StringIO

import pytest

from attn_exp.experiment.row import Row
from attn_exp.runs import records
from tests.compose import comparison

ROWS = comparison("variant=[matrix,multi_head]").rows


def without(*names: str) -> str:
    """Return the table of a run without some of its columns."""
    lines = list(csv.reader(StringIO(records.format_records(Row, ROWS))))
    kept = [place for place, name in enumerate(lines[0]) if name not in names]
    return records.as_csv([[line[place] for place in kept] for line in lines])


def test_a_table_reads_back_and_a_column_that_it_lacks_has_its_default() -> None:
    assert records.format_records(Row, records.parse_records(Row, without())) == without()
    rows = records.parse_records(Row, without("computed_in", "kv_head", "sameness"))
    assert {(row.computed_in, row.kv_head, row.sameness) for row in rows} == {("float64", 0, "")}


@pytest.mark.parametrize(
    "text",
    [
        without("variant"),
        without().replace("head,", "hed,", 1),
        without().replace("variant,form", "variant,variant", 1),
        without().replace("\n", ",more\n", 1),
        without() + "matrix\n",
        "",
    ],
    ids=["needed", "unknown", "twice", "one too many", "a short line", "empty"],
)
def test_a_table_of_other_columns_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected the columns|argument"):
        records.parse_records(Row, text)
