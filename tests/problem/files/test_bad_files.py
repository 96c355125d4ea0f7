"""Files that are damaged, lie, or could do harm: one line, exit code 2, nothing written, and no code run."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from attn_exp.errors import UserError
from attn_exp.problem import files
from tests.compose import comparison
from tests.refusal import refused

SQUARE: dict[str, Any] = {name: np.eye(4) for name in ("W_q", "W_k", "W_v")}


class Boom:
    """Code that a pickle would run."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("boom"),)


def npy(array: Any = None, **settings: Any) -> bytes:
    """Return the bytes of a NumPy file."""
    stream = io.BytesIO()
    np.save(stream, np.eye(4) if array is None else array, **settings)
    return stream.getvalue()


def headed(header: str, body: bytes = b"") -> bytes:
    """Return the bytes of a NumPy file with this header, true or not."""
    text = header.encode("latin1") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


def shaped(shape: str, dtype: str = "'<f8'") -> str:
    return f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}"


def archive(members: dict[str, bytes], packed: bool = False) -> bytes:
    """Return the bytes of an archive of files, whatever they hold."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return stream.getvalue()


def by_name(content: bytes) -> bytes:
    """Return an archive whose W_q holds these bytes, and whose other matrices are right."""
    return archive({"W_q.npy": content, "W_k.npy": npy(), "W_v.npy": npy()})


def claiming(data: bytes, old: int, new: int) -> bytes:
    """Return an archive that claims another size of its members."""
    return data.replace(struct.pack("<I", old), struct.pack("<I", new))


def tensors(header: Any, body: bytes = b"", length: int | None = None) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


BYTES: dict[str, tuple[str, bytes, str]] = {
    "nothing in it": ("w.npz", b"", "cannot be read (not a readable NumPy archive"),
    "no archive": ("w.npz", b"words", "not a readable NumPy archive"),
    "archive cut off": ("w.npz", by_name(npy())[:-30], "not a readable NumPy archive"),
    "archive of anything": ("w.npz", archive({"readme.txt": b"hello"}), "has no W_q and no W_k and no W_v"),
    "a bit is wrong": ("w.npz", by_name(npy()).replace(b"\xf0\x3f", b"\xf0\x3e", 1), "Bad CRC-32"),
    "claims more": ("w.npz", claiming(by_name(npy()), len(npy()), 10**6), "128 bytes, but 999,872 bytes follow"),
    "claims too much": ("w.npz", claiming(by_name(npy()), len(npy()), 2**32 - 2), "at most 268,435,456 are read here"),
    "a name twice": ("w.npz", archive({"a": npy(), "a.npy": npy()}), "it holds two arrays with the same name"),
    "a small bomb": ("w.npz", archive({"W_q.npy": headed(shaped("(10**9,)"), bytes(10**6))}, True), "W_q"),
    "objects in an archive": ("w.npz", by_name(npy(np.array([Boom()], object))), "objects could run code"),
    "a pickle in an archive": ("w.npz", by_name(pickle.dumps(Boom())), "not a NumPy file of plain numbers"),
    "objects": ("x.npy", npy(np.array([[Boom()]], object)), "plain numbers, as from astype(float); objects"),
    "a pickle called npy": ("x.npy", pickle.dumps(Boom()), "not a NumPy file of plain numbers"),
    "an archive called npy": ("x.npy", by_name(npy()), "not a NumPy file of plain numbers"),
    "cut off": ("x.npy", npy()[:-10], "its header announces [4, 4] of float64, 128 bytes, but 118 bytes follow"),
    "more behind": ("x.npy", npy() + b"more", "128 bytes, but 132 bytes follow"),
    "header cut off": ("x.npy", npy()[:20], "not a NumPy file of plain numbers"),
    "lies on its shape": ("x.npy", headed(shaped("(4000000000, 4)"), bytes(128)), "128,000,000,000 bytes, but 128 "),
    "overflows": ("x.npy", headed(shaped(f"({2**62}, {2**62})"), bytes(128)), "its header announces"),
    "a header of code": ("x.npy", headed("__import__('os').mkdir('boom')"), "not a NumPy file of plain numbers"),
    "bfloat16 without its type": ("x.npy", headed(shaped("(2, 2)", "'|V2'"), bytes(8)), "expected plain numbers"),
    "complex": ("x.npy", npy(np.eye(2, dtype=complex)), "holds complex128; expected real numbers"),
    "truths": ("x.npy", npy(np.eye(2, dtype=bool)), "holds bool; expected real numbers"),
    "dates": ("x.npy", npy(np.zeros((2, 2), "M8[s]")), "holds datetime64[s]; expected real numbers"),
    "not finite": ("x.npy", npy(np.array([[1, np.nan]])), "row 0, column 1 holds nan; expected finite numbers"),
    "infinite": ("x.npy", npy(np.array([[1, -np.inf]])), "row 0, column 1 holds -inf; expected finite numbers"),
    "one axis": ("x.npy", npy(np.ones(3)), "holds an array of shape [3]; expected rows and columns"),
    "no rows": ("x.npy", npy(np.ones((0, 3))), "holds an array of shape [0, 3]; expected rows and columns"),
    "a number alone": ("x.npy", npy(np.array(3.0)), "expected"),
    "nothing in an array": ("x.npy", b"", "x.npy: cannot be read"),
    "words in an array": ("x.npy", npy(np.array([["a", "b"]])), "expected real numbers"),
    "nothing in a table": ("x.csv", b"", "expected a list of rows"),
    "names without numbers": ("x.csv", b"a\nb\n", "is empty: expected at least one number in each row"),
    "a table without commas": ("x.csv", b"she 1 2\nlikes 3 4\n", "its first line has no comma, 'she 1 2'; put one"),
    "a long cell": ("x.csv", b"she," + b"1" * 200_000 + b"\n", "cannot be read (it is not a table: field larger than"),
    "ragged table": ("x.csv", b"a,1,2\nb,3\n", "is ragged: rows of 2, 1 numbers"),
    "a word in a table": ("x.csv", b"a,1,2\nb,3,four\n", "row 1 holds 'four', which is not a number"),
    "not finite in a table": ("x.csv", b"a,1,2\nb,inf,3\n", "row 1, column 0 holds inf; expected finite numbers"),
    "a table in another code": ("x.csv", "é,1\n".encode("latin1"), "codec can't decode byte"),
    "zeros in a table": ("x.csv", b"\x00\x00", "expected"),
    "a matrix without a name": ("w.csv", b"1,2\n3,4\n", "+projections.given.W_q="),
    "a batch": ("x.npy", npy(np.ones((2, 3, 4))), "expected rows and columns, such as [3,4]; put heads side by side"),
    "no JSON": ("x.json", b"{", "it is not JSON"),
    "deep JSON": ("x.json", b"[" * 100_000, "it nests too deeply"),
    "ragged JSON": ("x.json", b"[[1, 2], [3]]", "it is ragged: its rows have different lengths"),
    "JSON of words": ("x.json", b'[["a"]]', "it holds something that is not a number"),
    "JSON with holes": ("x.json", b"[[1, null]]", "it holds something that is not a number"),
    "JSON not finite": ("x.json", b"[[1, NaN]]", "row 0, column 1 holds nan; expected finite numbers"),
    "JSON too large": ("x.json", b"[[1" + b"0" * 400 + b"]]", "or a number that is too large"),
    "JSON of one number": ("x.json", b"3", "expected arrays as lists of lists, by name or a single array"),
    "JSON of tokens alone": ("x.json", b'["a", "b"]', "no arrays"),
    "JSON in another code": ("x.json", b'["\xe9"]', "codec can't decode byte"),
    "safetensors too short": ("w.safetensors", b"abc", "truncated, or not a safetensors file"),
    "safetensors that claim": ("w.safetensors", tensors({}, length=2**60), "its header claims 1,152,921,504,606,846"),
    "safetensors cut off": (
        "w.safetensors",
        tensors({"W_q": {"dtype": "F64", "shape": [4, 4], "data_offsets": [0, 128]}}, bytes(100)),
        "its header describes 128 bytes of numbers, but 100 follow",
    ),
    "an index to elsewhere": (
        "w.safetensors.index.json",
        json.dumps({"weight_map": {"W_q": "../w.safetensors"}}).encode(),
        "expected the name of a file beside it",
    ),
    "another suffix": ("x.xlsx", b"PK", "expected a file that ends in .csv, .json, .npy, .npz, .safetensors, "),
    "a pickle of PyTorch": ("model.pt", b"PK\x03\x04", "model.pt is a pickle, which could run code; convert it, in"),
    "a pickle of weights": ("pytorch_model.bin", pickle.dumps(Boom()), "pytorch_model.bin is a pickle, which could"),
    "a pickle of NumPy": ("w.pkl", pickle.dumps(Boom()), "w.pkl is a pickle, which could run code; save its"),
}  # fmt: skip


def others(folder: Path) -> dict[str, str]:
    """Make what is no file, and return what is said of each."""
    (folder / "folder.npz").mkdir()
    os.mkfifo(folder / "pipe.csv")
    (folder / "nowhere.npy").symlink_to(folder / "gone.npy")
    return {
        "folder.npz": "cannot be read (it is not a file)",
        "pipe.csv": "cannot be read (it is not a file)",
        "nowhere.npy": "cannot be read (No such file or directory)",
        "missing.npz": "cannot be read (No such file or directory)",
        "/dev/zero.npy": "cannot be read",
        "/dev/zero": "cannot be read (it is not a file)",
        "x" * 300 + ".npy": "cannot be read",
        "a_file/x.npy": "cannot be read",
        "~/nowhere.npy": "cannot be read",
    }


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").write_text("", encoding="utf-8")
    return tmp_path


def words_for(file: str) -> list[list[str]]:
    """Return the ways in which a run may be given a file: for x, or for projections."""
    projections = ["embeddings=random", "embeddings.d_model=4", "projections=file", f"projections.file='{file}'"]
    return [projections] if file.startswith("w.") else [["embeddings=file", f"embeddings.file='{file}'"]]


def told(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line that a run is refused in; it has written nothing."""
    before = sorted(str(path) for path in Path().rglob("*"))
    line = refused(words, monkeypatch, capsys)
    assert len(line) <= 330
    assert sorted(str(path) for path in Path().rglob("*")) == before
    assert not Path("boom").exists()
    return line


