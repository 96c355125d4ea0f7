"""Code of the user's own runs where the command line names it; nothing on disk starts any."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import attn_exp
from attn_exp import cli, registry
from attn_exp.config.compose import compose_config
from attn_exp.errors import UserError
from attn_exp.own_code import Named
from attn_exp.runs import trust
from tests.refusal import refusal
from tests.runs.test_own_members import ALL, WITH
from tests.runs.test_own_members import SPY as MEMBERS

SPY = """
from pathlib import Path
import numpy as np

Path(__file__).with_name("ran").touch()


def attention(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores)
    weights = weights / weights.sum(-1, keepdims=True)
    return weights @ v, weights
"""
NAMED = ("variant=[matrix,mine]", "variant.mine.form=mine.py:attention")


@pytest.fixture(autouse=True)
def spy(here: Path) -> None:
    (here / "mine.py").write_text(SPY)


def newest(here: Path) -> Path:
    return (here / "outputs" / "latest").resolve()


@dataclass(frozen=True)
class Kind:
    """What `mine.py` brings: its text, the words and messages that name it, and what changes its numbers."""

    text: str
    words: tuple[str, ...]
    name: str
    change: tuple[str, str]


KINDS = {
    "function": Kind(SPY, NAMED, "mine.py:attention", ("/ np.sqrt(q.shape[-1])", "")),
    "members": Kind(MEMBERS, (*WITH, *ALL), "mine.py", ("% self.step == 0", "> 99")),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, spy: None, here: Path) -> Kind:
    """Write each kind of code as `mine.py`."""
    found = KINDS[request.param]
    (here / "mine.py").write_text(found.text)
    return found


def swept(kind: Kind, engine: str = "serial") -> list[str]:
    sweep = ("-m", "seed=0,1", "sweep.name=s", f"sweep.engine={engine}", "sweep.workers=2", "report=none")
    return [*kind.words, *sweep]


@pytest.mark.long
def test_what_is_on_disk_is_shown_without_any_code(here: Path, ran: Callable[[], bool], kind: Kind) -> None:
    assert cli.obey([*kind.words, "report=tables"]) == 0
    assert ran()
    folder = newest(here)
    before = (folder / "report.md").read_text()
    assert "mine" in before
    for _ in range(2):
        for words in (["report", str(folder)], ["index"], ["runs"]):
            cli.obey(words)
            assert not ran()
        assert (folder / "report.md").read_text() == before
        (here / "mine.py").unlink(missing_ok=True)
    assert not registry.OUTSIDE


@pytest.mark.long
def test_a_run_is_repeated_where_its_code_is_asked_for(
    here: Path, ran: Callable[[], bool], kind: Kind, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.obey([*kind.words, "report=none"]) == 0
    assert ran()
    folder, table = str(newest(here)), (newest(here) / "comparison.csv").read_bytes()
    with pytest.raises(
        UserError, match=rf"it runs code \({re.escape(kind.name)}\); review the code, then add --own-code"
    ):
        cli.obey(["rerun", folder])
    assert not ran()
    cli.obey(["rerun", folder, "--own-code"])
    assert ran()
    assert f"running {kind.name}, unchanged" in capsys.readouterr().err
    assert (newest(here) / "comparison.csv").read_bytes() == table
    (here / "mine.py").write_text(kind.text + "\n# changed\n")
    cli.obey(["rerun", folder, "--own-code"])
    assert f"running {kind.name}; its file has changed" in capsys.readouterr().err


@pytest.mark.long
def test_a_point_of_a_sweep_is_repeated_where_its_code_is_asked_for(
    here: Path, ran: Callable[[], bool], kind: Kind
) -> None:
    assert cli.obey(swept(kind, "process")) == 0
    assert ran()
    folder = "outputs/sweeps/s"
    for command in ("collect", "status", "report"):
        cli.obey([command, folder])
        assert not ran()
    with pytest.raises(UserError, match=rf"it runs code \({re.escape(kind.name)}\); .*--own-code"):
        cli.obey(["rerun", folder, "1"])
    assert not ran()
    cli.obey(["rerun", folder, "1", "--own-code"])
    assert ran()


def test_a_point_without_code_needs_no_leave(
    here: Path, ran: Callable[[], bool], capsys: pytest.CaptureFixture[str]
) -> None:
    forms = "variant.matrix.form=matrix,mine.py:attention"
    assert cli.obey(["-m", "variant=[matrix]", forms, "sweep.name=s", "sweep.engine=serial", "report=none"]) == 0
    assert ran()
    capsys.readouterr()
    cli.obey(["rerun", "outputs/sweeps/s", "0"])
    assert "running" not in capsys.readouterr().err
    assert not ran()
    with pytest.raises(UserError, match=r"it runs code \(mine\.py:attention\); "):
        cli.obey(["rerun", "outputs/sweeps/s", "1"])


@pytest.mark.long
def test_a_sweep_computes_again_what_the_code_has_changed(
    here: Path, kind: Kind, capsys: pytest.CaptureFixture[str]
) -> None:
    table = here / "outputs/sweeps/s/results.csv"
    cli.obey(swept(kind))
    before = table.read_text()
    cli.obey(swept(kind))
    assert "2 cached" in capsys.readouterr().err
    (here / "mine.py").write_text(kind.text.replace(*kind.change))
    cli.obey(swept(kind))
    assert "0 cached" in capsys.readouterr().err
    assert table.read_text() != before


def hostile_yaml(here: Path) -> list[str]:
    folder = here / "shared" / "variant"
    folder.mkdir(parents=True)
    (folder / "theirs.yaml").write_text("theirs:\n  form: mine.py:attention\n")
    return ["--config-dir", "shared", "variant=[matrix,theirs]", "report=none"]


@pytest.mark.long
@pytest.mark.parametrize(
    "more",
    [
        (),
        ("variant.theirs.form=${title}", "title=''"),
        ("title=mine.py:attention",),
        ("notes=[mine.py:attention]",),
        ("variant.theirs.form=./mine.py:attention", "variant.theirs.form=${notes.0}", "notes=['mine.py:attention']"),
        ("-m", "seed=0,1", "sweep.engine=serial"),
    ],
)
def test_a_shared_folder_of_yaml_starts_no_code(here: Path, ran: Callable[[], bool], more: tuple[str, ...]) -> None:
    refusal(cli.obey, [*hostile_yaml(here), *more])
    assert not ran()


def test_a_shared_experiment_cannot_swap_the_code(here: Path, ran: Callable[[], bool]) -> None:
    (here / "shared" / "experiment").mkdir(parents=True)
    (here / "shared" / "experiment" / "theirs.yaml").write_text(
        "# @package _global_\nvariant:\n  other:\n    form: mine.py:attention\n"
    )
    (here / "good.py").write_text("def attention(q, k, v):\n    return v\n")
    words = ["--config-dir", "shared", "experiment=theirs", "variant=[matrix,mine]", "report=none"]
    with pytest.raises(UserError, match=r"variant\.other\.form=mine\.py:attention is code"):
        cli.obey([*words, "variant.mine.form=good.py:attention"])
    assert not ran()


def test_a_longer_name_does_not_stand_for_a_shorter(here: Path, ran: Callable[[], bool]) -> None:
    folder = here / "shared" / "variant"
    folder.mkdir(parents=True)
    (folder / "theirs.yaml").write_text("theirs:\n  form: mine.py:attention\n")
    typed = f"variant.mine.form={here}/mine.py:attention_of_mine"
    config = compose_config(["variant=[matrix,mine,theirs]", typed], ["shared"])
    assert isinstance(config.variant["mine"].form, Named)
    assert not isinstance(config.variant["theirs"].form, Named)
    assert not ran()


def tampered(folder: Path, form: str) -> None:
    """Let a finished run name code, under a seal that fits."""
    path = folder / "run.json"
    about = json.loads(path.read_text())
    about["config"]["variant"]["matrix"]["form"] = form
    about["words"] = [*about["words"], f"variant.matrix.form={form}"]
    about["seal"] = trust.hash_description(about)
    path.write_text(json.dumps(about))


def test_a_run_from_elsewhere_starts_no_code(here: Path, ran: Callable[[], bool]) -> None:
    assert cli.obey(["variant=[matrix]", "report=none"]) == 0
    folder = newest(here)
    tampered(folder, "mine.py:attention")
    for words in (["report", str(folder)], ["index"], ["runs"], ["rerun", str(folder)]):
        with contextlib.suppress(UserError):
            cli.obey(words)
        assert not ran()
    with pytest.raises(UserError, match=r"--own-code|run\.json says mine.py:attention"):
        cli.obey(["rerun", str(folder)])


def test_a_manifest_from_elsewhere_starts_no_code(here: Path, ran: Callable[[], bool]) -> None:
    cli.obey(["-m", "variant=[matrix]", "seed=0,1", "sweep.name=s", "sweep.engine=serial", "report=none"])
    path = here / "outputs" / "sweeps" / "s" / "manifest.json"
    about = json.loads(path.read_text())
    about["fixed"] = [*NAMED, "report=none"]
    about["words"] = ["-m", *NAMED]
    path.write_text(json.dumps(about))
    for words in (["rerun", "outputs/sweeps/s", "0"], ["collect", "outputs/sweeps/s"], ["status", "outputs/sweeps/s"]):
        try:
            cli.obey(words)
        except UserError as error:
            assert "\n" not in str(error)
        assert not ran()


def test_python_runs_what_its_caller_names(here: Path) -> None:
    result = attn_exp.run(*NAMED)
    assert result.table["error"].max() < 1e-15 and "mine" in repr(result)
    with pytest.raises(UserError, match="is code, which runs only if the command line names it"):
        attn_exp.run("variant=[theirs]", config_dir=here / hostile_yaml(here)[1])
    shutil.rmtree(here / "shared")
