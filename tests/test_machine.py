"""Files whole or not at all, through no link; reading that neither waits nor fills the memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from attn_exp import machine


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


def test_a_file_given_as_a_folder_is_no_pointer_to_one(tmp_path: Path) -> None:
    """Where links are not allowed `latest` is a text that names a folder; answers are longer than a name may be."""
    for text in ("q,1,2\n" * 100, "runs", ""):
        (tmp_path / "answers.csv").write_text(text)
        assert machine.folder(str(tmp_path / "answers.csv")) == tmp_path / "answers.csv"
