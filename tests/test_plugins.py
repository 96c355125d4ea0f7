"""Members from outside the package: named with `--with`, or registered; each held to its contract and its example."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp import cli, registry, rules
from attn_exp.errors import UserError
from attn_exp.experiment.metrics.metric import Metric
from attn_exp.forms import decode, form
from attn_exp.forms.form import Form
from attn_exp.own_code import split_files
from attn_exp.plugins import KINDS, load_members
from attn_exp.rules.example import Example
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks.mask import Mask
from tests.test_extend import FILE, RECIPES

HEAD = """
from dataclasses import dataclass
from attn_exp.rules.example import Example
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.scores.score import Score
"""
EVEN = """
@dataclass(frozen=True)
class EvenKeys(Mask):
    step: int = 2

    def allows(self, grid):
        return (grid.key % self.step == 0) | (grid.key == grid.query)
"""
DRAWN = 'EXAMPLE = Example({}, ("█·█", "███", "█·█"))\n'


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """Hold every test to leave nothing behind."""
    with registry.undo_registrations():
        yield


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(HEAD + EVEN + DRAWN)
    return tmp_path


def exit_of(*words: str) -> int:
    """Run the command line as a terminal does, and return its exit code."""
    sys.argv[1:] = words
    try:
        cli.main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@pytest.fixture
def refused(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Write a file, name it, and return the one line that it is refused with."""
    monkeypatch.setattr(sys, "argv", ["attn-exp"])

    def line(text: str, name: str = "wrong.py", *words: str) -> str:
        (here / name).write_text(text)
        assert exit_of("--with", name, "report=none", *words) == 2
        said = capsys.readouterr().err
        assert said.startswith("attn_exp: error: ") and said.count("\n") == 1, said
        assert not (here / "outputs").exists()
        return said.removeprefix("attn_exp: error: ").rstrip("\n")

    return line


def weights(*words: str) -> Any:
    """Run with words and return the weights of the first variant."""
    return attn_exp.run("embeddings=random", "embeddings.tokens=5", "variant=[looped]", *words).array(
        "looped", "weights"
    )


def test_a_mask_of_a_file_is_one_of_the_package(here: Path) -> None:
    with load_members(["mine.py"]):
        seen = weights("mask=[causal,mine]", "mask.mine.step=3")[0] > 0
    i, j = np.indices((5, 5))
    np.testing.assert_array_equal(seen, (j <= i) & ((j % 3 == 0) | (i == j)))


def test_a_member_goes_by_its_file_and_several_by_their_classes(here: Path) -> None:
    (here / "two.py").write_text(HEAD + EVEN + EVEN.replace("EvenKeys", "OddKeys"))
    before = {*rules.names("mask")}
    with load_members(["mine.py", "two.py"]):
        assert {*rules.names("mask")} - before == {"mine", "even_keys", "odd_keys"}


def test_nothing_is_left_when_the_command_ends(here: Path) -> None:
    before = dict(registry.OUTSIDE)
    assert cli.obey(["--with", "mine.py", "mask=mine", "report=none"]) == 0
    assert before == registry.OUTSIDE
    with pytest.raises(UserError, match="unknown mask 'mine'"):
        cli.obey(["mask=mine", "report=none"])


ONLY_IMPORTED = """
from attn_exp.experiment.metrics.spread import METRICS
from attn_exp.forms import matrix as plain
from attn_exp.forms.form import Form
from attn_exp.forms.matrix import FORM as MATRIX
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.normalizers.softmax import NORMALIZER
"""


def test_what_a_file_imports_is_none_of_its_members(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "form.py").write_text(ONLY_IMPORTED + "FORM = Form(MATRIX.attend, MATRIX.refuses)\n")
    (here / "again.py").write_text(ONLY_IMPORTED + "FORM = plain.FORM\n")
    with load_members(["form.py", "again.py"]):
        assert not capsys.readouterr().err
        assert set(registry.OUTSIDE) == {("attn_exp.forms", "form"), ("attn_exp.forms", "again")}


