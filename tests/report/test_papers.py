"""Tables for papers: the digits that stand, and texts that no format obeys."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from attn_exp.config.spelling import Repeat
from attn_exp.report import papers
from attn_exp.runs import execution
from tests.compose import comparison, config
from tests.report.test_report import Reader

ODD = ("[x] y", "*", "--a ''b'' `c` ,,d <<e>>", "naïve café 3µ", "咖啡 قهوة ☕ half \ud800", "1_000", "٣", "word " * 60)
HARD = papers.Table(
    "t",
    "100% of $x_1$",
    ("a_b", "n (ulp)"),
    (("<b>&amp;|\\^~", "-2.2e-16"), ("x\ny\x1b", "0.50"), *((each, "-") for each in ODD)),
)


@pytest.mark.parametrize(
    ("value", "error", "expected"),
    [
        (1.09397652, 2e-16, "1.094"),
        (0.6597782, 1e-3, "0.660"),  # the error's first digit is the third decimal
        (0.6597782, 0.04, "0.66"),
        (0.6597782, 0.2, "0.7"),
        (0.6597782, 0.7, "0"),
        (2.2e-16, 2.2e-16, "0"),
        (0.5, 0.0, "0.5000"),
        (12.0, 1.0, "12"),
        (float("nan"), 0.0, "-"),
    ],
)
def test_a_number_has_the_digits_that_its_error_lets_stand(value: float, error: float, expected: str) -> None:
    assert papers.format_significant(value, error) == expected


def test_latex_sets_a_minus_in_words_with_every_engine() -> None:
    """`U+2212` is in no font of pdfLaTeX's: an effect's interval was set as U+22120.3."""
    text = papers.latex(papers.Table("effects", "", ("interval",), (("−0.3 to −0.1",),)))
    assert "$-$0.3 to $-$0.1" in text
    assert "Umathchar" not in text


def test_latex_sets_texts_as_they_are() -> None:
    text = papers.latex(HARD)
    assert r"\caption{100\% of \$x\_1\$}" in text
    assert r"a\_b & \begin{tabular}[b]{@{}r@{}}n \\ (ulp)\end{tabular} \\" in text
    assert r"\textless{}b\textgreater{}\&amp;\textbar{}\textbackslash{}\textasciicircum{}\textasciitilde{}" in text
    assert r"$-2.2\times10^{-16}$" in text
    assert r"x\textbackslash{}ny\textbackslash{}x1b & $0.50$ \\" in text
    assert r"{[}x] y & - \\" in text
    assert r"-{}-a '{}'b'{}' \textasciigrave{}c\textasciigrave{} ,{},d" in text
    assert "naïve café 3µ" in text
    assert r"\ifdefined\Umathchar 咖啡\else U+5496 U+5561\fi{} \ifdefined" in text
    assert r"1\_000 & -" in text
    assert r"\begin{tabular}{@{}p{0.3\linewidth}r@{}}" in text
    assert text.count(r"\toprule") == text.count(r"\midrule") == text.count(r"\bottomrule") == 1


def need_pdflatex() -> None:
    """Skip where there is no pdfLaTeX, except in CI, where that is a failure."""
    if shutil.which("pdflatex") is None:
        if os.environ.get("ATTN_EXP_CI"):
            pytest.fail("no pdflatex on this machine; .ci/run installs Debian's")
        pytest.skip("no pdflatex on this machine; .ci/run installs Debian's")


def pdf_of(tables: Sequence[papers.Table], folder: Path) -> str:
    """Set tables in a plain article, and return what pdfLaTeX says."""
    packages = r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{booktabs}\usepackage{graphicx}"
    body = "".join(map(papers.latex, tables))
    (folder / "t.tex").write_text(rf"{packages}\begin{{document}}{body}\end{{document}}", encoding="utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "t.tex"]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, timeout=60)
    said = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, said[-2000:]
    return said


@pytest.mark.long
def test_latex_compiles(tmp_path: Path) -> None:
    need_pdflatex()
    empty = HARD._replace(lines=())
    wide = papers.Table("wide", "", tuple(["a", "heading", "of", "some", "length"] * 4), (("words of a cell",) * 20,))
    tables = [
        HARD,
        empty,
        wide,
        *papers.tables(comparison("experiment=she_likes_coffee")),
        *papers.tables(comparison()),
    ]
    compiled = pdf_of(tables, tmp_path)
    assert "Missing" not in compiled
    assert re.findall(r"Overfull .hbox \((\d+)", compiled) == []


def test_html_holds_texts_as_text() -> None:
    reader = Reader(papers.html(HARD))
    assert "<b>&amp;|\\^~" in reader.words
    assert not {"b"} & {tag for tag, _ in reader.elements}


def test_units_stand_in_the_head_and_rows_are_the_variants() -> None:
    found = comparison()
    table = papers.tables(found)[0]
    assert "entropy (nats)" in table.head
    assert [line[0] for line in table.lines] == [row.variant for row in found.rows]
    assert "| multi_head | B | 2 |" in papers.markdown(table)


def test_a_shift_below_the_error_is_nothing() -> None:
    found = comparison()
    row = replace(found.rows[1], error=1e-15, max_diff=2e-16)
    assert papers.format_field(row, "max_diff") == "0"
    assert papers.format_field(row, "error") == "1.0e-15"


def test_a_run_writes_them_in_every_form(tmp_path: Path) -> None:
    chosen = config("experiment=she_likes_coffee", "report=tables", f"output_dir={tmp_path}")
    first, second = (execution.run(chosen, Repeat()).folder / "tables" for _ in range(2))
    names = sorted(path.name for path in first.iterdir())
    assert names == [f"{table}.{form}" for table in ("comparison", "published") for form in ("html", "md", "tex")]
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)
