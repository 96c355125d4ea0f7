"""What operating systems do differently: each way that there is, on a system that has it and as if it had none."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from attn_exp import drafts, machine, system
from attn_exp.runs.classroom.sheets import file_names
from tests import ROOT
from tests.refusal import refused

HOLD = """
import sys
from pathlib import Path
from attn_exp import system
with system.locked(Path(sys.argv[1]), "me"):
    print("held", flush=True)
    sys.stdin.read()
"""

PARENT = """
import json, os, time
from attn_exp import system
system.PARENT_DEATH_SIGNAL = 0
def work(name):
    system.serve_parent()
    open(name, "w").close()
    time.sleep(60)
if __name__ == "__main__":
    start = system.processes().Process
    workers = [start(target=work, args=(name,), daemon=True) for name in ("1", "2")]
    for worker in workers:
        worker.start()
    while not (os.path.exists("1") and os.path.exists("2")):
        time.sleep(0.01)
    print(json.dumps([worker.pid for worker in workers]), flush=True)
    time.sleep(60)
"""


@pytest.fixture(params=["record locks", "none"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With the record locks of POSIX, and without."""
    if request.param == "none":
        monkeypatch.setitem(sys.modules, "fcntl", None)
    yield request.param


def other(way: str, path: Path) -> subprocess.Popen[str]:
    """Start another process that holds a file, and wait until it does."""
    code = HOLD if way == "record locks" else f"import sys; sys.modules['fcntl'] = None\n{HOLD}"
    process = subprocess.Popen(
        [sys.executable, "-c", code, path], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


@pytest.mark.long
def test_a_lock_says_who_holds_it_and_dies_with_its_holder(way: str, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert system.holder(path) is None
    with other(way, path) as process:
        assert system.holder(path) == "me"
        with pytest.raises(system.HeldError, match="me"), system.locked(path, "you"):
            pass
        process.kill()
        process.wait()
    assert system.holder(path) is None
    with system.locked(path, "you"):
        pass
    assert os.listdir(tmp_path) == ["lock"]
    assert path.read_bytes() == b""


def test_a_lock_is_no_link_and_no_second_name(way: str, tmp_path: Path) -> None:
    foreign, path = tmp_path / "foreign", tmp_path / "lock"
    foreign.write_text("mine")
    for make in (path.symlink_to, path.hardlink_to):
        make(foreign)
        with pytest.raises(OSError, match="its lock is"), system.locked(path, "you"):
            pass
        path.unlink()
    assert foreign.read_text() == "mine"


def test_a_text_stands_for_a_link_where_links_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "runs" / "first"
    folder.mkdir(parents=True)

    def refuse(*arguments: object, **more: object) -> None:
        raise OSError("a required privilege is not held by the client")

    monkeypatch.setattr(os, "symlink", refuse)
    drafts.point(tmp_path / "latest", folder)
    assert (tmp_path / "latest").read_bytes() == b"runs/first\n"
    assert machine.folder(str(tmp_path / "latest")) == folder
    assert sorted(os.listdir(tmp_path)) == ["latest", "runs"]


@pytest.mark.parametrize("text", ["", "runs", "../runs\n", "/etc\n", "runs/..\n", "a/b/c\n", "runs/other\n", "\xff\n"])
def test_a_text_that_names_no_folder_beside_it_stands_for_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "runs" / "first").mkdir(parents=True)
    path = tmp_path / "latest"
    path.write_bytes(text.encode("latin-1"))
    assert system.pointed_at(path) is None
    assert machine.folder(str(path)) == path


def test_what_another_program_holds_open_for_a_moment_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, refused = os.replace, [PermissionError(), PermissionError()]

    def sometimes(source: Path, target: Path) -> None:
        if refused:
            raise refused.pop()
        replace(source, target)

    (tmp_path / "new").write_text("new")
    (tmp_path / "old").write_text("old")
    monkeypatch.setattr(os, "replace", sometimes)
    monkeypatch.setattr("attn_exp.system.POSIX", False)
    system.replace(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old").read_text() == "new"


def test_the_cores_that_may_be_used_are_those_the_system_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert system.usable_cores() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert system.usable_cores() == os.cpu_count()


@pytest.mark.long
def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    """Whatever ends it, and where Linux sends no signal either."""
    (tmp_path / "parent.py").write_text(PARENT)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "parent.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        workers = json.loads(process.stdout.readline())
        process.kill()
        assert process.stdout.read() == ""  # it ends when no worker holds the other end
    assert len(workers) == 2


@pytest.mark.parametrize(
    "name", ["aux", "AUX.csv", "con .txt", "com1", "LPT9.html", "nul", "a:b", "a?", "a|b", "a.", "a ", "a\\b", "COM¹"]
)
def test_a_name_that_cannot_be_everywhere_has_trouble(name: str) -> None:
    assert "Windows" in system.trouble(name)


@pytest.mark.parametrize("name", ["auxiliary", "com10", "con-1", "nul2", "a.b", "a b", ".hidden", "Jörg", "com", "ρ=1"])
def test_a_harmless_name_has_none(name: str) -> None:
    assert not system.trouble(name)


@pytest.mark.parametrize(("one", "other"), [("Anna", "anna"), ("straße", "STRASSE"), ("\u00e9", "E\u0301")])
def test_names_that_some_disks_take_for_one(one: str, other: str, tmp_path: Path) -> None:
    (tmp_path / one).touch()
    assert system.one_with(tmp_path / other) == one
    assert system.one_with(tmp_path / one) is None
    assert system.one_with(tmp_path / "no" / one) is None


def test_names_that_we_give_can_be_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert file_names(["aux", "Anna", "anna", "Con.", "nul"]) == ["aux-2", "Anna", "anna-2", "Con-2", "nul-2"]
    sweep = ("-m", "seed=0,1", "report=none", "sweep.engine=serial")
    said = refused([*sweep, "sweep.name=aux.1"], monkeypatch, capsys)
    assert said == (
        "attn_exp: error: sweep.name=aux.1: expected another name, as Windows keeps this name for a device\n"
    )
    (tmp_path / "outputs" / "sweeps" / "Mine").mkdir(parents=True)
    said = refused([*sweep, "sweep.name=mine"], monkeypatch, capsys)
    assert "outputs/sweeps/Mine is the same folder on Windows and macOS" in said
    assert "Windows keeps this name" in refused(["new", "con"], monkeypatch, capsys)
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    (tmp_path / "mine" / "experiment" / "Note.yaml").touch()
    assert "Note.yaml is the same file" in refused(["new", "note"], monkeypatch, capsys)


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "cp437", "utf-8", "utf-16"])
def test_any_letter_is_written_to_any_terminal(encoding: str) -> None:
    """And what JSON holds stays JSON."""
    text = json.dumps(
        {"−1 × é 😀 █▒· Δ √": ["“x”", "\udc80".encode("utf-8", "backslashreplace").decode()]}, ensure_ascii=False
    )
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=system.IN_OTHER_LETTERS)
    stream.write(text)
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    shown = stream.buffer.getvalue().decode(encoding)
    (name,) = json.loads(shown)
    assert name.startswith("-1 " if encoding in ("cp1252", "ascii", "cp437") else "−1 ")
    assert "é 😀" in name
