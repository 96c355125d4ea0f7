"""Sheets for a class: what they ask, what they accept, and the mistake by its name."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attn_exp.diagnosis.classroom.paper import Paper, find_possible_mistakes, predict_mistakes
from attn_exp.errors import UserError
from attn_exp.runs import answers, sheets
from attn_exp.runs.grades import grade_answers
from attn_exp.runs.sheets import write_sheets
from tests.report.browser import need_chromium
from tests.report.tab import visit

DRAWN = ("embeddings=random", "embeddings.tokens=4", "embeddings.d_model=4")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def handed(*words: str) -> Paper:
    """Write one sheet, with every box unless they are named, and return it as its key gives it."""
    boxes = [] if any(word.startswith("stages=") for word in words) else ["stages=all"]
    write_sheets([*words, *boxes, "to=one"])
    return sheets.read_keys(Path("one/key.json"))["key"].paper(sheets.make_composer(typed=False))


def result(numbers: str, keys: str = "one/key.json") -> list[dict[str, str]]:
    grade_answers([numbers, keys])
    with Path(keys).parent.joinpath("grades/grades.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def written(paper: Paper, changed: dict[str, np.ndarray] | None = None) -> str:
    """The file of a student who wrote what is right, or other numbers in some boxes."""
    other = changed or {}
    blanks = tuple(replace(blank, right=other.get(blank.stage, blank.right)) for blank in paper.blanks)
    return answers.format_answers(replace(paper, blanks=blanks), filled=True)


def test_the_known_answer_of_a_document_is_right(home: Path) -> None:
    """The cat sat: its weights, printed to two decimals in the document, are full marks."""
    paper = handed("experiment=the_cat_sat", "variant=[matrix]", "stages=[weights]")
    assert [blank.stage for blank in paper.blanks] == ["weights"]
    Path("mine.csv").write_text(written(paper))
    (line,) = result("mine.csv")
    assert (line["points"], line["what it is"]) == (line["of"], "all right")


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        ["variant=[matrix]", "mask=causal", "stages=[logits,weights,output]"],
        pytest.param(["variant=[multi_head]", "head=2", "mask=causal"], marks=pytest.mark.long),
    ],
)
def test_every_common_mistake_shows_and_is_named(words: Sequence[str], home: Path) -> None:
    paper = handed(*DRAWN, *words, "seed=3")
    told = {one.name: one for one in predict_mistakes(paper)}
    assert find_possible_mistakes(paper) <= set(told)
    Path("all").mkdir()
    fitting = {name for name, one in told.items() if fits(paper, one.stages)}
    for name in sorted(fitting):
        made = {stage: array if array.ndim == 3 else array[None] for stage, array in told[name].stages.items()}
        Path(f"all/{name}.csv").write_text(written(paper, made))
    names = {line["student"]: line["mistake"] for line in result("all")}
    for name in fitting:  # or another mistake that gives the very same numbers
        assert names[name] == name or Path(f"all/{name}.csv").read_text() == Path(f"all/{names[name]}.csv").read_text()


def fits(paper: Paper, made: dict[str, np.ndarray]) -> bool:
    shapes = {blank.stage: blank.right.shape for blank in paper.blanks}
    return all(
        stage not in shapes or (array if array.ndim == 3 else array[None]).shape == shapes[stage]
        for stage, array in made.items()
    )


def test_rounding_is_carried_through(home: Path) -> None:
    """A student who goes on from the rounded numbers of each box is right everywhere."""
    paper = handed(*DRAWN, "variant=[matrix]", "digits=1", "seed=2")
    numbers = {blank.stage: np.round(blank.right[0], 1) for blank in paper.blanks}
    logits = np.round(numbers["scores"] * 0.5, 1)
    powers = np.exp(logits)
    weights = np.round(powers / powers.sum(axis=-1, keepdims=True), 1)
    output = np.round(weights @ numbers["v"], 1)
    Path("mine.csv").write_text(written(paper, {"weights": weights[None], "output": output[None]}))
    (line,) = result("mine.csv")
    assert line["points"] == line["of"]


def test_a_class_gets_numbers_of_its_own_from_small_whole_ones(home: Path) -> None:
    Path("class.csv").write_text("name\nAda Lovelace\nAlan\nAda Lovelace\n")
    assert write_sheets([*DRAWN, "names=class.csv", "variant=[matrix]", "to=class"]).startswith("3 sheets")
    keys = json.loads(Path("class/key.json").read_text())["keys"]
    assert [one["student"] for one in keys] == ["Ada Lovelace", "Alan", "Ada Lovelace (2)"]
    assert len({json.dumps(one["numbers"]) for one in keys}) == 3
    assert {abs(cell) for one in keys for row in one["numbers"]["W_q"] for cell in row} <= {0, 1}
    blank = {line["student"]: line for line in result("class/answers.csv", "class/key.json")}
    assert {line["points"] for line in blank.values()} == {"0"}


def test_no_two_rows_of_weights_are_equal(home: Path) -> None:
    """The first numbers of this name give the row 0.51 0.19 0.31 three times."""
    Path("class.csv").write_text("name\nMia Berg\n")
    write_sheets([*DRAWN, "embeddings.tokens=3", "names=class.csv", "variant=[matrix]", "to=class"])
    (key,) = sheets.read_keys(Path("class/key.json")).values()
    weights = key.paper(sheets.make_composer(typed=False)).exact["weights"][0].round(2)
    assert len({tuple(row) for row in weights}) == 3


@pytest.mark.long
def test_who_joins_a_class_changes_nobodys_sheet(home: Path) -> None:
    """Twenty names give the same twenty sheets again, in another order and with two more students among them."""
    small = ("embeddings=random", "embeddings.tokens=2", "embeddings.d_model=2", "stages=[scores]", "variant=[matrix]")
    names = [f"Student {number}" for number in range(20)]
    orders = {"a": names, "b": names, "c": ["Aaron", *reversed(names), "Zoe"]}
    for place, order in orders.items():
        Path("class.csv").write_text("name\n" + "\n".join(order) + "\n")
        write_sheets([*small, "names=class.csv", f"to={place}"])
    for name in sheets.file_names(names):
        pages = [Path(place, f"sheets/{name}.html").read_bytes() for place in orders]
        keys = [sheets.read_keys(Path(place, "key.json"))[name] for place in orders]
        assert pages[0] == pages[1] == pages[2] and keys[0] == keys[1] == keys[2]
    assert len({str(key.numbers) for key in sheets.read_keys(Path("c/key.json")).values()}) > 20


def test_a_short_sheet_has_at_most_24_numbers(home: Path) -> None:
    for place, (words, boxes) in enumerate([
        (("embeddings.tokens=3", "embeddings.d_model=4"), ["scores", "weights"]),
        (("embeddings.tokens=2", "embeddings.d_model=4"), ["scores", "weights", "output"]),
        (("embeddings.tokens=6", "embeddings.d_model=2"), ["weights"]),
    ]):  # fmt: skip
        write_sheets(["embeddings=random", *words, "variant=[matrix]", f"to={place}"])
        paper = sheets.read_keys(Path(f"{place}/key.json"))["key"].paper(sheets.make_composer(typed=False))
        assert [blank.stage for blank in paper.blanks] == boxes


def test_a_table_with_a_row_per_student_is_graded(home: Path) -> None:
    """A teacher types what stands on paper into one table: rows in any order, an empty one, one nobody knows."""
    Path("class.csv").write_text("Ada\nAlan\nGrace\n")
    write_sheets(
        [*DRAWN[:1], "embeddings.tokens=3", "embeddings.d_model=2", "variant=[matrix]", "names=class.csv", "to=class"]
    )
    head, *rows = list(csv.reader(Path("class/answers.csv").read_text().splitlines()))
    assert [row[0] for row in rows] == ["Ada", "Alan", "Grace"] and head[:3] == [
        "student",
        "scores t1 t1",
        "scores t1 t2",
    ]
    right = {}
    for name, key in sheets.read_keys(Path("class/key.json")).items():
        boxes = [np.round(blank.right[0], 2).ravel() for blank in key.paper(sheets.make_composer(typed=False)).blanks]
        right[name] = [str(number) for number in np.concatenate(boxes)]
    table = [
        head,
        ["Grace", *right["Grace"]],
        ["Ada", *right["Ada"][:-1], "ca. 1"],
        ["Nobody", "1"],
        ["Alan", *right["Ada"]],
    ]
    with Path("class/answers.csv").open("w", newline="") as file:
        csv.writer(file).writerows(table)
    lines = {line["student"]: line for line in result("class/answers.csv", "class/key.json")}
    assert lines["Grace"]["points"] == lines["Grace"]["of"] and lines["Ada"]["points"] == str(len(right["Ada"]) - 1)
    assert "'ca. 1'" in lines["Ada"]["what it is"] and lines["Nobody"]["what it is"] == "there is no key with this name"
    assert (lines["Alan"]["points"], lines["Ada"]["what it is"].count("Alan")) == ("0", 0)


def small_class() -> tuple[list[str], dict[str, list[str]]]:
    """Write the sheets of two students, and return the heading of their table and each one's right numbers."""
    Path("class.csv").write_text("Ada\nAlan\n")
    write_sheets(["embeddings=random", "embeddings.tokens=3", "embeddings.d_model=2", "names=class.csv", "to=class"])
    right = {}
    for name, key in sheets.read_keys(Path("class/key.json")).items():
        boxes = [blank.right[0].ravel() for blank in key.paper(sheets.make_composer(typed=False)).blanks]
        right[name] = [f"{number:.2f}" for number in np.concatenate(boxes)]
    return next(csv.reader(Path("class/answers.csv").read_text().splitlines())), right


