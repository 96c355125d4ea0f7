"""Safetensors files: what the `safetensors` package writes is read, and what lies is refused in one line."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

from attn_exp.errors import UserError
from attn_exp.problem import files
from attn_exp.problem.files import Entry
from tests.refusal import refusal

KINDS = ("float64", "float32", "float16", "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64")
KEY = "projections.file"


def look(path: Path) -> Mapping[str, Entry]:
    return files.list_file(str(path), KEY).arrays


def held(header: Any, numbers: bytes = b"", length: int | None = None) -> bytes:
    """Return the bytes of a file with this header, true or not."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + numbers


def one(**changed: Any) -> dict[str, Any]:
    return {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changed}}


def refused(path: Path) -> str:
    message = refusal(look, path)
    assert message.startswith(f"{KEY}=")
    assert len(message) < 450
    return message


@pytest.mark.parametrize("kind", [*KINDS, "int64"])
def test_what_the_package_writes_is_read_bit_for_bit(kind: str, tmp_path: Path) -> None:
    stream = np.random.default_rng(0)
    arrays = {
        "b.weight": stream.integers(0, 2**15, (3, 5)).astype(kind),
        "a": stream.integers(0, 99, 7).astype(kind),
        "scalar": np.array(1, kind),
        "empty": np.zeros((0, 4), kind),
    }
    save_file(arrays, tmp_path / "w.safetensors", metadata={"format": "np"})
    found = look(tmp_path / "w.safetensors")
    assert found.keys() == arrays.keys()
    for name, expected in arrays.items():
        array = found[name].read(...)
        assert (array.dtype, array.shape, array.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


def test_bfloat16_becomes_the_float32_of_the_same_value(tmp_path: Path) -> None:
    halves = np.arange(2**16, dtype=np.uint16).reshape(256, 256)
    save_file({"h": halves.view(ml_dtypes.bfloat16)}, tmp_path / "w.safetensors")  # every bfloat16 there is
    array = look(tmp_path / "w.safetensors")["h"].read(...)
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, halves.view(ml_dtypes.bfloat16).astype(np.float32))


def test_rows_alone_are_copied(tmp_path: Path) -> None:
    table = np.arange(12.0).reshape(4, 3)
    save_file({"t": table}, tmp_path / "w.safetensors")
    tensor = look(tmp_path / "w.safetensors")["t"]
    np.testing.assert_array_equal(tensor.read([2, 0, 2]), table[[2, 0, 2]])


def test_a_file_takes_no_memory_but_that_of_the_tensor_asked_for(tmp_path: Path) -> None:
    big = np.zeros((1000, 1000), np.float16)
    save_file({f"layer.{number}": big for number in range(20)}, tmp_path / "w.safetensors")  # 40 MB
    tracemalloc.start()
    found = look(tmp_path / "w.safetensors")
    total = found["layer.7"].read(...).sum()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == 0
    assert peak < 500_000


FLAWED = {
    "empty": b"",
    "five bytes": b"12345",
    "a header longer than the file": held(one(), bytes(8), length=10**6),
    "a header longer than any": held(one(), bytes(8), length=2**63),
    "no JSON": held(b"{nothing", bytes(8)),
    "a list": held(b"[1]"),
    "no UTF-8": held(b'{"\xff": 1}'),
    "long number": held(b'{"w":{"dtype":"F32","shape":[' + b"9" * 10_000 + b'],"data_offsets":[0,8]}}', bytes(8)),
    "twice": held(b'{"w":' + json.dumps(one()["w"]).encode() + b',"w":' + json.dumps(one()["w"]).encode() + b"}"),
    "cut off": held(one(), bytes(7)),
    "too long": held(one(), bytes(9)),
    "unknown type": held(one(dtype="F8_E4M3", data_offsets=[0, 2]), bytes(2)),
    "shape lies": held(one(shape=[3]), bytes(8)),
    "negative shape": held(one(shape=[-2]), bytes(8)),
    "true for a size": held(one(shape=[2, True]), bytes(8)),
    "huge shape": held(one(shape=[2**62] * 9), bytes(8)),
    "offsets back": held(one(data_offsets=[8, 0]), bytes(8)),
    "a hole": held(one(data_offsets=[8, 16]), bytes(16)),
    "overlap": held({**one(), "v": one()["w"]}, bytes(8)),
    "no dtype": held({"w": {"shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
    "a page": b"<!DOCTYPE html><html></html>",
    "an lfs pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 90868376\n",
}  # fmt: skip


@pytest.mark.parametrize("data", FLAWED.values(), ids=FLAWED)
def test_a_file_that_lies_is_refused_in_one_line(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(data)
    refused(path)


@pytest.mark.long
@given(place=st.integers(0, 200), value=st.integers(0, 255), end=st.integers(0, 300))
def test_a_damaged_file_is_read_as_the_package_reads_it_or_refused(
    place: int, value: int, end: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "w.safetensors"
    save_file({"a": np.arange(6.0).reshape(2, 3), "b": np.arange(4, dtype=np.int16)}, path)
    data = bytearray(path.read_bytes())
    data[place % len(data)] = value
    path.write_bytes(data[: max(end, 1)] if end < 150 else data)
    try:
        found = look(path)
    except UserError:
        return
    with safe_open(path, "numpy") as file:  # what is taken here, the package takes too
        for name in file.keys():  # noqa: SIM118 - it is no mapping
            expected = file.get_tensor(name)
            assert expected.tobytes() == found[name].read(...).tobytes()


def split_in_two(folder: Path) -> dict[str, str]:
    save_file({"a": np.arange(3.0)}, folder / "model-1.safetensors")
    save_file({"b": np.arange(5.0)}, folder / "model-2.safetensors")
    return {"a": "model-1.safetensors", "b": "model-2.safetensors"}


def indexed(folder: Path, weight_map: Any) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 64}, "weight_map": weight_map}))
    return path


def test_an_index_leads_to_every_tensor(tmp_path: Path) -> None:
    found = look(indexed(tmp_path, split_in_two(tmp_path)))
    assert [found[name].read(...).size for name in ("a", "b")] == [3, 5]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"b": "model-3.safetensors"}, "model-3.safetensors: cannot be read (No such file"),
        ({"b": "model-1.safetensors"}, "model-1.safetensors lacks b"),
        ({"b": "../model-2.safetensors"}, "expected the name of a file beside it"),
        ({"b": "..\\model-2.safetensors"}, "expected the name of a file beside it"),
        ({"b": 2}, "expected the name of a file beside it"),
    ],
)
def test_an_index_that_lies_is_refused(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    assert said in refused(indexed(tmp_path, {**split_in_two(tmp_path), **changed}))
