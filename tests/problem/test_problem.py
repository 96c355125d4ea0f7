"""Problems: what is drawn, what is given, and what each named array depends on."""

from __future__ import annotations

import numpy as np
import pytest

from attn_exp.arrays import draw
from attn_exp.errors import UserError
from attn_exp.problem.problem import Problem, build
from tests.compose import config
from tests.refusal import refusal

LATE = "embeddings=inline projections=none"


def problem(*overrides: str) -> Problem:
    return build(config(*overrides))


def test_each_array_has_a_stream_of_its_own() -> None:
    plain = problem("embeddings=random", "embeddings.tokens=5", "embeddings.d_model=12", "head=2")
    other = problem("embeddings=random", "embeddings.tokens=5", "embeddings.d_model=12", "head=3", "bias=true")
    for name in ("W_q", "W_k", "W_v", "W_o"):
        np.testing.assert_array_equal(plain.projections[name], other.projections[name])
    np.testing.assert_array_equal(plain.x, other.x)
    assert set(other.projections) - set(plain.projections) == {"b_q", "b_k", "b_v", "b_o"}


def test_a_stream_is_pinned_to_its_seed_and_name() -> None:
    """The numbers NumPy's own documented recipe gives; they must never change under a user's feet."""
    expected = np.random.default_rng(np.random.SeedSequence([7, *b"W_q"])).standard_normal((2, 3))
    np.testing.assert_array_equal(draw(7, "W_q", "normal", (2, 3)), expected)


def test_drawn_projections_keep_the_variance() -> None:
    """Entries of N(0, 1/m) keep the variance of x; U(-1/sqrt m, 1/sqrt m) makes it a third."""
    random = ("embeddings=random", "embeddings.tokens=8", "embeddings.d_model=256")
    normal, uniform = problem(*random), problem(*random, "projections=uniform")
    assert normal.projections["W_q"].std() == pytest.approx(1 / 16, rel=0.02)
    assert uniform.projections["W_q"].std() == pytest.approx(1 / 16 / np.sqrt(3), rel=0.02)
    assert np.abs(uniform.projections["W_q"]).max() <= 1 / 16


def test_bias_is_added_to_queries_keys_and_values() -> None:
    """With x = 0 only the biases are left."""
    zero = problem("embeddings=inline", "embeddings.vectors=[[0,0],[0,0]]", "bias=true")
    for array, name in ((zero.q, "b_q"), (zero.k, "b_k"), (zero.v, "b_v")):
        np.testing.assert_array_equal(array, [zero.projections[name]] * 2)
        assert np.abs(zero.projections[name]).min() > 0


@pytest.mark.parametrize("largest", ["1e308", "1e200"])
def test_an_input_whose_scores_overflow_is_refused(largest: str) -> None:
    """1e200 squared is beyond 1.8e308; the scores would be infinite, and every row of weights zero or NaN."""
    with pytest.raises(UserError, match="the input is too large: q up to"):
        problem("embeddings=inline", f"embeddings.vectors=[[{largest},{largest}],[1,2]]")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            f"{LATE} embeddings.q=[[1,2]] embeddings.k=[[1,2,3]]",
            "embeddings.q has 2 numbers per query, not a multiple of",
        ),
        (
            f"{LATE} embeddings.q=[[1]] embeddings.k=[[1],[2]] embeddings.v=[[1]]",
            "embeddings.v has 1 rows; expected one",
        ),
        ("+projections.given.W_q=5", "projections.W_q=5: expected a list of rows"),
        ("+projections.given.W_q={a:1}", "projections.W_q={a:1}: expected a list of rows"),
        ("+projections.given.W_q=[]", "projections.W_q=[]: expected a list of rows"),
        ("+projections.given.W_q=[[]]", "projections.W_q is empty"),
        ("embeddings=random embeddings.tokens=[]", "embeddings.tokens=[]: expected at least one name"),
        ("embeddings=inline embeddings.vectors=[[1e309]]", "holds inf; expected finite numbers"),
    ],
)
def test_what_is_no_matrix_is_told_in_one_line(words: str, message: str) -> None:
    assert message in refusal(problem, *words.split())