def test_a_table_of_a_german_spreadsheet_is_read_and_a_student_without_a_row_is_said(home: Path) -> None:
    head, right = small_class()
    lines = [["Student", *head[1:], ""], ["Ada", *(number.replace(".", ",") for number in right["Ada"]), ""]]
    text = "\ufeff" + "\r\n".join(map(";".join, lines))
    Path("class/answers.csv").write_text(text, encoding="utf-8", newline="")
    lines_of = {line["student"]: line for line in result("class/answers.csv", "class/key.json")}
    assert lines_of["Ada"]["points"] == lines_of["Ada"]["of"]
    assert lines_of["Alan"]["what it is"] == "not handed in"


def test_who_handed_in_nothing_is_named_and_in_no_mean(home: Path) -> None:
    Path("answers").mkdir()
    Path("class.csv").write_text("Ada\nAlan\nGrace B\nEmmy\n")
    write_sheets(["embeddings=random", "embeddings.tokens=3", "embeddings.d_model=2", "names=class.csv", "to=four"])
    papers = {
        name: key.paper(sheets.make_composer(typed=False))
        for name, key in sheets.read_keys(Path("four/key.json")).items()
    }
    Path("answers/Ada.csv").write_text(written(papers["Ada"]))
    Path("answers/Alan.csv").write_text(answers.format_answers(papers["Alan"]))
    Path("answers/Emmy.csv").write_text("another table")
    text = grade_answers(["answers", "four/key.json"])
    assert (
        "\nNot handed in: Alan, Grace B\n" in text
        and "Grace B,,,,,not handed in" in Path("four/grades/grades.csv").read_text()
    )
    page = Path("four/grades/class.html").read_text()
    assert "2 of 4 handed in. Not handed in: Alan, Grace B." in page
    assert re.findall(r"<td class=.number.>(.*?)</td>", page)[:5] == ["9", "9", "0", "0", "0"]
    assert '<a href="marked/Ada.html">Ada</a>' in page and page.count("<a href") == 2
    assert "Not handed in" not in grade_answers(["answers/Ada.csv", "four/key.json"])


