"""What comes back from a class: tables as spreadsheets and people write them, and the names of students."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attn_exp.diagnosis.classroom import paper
from attn_exp.diagnosis.classroom.grading import grade, score_boxes
from attn_exp.errors import UserError
from attn_exp.runs import answers, grades, records, sheets
from attn_exp.runs.sheets import file_names, read_class_names, write_sheets
from tests.compose import config
from tests.report.browser import need_chromium
from tests.report.tab import tab, visit
from tests.runs.test_classroom import handed, home, result, written

__all__ = ["home"]
SMALL = ("embeddings=random", "embeddings.tokens=3", "embeddings.d_model=2", "variant=[matrix]", "seed=1")


REWRITTEN: dict[str, Callable[[str], str]] = {
    "tabs": lambda text: text.replace(",", "\t"),
    "old line ends": lambda text: text.replace("\n", "\r"),
    "decimal commas in quotes": lambda text: ",".join(
        f'"{cell.replace(".", ",")}"' if "." in cell and "\n" not in cell else cell for cell in text.split(",")
    ),
    "no blank lines": lambda text: text.replace("\n\n", "\n"),
    "a token misspelled": lambda text: text.replace("x1", "z1"),
    "a dash for a minus": lambda text: text.replace("-", "\u2013"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", REWRITTEN)
def test_a_table_may_be_written_otherwise(name: str, home: Path) -> None:
    paper = handed(*SMALL)
    Path("mine.csv").write_bytes(REWRITTEN[name](written(paper)).encode())
    (line,) = result("mine.csv")
    assert (line["points"], line["what it is"]) == (line["of"], "all right")


@pytest.mark.parametrize(
    "places", [[0, 1, 3], [0, 2, 1, 3], [0, 1, 3, 5]], ids=["missing", "moved", "missing at the end"]
)
def test_a_row_that_is_missing_or_moved_is_refused(places: list[int], home: Path) -> None:
    paper = handed(*SMALL, "stages=[scores,weights]")
    rows = written(paper).splitlines(keepends=True)
    Path("mine.csv").write_text("".join([*(rows[place] for place in places), *rows[4:]]))
    with pytest.raises(UserError, match="scores: a row or column is missing or moved"):
        answers.read_blocks(answers.read_lines(Path("mine.csv")), paper)


def test_tokens_may_be_called_as_stages_are(home: Path) -> None:
    paper = handed(*SMALL, "embeddings.tokens=[k,output,q]")
    for text in (written(paper), written(paper).replace("\n\n", "\n")):
        Path("mine.csv").write_text(text)
        (line,) = result("mine.csv")
        assert line["points"] == line["of"]


@pytest.mark.parametrize(
    ("cell", "value"), [("1/2", 0.5), ("-2 / 3", -2 / 3), ("0,25", 0.25), ("+,5", 0.5), ("50 %", 0.5)]
)
def test_a_number_may_be_a_fraction_or_have_a_decimal_comma(cell: str, value: float) -> None:
    assert answers.read_number(cell)[0] == value


@pytest.mark.parametrize("cell", ["1/0", "1,234.5", "1,2,3", "=1/2", "1/2/3", "5%%", "\u0663"])
def test_what_is_no_number_is_refused(cell: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        answers.read_number(cell)


def test_a_class_is_a_table_whose_names_may_hold_commas(home: Path) -> None:
    table = '\ufeffName;mail\n"Doe, Jane";x\n\u00c4nne \u00d6\u00df;x\n\nBob;7\n"Bob"\n'
    Path("class.csv").write_text(table, encoding="utf-8")
    assert read_class_names(Path("class.csv")) == ("Doe, Jane", "\u00c4nne \u00d6\u00df", "Bob", "Bob")


@pytest.mark.parametrize(
    ("names", "files"),
    [
        (["a", "a", "a"], ["a", "a-2", "a-3"]),
        (["a", "a-2", "a"], ["a", "a-2", "a-3"]),
        (["Bob", "bob", "BOB"], ["Bob", "bob-2", "BOB-3"]),
        (["../x", "=1+1", "??"], ["x", "1-1", "student"]),
    ],
)
def test_each_student_has_a_file_of_their_own(names: list[str], files: list[str]) -> None:
    assert file_names(names) == files


HIDDEN = [("x", "x"), ("X", "0"), ("-inf", "0.00"), ("\u2212\u221e", "\u00d7"), ("- infinity", "0"), ("\u2013oo", "x")]


@pytest.mark.long
@pytest.mark.parametrize(("cross", "nought"), HIDDEN)
def test_minus_infinity_is_read_as_students_write_it(cross: str, nought: str, home: Path) -> None:
    need_chromium()
    paper = handed(*SMALL[:4], "mask=causal", "stages=[logits,masked,weights]")
    hidden = np.triu(np.ones((3, 3), bool), 1)
    typed = [
        {"masked": cross, "weights": nought}.get(blank.stage, str(round(number, 2)))
        if closed
        else str(round(number, 2))
        for blank in paper.blanks
        for number, closed in zip(blank.right.ravel().tolist(), hidden.ravel(), strict=True)
    ]
    script = f"""
    sheet.inputs.forEach((input, place) => {{ input.value = {typed}[place]; }});
    sheet.check();
    const states = sheet.inputs.map((input) => input.className);
    sheet.inputs[9].value = "x"; // which no mask hides
    sheet.inputs[0].value = "x"; // logits have no hidden places
    sheet.check();
    const after = [9, 0].map((place) => [sheet.inputs[place].className, sheet.inputs[place].title]);
    sheet.inputs.forEach((input, place) => {{ input.value = {typed}[place]; }});
    return {{ states, after, csv: sheet.csv() }};
    """
    found = visit(Path("one/sheet.html").read_text(), script, home).answer
    assert set(found["states"]) == {"right"}
    assert found["after"] == [["wrong", "wrong"], ["wrong", "not a number"]]
    Path("mine.csv").write_text(found["csv"])
    (line,) = result("mine.csv")
    assert (line["points"], line["what it is"]) == ("27", "all right")
    lines = found["csv"].splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("masked")) + 1
    lines[first] = ",".join(["t1", "x", *lines[first].split(",")[2:]])
    Path("mine.csv").write_text("\n".join(lines))
    (line,) = result("mine.csv")
    assert line["points"] == "26" and "masked, row t1, key t1" in line["what it is"]


FORMULAS = ("=1+1", "@SUM(A1)", "-", "+cmd|' /C calc'!A0", "'quoted", "-2")


@pytest.mark.long
def test_no_name_file_or_token_is_a_formula_to_a_spreadsheet(home: Path) -> None:
    Path("class.csv").write_text("".join(f'"{name}"\n' for name in FORMULAS))
    tokens = ",".join(f'"{token}"' for token in FORMULAS[:3])
    words = ["embeddings=random", f"embeddings.tokens=[{tokens}]", "embeddings.d_model=2", "variant=[matrix]"]
    write_sheets([*words, "stages=[weights]", "names=class.csv", "to=class"])
    Path("class/answers").mkdir()
    for name, key in sheets.read_keys(Path("class/key.json")).items():
        path = Path(f"class/answers/{name}.csv")
        path.write_text(answers.format_answers(key.paper(sheets.make_composer(typed=False)), filled=True))
        with path.open(newline="") as file:
            cells = [cell for line in csv.reader(file) for cell in line if cell.startswith(records.FORMULA)]
        assert not cells
    Path("class/answers/=2+2.csv").write_text("another table")
    graded = result("class/answers", "class/key.json")
    assert {line["student"] for line in graded} == {records.format_cell(name) for name in ("=2+2", *FORMULAS)}
    assert sorted(line["points"] for line in graded) == ["", *["9"] * len(FORMULAS)]


@pytest.mark.long
def test_axe_finds_nothing_on_any_page_of_a_class(home: Path) -> None:
    need_chromium()
    Path("names.csv").write_text("Ada\nAlan\n", encoding="utf-8")
    words = [*SMALL[:4], "stages=[q,scores,weights]", "position=rope", "names=names.csv"]
    write_sheets([*words, "to=class"])
    write_sheets([*words, "exam=true", "to=exam"])
    table = Path("class/answers.csv")
    table.write_text(table.read_text().replace("Ada,,,,", "Ada,1,1,1,"))
    result("class/answers.csv", "class/key.json")
    pages = [path for place in ("class", "exam") for path in sorted(Path(place).rglob("*.html"))]
    assert {path.name for path in pages} >= {"sheets.html", "Ada.html", "class.html", "everybody.html"}
    with tab(home) as page:
        for path in pages:
            page.open(path.absolute())
            assert page.violations() == [], path


def test_a_box_is_worth_what_the_teacher_says() -> None:
    """Two of nine scores are wrong, and all logits: of 18 points for the scores 14 are left."""
    asked = paper.make_paper(
        config("embeddings=random", "embeddings.tokens=3", "embeddings.d_model=4", "variant=[matrix]")
    )
    given = grade(asked, {blank.stage: np.round(blank.right, 2) for blank in asked.blanks})
    scores_box = replace(given.boxes[3], right=7, wrong=2)
    logits_box = replace(given.boxes[4], right=0, wrong=9)
    boxes = (*given.boxes[:3], scores_box, logits_box, *given.boxes[5:])
    found = {
        one.stage: (one.points, one.most)
        for one in score_boxes(replace(given, boxes=boxes), grades.parse_points(["scores:18,logits:2"]))
    }
    assert (found["scores"], found["logits"], found["q"]) == ((14.0, 18.0), (0.0, 2.0), (12.0, 12.0))
    for bad in ("scores=18", "score:1", "scores:-1", "scores:x"):
        with pytest.raises(UserError, match="points="):
            grades.parse_points([bad])
