"""What is written is whole or not there, through no link; drafts that a kill left are removed, and no others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from attn_exp import cli, drafts, standard_streams


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


def test_a_file_gets_the_rights_that_any_new_file_has(tmp_path: Path) -> None:
    drafts.write(tmp_path / "ours", b"")
    (tmp_path / "usual").touch()
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_name_as_long_as_a_system_takes(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    drafts.write(path, b"1")
    assert path.read_bytes() == b"1"


def test_a_name_of_as_many_letters_as_a_system_takes_in_bytes(tmp_path: Path) -> None:
    path = tmp_path / ("字" * 85)
    drafts.write(path, b"1")
    assert os.listdir(tmp_path) == [path.name]


def test_ctrl_c_before_a_command_has_begun_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(standard_streams, "made_usable", interrupted)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, capsys.readouterr().err.count("\n")) == (130, 1)
