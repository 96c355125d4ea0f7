"""Where x comes from: files, columns, names, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_exp.errors import UserError
from attn_exp.problem.drawing import begun
from attn_exp.problem.embeddings import Start, start
from tests.compose import config


def begin(*words: str) -> Start:
    found = config(*words)
    return start(found.embeddings, begun(found.generator, found.seed))


def file(folder: Path, name: str, content: str) -> str:
    (folder / name).write_text(content, encoding="utf-8")
    return f"embeddings.file={folder / name}"


def test_a_csv_file_with_names(tmp_path: Path) -> None:
    found = begin("embeddings=file", file(tmp_path, "words.csv", "she,1,2.5\nlikes,-3e-1,4\n"))
    assert found.tokens == ("she", "likes")
    np.testing.assert_array_equal(found.x, [[1, 2.5], [-0.3, 4]])


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ("token,size,mass\na,1,2\nb,3,4\n", ("a", "b")),
        ("size,mass\n1,2\n3,4\n", ("x0", "x1")),
        (",0,1\na,1,2\nb,3,4\n", ("a", "b")),  # as pandas writes a frame
        (",0,1\n0,1,2\n1,3,4\n", ("0", "1")),
    ],
)
def test_the_names_of_columns_are_no_vector(content: str, tokens: tuple[str, ...], tmp_path: Path) -> None:
    found = begin("embeddings=file", file(tmp_path, "x.csv", content))
    assert found.tokens == tokens
    np.testing.assert_array_equal(found.x, [[1, 2], [3, 4]])


def test_names_on_the_command_line_win_over_those_of_the_file(tmp_path: Path) -> None:
    words = file(tmp_path, "words.csv", "she,1\nlikes,2\n")
    assert begin("embeddings=file", words, "embeddings.tokens=[a,b]").tokens == ("a", "b")


def test_a_csv_file_of_numbers_in_columns(tmp_path: Path) -> None:
    found = begin("embeddings=file", "embeddings.columns=true", file(tmp_path, "x.csv", "1,2,3\n4,5,6\n"))
    assert found.tokens == ("x0", "x1", "x2")
    np.testing.assert_array_equal(found.x, [[1, 4], [2, 5], [3, 6]])


def test_an_npy_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[1, 2], [3, 4]]))
    found = begin("embeddings=file", f"embeddings.file={tmp_path}/x.npy")
    assert found.x is not None and found.x.dtype == np.float64
    np.testing.assert_array_equal(found.x, [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.npy", "", "x.npy: cannot be read"),
        ("x.npy", "not numbers", "x.npy: cannot be read"),
        ("x.csv", "", "expected a list of rows"),
        ("x.csv", "a\nb\n", "is empty: expected at least one number in each row"),
        ("x.csv", "a,1\nb,1,2\n", "is ragged: rows of 1, 2 numbers"),
        ("x.csv", "a,1\nb,two\n", "row 1 holds 'two', which is not a number"),
        ("x.csv", "she 1 2\nlikes 3 4\n", "its first line has no comma, 'she 1 2'; put one after each number"),
        ("x.csv", "1\t2\n3\t4\n", "its first line has no comma"),
        ("x.csv", f"she,{'1' * 200_000}\n", "cannot be read (field larger than field limit"),
        ("x.csv", "a,1\nb,nan\n", "row 1, column 0 holds nan; expected finite numbers"),
    ],
)
def test_a_bad_file_is_told_in_one_line(name: str, content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        begin("embeddings=file", file(tmp_path, name, content))
    assert message in str(error.value)
    assert f"{tmp_path / name}" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("embeddings=file", "embeddings has nothing to start from; give embeddings.vectors, a file"),
        (
            "embeddings=random embeddings.vectors=[[1]]",
            "embeddings.vectors and embeddings.distribution both say what x",
        ),
        ("embeddings=udl embeddings.q=[[1]]", "embeddings.q and embeddings.k go together; only one is given"),
        ("embeddings=udl embeddings.weights=[[1]]", "embeddings starts at vectors and at weights; give one of them"),
        ("embeddings=udl embeddings.vectors.shape=[3]", "shape=[3]: expected rows and columns, such as [3,4]"),
        ("embeddings=udl embeddings.vectors.legacy_seed=two", "legacy_seed=two: expected a whole number"),
        ("embeddings=udl embeddings.vectors.distribution=gauss", "choose one of normal, uniform"),
        ("embeddings=random embeddings.tokens=0", "embeddings.tokens=0: expected a whole number of at least 1"),
        ("embeddings=random embeddings.d_model=null", "needs embeddings.tokens and embeddings.d_model"),
    ],
)
def test_a_start_that_cannot_be(words: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        begin(*words.split())
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (
            np.ones((2, 3, 4)),
            "holds an array of shape [2, 3, 4]; expected rows and columns, such as [3,4]; a run is one",
        ),
        (np.ones(3), "holds an array of shape [3]; expected rows and columns"),
        (np.ones((0, 3)), "holds an array of shape [0, 3]; expected rows and columns"),
        (np.ones((2, 2), complex), "holds complex128; expected real numbers"),
        (np.array([["a", "b"]]), "expected real numbers"),
        (np.ones((2, 2), bool), "holds bool; expected real numbers"),
        (np.array([[1.0, np.inf]]), "row 0, column 1 holds inf; expected finite numbers"),
    ],
)
def test_an_npy_file_of_something_else_is_told_in_one_line(held: Any, message: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", held)
    with pytest.raises(UserError) as error:
        begin("embeddings=file", f"embeddings.file={tmp_path}/x.npy")
    assert message in str(error.value) and len(str(error.value)) < 300


def test_several_arrays_in_one_file_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones((2, 2)))
    (tmp_path / "x.npz").rename(tmp_path / "x.npy")
    with pytest.raises(UserError, match="it is an archive of several arrays"):
        begin("embeddings=file", f"embeddings.file={tmp_path}/x.npy")


def test_a_folder_or_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.csv")
    for path in (tmp_path, tmp_path / "x.csv"):
        with pytest.raises(UserError, match="it is no file"):
            begin("embeddings=file", f"embeddings.file={path}")


def test_a_csv_file_with_spaces_after_commas_and_a_mark_at_its_head(tmp_path: Path) -> None:
    found = begin("embeddings=file", file(tmp_path, "words.csv", "\ufeffshe, 1, 2\n\nlikes ,3,4\n , ,\n"))
    assert found.tokens == ("she", "likes")
    np.testing.assert_array_equal(found.x, [[1, 2], [3, 4]])


def test_a_list_with_three_axes_is_not_printed_whole() -> None:
    vectors = str(np.zeros((20, 20, 3), int).tolist()).replace(" ", "")
    with pytest.raises(UserError) as error:
        begin("embeddings=inline", f"embeddings.vectors={vectors}")
    assert "a list of its own, which is not a number" in str(error.value) and len(str(error.value)) < 300


def test_columns_turn_only_what_has_some() -> None:
    with pytest.raises(UserError, match="turns vectors that are written or read, and these are made"):
        begin("embeddings=random", "embeddings.columns=true")


def test_random_tokens_may_have_names() -> None:
    found = begin("embeddings=random", "embeddings.tokens=[a,b,c]", "embeddings.d_model=5")
    assert found.tokens == ("a", "b", "c")
    assert found.x is not None and found.x.shape == (3, 5)
