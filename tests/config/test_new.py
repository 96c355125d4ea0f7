"""`attn-exp new`: what it writes runs as it is, and nothing that is there already is touched."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml

from attn_exp import cli
from attn_exp.config.compose import compose_config
from attn_exp.experiment.compare import compare
from tests.refusal import refused


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.obey(["new", *words]) == cli.DONE
    return capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "folder"),
    [(["mine_too"], "mine"), (["a/b/mine_too"], "a/b"), (["mine_too", "--config-dir", "with space"], "with space")],
)
def test_the_command_that_it_says_runs_what_it_wrote(
    words: list[str], folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file, empty, command = said(capsys, *words).splitlines()
    assert (file, empty) == (f"{folder}/experiment/mine_too.yaml", "")
    _, module, package, *rest = shlex.split(command)
    assert (module, package) == ("-m", "attn_exp")
    assert cli.obey([*rest, "report=none", "strict=true"]) == cli.DONE
    assert "2 of 2 published results agree." in capsys.readouterr().out


def test_a_number_that_is_changed_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "mine_too")
    file = Path("mine/experiment/mine_too.yaml")
    text = file.read_text(encoding="utf-8")
    first = yaml.safe_load(text)["published"][0]["printed"].split()[0].strip("[")
    file.write_text(text.replace(first, "0.9999"), encoding="utf-8")
    found = compare(compose_config(["experiment=mine_too"], ["mine"]))
    assert [figure.agrees for figure in found.published] == [False, True]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "expected attn-exp new [DIR/]NAME [--config-dir DIR]"),
        ("a b", "expected attn-exp new [DIR/]NAME [--config-dir DIR]"),
        ("a --config-dir", "expected attn-exp new [DIR/]NAME [--config-dir DIR]"),
        ("--dir a", "expected attn-exp new [DIR/]NAME [--config-dir DIR]"),
        ("a/b --config-dir c", "expected attn-exp new [DIR/]NAME [--config-dir DIR]"),
        ("3", "expected letters, digits, _ and -, such as my_notebook"),
        (".hidden", "expected letters, digits"),
        ("..", "expected letters, digits"),
        ("a/", "expected letters, digits"),
        ("null", "expected letters, digits"),
        ("nan", "expected letters, digits"),
        ("café", "expected letters, digits"),
        ("the_cat_sat", "the project already has a preset of this name; choose another"),
        ("there", "mine/experiment/there.yaml: already exists; choose another name, or edit it"),
        ("a_file/x", "a_file/experiment/x.yaml: cannot be written"),
        ("linked/x", "linked/experiment/x.yaml: cannot be written (is a link"),
        ("dangling", "mine/experiment/dangling.yaml: already exists"),
    ],
)
def test_what_it_refuses_is_one_line_and_leaves_nothing(
    words: str, message: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "mine/experiment").mkdir(parents=True)
    (place / "mine/experiment/there.yaml").write_text("head: 2\n", encoding="utf-8")
    (place / "mine/experiment/dangling.yaml").symlink_to(place / "elsewhere.yaml")
    (place / "a_file").write_text("", encoding="utf-8")
    (place / "linked").mkdir()
    (place / "linked/experiment").symlink_to(place / "mine/experiment")
    before = sorted(place.rglob("*"))
    assert message in refused(["new", *words.split()], monkeypatch, capsys)
    assert sorted(place.rglob("*")) == before
    assert (place / "mine/experiment/there.yaml").read_text(encoding="utf-8") == "head: 2\n"
