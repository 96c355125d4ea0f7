"""What is said about a column stands once, beside the field of its record."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from attn_exp.config.spelling import Repeat
from attn_exp.experiment.executing import measure
from attn_exp.experiment.row import Row, Run, Timing
from attn_exp.report import papers, sentences
from attn_exp.runs import store
from tests.compose import comparison
from tests.report.render import markdown_of, page_of


def test_terminal_file_page_and_papers_name_numbers_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read off what each of them has printed, not off the columns."""
    monkeypatch.setenv("COLUMNS", "160")  # where heads stand on one line
    compared = comparison("head=2", "scale=false", "metrics=[gini]")
    run = Run(compared, measure(compared.variants, compared.problem), store.describe_run(compared, Repeat(), {}))
    fields_of_files = {field.name for schema in (Row, Timing) for field in fields(schema)}
    markdown = heads_of(markdown_of(run).split("## Comparison")[1])
    page = [re.sub("<.*?>", "", head) for head in re.findall("<th [^>]*>(.*?)</th>", table_of(page_of(run)))]
    paper = heads_of(papers.markdown(papers.tables(compared)[0]))
    units = {" (nats)": "", " nats": "", " µs": " s", " ms": " s"}
    for heads in (markdown, page, paper, sentences.summary(compared).splitlines()[0].split()):
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
