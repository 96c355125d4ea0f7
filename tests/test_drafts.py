"""What is written is whole or not there, through no link; drafts that a kill left are removed, and no others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from attn_exp import drafts


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    drafts.write(path, b"one")
    drafts.write_pieces(path, [b"t", b"wo"], sync=True)
    assert path.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["table.csv"]


def test_what_fails_half_way_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    path = tmp_path / "table.csv"
    drafts.write(path, b"whole")
    with pytest.raises(KeyboardInterrupt):
        drafts.write_pieces(path, pieces())
    assert path.read_bytes() == b"whole"
    assert os.listdir(tmp_path) == ["table.csv"]


def test_a_link_is_replaced_and_what_it_points_to_is_left_alone(tmp_path: Path) -> None:
    foreign, path = tmp_path / "foreign", tmp_path / "table.csv"
    foreign.write_text("mine")
    path.symlink_to(foreign)
    drafts.write(path, b"new")
    assert (foreign.read_text(), path.read_bytes(), path.is_symlink()) == ("mine", b"new", False)


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_nothing_is_left_of_a_folder_that_fails(failure: BaseException, tmp_path: Path) -> None:
    def fill(place: Path, more: bool = False) -> None:
        with (drafts.more_files if more else drafts.new_folder)(place) as draft:
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


def test_files_of_a_folder_take_their_places_all_or_none(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for text in ("first", "second"):
        with drafts.more_files(home) as draft:
            for name in ("a", "b/c"):
                (draft / name).parent.mkdir(exist_ok=True)
                (draft / name).write_text(text)
    (home / "mine").write_text("mine")
    assert {path.name: path.read_text() for path in home.rglob("*") if path.is_file()} == {
        "a": "second", "c": "second", "mine": "mine",
    }  # fmt: skip
    assert sorted(os.listdir(home)) == ["a", "b", "mine"]


@pytest.mark.parametrize("kind", ["file", "folder", "empty folder", "link to nowhere"])
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
                if kind == "folder":
                    (place / "mine").touch()

    with pytest.raises(FileExistsError), drafts.new_folder(place) as draft:  # while it is being written
        (draft / "one").touch()
        take()
    with pytest.raises(FileExistsError), drafts.new_folder(place):
        pass
    assert os.listdir(tmp_path) == ["place"]


def test_drafts_that_a_kill_left_are_removed_once_they_are_old_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "mine").touch()
    with drafts.undone_unless_named(tmp_path / "new") as new, drafts.undone_unless_named(tmp_path / "old") as old:
        new.touch()
        old.mkdir()
        (old / "half").touch()
        with drafts.undone_unless_named(tmp_path / "latest") as link:
            link.symlink_to("foreign")
    mine = [".cache-0123456789abcdef", ".file-attn-exp-notes", "file-attn-exp-" + "0" * 24, ".git"]
    for name in mine:
        (tmp_path / name).touch()
    for path in tmp_path.iterdir():
        if path != new:
            os.utime(path, (0, 0), follow_symlinks=False)
    drafts.write(tmp_path / "written", b"next")
    assert {path.name for path in tmp_path.iterdir()} == {"foreign", "written", new.name, *mine}
    assert os.listdir(tmp_path / "foreign") == ["mine"]
    drafts.sweep_up(tmp_path, older=0.0)
    assert not new.exists()