def test_options_are_found_wherever_they_stand() -> None:
    assert split_files(["a=1", "--with", "x.py", "-m", "--with=y.py", "b=2", "--with", "x.py"]) == (
        ["x.py", "y.py"],
        ["a=1", "-m", "b=2"],
    )
    for words in (["--with"], ["--with", "--help"], ["--with="]):
        with pytest.raises(UserError, match=r"--with needs a file .*--with mine\.py"):
            split_files(words)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x = 1\n", "wrong.py: it defines no member; expected a subclass of Mask, "),
        ("def f(:\n", "wrong.py cannot be imported: SyntaxError: invalid syntax (wrong.py, line 1)"),
        ("import nowhere_at_all\n", "wrong.py cannot be imported: ModuleNotFoundError: No module named"),
        ("raise SystemExit(0)\n", "wrong.py ended without an answer (SystemExit: 0) while it was imported"),
        (
            HEAD + EVEN + DRAWN.replace("███", "██·"),
            "wrong.py: mask=wrong does not reproduce its EXAMPLE: row 1, column",
        ),
        (HEAD + EVEN + DRAWN.replace("{}", "{'stp': 2}"), "wrong.py: unknown setting 'mask.wrong.stp'; did you mean"),
        (HEAD + EVEN + "EXAMPLE = 3\n", "wrong.py: mask=wrong: its EXAMPLE is a int; expected Example"),
        (
            HEAD + EVEN.replace("(frozen=True)", ""),
            "wrong.py: EvenKeys is not a frozen dataclass; write @dataclass",
        ),
        (HEAD + EVEN.replace("allows", "allow"), "wrong.py: EvenKeys(Mask) must define allows()"),
        (HEAD + EVEN.replace(": int", ": 'Nothing'"), "wrong.py cannot be imported: NameError: name 'Nothing'"),
        (
            HEAD + EVEN.replace("self.step", "self.st") + DRAWN,
            "wrong.py: mask=wrong: its EXAMPLE cannot be computed: AttributeError: ",
        ),
        (
            HEAD + EVEN.replace("return ", "return [[True]] or ") + 'EXAMPLE = Example({}, ("██", "██"))\n',
            "mask=wrong: allows returns list; expected booleans",
        ),
        ("FORM = 3\n", "wrong.py: FORM is a int; expected Form"),
        ("METRICS = (3,)\n", "wrong.py: METRICS is a int; expected Metric"),
    ],
)
def test_a_file_that_is_wrong_is_refused_in_one_line(refused: Any, text: str, line: str) -> None:
    assert refused(text, "wrong.py", "mask=wrong").startswith(line)


def test_a_name_that_is_taken_is_refused(refused: Any, here: Path) -> None:
    assert refused(HEAD + EVEN, "window.py") == "window.py: mask=window is taken; choose another name"


def test_a_file_that_is_not_there_is_refused(here: Path) -> None:
    for name, said in (("none.py", "none.py: there is no such"), (".", r"\.: there is no such \.py file")):
        with pytest.raises(UserError, match=said):
            cli.obey(["--with", name])


def package(title: str) -> str:
    """Return the package that a recipe adds its file of Python to."""
    path: str = next(path for _, path, _ in FILE.findall(RECIPES[title]) if path.endswith(".py"))
    return path.rpartition("/")[0].replace("/", ".")


FROM_OUTSIDE = [title for title in RECIPES if package(title) in {kind.package for kind in KINDS}]


