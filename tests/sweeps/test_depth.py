"""What a reader of a sweep, or of two runs side by side, is shown: all numbers, or those that reading needs."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

import attn_exp
from attn_exp.report.sweep.page import sweep_page
from attn_exp.report.versus import Versus, versus_page
from attn_exp.sweeps import overview
from attn_exp.sweeps.rerun import render_again
from attn_exp.sweeps.swept import load
from attn_exp.sweeps.versus.command import compare
from attn_exp.sweeps.versus.command import side_by_side as versus_of
from tests.refusal import refused
from tests.report.browser import need_chromium
from tests.report.tab import visit
from tests.sweeps.command import quickly, the_sweep

DEEP = re.compile(r"\bulp\b|error_ulp", re.IGNORECASE)
WORDS = ("head=1,2", "seed=range(0,6)", "embeddings=random", "embeddings.d_model=8", "variant=[multi_head,matrix]")

SEEN = """
    for (const details of document.querySelectorAll("details")) details.open = true;
    const choices = () => [...document.querySelectorAll("#explore option")].filter((option) => !option.hidden);
    const seen = () => [document.querySelector("main").innerText.replace(/^metric$.*?^colour$/ms, ""),
                        choices().map((option) => option.textContent).join()];
    const button = document.getElementById("depth"), before = seen();
    button.click();
    const after = seen();
    button.click();
    return [before, after, seen()];
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("depth")
    quickly(folder, "-m", *WORDS, "sweep.engine=serial", "report=tables", "report.pages=true")
    return the_sweep(folder)


def test_a_sweep_is_shown_again_at_another_depth_and_back(swept: Path) -> None:
    before = {name: (swept / name).read_bytes() for name in ("report.md", "report.html", "results.csv", "effects.csv")}
    assert DEEP.search(before["report.md"].decode())
    said = render_again([str(swept), "report.depth=reading"])
    assert not DEEP.search(said) and "entropy" in said
    assert not DEEP.search((swept / "report.md").read_text(encoding="utf-8"))
    assert [(swept / name).read_bytes() for name in ("results.csv", "effects.csv")] == list(before.values())[2:]
    assert json.loads((swept / "manifest.json").read_text())["report"]["depth"] == "reading"
    render_again([str(swept), "report.depth=all"])
    assert {name: (swept / name).read_bytes() for name in before} == before


@pytest.mark.long
def test_the_same_sweep_with_the_setting_is_written_again_without_being_computed(tmp_path: Path) -> None:
    words = ("-m", "seed=0,1,2", "sweep.engine=serial", "report=tables")
    first, _ = quickly(tmp_path, *words)
    second, _ = quickly(tmp_path, *words, "report.depth=reading")
    assert DEEP.search(first) and not DEEP.search(second)
    with (the_sweep(tmp_path) / "results.csv").open(encoding="utf-8") as file:
        assert "error_ulp" in next(csv.reader(file))


@pytest.mark.long
@pytest.mark.parametrize("depth", ["all", "reading"])
def test_the_button_of_a_page_changes_what_is_seen_and_back(depth: str, swept: Path, tmp_path: Path) -> None:
    need_chromium()
    loaded = load(swept)
    about = {**loaded.about, "report": {**loaded.about["report"], "depth": depth}}
    found = visit(
        sweep_page(
            overview.contents(about, loaded.summary, "all"),
            overview.explorable(about, loaded.summary),
            overview.depth_of(about),
            {},
        ),
        SEEN,
        tmp_path,
    )
    first, second, third = found.answer
    brief, whole = (first, second) if depth == "reading" else (second, first)
    assert found.console == [] and first == third
    assert all(map(DEEP.search, whole)) and not any(map(DEEP.search, brief))
    assert "largest weight" in brief[0] and "largest weight" in brief[1]


def moved(tmp_path: Path) -> tuple[Path, Path]:
    """Return the folders of two runs that differ in their scale."""
    first, second = (attn_exp.run("report=none", f"scale={scale}") for scale in ("true", "0.4"))
    return first.save(tmp_path), second.save(tmp_path)


def test_two_runs_are_compared_at_the_depth_that_is_asked_for(tmp_path: Path) -> None:
    places = [str(place) for place in moved(tmp_path)]
    whole, brief = (compare([*places, *more])[0] for more in ([], ["report.depth=reading"]))
    assert "error_ulp" in whole and "largest_weight" in whole
    assert not DEEP.search(brief) and "largest_weight" in brief
    page = Path(brief.splitlines()[-1]).read_text(encoding="utf-8")
    assert '<html lang="en" data-depth="reading">' in page and "error ulp" in page


@pytest.mark.long
def test_the_page_of_two_runs_has_the_button_too(tmp_path: Path) -> None:
    need_chromium()
    found = visit(versus_page(versus_of(*moved(tmp_path))), SEEN, tmp_path)
    (whole, _), (brief, _), _ = found.answer
    assert found.console == []
    assert DEEP.search(whole) and not DEEP.search(brief) and "largest weight" in brief


def test_a_page_without_such_numbers_has_no_button() -> None:
    """No control that does nothing."""
    page = versus_page(Versus("a", "b", False, ("No number moved.",), ()))
    assert "<button" not in page and "<script" not in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("report {} title=a", "unknown setting of attn-exp report of a sweep 'title'; choose one of figures.format, "),
        ("report {} report.depth=deep", "unknown report.depth 'deep'; choose one of reading, all"),
        ("compare {0} {0} report.depth=", "unknown report.depth ''; choose one of reading, all"),
        ("compare {0} {0} title=a", "expected attn-exp compare DIR DIR [--exit-code] [report.depth=reading]"),
    ],
)
def test_a_wrong_setting_is_one_line_and_2(
    words: str, said: str, swept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(words.format(swept).split(), monkeypatch, capsys)
