"""What a reader is shown: all numbers, or those that reading needs."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from attn_exp.experiment.row import Row
from attn_exp.report import notebook
from attn_exp.runs import records
from tests.compose import comparison
from tests.report.browser import need_chromium
from tests.report.render import markdown_of, page_of
from tests.report.tab import visit
from tests.report.test_report import a_run

DEEP = re.compile(r"\bulp\b|last place|multiplications|FLOPs?\b|\bbytes\b|row sum", re.IGNORECASE)

SEEN = """
    const seen = () => document.body.innerText;
    for (const details of document.querySelectorAll("details")) details.open = true;
    const button = document.getElementById("depth");
    const pressed = () => button.getAttribute("aria-pressed");
    button.closest("p").remove();
    document.body.append(button);
    const before = [seen(), pressed()];
    button.click();
    const after = [seen(), pressed()];
    button.click();
    return [before, after, [seen(), pressed()]];
"""


@pytest.mark.parametrize("words", [(), ("mask=causal", "embeddings=random", "variant=[matrix]", "mistake=no_scale")])
def test_markdown_and_notebook_say_nothing_of_it_where_reading_was_asked_for(words: tuple[str, ...]) -> None:
    whole, brief = (a_run(comparison(f"report.depth={depth}", *words)) for depth in ("all", "reading"))
    assert DEEP.search(markdown_of(whole)) and not DEEP.search(markdown_of(brief))
    assert not DEEP.search(re.sub("<[^>]*>", " ", notebook.run(brief.comparison, brief.timings)))
    assert "entropy" in markdown_of(brief) and "largest weight" in markdown_of(brief)


@pytest.mark.long
@pytest.mark.parametrize("depth", ["all", "reading"])
def test_one_button_of_the_page_changes_what_is_seen_and_back(depth: str, tmp_path: Path) -> None:
    need_chromium()
    found = visit(page_of(a_run(comparison(f"report.depth={depth}"))), SEEN, tmp_path)
    first, second, third = found.answer
    brief, whole = (first, second) if depth == "reading" else (second, first)
    assert found.console == [] and first == third
    assert DEEP.search(whole[0]) and not DEEP.search(brief[0])
    assert (brief[1], whole[1]) == ("true", "false")


def test_files_have_every_number_whatever_is_shown() -> None:
    (head, *_) = csv.reader(io.StringIO(records.format_records(Row, comparison("report.depth=reading").rows)))
    assert {"error_ulp", "flops", "row_sum_error", "differs_at"} <= set(head)
