"""The public function takes the fastest form by itself, and every form gives the same answer."""

from __future__ import annotations

import numpy as np
import pytest

import attn_exp
from attn_exp.arrays import Array
from attn_exp.forms._blocks import plain


def drawn(*shape: int, dtype: str = "float64") -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=shape).astype(dtype) for _ in range(3))
    return q, k, v


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
    assert (plain.attend_at_once(q, k, v, scale, is_causal) is None) == (is_causal and q.size < 2000)
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
    assert plain.attend_at_once(q, k, v, scale) is None
    if np.isfinite(large):
        expected = attn_exp.attention(q, k, v, scale=scale, form="matrix")
        found = attn_exp.attention(q, k, v, scale=scale)
        np.testing.assert_allclose(found, expected, rtol=2e-3 if dtype == "float32" else 1e-10)


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
