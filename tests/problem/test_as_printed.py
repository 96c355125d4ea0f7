"""Matrices as a notebook prints them, pasted where numbers stand."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from attn_exp.config.compose import compose_config
from attn_exp.problem import input_files
from attn_exp.problem.drawing import parse_printed
from attn_exp.problem.problem import build
from tests.refusal import refusal

X = np.random.default_rng(0).standard_normal((3, 4)).round(4)


def as_torch_prints() -> dict[str, str]:
    """Return the matrix as PyTorch prints it, where it is installed."""
    if not find_spec("torch"):
        return {}
    import torch  # noqa: PLC0415 - an extra

    return {"torch": str(torch.from_numpy(X))}


TEXTS = {
    "numpy": str(X),
    "numpy in its own words": repr(X),
    **as_torch_prints(),
    "a list": str(X.tolist()),
    "in powers of ten": np.array2string(X, formatter={"float": "{:.4e}".format}),
}


@pytest.mark.parametrize("name", TEXTS)
def test_it_is_read_as_it_was_printed(name: str) -> None:
    np.testing.assert_array_equal(parse_printed(TEXTS[name], "embeddings.vectors"), X)


def test_yaml_holds_it_as_a_block_of_text(tmp_path: Path) -> None:
    weights = np.random.default_rng(1).standard_normal((3, 4, 4)).round(3)
    matrices = dict(zip(("W_q", "W_k", "W_v"), weights, strict=True))
    blocks = {name: str(matrix).replace("\n", "\n      ") for name, matrix in matrices.items()}
    given = "".join(f"    {name}: |\n      {text}\n" for name, text in blocks.items())
    head = "# @package _global_\ndefaults:\n  - override /embeddings: inline\n  - override /projections: identity\n"
    x = str(X).replace("\n", "\n    ")
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment/mine.yaml").write_text(
        f"{head}embeddings:\n  vectors: |\n    {x}\nprojections:\n  given:\n{given}", encoding="utf-8"
    )
    config = compose_config(["experiment=mine"], [str(tmp_path)])
    problem = build(config)
    assert problem.x is not None
    np.testing.assert_array_equal(problem.x, X)
    for name, matrix in matrices.items():
        np.testing.assert_array_equal(problem.projections[name], matrix)
    assert input_files.list_input_files(config) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[1 2] [3]]", "is ragged: rows of 2, 1 numbers"),
        ("[[1 2] [3 four]]", "row 1 holds 'four', which is not a number"),
        ("[[1 ... 2] [3 ... 4]]", "row 0 holds '...', which is not a number"),
        ("[[1 nan]]", "row 0, column 1 holds nan; expected finite numbers"),
        ("[", "expected a list of rows"),
    ],
)
def test_what_is_no_matrix_is_told(text: str, message: str) -> None:
    assert message in refusal(parse_printed, text, "embeddings.vectors")
