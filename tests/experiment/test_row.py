"""What is said about a column stands once, beside the field of its record."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from attn_exp.config.spelling import Repeat
from attn_exp.experiment.column import columns
from attn_exp.experiment.comparison import Run
from attn_exp.experiment.row import COLUMNS, Row
from attn_exp.experiment.timing import Timing, measure
from attn_exp.report import papers, terminal
from attn_exp.runs import store
from tests.compose import comparison
from tests.report.render import markdown_of, page_of


def test_every_field_of_a_row_says_what_it_is() -> None:
    assert set(COLUMNS) == {field.name for field in fields(Row)}
    assert all(column.name for column in COLUMNS.values())


def test_every_head_is_the_name_of_its_field() -> None:
    both = COLUMNS | columns(Timing)
    assert all(column.name.replace(" ", "_") == field for field, column in both.items())
    titles = [both[field].title for field in ("kv_head", "error_ulp", "entropy", "peak_bytes", "median_s", "flops")]
    assert titles == ["kv head", "error ulp", "entropy (nats)", "peak bytes", "median s", "flops"]
    assert both["median_s"].measured_in("ms").title == "median ms"


def test_terminal_file_page_and_papers_name_numbers_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read off what each of them has printed, not off the columns."""
    monkeypatch.setenv("COLUMNS", "160")  # where heads stand on one line
    compared = comparison("head=2", "scale=false", "metrics=[gini]")
    run = Run(compared, measure(compared.variants, compared.problem), store.about(compared, Repeat(), {}))
    fields_of_files = {field.name for schema in (Row, Timing) for field in fields(schema)}
    markdown = heads_of(markdown_of(run).split("## Comparison")[1])
    page = [re.sub("<.*?>", "", head) for head in re.findall("<th [^>]*>(.*?)</th>", table_of(page_of(run)))]
    paper = heads_of(papers.markdown(papers.tables(compared)[0]))
    units = {" (nats)": "", " nats": "", " µs": " s", " ms": " s"}
    for heads in (markdown, page, paper, terminal.summary(compared).splitlines()[0].split()):
        assert len(heads) > 8
        text = "|".join(heads) + "|"
        for unit, plain in units.items():
            text = text.replace(f"{unit}|", f"{plain}|")
        assert set(text.replace(" ", "_").split("|")[:-1]) <= fields_of_files


def heads_of(markdown: str) -> list[str]:
    """Return the heads of the first table of a text in Markdown."""
    line = next(line for line in markdown.splitlines() if line.startswith("|"))
    return [head.strip() for head in line.strip("|").split("|")]


def table_of(page: str) -> str:
    """Return the head of the comparison of a page, and that of its further columns."""
    section = page.partition('id="comparison"')[2].partition("</section>")[0]
    return "".join(re.findall("<thead>.*?</thead>", section))


def test_every_column_has_a_place_of_its_own() -> None:
    assert len({column.place for column in COLUMNS.values()}) == len(COLUMNS)


def test_no_column_explains_itself_twice_in_the_markdown_report() -> None:
    compared = comparison("scale=false", "variant=[matrix,scaled,onnxruntime]")
    text = markdown_of(Run(compared, (), store.about(compared, Repeat(), {})))
    legend = [line.split("**")[1] for line in text.splitlines() if line.startswith("- **")]
    assert {"error", "error ulp", "entropy (nats)"} <= set(legend)
    assert len(set(legend)) == len(legend)