@pytest.mark.long
@pytest.mark.parametrize("name", BYTES)
def test_a_bad_file_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file, content, message = BYTES[name]
    Path(file).write_bytes(content)
    for words in words_for(file):
        line = told(words, monkeypatch, capsys)
        assert message in line
        assert file in line


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        ["embeddings=file", "embeddings.file='{}'"],
        ["projections=file", "projections.file='{}'"],
        ["+projections.given.W_q='{}'"],
        ["embeddings=inline", "projections=none", "embeddings.q='{}'", "embeddings.k='{}'"],
    ],
)
def test_what_is_no_file_is_one_line(
    words: list[str], place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for file, message in others(place).items():
        line = told([word.format(file) for word in words], monkeypatch, capsys)
        assert message in line or file == "/dev/zero"


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("embeddings.tokens=gone.txt", "embeddings.tokens=gone.txt: cannot be read (No such file or directory)"),
        ("embeddings.tokens=empty.txt", "embeddings.tokens=empty.txt holds no token names"),
        ("embeddings.tokens=two.txt", "embeddings.tokens names 2 tokens, but there are 3 vectors"),
        ("embeddings.tokens=latin.txt", "embeddings.tokens=latin.txt: cannot be read ('utf-8' codec can't decode byte"),
        ("embeddings.tokens=w.npz", "embeddings.tokens=w.npz holds no token names"),
        ("embeddings=file embeddings.file=w.npz", "expected one named x or embeddings; embeddings.array=NAME selects"),
        ("embeddings=file embeddings.file=w.npz embeddings.array=W_x", "unknown embeddings.array 'W_x'; did you mean"),
        ("+projections.given.W_q=w2.npz", "holds W_qq, other; expected one array named W_q"),
        ("embeddings=inline projections=none embeddings.q=flat.npy embeddings.k=flat.npy", "expected rows and columns"),
    ],
)
def test_what_does_not_fit_is_one_line(
    words: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("w.npz", **SQUARE)
    strange: dict[str, Any] = {"W_qq": np.eye(4), "other": np.eye(4)}
    np.savez("w2.npz", **strange)
    np.save("flat.npy", np.ones(4))
    Path("empty.txt").write_text("\n\n", encoding="utf-8")
    Path("two.txt").write_text("a\nb\n", encoding="utf-8")
    Path("latin.txt").write_bytes(b"\xe9\n")
    assert message in told(words.split(), monkeypatch, capsys)


def test_a_large_file_of_text_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in ("x.csv", "x.json"):
        with Path(file).open("wb") as opened:
            opened.truncate(2**33)  # a hole: it takes no room on disk
        line = told(["embeddings=file", f"embeddings.file={file}"], monkeypatch, capsys)
        assert "larger than 268,435,456 bytes" in line


def turned(data: bytes, place: int) -> bytes:
    """Return the bytes with one of them turned over."""
    return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


@pytest.mark.parametrize("name", ["x.npy", "w.npz", "w.safetensors"])
def test_any_byte_may_be_wrong(name: str) -> None:
    whole = {"x.npy": npy(), "w.npz": by_name(npy())}
    save_file(SQUARE, "w.safetensors")
    data = whole.get(name) or Path("w.safetensors").read_bytes()
    for place in range(0, len(data), 1 + len(data) // 300):
        Path(name).write_bytes(turned(data, place))
        try:
            held = files.list_file(name, "embeddings.file")
            for entry in held.arrays.values():
                files.read_numbers(entry, "it")
        except UserError as error:
            assert "\n" not in str(error)


def test_projections_without_columns_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    np.savez(path, W_q=np.zeros((4, 0)), W_k=np.zeros((4, 0)), W_v=np.zeros((4, 4)))
    with pytest.raises(UserError, match=r"shape \[4, 0\]; expected at least one number"):
        comparison("projections=file", f"projections.file={path}")
