"""YAML of somebody else: values come in, and nothing in it is run, read from the environment or silently dropped."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from attn_exp import cli
from attn_exp.config.compose import compose_config
from tests import ROOT

SIDE_EFFECT = "_target_: shutil.copyfile\n    src: a_file\n    dst: copied\n"
CALLBACK = f"hydra:\n  callbacks:\n   mine:\n    {SIDE_EFFECT}"
SECTION = "a hydra: section is not allowed; remove it, or pass its settings on the command line"
TARGET = "_target_ is not allowed: settings files cannot run code"

WHOLE = "# @package _global_\n"
ENVIRONMENT = "only the command line may read the environment"
LISTED = "notes:\n  - {_target_: shutil.copyfile, src: a_file, dst: copied}\n"

FILES = [
    (f"{WHOLE}{CALLBACK}", SECTION),
    (f"# @package hydra.callbacks\nmine:\n    {SIDE_EFFECT}", SECTION),
    (f"{WHOLE}hydra:\n  run:\n    dir: /tmp/elsewhere\n", SECTION),
    (f"{WHOLE}embeddings:\n  a:\n    {SIDE_EFFECT}", TARGET),
    (WHOLE + LISTED, TARGET),
    ("head: 4\n", "an experiment sets the whole run; write # @package _global_ as its first line"),
]
SECRETS = [WHOLE + "title: ${oc.env:HOME}\n", WHOLE + "title: ${oc.${notes.0}:HOME}\nnotes: [env]\n"]
PATHS = [
    [],
    ["--cfg", "job", "--resolve"],
    ["-m", "seed=0,1", "sweep.engine=serial"],
]


def in_two_ways(files: list[tuple[str, str]]) -> list[tuple[tuple[str, str], list[str]]]:
    """Pair each file with two of the ways to read it, so that each way meets several files."""
    return [(file, PATHS[(place + step) % len(PATHS)]) for place, file in enumerate(files) for step in (0, 2)]


def said(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line that a mistake is told in."""
    monkeypatch.setattr("sys.argv", ["attn-exp", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    printed = capsys.readouterr()
    assert stop.value.code == cli.USAGE
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


def a_folder(home: Path, name: str, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (home / name / path).parent.mkdir(parents=True, exist_ok=True)
        (home / name / path).write_text(text, encoding="utf-8", errors="surrogateescape")
    return home / name


HIDDEN = [
    ("variant/matrix", "variant=[matrix]"),
    ("mask/causal", "mask=causal"),
    ("embeddings/who_likes_what", "head=2"),
    ("config", "head=2"),
    ("experiment/mine", "experiment=mine"),
]


@pytest.mark.parametrize(("file", "options"), in_two_ways(HIDDEN))
def test_a_file_that_shipped_yaml_would_hide_is_not_passed_over_in_silence(
    file: tuple[str, str],
    options: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Chosen by a word, by default, as the main file, or by a file of the user's own."""
    name, word = file
    monkeypatch.chdir(tmp_path)
    mine = {"experiment/mine.yaml": WHOLE + "defaults:\n  - override /mask: window\n", "mask/window.yaml": "left: 1\n"}
    a_folder(tmp_path, "mine", mine if name == "experiment/mine" else {f"{name}.yaml": "seed: 3\n"})
    message = said(["--config-dir", "mine", word, *options], monkeypatch, capsys)
    hidden = "mask/window" if name == "experiment/mine" else name
    assert f"mine/{hidden}.yaml: the shipped YAML of that name would be read instead; rename yours" in message


def test_a_copy_of_shipped_yaml_and_a_file_that_nobody_asks_for_are_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "conf", tmp_path / "mine")
    (tmp_path / "mine" / "mask" / "window.yaml").write_text("left: 1\n")
    assert cli.obey(["--config-dir", "mine", "mask=causal", "report=none"]) == cli.DONE


@pytest.mark.parametrize(("file", "options"), in_two_ways(FILES))
def test_a_file_that_could_act_is_refused_in_one_line(
    file: tuple[str, str], options: list[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    text, message = file
    monkeypatch.chdir(tmp_path)
    a_folder(tmp_path, "mine", {"experiment/mine.yaml": text})
    (tmp_path / "a_file").write_text("")
    line = said(["--config-dir", "mine", "experiment=mine", "report=none", *options], monkeypatch, capsys)
    assert message in line
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a_file", "mine"]


@pytest.mark.parametrize(("text", "options"), list(itertools.product(SECRETS, PATHS)))
def test_a_file_that_reads_the_environment_is_refused(
    text: str, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    a_folder(tmp_path, "mine", {"experiment/mine.yaml": text})
    line = said(["--config-dir", "mine", "experiment=mine", "report=none", *options], monkeypatch, capsys)
    assert ENVIRONMENT in line
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine"]


ACTING = [
    ("+hydra.callbacks.x._target_=os.getcwd", "Hydra's own settings are not supported"),
    ("+mask.causal={_target_:os.getcwd}", "_target_ is not allowed: settings cannot run code"),
    ("hydra.sweeper._target_=os.getcwd", "choose where sweeps run with sweep.engine"),
]


@pytest.mark.parametrize(("words", "message"), ACTING)
def test_a_word_that_could_act_is_refused(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in said([words, "mask=causal"], monkeypatch, capsys)


def test_the_environment_is_read_where_the_user_types_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHO", "somebody")
    monkeypatch.setattr("sys.argv", ["attn-exp", "title=${oc.env:WHO}", "--cfg", "job", "--resolve"])
    cli.main()
    assert "\ntitle: somebody\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name",
    ["my experiments", "日本", "it's", 'q"uote', "a,b&c", "[x]", "{y}=%", "$HOME", "~"],
)
def test_a_folder_of_any_name_is_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    a_folder(tmp_path, name, {"experiment/mine.yaml": "# @package _global_\nhead: 4\n"})
    monkeypatch.setattr("sys.argv", ["attn-exp", "--config-dir", name, "experiment=mine", "--cfg", "job"])
    cli.main()
    assert "\nhead: 4\n" in capsys.readouterr().out
    words = ["-m", "experiment=mine", "seed=0,1", "variant=[matrix]", "sweep.dry_run=true"]
    monkeypatch.setattr("sys.argv", ["attn-exp", "--config-dir", name, *words])
    cli.main()
    assert "2 points" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("seed: 1:30", "seed=1:30: expected a whole number of at least 0"),
        ("seed: 010", "seed=010: expected a whole number of at least 0"),
        ("seed: ${nope.there}", "seed: Interpolation key 'nope.there' not found"),
        ('title: "${"', "no viable alternative at input '${'"),
        ("title: \udcff", "{file}: cannot be read ('utf-8' codec can't decode byte 0xff in position {place}"),
    ],
)
def test_numbers_and_interpolations_mean_what_they_show(
    text: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    a_folder(tmp_path, "mine", {"experiment/mine.yaml": f"{WHOLE}{text}\n"})
    file = tmp_path / "mine" / "experiment" / "mine.yaml"
    line = line.replace("{file}", str(file)).replace("{place}", str(len(WHOLE) + len("title: ")))
    assert line in said(["--config-dir", "mine", "experiment=mine"], monkeypatch, capsys)


def test_a_byte_order_mark_is_no_part_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    a_folder(tmp_path, "mine", {"experiment/mine.yaml": f"\ufeff{WHOLE}seed: 3\n"})
    assert compose_config(["experiment=mine"], ["mine"]).seed == 3
