"""What a reader of a sweep, or of two runs side by side, is shown: all numbers, or those that reading needs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from attn_exp.report.documents import sweep_page
from attn_exp.sweeps import overview
from attn_exp.sweeps.stored import render_again
from attn_exp.sweeps.swept import load
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
@pytest.mark.parametrize("depth", ["all", "reading"])
def test_the_button_of_a_page_changes_what_is_seen_and_back(depth: str, swept: Path, tmp_path: Path) -> None:
    need_chromium()
    loaded = load(swept)
    about = {**loaded.about, "report": {**loaded.about["report"], "depth": depth}}
    found = visit(
        sweep_page(
            overview.page_contents(about, loaded.summary, "all"),
            overview.explorer_data(about, loaded.summary),
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
