"""The newest report is opened, and a report is drawn again from its results alone."""

from __future__ import annotations

import json
import shutil
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attn_exp import forms
from attn_exp.config.spelling import Repeat
from attn_exp.experiment import compare, executing
from attn_exp.runs import execution, folders
from tests.compose import config
from tests.refusal import refused

KNOWN = (
    "choose one of figures.format, figures.preset, figures.width, figures.height, figures.font, figures.font_size, "
    "figures.only, report.depth"
)


def a_run(folder: Path, *words: str) -> Path:
    return execution.run(config(f"output_dir={folder}", *words), Repeat()).folder


def never(*arguments: object, **settings: object) -> Any:
    raise AssertionError("attention is computed")


def forbid_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every way to compute attention fail."""
    monkeypatch.setattr(executing, "execute", never)
    monkeypatch.setattr(compare, "compute_trace", never)
    monkeypatch.setattr(execution, "tabulate", never)
    monkeypatch.setattr(execution, "measure", never)
    for name in forms.NAMES:
        monkeypatch.setattr(f"attn_exp.forms.{name}.FORM", replace(forms.form(name), attend=never))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_report_is_drawn_again_as_it_was_and_nothing_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = a_run(tmp_path)
    before = files(folder)
    for path in (folder / "report.html", folder / "report.md"):
        path.unlink()
    shutil.rmtree(folder / "figures")
    forbid_attention(monkeypatch)
    assert execution.render_again(folder) == str(folder / "report.html")
    assert files(folder) == before


def test_a_run_without_a_report_gets_a_full_one_and_the_index_links_it(tmp_path: Path) -> None:
    folder = a_run(tmp_path, "report=none")
    assert not (folder / "report.html").exists()
    execution.render_again(tmp_path / "latest")
    assert {"report.html", "report.md", "run.json"} <= set(files(folder))
    assert f'href="runs/{folder.name}/report.html"' in (tmp_path / "index.html").read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.parametrize("report", ["full", "none"])
def test_figures_are_drawn_again_as_a_run_that_was_told_so_draws_them(
    report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = a_run(tmp_path, f"report={report}")
    expected = a_run(tmp_path, "report=full", "figures.format=[pdf,svg]", "figures.width=4")
    forbid_attention(monkeypatch)
    execution.render_again(folder, ["figures.format=[pdf, svg]", "figures.width=4"])
    before, after = ({path.name: path for path in (each / "figures").iterdir()} for each in (expected, folder))
    assert {"weights.pdf", "weights.svg"} <= set(before) <= set(after)
    assert all(after[name].read_bytes() == before[name].read_bytes() for name in before)
    assert (folder / "report.html").exists() == (report != "tables")


def date(folder: Path, started: str) -> None:
    """Let a run have been started at another time."""
    about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    (folder / "run.json").write_text(json.dumps(about | {"started": started}), encoding="utf-8")


@pytest.mark.parametrize("there", [True, False])
def test_the_newest_report_is_opened_or_its_path_is_said(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newest = (a_run(tmp_path, "report=tables") for _ in range(2))
    date(older, "2026-11-21T04:00:00+0000")
    date(newest, "2026-11-21T04:00:01+0000")
    opened: list[str] = []

    def browser(address: str) -> bool:
        opened.append(address)
        return there

    monkeypatch.setattr(webbrowser, "open", browser)
    said = folders.open_newest([str(tmp_path)])
    assert opened == [(newest / "report.md").as_uri()]
    assert said == ("" if there else str(newest / "report.md"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("report", "attn-exp report: expected attn-exp report DIR [report.depth=reading] [figures.only=weights]"),
        ("report here title=a", f"unknown setting of attn-exp report 'title'; {KNOWN}"),
        (
            "report here figures.widht=5",
            f"unknown setting of attn-exp report 'figures.widht'; did you mean figures.width? {KNOWN}",
        ),
        ("report here report.depth=some", "unknown report.depth 'some'; choose one of reading, all"),
        ("report here report.depth", "report.depth: expected report.depth=VALUE"),
        ("report here figures.format", "figures.format: expected figures.format=VALUE"),
        ("report here figures.format=gif", "unknown figures.format 'gif'; choose one of png, svg, pdf"),
        ("report here figures.format=[]", "figures.format=[]: expected at least one of png, svg, pdf"),
        ("report here figures.format=", "unknown figures.format ''; choose one of png, svg, pdf"),
        ("report here figures.width=wide", "figures.width=wide: expected a number from 3 to 20"),
        ("report here figures.width=nan", "figures.width=nan: expected a number from 3 to 20"),
        (
            "report here figures.width=5",
            "here: not a finished run that can be read (No such file or directory)",
        ),
        ("open a b", "attn-exp open a b: expected attn-exp open [DIR]"),
        ("open nowhere", "nowhere: cannot be read (No such file or directory)"),
        ("index nowhere", "nowhere: cannot be read (No such file or directory)"),
    ],
)
def test_a_wrong_command_is_one_line_and_2(
    words: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(words.split(), monkeypatch, capsys) == f"attn_exp: error: {said}\n"


def test_a_run_is_shown_again_at_another_depth_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = a_run(tmp_path)
    before = files(folder)
    forbid_attention(monkeypatch)
    execution.render_again(folder, ["report.depth=reading"])
    assert "ulp" not in (folder / "report.md").read_text(encoding="utf-8")
    assert '<html lang="en" data-depth="reading">' in (folder / "report.html").read_text(encoding="utf-8")
    execution.render_again(folder, ["report.depth=all"])
    assert files(folder) == before
