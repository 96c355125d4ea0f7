"""Where x comes from: files, columns, names, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_exp.problem.drawing import seed_source
from attn_exp.problem.sources import Input, read_input
from tests.compose import config
from tests.refusal import refusal


def begin(*words: str) -> Input:
    found = config(*words)
    return read_input(found.embeddings, seed_source(found.generator, found.seed))


def file(folder: Path, name: str, content: str) -> str:
    (folder / name).write_text(content, encoding="utf-8")
    return f"embeddings.file={folder / name}"


def test_names_on_the_command_line_win_over_those_of_the_file(tmp_path: Path) -> None:
    words = file(tmp_path, "words.csv", "she,1\nlikes,2\n")
    assert begin("embeddings=file", words, "embeddings.tokens=[a,b]").tokens == ("a", "b")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("embeddings=file", "embeddings has nothing to start from; give embeddings.vectors, a file"),
        (
            "embeddings=random embeddings.vectors=[[1]]",
            "embeddings.vectors and embeddings.distribution both define x",
        ),
        ("embeddings=udl embeddings.q=[[1]]", "embeddings.q and embeddings.k go together; only one is given"),
        (
            "embeddings=udl embeddings.weights=[[1]]",
            "embeddings sets more than one input: vectors and weights; give only one of them",
        ),
        ("embeddings=udl embeddings.vectors.shape=[3]", "shape=[3]: expected rows and columns, such as [3,4]"),
        ("embeddings=udl embeddings.vectors.legacy_seed=two", "legacy_seed=two: expected a whole number"),
        ("embeddings=udl embeddings.vectors.distribution=gauss", "choose one of normal, uniform"),
        ("embeddings=random embeddings.tokens=0", "embeddings.tokens=0: expected a whole number of at least 1"),
        ("embeddings=random embeddings.d_model=null", "needs embeddings.tokens and embeddings.d_model"),
    ],
)
def test_a_start_that_cannot_be(words: str, message: str) -> None:
    assert message in refusal(begin, *words.split())


def test_random_tokens_may_have_names() -> None:
    found = begin("embeddings=random", "embeddings.tokens=[a,b,c]", "embeddings.d_model=5")
    assert found.tokens == ("a", "b", "c")
    assert found.stages["x"].shape == (3, 5)
