"""What somebody else has put where we write stays as it is, and one line says so; what we wrote is written anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_exp.runs import folders, store
from attn_exp.runs.grades import grade_answers
from attn_exp.runs.sheets import write_sheets
from attn_exp.sweeps.compare import compare
from tests.refusal import refusal
from tests.runs.test_classroom import home
from tests.runs.test_store import a_run
from tests.sweeps.command import quickly

__all__ = ["home"]
MINE = "<!doctype html>\n<title>mine</title>\n"
NONE = {"tables": False, "figures": False, "pages": False}
STAYS = "already exists and was not written by attn-exp, so it is kept; rename or remove it"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_index_of_somebody_elses_stays(tmp_path: Path) -> None:
    store.save(a_run(), tmp_path)
    page = folders.rebuild_index(tmp_path)
    folders.rebuild_index(tmp_path)
    of_a_run = page.read_text().replace("attn-exp index", "attn-exp run").replace("Runs and sweeps", "A run")
    for mine in (MINE, "", of_a_run):
        page.write_text(mine)
        before = contents(tmp_path)
        assert STAYS in refusal(folders.rebuild_index, tmp_path)
        assert contents(tmp_path) == before


def test_latest_of_ours_is_moved_whether_link_or_text_and_whether_its_run_is_there(tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to("runs/gone")
    for _ in range(2):
        run = store.save(a_run(), tmp_path)
        assert (tmp_path / "latest").resolve() == run
    (tmp_path / "latest").unlink()
    (tmp_path / "latest").write_text("runs/gone\n")
    assert (tmp_path / "latest").resolve() != store.save(a_run(), tmp_path)


@pytest.mark.long
def test_a_table_of_grades_written_by_hand_or_changed_stays(home: Path) -> None:
    write_sheets(["embeddings=random", "embeddings.tokens=3", "embeddings.d_model=2", "stages=[scores]", "to=one"])
    words, grades = ["one/answers.csv", "one/key.json"], Path("one/grades")
    for name in ("grades.csv", "class.html"):
        grades.mkdir(exist_ok=True)
        (grades / name).write_text(MINE)
        assert STAYS in refusal(grade_answers, words)
        assert contents(grades) == {name: MINE.encode()}
        (grades / name).unlink()
    for _ in range(2):
        grade_answers(words)
    for name, said in (("marked/everybody.html", STAYS), ("grades.csv", "has been changed since it was written")):
        text = (grades / name).read_text()
        (grades / name).write_text(MINE if name.endswith("html") else f"{text}Ada,5,9,,,well done\n")
        assert said in refusal(grade_answers, words)
        (grades / name).write_text(text)


def test_a_comparison_page_of_somebody_elses_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [str(store.save(a_run(report=NONE), tmp_path)) for _ in range(2)]
    for _ in range(2):
        compare(runs)
    (page,) = (tmp_path / "comparisons").iterdir()
    page.write_text(MINE)
    assert STAYS in refusal(compare, runs)
    assert page.read_text() == MINE


SWEEP = ("-m", "seed=0,1", "variant=[matrix]", "report=tables", "sweep.name=mine")


@pytest.mark.long
@pytest.mark.parametrize("name", ["results.csv", "notes.txt", "manifest.json", "report.md"])
def test_a_folder_of_somebody_elses_is_no_sweep(name: str, tmp_path: Path) -> None:
    (tmp_path / "outputs/sweeps/mine").mkdir(parents=True)
    (tmp_path / "outputs/sweeps/mine" / name).write_text("{}")
    _, said = quickly(tmp_path, *SWEEP, code=2)
    assert STAYS in said and said.count("\n") == 1
    assert contents(tmp_path) == {f"outputs/sweeps/mine/{name}": b"{}"}