@pytest.mark.long
@pytest.mark.parametrize("title", FROM_OUTSIDE)
def test_a_recipe_works_unchanged_from_outside(title: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, text = next((path, text) for _, path, text in FILE.findall(RECIPES[title]) if path.endswith(".py"))
    name = Path(path).name
    (here / name).write_text(text, encoding="utf-8")
    uses = {
        "A mask": "mask=strided", "A score": "score=kerple", "A position": "position=temperature",
        "A normalizer": "normalizer=relu",
        "A form": "variant=[looped,matrix,einsum]", "A metric": "metrics=[brightest,faintest]",
        "A check": "check=shares normalizer=sigmoid", "A figure": "report=full",
        "A source of embeddings": "embeddings=sines embeddings.source.sines.speed=2 embeddings.tokens=3",
    }[title]  # fmt: skip
    words = [*uses.split(), *(["embeddings.d_model=4"] if "sines" in uses else []), "head=1"]
    assert cli.obey(["--with", name, *([] if title == "A figure" else ["report=none"]), *words]) == 0
    printed = capsys.readouterr()
    assert not printed.err
    said = {"A metric": "brightest", "A check": "0 of 4 variants", "A form": "matrix and einsum give the same"}
    assert said.get(title, "give the same result (group A)") in printed.out
    assert title != "A figure" or (here / "outputs/latest/figures/peaks.svg").is_file()


def test_a_class_is_registered_and_returned(here: Path) -> None:
    before = weights("mask=none")

    @attn_exp.register
    @dataclass(frozen=True)
    class OwnKeyOnly(Mask):
        def allows(self, grid: Grid) -> Any:
            return grid.query == grid.key

    assert decode.refuses(rules.rules.Rules(masks=(OwnKeyOnly(),)))
    np.testing.assert_array_equal(weights("mask=own_key_only"), [np.eye(5)])
    np.testing.assert_array_equal(weights("mask=none"), before)


def test_values_are_registered_by_name() -> None:
    matrix = form("matrix")
    attn_exp.register(Form(matrix.attend, matrix.refuses), name="mine")
    brightest = attn_exp.register(Metric("brightest", lambda subject: 7.0, meaning="seven"))
    attn_exp.register(brightest, name="as_bright")
    found = attn_exp.run("variant=[matrix,mine]", "metrics=[brightest,as_bright]", "head=1").comparison
    assert [row.same_as for row in found.rows] == ["A", "A"]
    assert {record.value for finding in found.checks for record in finding.records} == {7.0}


def test_a_file_is_registered_and_the_command_names_it(here: Path) -> None:
    attn_exp.register("mine.py")
    assert attn_exp.run("mask=mine").command == "python -m attn_exp --with mine.py mask=mine"


@dataclass(frozen=True)
class Near(Mask):
    reach: int = 1

    def allows(self, grid: Grid) -> Any:
        return np.abs(np.subtract(grid.query, grid.key)) <= self.reach


class Bare(Mask):
    def allows(self, grid: Grid) -> Any:
        return True


def test_register_refuses_in_one_sentence() -> None:
    wrong = Example({"reach": 1}, ("██·", "███", "·█·"))
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (Bare, {}, "Bare is not a frozen dataclass"),
        (3, {}, "got 3; expected a subclass of Mask"),
        (package, {}, "got of type function; expected a subclass"),
        (Near, {"name": "causal"}, "mask=causal is taken"),
        (Near, {"name": "two words"}, "expected a name of letters, digits and _"),
        (Near, {"example": wrong}, r"mask=near does not reproduce its EXAMPLE: row 2, column 2 is 1, expected 0"),
        (Form(form("matrix").attend), {}, r"a form needs a name: attn_exp\.register\(FORM, name=\"mine\"\)"),
        (Metric("all", lambda subject: 1.0, meaning=""), {}, "metric=all is taken"),
    ]
    for member, more, said in cases:
        with pytest.raises(UserError, match=said):
            attn_exp.register(member, **more)
    assert not registry.OUTSIDE


# A member that raises, gives what is none of its kind, or ends the process

IMPORTS = f"""{HEAD}
import os, sys
import numpy as np
from attn_exp.experiment.metrics.metric import Metric
from attn_exp.forms.form import Form
from attn_exp.rules.normalizers.normalizer import Normalizer
from attn_exp.rules.positions.position import Position
"""
MEMBER = {
    "mask": "@dataclass(frozen=True)\nclass Odd(Mask):\n    def allows(self, given):\n        ",
    "score": "@dataclass(frozen=True)\nclass Odd(Score):\n    def bend(self, given):\n        ",
    "position": "@dataclass(frozen=True)\nclass Odd(Position):\n    def turn(self, given, positions):\n        ",
    "normalizer": "def odd(given, extra): ",
    "variant": "def odd(given, k, v, rules): ",
    "metrics": "def odd(given): ",
}
LAST = {
    "normalizer": "NORMALIZER = Normalizer(odd)",
    "variant": "FORM = Form(odd)",
    "metrics": "METRICS = [Metric('odd', odd, 'a number')]",
}
DEEDS = {
    "raise IndexError('out of it')": "IndexError: out of it",
    "raise ValueError": "ValueError",
    "sys.exit(0)": "ended without an answer (SystemExit: 0)",
    "return None": "",
    "return 'all'": "",
    "return np.ones((7, 5, 3, 2, 1)) * np.nan": "",
}


@pytest.mark.parametrize("deed", DEEDS, ids=str)
@pytest.mark.parametrize("group", MEMBER)
def test_an_odd_member_is_one_line(group: str, deed: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "odd.py").write_text(f"{IMPORTS}\n{MEMBER[group]}{deed}\n{LAST.get(group, '')}\n", encoding="utf-8")
    chosen = f"{group}=[odd]" if group in ("metrics", "mask") else f"{group}=odd"
    assert exit_of("--with", "odd.py", chosen, "report=none") == 2
    printed = capsys.readouterr()
    lines = [line for line in printed.err.splitlines() if "has no EXAMPLE" not in line]
    assert len(lines) == 1 and lines[0].startswith("attn_exp: error: ") and "odd" in lines[0]
    assert DEEDS[deed] in lines[0]