@pytest.mark.parametrize(("seed", "shown"), [(0, "<h3>no_scale, scale_by_sqrt_heads <"), (11, "<td>no number</td>")])
def test_a_key_lists_equal_results_once_and_no_division_by_zero(seed: int, shown: str, home: Path) -> None:
    handed(*DRAWN, "embeddings.tokens=3", "variant=[matrix]", "stages=[scores,weights]", f"seed={seed}")
    key = Path("one/key.html").read_text()
    tables = re.findall(r"<p>[^<]*</p>\s*<div class=.tables.>(<table>.*?)</div>", key, re.DOTALL)
    assert shown in key and "nan" not in "".join(tables) and len({*tables}) == len(tables) > 9


def test_a_row_of_too_many_cells_and_two_rows_of_one_student_are_refused(home: Path) -> None:
    head, right = small_class()
    shifted = ",".join(["Ada", *(number.replace(".", ",") for number in right["Ada"])])
    Path("class/answers.csv").write_text("\n".join([",".join(head), shifted]))
    with pytest.raises(UserError, match=r"nothing to grade; Ada: .*a decimal comma needs quotes"):
        result("class/answers.csv", "class/key.json")
    Path("class/answers.csv").write_text("\n".join([",".join(head), "Ada,1", "Ada,2"]))
    with pytest.raises(UserError, match="a student has more than one row"):
        result("class/answers.csv", "class/key.json")


