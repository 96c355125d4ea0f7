"""Projections from files: what people call them, and how they lie there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_exp.errors import UserError
from attn_exp.problem import from_files
from attn_exp.problem.problem import build
from attn_exp.problem.projections import Inputs
from tests.compose import comparison, config
from tests.refusal import refusal

STREAM = np.random.default_rng(0)
X = "embeddings.vectors=[[1,2,3,4],[0,1,0,-1],[2,-2,1,0]]"
ROWS = np.array([[1.0, 2, 3, 4], [0, 1, 0, -1], [2, -2, 1, 0]])
Q, K, V, OUT = (STREAM.standard_normal(shape) for shape in ((4, 6), (4, 6), (4, 10), (10, 4)))
BIASES = {"b_q": STREAM.standard_normal(6), "b_k": STREAM.standard_normal(6), "b_v": STREAM.standard_normal(10)}
WHOLE = {"W_q": Q, "W_k": K, "W_v": V, "W_o": OUT}


def arrays(path: Path, given: dict[str, Any], *words: str) -> dict[str, Any]:
    """Return the projections of a run whose file holds these arrays."""
    np.savez(path / "w.npz", **given)
    return projections(f"projections.file={path}/w.npz", *words)


def projections(*words: str) -> dict[str, Any]:
    return dict(build(config("embeddings=inline", X, "projections=file", *words)).projections)


def by_heads(matrix: Any, heads: int) -> Any:
    """Cut `[m h*d]` into `[h m d]`, head i the i-th run of columns."""
    return np.stack(np.split(matrix, heads, axis=1))


def same(got: dict[str, Any], expected: dict[str, Any]) -> None:
    assert {name for name in got if name in expected} == set(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name], array)


CALLED = """
W_q W_k W_v W_o | Wq Wk Wv Wo | w_q w_k w_v w_o | WQ WK WV WO | W_query W_key W_value W_out | q k v o
query key value output | q_proj k_proj v_proj o_proj | Omega_q Omega_k Omega_v Omega_o | 0.W_q 0.W_k 0.W_v 0.W_o
q_proj.weight k_proj.weight v_proj.weight out_proj.weight | wq.weight wk.weight wv.weight wo.weight
attn.W_query.weight attn.W_key.weight attn.W_value.weight attn.out_proj.weight
to_q.weight to_k.weight to_v.weight to_out.0.weight | query/kernel key/kernel value/kernel out/kernel
attention.self.query.weight attention.self.key.weight attention.self.value.weight attention.output.dense.weight
h.0.q_lin.weight h.0.k_lin.weight h.0.v_lin.weight h.0.out_lin.weight
linear_q.weight linear_k.weight linear_v.weight linear_out.weight
"""


@pytest.mark.parametrize("called", [names.strip() for names in CALLED.strip().replace("\n", "|").split("|")])
def test_a_matrix_goes_by_the_names_that_people_give_it(called: str, tmp_path: Path) -> None:
    given = dict(zip(called.split(), WHOLE.values(), strict=True))
    same(arrays(tmp_path, given, "head=2"), WHOLE)


@pytest.mark.parametrize(
    "called", ["b_{}", "b{}", "bias_{}", "{}_bias", "{}_proj.bias", "W_{}.bias", "beta_{}", "a.0.{}.bias"]
)
def test_a_bias_goes_by_the_names_that_people_give_it(called: str, tmp_path: Path) -> None:
    given = {called.format(name[-1]): array for name, array in BIASES.items()}
    same(arrays(tmp_path, {**WHOLE, **given}, "bias=true"), WHOLE | BIASES)


@pytest.mark.parametrize(
    "name", ["mask", "ln_1.weight", "mlp.c_fc.weight", "h.0.attn.masked_bias", "position_ids", "", "1", "."]
)
def test_what_is_called_otherwise_is_no_projection(name: str) -> None:
    assert from_files.guess_projection(name) is None


def test_matrices_turned_as_linear_layers_keep_them(tmp_path: Path) -> None:
    turned = {name: matrix.T for name, matrix in WHOLE.items()}
    same(arrays(tmp_path, turned, "projections.transposed=true", "head=2"), WHOLE)


def test_matrices_head_by_head(tmp_path: Path) -> None:
    heads = {name: by_heads(matrix, 2) for name, matrix in WHOLE.items() if name != "W_o"}
    heads["W_o"] = np.stack(np.split(OUT, 2, axis=0))
    heads |= {name: bias.reshape(2, -1) for name, bias in BIASES.items()}
    same(arrays(tmp_path, heads, "head=2", "bias=true"), WHOLE | BIASES)
    turned = {name: array.swapaxes(1, 2) if array.ndim == 3 else array for name, array in heads.items()}
    same(arrays(tmp_path, turned, "head=2", "bias=true", "projections.transposed=true"), WHOLE | BIASES)


def test_matrices_head_by_head_as_jax_keeps_them(tmp_path: Path) -> None:
    kernels = {"query/kernel": Q.reshape(4, 2, 3), "key/kernel": K.reshape(4, 2, 3), "value/kernel": V.reshape(4, 2, 5)}
    same(arrays(tmp_path, {**kernels, "out/kernel": OUT.reshape(2, 5, 4)}, "head=2"), WHOLE)


def test_fewer_heads_of_keys_than_of_queries(tmp_path: Path) -> None:
    keys, values = STREAM.standard_normal((1, 4, 3)), STREAM.standard_normal((1, 4, 5))
    given = {"W_q": by_heads(Q, 2), "W_k": keys, "W_v": values}
    np.savez(tmp_path / "w.npz", **given)
    from attn_exp.problem.from_files import read_projections as read  # noqa: PLC0415 - here without the run, which pools

    got = read(
        config("projections=file", f"projections.file={tmp_path}/w.npz").projections, Inputs(np.eye(4), np.eye(4)), 2
    )
    same(got, {"W_q": Q, "W_k": keys[0], "W_v": values[0]})


def test_three_in_one(tmp_path: Path) -> None:
    k, v = STREAM.standard_normal((2, 4, 6))
    expected = {
        "W_q": Q,
        "W_k": k,
        "W_v": v,
        **{f"b_{letter}": np.arange(6.0) + 6 * at for at, letter in enumerate("qkv")},
    }
    together = np.hstack([Q, k, v])
    words = ("bias=true", "head=2")
    same(arrays(tmp_path, {"c_attn.weight": together, "c_attn.bias": np.arange(18.0)}, *words), expected)
    given = {"in_proj_weight": together.T, "in_proj_bias": np.arange(18.0)}
    same(arrays(tmp_path, given, *words, "projections.transposed=true"), expected)


def test_a_prefix_and_names_say_which_are_meant(tmp_path: Path) -> None:
    layers = {f"h.{layer}.{name}": (layer + 1) * matrix for layer in range(2) for name, matrix in WHOLE.items()}
    twice = {name: 2 * matrix for name, matrix in WHOLE.items()}
    same(arrays(tmp_path, layers, "projections.prefix=h.1."), twice)
    words = (f"projections.names.{name}=h.1.{name}" for name in WHOLE)
    same(arrays(tmp_path, layers, *words), twice)


def test_an_array_that_is_given_wins_and_may_be_a_file_of_its_own(tmp_path: Path) -> None:
    np.save(tmp_path / "q.npy", -Q.T)
    turned = {name: matrix.T for name, matrix in WHOLE.items()}
    word = f"+projections.given.W_q={tmp_path}/q.npy"
    same(arrays(tmp_path, turned, word, "projections.transposed=true"), WHOLE | {"W_q": -Q})


def test_an_array_may_be_typed_head_by_head() -> None:
    typed = str(by_heads(Q, 2).tolist()).replace(" ", "")
    given = (f"+projections.given.W_q={typed}", f"+projections.given.W_k={Q.tolist()}".replace(" ", ""))
    found = build(config("embeddings=inline", X, *given)).projections
    np.testing.assert_array_equal(found["W_q"], Q)


def test_what_the_file_lacks_is_made_as_the_source_says(tmp_path: Path) -> None:
    square = {name: STREAM.standard_normal((4, 4)) for name in ("W_q", "W_k", "W_v")}
    np.testing.assert_array_equal(arrays(tmp_path, square)["W_o"], np.eye(4))
    assert not np.array_equal(arrays(tmp_path, square, "projections.source=normal")["W_o"], np.eye(4))


MISFITS = [
    ({**WHOLE, "W_q": Q.T}, "", "W_q has the shape [6, 4]; expected d_model=4 rows; it fits with projections"),
    (WHOLE, "projections.transposed=true", "expected d_model=4 rows; it fits with projections.transposed=false"),
    ({**WHOLE, "W_o": OUT.T}, "", "W_o has the shape [4, 10]; expected the size of v=10 rows; it fits with"),
    ({**WHOLE, "W_q": by_heads(Q, 3)}, "", "W_q has the shape [3,4,2]; expected [2,4,d], one matrix per head"),
    ({**WHOLE, "W_q": Q[None, None]}, "", "W_q has the shape [1,1,4,6]; expected rows and columns, or one such matrix"),
    ({**WHOLE, "b_q": np.ones((3, 4))}, "bias=true", "projections.b_q has 12 numbers; expected 6"),
    ({**WHOLE, "b_q": np.ones(6)}, "", "b_q given, but bias=false adds none; write bias=true"),
    ({"W_q": Q, "W_o": OUT}, "", "has no W_k and no W_v: it holds W_q, W_o; projections.names.W_k=NAME names"),
    ({**WHOLE, "W_query": Q}, "", "W_q, W_query could each be W_q; choose one with projections.names.W_q=..., or a"),
    ({"in_proj_weight": np.ones((4, 8))}, "", "in_proj_weight has the shape [4,8]; expected [4,3n], queries, keys and"),
    ({"in_proj_weight": np.ones((6, 9))}, "", "W_q has the shape [6, 3]; expected d_model=4 rows"),
    (WHOLE, "projections.prefix=h.0.", "no name begins with projections.prefix=h.0.; it holds W_q, W_k, W_v, W_o"),
    (WHOLE, "projections.names.W_q=W_qq", "unknown array for projections.names.W_q 'W_qq'; did you mean W_q?"),
    (WHOLE, "projections.names.W_x=W_q", "unknown setting 'projections.names.W_x'"),
    ({**WHOLE, "W_q": by_heads(Q, 2) * np.nan}, "", "W_q: [0,0,0] holds nan; expected finite numbers"),
    ({**WHOLE, "W_q": Q.astype(complex)}, "", "W_q holds complex128; expected real numbers"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "words", "message"), MISFITS)
def test_what_does_not_fit_is_named(given: dict[str, Any], words: str, message: str, tmp_path: Path) -> None:
    assert message in refusal(arrays, tmp_path, given, *words.split())


def test_a_choice_without_its_file_says_what_to_write() -> None:
    with pytest.raises(UserError, match=r"projections=file needs a file: write projections\.file=weights\.npz"):
        projections()


def test_an_array_without_a_name_needs_none(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((3, 4)))
    with pytest.raises(UserError, match=r"x\.npy holds one array, without a name; leave out embeddings\.array=mine"):
        comparison("embeddings=file", f"embeddings.file={tmp_path}/x.npy", "embeddings.array=mine")


def test_q_of_several_heads_lies_side_by_side(tmp_path: Path) -> None:
    np.save(tmp_path / "q.npy", np.ones((2, 3, 4)))
    words = [f"embeddings.{name}={tmp_path}/q.npy" for name in "qkv"]
    with pytest.raises(
        UserError, match=r"shape \[2, 3, 4\]; expected rows and columns, such as \[3,4\]; put heads side"
    ):
        comparison("embeddings=inline", "projections=none", *words)
    np.save(tmp_path / "q.npy", np.ones((1, 3, 4)))
    assert len(comparison("embeddings=inline", "projections=none", *words).problem.tokens) == 3
