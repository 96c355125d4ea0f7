"""Files of YAML: the values that OmegaConf reads, large arrays as they are written, and texts made to do harm."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from attn_exp import cli
from attn_exp.config import loader
from attn_exp.config.compose import compose_config, compose_values
from attn_exp.config.spelling import as_numbers, extract_arrays, restore_arrays
from attn_exp.errors import UserError
from tests import ROOT

WHOLE = "# @package _global_\n"
TEXTS = [
    "a: 1\nb: 1.5\nc: 1e5\nd: 1.e-3\ne: .5\nf: -1_000\ng: 1_0.5e3\nh: .inf\ni: -.Inf\nj: .5e-3\n",
    "a: 2020-01-02\nb: 0x1f\nd: yes\ne: no\nf: ~\ng: null\nh: 'yes'\ni: on\nj: 0b11\n",
    "a: {b: [1, 'x', {c: d}], 3: four, true: five}\nb: |\n  [[1 2]\n   [3 4]]\nc: >-\n  two\n  lines\n",
    "a: &one [1, 2]\nb: *one\nc: &two {x: 1}\nd: {<<: *two, y: 2}\n",
    "",
    "# nothing\n",
    "a: ${b}\nb: x${c}\nc: 1\n",
]


def written(folder: Path, text: str, name: str = "mine") -> Path:
    place = folder / "experiment" / f"{name}.yaml"
    place.parent.mkdir(exist_ok=True)
    place.write_text(text, encoding="utf-8")
    return place


def rows(array: np.ndarray) -> str:
    return "[" + ", ".join(f"[{', '.join(repr(float(entry)) for entry in row)}]" for row in array) + "]"


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_reads_as_omegaconf_reads_it(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    expected = OmegaConf.to_container(OmegaConf.load(path))
    got = loader.parse_yaml(path, text)
    assert ({} if got is None else got) == expected
    assert repr(got or {}) == repr(expected)  # 1 and 1.0 and true are equal, and not the same


@pytest.mark.parametrize(
    "path", sorted((ROOT / "conf").rglob("*.yaml")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_every_shipped_file_reads_as_omegaconf_reads_it(path: Path) -> None:
    got = loader.parse_yaml(path, path.read_text(encoding="utf-8"))
    assert repr({} if got is None else got) == repr(OmegaConf.to_container(OmegaConf.load(path)))


@pytest.mark.long
def test_large_arrays_arrive_as_they_are_written_and_soon(tmp_path: Path) -> None:
    drawn = np.random.default_rng(0).standard_normal((5, 150, 150))
    x, matrices = drawn[0], dict(zip(("W_q", "W_k", "W_v", "W_o"), drawn[1:], strict=True))
    given = "".join(f"    {name}: {rows(matrix)}\n" for name, matrix in matrices.items())
    head = "defaults:\n  - override /embeddings: inline\n  - override /projections: identity\n"
    written(tmp_path, f"{WHOLE}{head}embeddings:\n  vectors: {rows(x)}\nprojections:\n  given:\n{given}")
    begin = time.process_time()
    config = compose_config(["experiment=mine"], [str(tmp_path)])
    assert time.process_time() - begin < 8  # number by number it took half a minute
    np.testing.assert_array_equal(config.embeddings.vectors, x)
    for name, matrix in matrices.items():
        np.testing.assert_array_equal(config.projections.given[name], matrix)


@pytest.mark.long
def test_a_large_array_takes_the_place_of_anything_and_gives_its_place_to_anything(tmp_path: Path) -> None:
    x = np.arange(1200.0).reshape(30, 40)
    text = f"{WHOLE}defaults:\n  - override /embeddings: udl\n  - override /projections: identity\n"
    written(tmp_path, f"{text}embeddings: {{tokens: null, vectors: {rows(x)}}}\n", "over_a_draw")
    written(tmp_path, f"{WHOLE}notes: ['${{embeddings.vectors}}', a]\nembeddings: {{vectors: {rows(x)}}}\n", "read")
    np.testing.assert_array_equal(
        compose_values(["experiment=over_a_draw"], [str(tmp_path)])["embeddings"]["vectors"], x
    )
    small = compose_values(["experiment=over_a_draw", "embeddings.vectors=[[1]]"], [str(tmp_path)])
    assert small["embeddings"]["vectors"] == [[1]]
    np.testing.assert_array_equal(compose_values(["experiment=read"], [str(tmp_path)])["notes"][0], x)


def test_a_word_changes_one_number_of_a_large_array(tmp_path: Path) -> None:
    x = np.arange(1200.0).reshape(30, 40)
    written(tmp_path, f"{WHOLE}embeddings: {{tokens: null, vectors: {rows(x)}}}\n")
    settings = compose_values(["experiment=mine", "embeddings.vectors.29.39=-1"], [str(tmp_path)])
    x[29, 39] = -1
    np.testing.assert_array_equal(settings["embeddings"]["vectors"], x)


def test_the_settings_that_are_shown_hold_the_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.arange(1200.0).reshape(30, 40) + 0.25
    written(tmp_path, f"{WHOLE}embeddings: {{tokens: null, vectors: {rows(x)}}}\n")
    cli.obey(["--config-dir", str(tmp_path), "experiment=mine", "--cfg", "job"])
    assert "1199.25" in capsys.readouterr().out


@pytest.mark.parametrize(("rows", "columns", "is_large"), [(25, 40, False), (7, 143, True)])
def test_more_than_a_thousand_numbers_are_a_large_array(rows: int, columns: int, is_large: bool) -> None:
    listed, arrays = [[0.5] * columns] * rows, dict[str, Any]()
    for value in (listed, tuple(listed), np.array(listed)):
        assert (as_numbers(value) is not None) == is_large
    assert [as_numbers(value) for value in (["a"] * 1001, [*listed, [1.0]], [10**400] * 1001)] == [None] * 3
    settings = {"notes": [listed, "a"], "head": 2}
    named = extract_arrays(settings, arrays)
    assert (named != settings) == (len(arrays) == 1) == is_large and restore_arrays(named, arrays) == settings


PAIRS = pairwise("abcdefghi")
HARM = [
    ("title: " + "[" * 100_000, "are nested too deeply"),
    ("\n".join(" " * level + "a:" for level in range(2000)), "are nested too deeply"),
    ("a: &a [1, 1, 1]\n" + "".join(f"b{n}: &{n} [{', '.join([f'*{p}'] * 9)}]\n" for p, n in PAIRS), "anchors"),
    ("head: 2\nhead: 3\n", "line 3: found duplicate key head"),
    ("title: !!python/object/apply:os.system [ls]\n", "could not determine a constructor"),
    ("title: [1,\n", "line 3"),
    ("title: \x01\n", "control characters|special characters"),  # of libyaml, and of PyYAML without it
    ("just words\n", "expected settings, such as head: 2; got just words"),
    ("3\n", "expected settings, such as head: 2; got 3"),
]


@pytest.mark.parametrize(("text", "message"), HARM, ids=[message for _, message in HARM])
def test_harm_is_one_line_that_names_the_file(text: str, message: str, tmp_path: Path) -> None:
    written(tmp_path, WHOLE + text)
    with pytest.raises(UserError, match=message) as error:
        compose_config(["experiment=mine"], [str(tmp_path)])
    assert "mine.yaml" in str(error.value)
    assert "\n" not in str(error.value)
