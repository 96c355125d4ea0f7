"""The public function takes the fastest form by itself, and every form gives the same answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.arrays import Array
from attn_exp.forms._blocks import plain, threads
from attn_exp.forms._operator import functional
from attn_exp.rules.rules import Rules


def drawn(*shape: int, dtype: str = "float64") -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=shape).astype(dtype) for _ in range(3))
    return q, k, v


@pytest.mark.parametrize(
    ("logits", "dtype", "rules", "form"),
    [
        ((1, 1, 3, 3), "float64", Rules(), "matrix"),
        ((1, 8, 64, 64), "float32", Rules(), "blockwise"),
        ((1, 1, 2048, 2048), "float64", Rules(), "blockwise"),
        ((1, 1, 2048, 2048), "float16", Rules(), "matrix"),
        ((1, 1, 2048, 2048), "float32", Rules(softmax_dtype="float64"), "matrix"),
    ],
)
def test_few_logits_and_stages_go_to_the_matrix(logits: Any, dtype: str, rules: Rules, form: str) -> None:
    assert functional.fastest(logits, np.dtype(dtype), rules) == form


AT_ONCE = [(3, 4), (65, 8), (1, 2, 7, 5), (2, 3, 64, 64), (1, 8, 128, 16)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [None, 0.3, -0.2, 0.0])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shape", AT_ONCE, ids=str)
def test_what_is_done_at_once_is_what_the_matrix_gives(
    shape: tuple[int, ...], dtype: str, scale: float | None, is_causal: bool
) -> None:
    q, k, v = drawn(*shape, dtype=dtype)
    q, v = q[..., 1:, :], v[..., 1:]
    expected = attn_exp.attention(q, k, v, scale=scale, is_causal=is_causal, form="matrix")
    assert (plain.at_once(q, k, v, scale, is_causal) is None) == (is_causal and q.size < 2000)
    found = attn_exp.attention(q, k, v, scale=scale, is_causal=is_causal)
    assert found.dtype == dtype
    np.testing.assert_allclose(
        found, expected, rtol=1e-4 if dtype == "float32" else 1e-12, atol=5e-6 / 1e8 ** (dtype == "float64")
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("scale", "large"), [(1000.0, 1.0), (-1000.0, 1.0), (1.0, 1e-3), (1.0, np.inf)])
@pytest.mark.parametrize("heads", [1, 30])
def test_what_overflows_or_underflows_is_done_again_with_care(
    dtype: str, scale: float, large: float, heads: int
) -> None:
    q, k, v = (np.abs(each) + 1 for each in drawn(1, heads, 50, 4, dtype=dtype))
    v[0, -1, 0, 0] = large if abs(scale) > 1 else large * np.finfo(dtype).max
    assert plain.at_once(q, k, v, scale) is None
    if np.isfinite(large):
        expected = attn_exp.attention(q, k, v, scale=scale, form="matrix")
        found = attn_exp.attention(q, k, v, scale=scale)
        np.testing.assert_allclose(found, expected, rtol=2e-3 if dtype == "float32" else 1e-10)


@pytest.mark.parametrize("granted", [1, 2, 7])
@pytest.mark.parametrize("tile", [1 << 22, 9 * 70 * 83 * 8])
@pytest.mark.parametrize("is_causal", [False, True])
def test_heads_are_shared_out_among_threads(
    granted: int, tile: int, is_causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=(3, 5, *shape)) for shape in ((70, 6), (83, 6), (83, 2)))
    q = np.asfortranarray(q)
    expected = attn_exp.attention(q, k, v, is_causal=is_causal, form="matrix")
    monkeypatch.setattr(plain, "TILE", tile)
    monkeypatch.setattr(threads, "default_threads", lambda: granted)
    found = plain.at_once(q, k, v, None, is_causal)
    assert found is not None
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    v[2, 4, 82, 1] = np.nan
    assert plain.at_once(q, k, v, None, is_causal) is None


def test_what_is_out_of_the_ordinary_is_not_done_at_once() -> None:
    q, k, v = drawn(3, 4)
    bad = np.where(np.eye(3, 4, dtype=bool), np.nan, k)
    ordinary_no_more: tuple[Any, ...] = (
        (q[:, :3], k, v),
        (q, k, v[:2]),
        (q[None], k[None], v[None]),
        (q[None, None], k[None, None], v[None]),
        (q[None, None], np.stack([k, k])[None], v[None, None]),
        (q.astype("f4"), k, v),
        (q.astype("f2"), k.astype("f2"), v.astype("f2")),
        (q.tolist(), k, v),
        (q[:0], k, v),
        (q, bad, v),
        drawn(800, 4),
        (q, k[:0], v[:0]),
    )
    for query, key, value in ordinary_no_more:
        assert plain.at_once(query, key, value, None) is None
    with pytest.raises(ValueError, match="key holds nan"):
        attn_exp.attention(q, bad, v)


@pytest.mark.parametrize("length", [3, 64, 65, 200, 513])
def test_the_answer_does_not_depend_on_the_form(length: int) -> None:
    arrays = drawn(1, 2, length, 5)
    for settings in (
        {},
        {"is_causal": True},
        {"window": (7, 3)},
        {"softcap": 2.0},
        {"nonpad_kv_seqlen": [length // 2]},
    ):
        auto, matrix = (attn_exp.attention(*arrays, **settings, form=form) for form in ("auto", "matrix"))
        np.testing.assert_allclose(auto, matrix, rtol=1e-11, atol=1e-12)