def test_a_hostile_key_writes_no_page_outside_its_folder_and_two_keys_of_one_file_are_refused(home: Path) -> None:
    small_class()
    path = Path("class/key.json")
    path.write_text(path.read_text().replace('"file": "Alan"', '"file": "../../../outside"'))
    result("class/answers.csv", "class/key.json")
    assert Path("class/grades/marked/outside.html").is_file() and not Path("outside.html").exists()
    path.write_text(path.read_text().replace("../../../outside", "Ada"))
    with pytest.raises(UserError, match="two keys have the same file"):
        result("class/answers.csv", "class/key.json")


BAD = {
    "table.csv": (b"a,b\n1,2\n", "no block of this sheet"),
    "formula.csv": (
        b"q,1,2,3,4\nt1,=A1*2,,,\nt2\nt3\nt4\n",
        "no cell holds a number; the first unreadable one is q, row t1, column 1: '=A1*2'",
    ),
    "text.csv": (b"q,1,2,3,4\nt1,one,0,0,0\nt2\nt3\nt4\n", "annot be read: q, row t1, column 1: 'one'"),
    "comma.csv": (
        b"q,1,2,3,4\nt1,0,5,0,5,1\nt2\nt3\nt4\n",
        "q, row 1: 5 cells, expected 4; a decimal comma needs quotes",
    ),
    "huge.csv": (b"q,1\n" + b"t1,0\n" * 500_000, "larger than"),
    "bytes.csv": (bytes(range(128, 256)), "codec can't decode"),
    "empty.csv": (b"", "no block of this sheet"),
}


def test_a_bad_file_is_a_line_and_the_rest_is_graded(home: Path) -> None:
    paper = handed(*DRAWN, "variant=[matrix]", "seed=1")
    Path("all").mkdir()
    Path("all/good.csv").write_text(written(paper))
    for name, (content, _) in BAD.items():
        Path("all", name).write_bytes(content)
    lines = {line["student"]: line["what it is"] for line in result("all")}
    assert lines.pop("good") == "all right"
    for name, (_, message) in BAD.items():
        assert message in lines[Path(name).stem]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["digits=9"], "digits=9: expected at most 6"),
        (["stages=[wieghts]"], "weights"),
        (["seed=range(0,9999)"], "9,999 sheets"),
        (["head=2"], "head=2: variant=matrix has 1 head; add variant=[multi_head]"),
        (["names=nowhere.csv"], "nowhere.csv: cannot be read"),
        (["hello"], "hello"),
        (["hed=2"], "unknown setting 'hed'; did you mean head?"),
        (["exam=perhaps"], "exam=perhaps: expected true or false"),
        (["names=one.csv", "seed=range(0,3)"], "1 name and 3 seeds; expected one seed for all, or one per name"),
        (["variant=[linear]"], "not computed in steps"),
        (["embeddings.tokens=40"], "too long"),
    ],
)
def test_a_mistake_of_the_teacher_is_one_line(words: Sequence[str], message: str, home: Path) -> None:
    Path("one.csv").write_text("name\nAda\n")
    with pytest.raises(UserError, match=re.escape(message)):
        write_sheets([*DRAWN[:1], "embeddings.d_model=4", "variant=[matrix]", *words])
    assert not Path("sheets").exists()


