"""JSON and arrays from others: whatever they hold, they are read or refused in one line."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_exp import machine, own_code
from attn_exp.diagnosis.classroom import boxes
from attn_exp.errors import UserError
from attn_exp.problem import input_files, models
from attn_exp.problem.files import numpy_files
from attn_exp.runs import store
from attn_exp.runs.trust import DamagedError


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"[" * 100_000, "nests too deeply"),
        (b'{"a":' * 100_000, "nests too deeply"),
        (b"\xe9", "unexpected end of data"),
        (b"", "not JSON: Expecting value"),
        (b"[" + b"9" * 5000 + b"]", "4300 digits"),
    ],
    ids=["lists", "objects", "bytes", "nothing", "digits"],
)
def test_what_is_no_json_is_one_line(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        machine.parse_json(data)
    assert "\n" not in str(error.value)


def npy(descr: str, shape: str, body: bytes = b"", fortran: bool = False) -> bytes:
    """Return the bytes of a NumPy file with this header, true or not."""
    text = f"{{'descr': {descr!r}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


LYING = {
    "a tera": npy("<f8", "(1000000000000,)"),
    "more than an index": npy("<f8", f"({10**30},)"),
    "more digits than Python writes": npy("<f8", f"({'9' * 4200}, {'9' * 4200})"),
    "nothing times more than an index": npy("<f8", f"(0, {10**30})"),
    "an archive": b"PK\3\4",
    "an archive's mark alone": b"PK",
    "nothing": b"",
    "objects": npy("|O", "(1,)", b"12345678"),
    "cut off": npy("<f8", "(2, 2)", bytes(31)),
    "bytes over": npy("<f8", "(2, 2)", bytes(33)),
    "below nothing": npy("<f8", "(-1,)"),
    "texts of no letters": npy("<U0", f"({10**12},)"),
    "a number for a shape": npy("<f8", "4"),
    "structures": npy("|V8", "(1,)", bytes(8)),
}


@pytest.mark.parametrize("content", LYING.values(), ids=LYING)
def test_a_numpy_file_that_lies_is_one_line_wherever_it_is_read(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    for reader in (lambda: models.read_patches(str(path)), lambda: boxes.read_cells(path, "answer.weights")):
        with pytest.raises(UserError) as error:
            reader()
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 400 + len(str(path))


def test_arrays_of_a_run_are_read_as_numpy_reads_them(tmp_path: Path) -> None:
    stream = np.random.default_rng(0)
    given: dict[str, Any] = {
        "x": stream.normal(size=(3, 4)), "v/turned": stream.normal(size=(3, 4)).T, "half": np.array([1, 2], np.float16),
        "tokens": np.array(["she", "sat"]), "none": np.empty((0, 3)), "past": np.array(2), "mask": np.array([True]),
    }  # fmt: skip
    np.savez(tmp_path / "results.npz", **given)
    read = store.load_arrays(tmp_path)
    with np.load(tmp_path / "results.npz") as right:
        assert read.keys() == set(right.files)
        for name, array in right.items():
            assert np.array_equal(read[name], array)
            assert (read[name].dtype, read[name].strides) == (array.dtype, array.strides)


@pytest.mark.long
def test_an_archive_that_unpacks_without_end_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("tokens.npy", "w") as member:
        member.write(npy("<U100", "(750000,)"))
        for _ in range(300):
            member.write(b"a\0\0\0" * 250_000)
    with pytest.raises(ValueError, match=r"tokens takes 300,000,\d* bytes; at most"):
        numpy_files.list_archive(path)


def test_arrays_that_share_their_bytes_are_no_run(tmp_path: Path) -> None:
    """A member may begin where another does: a thousand of them take the place of one."""
    path = tmp_path / "results.npz"
    np.savez(path, x=np.zeros(4096))
    data = path.read_bytes()
    start = data.index(b"PK\1\2")
    end = data.index(b"PK\5\6")
    entry = data[start:end]
    many = b"".join(entry.replace(b"x.npy", f"{chr(number)}.npy".encode()) for number in range(65, 91))
    tail = bytearray(data[end:])
    tail[8:12], tail[12:16] = (26).to_bytes(2, "little") * 2, len(many).to_bytes(4, "little")
    path.write_bytes(data[:start] + many + bytes(tail))
    with pytest.raises(DamagedError, match=r"results.npz: "):
        store.load_arrays(tmp_path)


def test_a_pipe_is_waited_for_nowhere(tmp_path: Path) -> None:
    """It is no file of code, of patches, of numbers, and none that a run has recorded; nobody writes into it."""
    pipe = tmp_path / "mine.py"
    os.mkfifo(pipe)
    (tmp_path / "other.py").write_text("import mine\n")
    assert own_code.fingerprint(pipe) == own_code.fingerprint_of_function(f"{pipe}:f") == ""
    assert own_code.fingerprint(tmp_path / "other.py")
    assert input_files.fingerprint(str(pipe)) == ""
    with pytest.raises(UserError, match="not a regular file"):
        models.read_patches(str(pipe))
