"""The public function takes the fastest form by itself, and every form gives the same answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import attn_exp
from attn_exp import choice, forms
from attn_exp.rules.rule import Rules

Array = NDArray[Any]


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
    assert choice.form(logits, np.dtype(dtype), rules) == form


def test_a_named_form_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    attend = forms.attend

    def recorded(name: str) -> Any:
        used.append(name)
        return attend(name)

    monkeypatch.setattr(forms, "attend", recorded)
    arrays = drawn(1, 2, 70, 3)
    for name in ("auto", "matrix", "blockwise", "looped"):
        attn_exp.attention(*(each[..., :9, :] if name == "looped" else each for each in arrays), form=name)
    assert used == ["blockwise", "matrix", "blockwise", "looped"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [None, 0.3, 1000.0, 0.0])
def test_what_is_done_at_once_is_what_the_matrix_gives(dtype: str, scale: float | None) -> None:
    q, k, v = drawn(3, 4, dtype=dtype)
    expected = attn_exp.attention(q, k, v, scale=scale, form="matrix")
    assert choice.at_once(q, k, v, scale) is not None
    found = attn_exp.attention(q, k, v, scale=scale)
    assert found.dtype == dtype
    np.testing.assert_allclose(
        found, expected, rtol=8 * float(np.finfo(dtype).eps), atol=1e-6 if dtype == "float32" else 1e-15
    )


def test_what_is_out_of_the_ordinary_is_not_done_at_once() -> None:
    q, k, v = drawn(3, 4)
    bad = np.where(np.eye(3, 4, dtype=bool), np.nan, k)
    ordinary_no_more: tuple[Any, ...] = (
        (q[:, :3], k, v),
        (q, k, v[:2]),
        (q[None], k[None], v[None]),
        (q.astype("f4"), k, v),
        (q.astype("f2"), k.astype("f2"), v.astype("f2")),
        (q.tolist(), k, v),
        (q[:0], k, v),
        (q, bad, v),
        drawn(100, 100),
    )
    for query, key, value in ordinary_no_more:
        assert choice.at_once(query, key, value, None) is None
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
