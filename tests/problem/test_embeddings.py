"""Where x comes from: files, columns, names, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attn_exp.errors import UserError
from attn_exp.problem.embeddings import Start, start
from tests.compose import config


def begin(*words: str) -> Start:
    found = config(*words)
    return start(found.embeddings, found.seed)


def file(folder: Path, name: str, content: str) -> str:
    (folder / name).write_text(content, encoding="utf-8")
    return f"embeddings.file={folder / name}"


def test_a_csv_file_with_names(tmp_path: Path) -> None:
    found = begin("embeddings=file", file(tmp_path, "words.csv", "she,1,2.5\nlikes,-3e-1,4\n"))
    assert found.tokens == ("she", "likes")
    np.testing.assert_array_equal(found.x, [[1, 2.5], [-0.3, 4]])


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
        ("x.csv", "token,size\na,1\n", "row 0 holds 'size', which is not a number"),
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


def test_random_tokens_may_have_names() -> None:
    found = begin("embeddings=random", "embeddings.tokens=[a,b,c]", "embeddings.d_model=5")
    assert found.tokens == ("a", "b", "c")
    assert found.x is not None and found.x.shape == (3, 5)
