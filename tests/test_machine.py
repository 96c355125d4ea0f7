"""Files whole or not at all, through no link; reading that neither waits nor fills the memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from attn_exp import machine


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    machine.write(path, b"one")
    machine.write_pieces(path, [b"t", b"wo"], sync=True)
    assert path.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["table.csv"]


def test_what_fails_half_way_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    path = tmp_path / "table.csv"
    machine.write(path, b"whole")
    with pytest.raises(KeyboardInterrupt):
        machine.write_pieces(path, pieces())
    assert path.read_bytes() == b"whole"
    assert os.listdir(tmp_path) == ["table.csv"]


def test_a_link_is_replaced_and_what_it_points_to_is_left_alone(tmp_path: Path) -> None:
    foreign, path = tmp_path / "foreign", tmp_path / "table.csv"
    foreign.write_text("mine")
    path.symlink_to(foreign)
    machine.write(path, b"new")
    assert (foreign.read_text(), path.read_bytes(), path.is_symlink()) == ("mine", b"new", False)


def test_a_file_gets_the_rights_that_any_new_file_has(tmp_path: Path) -> None:
    machine.write(tmp_path / "ours", b"")
    (tmp_path / "usual").touch()
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_name_as_long_as_a_system_takes(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    machine.write(path, b"1")
    assert path.read_bytes() == b"1"


def test_only_regular_files_up_to_a_limit_are_read(tmp_path: Path) -> None:
    path, fifo = tmp_path / "file", tmp_path / "fifo"
    path.write_bytes(b"12345")
    os.mkfifo(fifo)
    assert machine.read(path, 5) == b"12345"
    for place, reason in ((path, "larger than 4 bytes"), (fifo, "no regular file"), (tmp_path, "no regular file")):
        with pytest.raises(OSError, match=reason):
            machine.read(place, 4)
    with pytest.raises(OSError, match="no regular file"):
        machine.read(Path("/dev/zero"))


def test_a_folder_of_our_own_is_no_link(tmp_path: Path) -> None:
    assert machine.own_folder(tmp_path / "parts") == machine.own_folder(tmp_path / "parts")
    (tmp_path / "link").symlink_to(tmp_path / "parts")
    with pytest.raises(OSError, match="is a link"):
        machine.own_folder(tmp_path / "link")
