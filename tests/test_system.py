"""What operating systems do differently: locks, links, cores, and workers that end with their parent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from attn_exp import drafts, machine, system
from tests import ROOT

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
def work(name):
    system.serve_parent()
    open(name, "w").close()
    time.sleep(60)
if __name__ == "__main__":
    workers = [system.start_worker(work, name) for name in ("1", "2")]
    while not (os.path.exists("1") and os.path.exists("2")):
        time.sleep(0.01)
    print(json.dumps([worker.pid for worker in workers]), flush=True)
    time.sleep(60)
"""


@pytest.mark.long
def test_a_lock_says_who_holds_it_and_dies_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert system.read_holder(path) is None
    assert not path.exists()
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        assert system.read_holder(path) == "me"
        with pytest.raises(system.HeldError, match="me"), system.locked(path, "you"):
            pass
        process.kill()
        process.wait()
    assert system.read_holder(path) is None
    with system.locked(path, "you"):
        pass
    assert os.listdir(tmp_path) == ["lock"]


def test_a_lock_is_no_link(tmp_path: Path) -> None:
    foreign, path = tmp_path / "foreign", tmp_path / "lock"
    foreign.write_text("mine")
    path.symlink_to(foreign)
    with pytest.raises(OSError, match="symbolic links"), system.locked(path, "you"):
        pass
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


@pytest.mark.long
def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "parent.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        workers = json.loads(process.stdout.readline())
        process.kill()
        assert process.stdout.read() == ""  # it ends when no worker holds the other end
    assert len(workers) == 2
