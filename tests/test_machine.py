"""Files whole or not at all, through no link; reading that neither waits nor fills the memory; locks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from attn_exp import machine
from tests import ROOT

HOLD = """
import sys
from pathlib import Path
from attn_exp import machine
with machine.locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_only_regular_files_up_to_a_limit_are_read(tmp_path: Path) -> None:
    path, fifo = tmp_path / "file", tmp_path / "fifo"
    path.write_bytes(b"12345")
    os.mkfifo(fifo)
    assert machine.read(path, 5) == b"12345"
    for place, reason in ((path, "larger than 4 bytes"), (fifo, "not a regular file"), (tmp_path, "directory")):
        with pytest.raises(OSError, match=reason):
            machine.read(place, 4)
    with pytest.raises(OSError, match="not a regular file"):
        machine.read(Path("/dev/zero"))


def test_a_folder_of_our_own_is_no_link(tmp_path: Path) -> None:
    assert machine.own_folder(tmp_path / "parts") == machine.own_folder(tmp_path / "parts")
    (tmp_path / "link").symlink_to(tmp_path / "parts")
    with pytest.raises(OSError, match="is a link"):
        machine.own_folder(tmp_path / "link")


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    machine.write(path, b"one")
    machine.write(path, [b"t", b"wo"], sync=True)
    assert path.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["table.csv"]


def test_what_fails_half_way_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    path = tmp_path / "table.csv"
    machine.write(path, b"whole")
    with pytest.raises(KeyboardInterrupt):
        machine.write(path, pieces())
    assert path.read_bytes() == b"whole"
    assert os.listdir(tmp_path) == ["table.csv"]


def test_a_link_is_replaced_and_what_it_points_to_is_left_alone(tmp_path: Path) -> None:
    foreign, path = tmp_path / "foreign", tmp_path / "table.csv"
    foreign.write_text("mine")
    path.symlink_to(foreign)
    machine.write(path, b"new")
    assert (foreign.read_text(), path.read_bytes(), path.is_symlink()) == ("mine", b"new", False)


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_nothing_is_left_of_a_folder_that_fails(failure: BaseException, tmp_path: Path) -> None:
    def fill(place: Path, more: bool = False) -> None:
        with machine.write_folder(place, add=more) as draft:
            (draft / "one").write_text("half")
            (draft / "below").mkdir()
            (draft / "below" / "two").write_text("half")
            raise failure

    for place in (tmp_path / "new", tmp_path / "deep" / "er" / "new"):
        for more in (False, True):
            with pytest.raises(type(failure)):
                fill(place, more)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() or path.name == "new"]
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "one").write_text("whole")
    with pytest.raises(type(failure)):
        fill(tmp_path / "there", more=True)
    assert os.listdir(tmp_path / "there") == ["one"]
    assert (tmp_path / "there" / "one").read_text() == "whole"


def test_files_of_a_folder_take_their_places_all_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    for text in ("first", "second"):
        with machine.write_folder(home, add=True) as draft:
            for name in ("a", "b/c"):
                (draft / name).parent.mkdir(exist_ok=True)
                (draft / name).write_text(text)
    monkeypatch.chdir(home)
    with machine.write_folder(Path(), add=True) as draft:
        assert draft.parent == Path()  # the folder above may be another disk
        (draft / "mine").write_text("mine")
    assert {path.name: path.read_text() for path in home.rglob("*") if path.is_file()} == {
        "a": "second", "c": "second", "mine": "mine",
    }  # fmt: skip
    assert sorted(os.listdir(home)) == ["a", "b", "mine"]


@pytest.mark.parametrize("kind", ["file", "folder", "link to nowhere"])
def test_a_new_folder_takes_no_place_that_is_taken(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "place"

    def take() -> None:
        match kind:
            case "file":
                place.write_text("mine")
            case "link to nowhere":
                place.symlink_to("nowhere")
            case _:
                place.mkdir()
                (place / "mine").touch()

    with pytest.raises(OSError, match="irectory"), machine.write_folder(place) as draft:  # while it is being written
        (draft / "one").touch()
        take()
    with pytest.raises(OSError, match="irectory"), machine.write_folder(place):
        pass
    assert os.listdir(tmp_path) == ["place"]


def test_drafts_that_a_kill_left_are_removed_once_they_are_old_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "mine").touch()
    with machine.make_draft(tmp_path / "new") as new, machine.make_draft(tmp_path / "old") as old:
        new.touch()
        old.mkdir()
        (old / "half").touch()
        with machine.make_draft(tmp_path / "latest") as link:
            link.symlink_to("foreign")
    mine = [".cache-0123456789abcdef", ".file-attn-exp-notes", "file-attn-exp-" + "0" * 24, ".git"]
    for name in mine:
        (tmp_path / name).touch()
    for path in tmp_path.iterdir():
        if path != new:
            os.utime(path, (0, 0), follow_symlinks=False)
    machine.write(tmp_path / "written", b"next")
    assert {path.name for path in tmp_path.iterdir()} == {"foreign", "written", new.name, *mine}
    assert os.listdir(tmp_path / "foreign") == ["mine"]
    machine.remove_drafts(tmp_path, min_age=0.0)
    assert not new.exists()


@pytest.mark.long
def test_a_lock_dies_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not machine.is_locked(path)
    assert not path.exists()
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        assert machine.is_locked(path)
        with pytest.raises(TimeoutError), machine.locked(path):
            pass
        process.kill()
        process.wait()
    assert not machine.is_locked(path)
    with machine.locked(path):
        pass
    assert os.listdir(tmp_path) == ["lock"]


def test_a_lock_is_no_link(tmp_path: Path) -> None:
    foreign, path = tmp_path / "foreign", tmp_path / "lock"
    foreign.write_text("mine")
    path.symlink_to(foreign)
    with pytest.raises(OSError, match="symbolic links"), machine.locked(path):
        pass
    assert foreign.read_text() == "mine"


def test_no_link_is_made_where_links_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "runs" / "first"
    folder.mkdir(parents=True)

    def refuse(*arguments: object, **more: object) -> None:
        raise OSError("a required privilege is not held by the client")

    monkeypatch.setattr(os, "symlink", refuse)
    machine.point(tmp_path / "latest", folder)
    assert os.listdir(tmp_path) == ["runs"]
