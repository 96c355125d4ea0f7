"""Parts on their way to disk: written together, safe before they count, and those before a full disk kept."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from attn_exp import drafts
from attn_exp.sweeps.driver import Writer
from attn_exp.sweeps.parts import Shelf, sealed_by


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path, ["point", "status"], 2)


def name(number: int) -> str:
    return f"{number:024x}"


def test_parts_that_wait_are_written_together(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first part is held up at the disk; the nine behind it wait once, not nine times."""
    folders, held, real = [], threading.Event(), os.fsync

    def fsync(descriptor: int) -> None:
        assert held.wait(10)
        real(descriptor)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            folders.append(sorted(os.listdir(shelf.folder)))

    monkeypatch.setattr(os, "fsync", fsync)
    writer = Writer(shelf)
    drafts = [shelf.draft(name(number), b"%d,ok\n" % number, 0) for number in range(10)]
    for draft in drafts:
        writer.put(draft)
    assert list(writer.written()) == []
    held.set()
    parts = list(writer.close())
    assert parts == [draft.part for draft in drafts]
    assert [sealed_by(part.path, part.chunk) for part in parts] == [(part.lines, part.digest) for part in parts]
    assert len(folders) <= 2
    assert folders[-1] == sorted(part.path.name for part in parts)


def test_a_new_part_takes_the_place_of_an_older_one_of_its_chunk(shelf: Shelf) -> None:
    for failed in (2, 1, 0):
        writer = Writer(shelf)
        writer.put(shelf.draft(name(1), b"1,ok\n", failed))
        (part,) = writer.close()
        assert os.listdir(shelf.folder) == [part.path.name]


def test_what_cannot_be_written_is_said_and_what_was_before_it_is_there(tmp_path: Path) -> None:
    files = {tmp_path / "a": b"1", tmp_path / "b": b"2", tmp_path / "no folder" / "c": b"3", tmp_path / "d": b"4"}
    with pytest.raises(FileNotFoundError):
        drafts.write_together(files)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"1", "b": b"2"}


def test_an_error_of_the_thread_reaches_the_sweep(tmp_path: Path) -> None:
    writer = Writer(Shelf(tmp_path / "gone", ["point", "status"], 2))
    writer.put(writer.shelf.draft(name(1), b"1,ok\n", 0))
    with pytest.raises(FileNotFoundError):
        list(writer.close())