@pytest.mark.parametrize("content", [b"{}", b"[1]", b'{"keys": []}', b'{"keys": [{"student": 1}]}', b"\xff"])
def test_a_key_that_is_none_is_refused(content: bytes, home: Path) -> None:
    Path("key.json").write_bytes(content)
    Path("mine.csv").write_text("q,1\n")
    with pytest.raises(UserError, match="not a file of sheet keys"):
        grade_answers(["mine.csv", "key.json"])


@pytest.mark.long
def test_the_page_checks_each_number_as_it_is_typed(home: Path) -> None:
    need_chromium()
    paper = handed(*DRAWN, "variant=[matrix]", "seed=1")
    right = {blank.stage: np.round(blank.right[0], 2) for blank in paper.blanks}
    wrong = right["weights"].copy()
    wrong[0, 0] += 0.3
    numbers = {**right, "weights": wrong, "output": np.round(wrong @ right["v"], 2)}
    typed = [float(cell) for blank in paper.blanks for cell in numbers[blank.stage].ravel()]
    script = f"""
    const typed = {typed};
    sheet.inputs.forEach((input, place) => {{ input.value = typed[place]; }});
    sheet.check();
    return {{ states: sheet.inputs.map((input) => input.className), csv: sheet.csv() }};
    """
    found = visit(Path("one/sheet.html").read_text(), script, home)
    assert found.console == []
    states = dict(zip(right, np.split(np.array(found.answer["states"]), np.cumsum([16] * 6)), strict=True))
    assert set(states["q"]) | set(states["scores"]) | set(states["logits"]) == {"right"}
    assert list(states["weights"]).count("wrong") == 1
    assert set(states["output"]) <= {"right", "follows"}
    assert "follows" in states["output"][:4]
    Path("mine.csv").write_text(found.answer["csv"])
    (line,) = result("mine.csv")
    assert int(line["of"]) - int(line["points"]) == 1


@pytest.mark.long
def test_the_page_of_an_exam_checks_nothing_and_holds_no_answers(home: Path) -> None:
    need_chromium()
    paper = handed(*DRAWN, "variant=[matrix]", "seed=1", "exam=true")
    page = Path("one/sheet.html").read_text()
    assert '"exact"' not in page and "checked at once" not in page
    output = next(blank.right for blank in paper.blanks if blank.stage == "output")
    assert not any(f"{number:.5f}" in page for number in output.ravel() if abs(number - round(number, 2)) > 1e-3)
    script = """
    sheet.inputs.forEach((input, place) => { input.value = ["7", "ca. 2", ""][Math.min(place, 2)]; });
    sheet.check();
    const told = document.getElementById("told").textContent;
    return { states: sheet.inputs.map((input) => input.className), told, csv: sheet.csv() };
    """
    found = visit(page, script, home)
    assert found.console == [] and set(found.answer["states"]) == {""}
    assert found.answer["told"].startswith("2 of ") and found.answer["told"].endswith(" filled in; 1 cannot be read.")
    Path("mine.csv").write_text(found.answer["csv"])
    (line,) = result("mine.csv")
    assert "annot be read: q, row t1, column 2: 'ca. 2'" in line["what it is"]
