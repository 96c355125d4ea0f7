"""The public functions: shapes, and mistakes told in one clear sentence."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import attn_exp

Q, K, V = np.zeros((2, 4, 3, 8)), np.zeros((2, 2, 5, 8)), np.zeros((2, 2, 5, 6))
CASES: list[tuple[dict[str, Any], str]] = [
    ({"key": K[..., :7]}, "key of shape [2, 2, 5, 7] [batch, heads, tokens, size] has 7 in axis 3 (size); expected 8"),
    ({"value": V[:, :, :4]}, "has 4 in axis 2 (tokens); expected 5, as in key"),
    ({"key": K[:1], "value": V[:1]}, "has 1 in axis 0 (batch); expected 2, as in query"),
    ({"value": V[:, :1]}, "has 1 in axis 1 (heads); expected 2, as in key"),
    ({"query": Q[:, :3]}, "2 key/value heads do not divide 3 query heads"),
    ({"query": Q[0]}, "query, key and value must all be [batch, heads, tokens, size]"),
    ({"query": Q.astype(complex)}, "query holds complex128; expected real numbers"),
    ({"query": Q[0], "key": K[0], "value": V[0]}, "give q_num_heads and kv_num_heads, 1 for a single head"),
    (
        {"query": Q[0], "key": K[0], "value": V[0], "q_num_heads": 3, "kv_num_heads": 1},
        "q_num_heads=3 does not divide the last axis of query, 8",
    ),
    ({"q_num_heads": 4, "kv_num_heads": 2}, "q_num_heads and kv_num_heads are for 3-D inputs"),
    ({"attn_mask": np.ones((4, 5))}, ("attn_mask of shape [4, 5] does not broadcast to [batch, heads, queries, keys] = "
     "[2, 4, 3, 5]: axis -2 has 4, expected 1 or 3")),
    ({"attn_mask": np.ones((3, 6))}, "axis -1 has 6, expected 1 or 5"),
    ({"attn_mask": np.full((3, 5), np.nan)}, "attn_mask holds NaN at [0, 0]"),
    ({"past_key": K}, "past_key and past_value go together: past_value is missing"),
    ({"past_value": V}, "past_key and past_value go together: past_key is missing"),
    ({"past_key": K[..., :3], "past_value": V}, "past_key of shape [2, 2, 5, 3]"),
    ({"past_key": K, "past_value": V, "nonpad_kv_seqlen": [1, 1]}, "both say where the keys end"),
    ({"nonpad_kv_seqlen": [5]}, "expected one whole number for each of 2 sequences"),
    ({"nonpad_kv_seqlen": [5, 6]}, "expected lengths from 0 to 5, the number of keys"),
    ({"window": (-2, 0)}, "window left=-2: expected a whole number of keys, or -1"),
    ({"window": (0, 1.5)}, "window right=1.5: expected a whole number of keys, or -1"),
    ({"softcap": -1.0}, "softcap=-1.0: expected 0 (off) or a positive number"),
    ({"softmax_precision": 7}, "softmax_precision=7: expected"),
    ({"form": "matrx"}, "unknown form 'matrx'; did you mean matrix?"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), CASES)
def test_a_mistake_is_one_clear_sentence(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as error:
        attn_exp.attention(**({"query": Q, "key": K, "value": V} | change))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "place", "said"),
    [
        ("query", (1, 2, 1, 3), "query holds nan at batch 1, head 2, token 1, entry 3; mask it or fix it"),
        ("key", (0, 1, 4, 0), "key holds nan at batch 0, head 1, token 4, entry 0, which query 0 may see"),
        ("value", (1, 0, 2, 5), "value holds nan at batch 1, head 0, token 2, entry 5, which query 0 may see"),
    ],
)
def test_nan_where_a_query_looks_is_reported_with_its_place(name: str, place: tuple[int, ...], said: str) -> None:
    given: dict[str, Any] = {"query": Q.copy(), "key": K.copy(), "value": V.copy()}
    given[name][place] = np.nan
    with pytest.raises(ValueError, match="nan") as error:
        attn_exp.attention(**given)
    assert said in str(error.value)


def test_nan_is_blamed_on_the_first_query_that_sees_it() -> None:
    key = K.copy()
    key[0, 1, 1, 0] = np.nan
    with pytest.raises(ValueError, match="which query 1 may see"):
        attn_exp.attention(Q, key, V, is_causal=True)


def test_nan_is_blamed_where_each_sequence_ends_elsewhere() -> None:
    key = np.zeros((3, 2, 5, 8))
    key[2, 1, 3, 0] = np.nan
    with pytest.raises(ValueError, match="key holds nan at batch 2, head 1, token 3, entry 0, which query 2 may see"):
        attn_exp.attention(np.zeros((3, 4, 3, 8)), key, key, nonpad_kv_seqlen=[1, 5, 4], is_causal=True)


@pytest.mark.parametrize(("form", "why"), [("torch_sdpa", "NaN stays NaN"), ("onnxruntime", "0 times NaN")])
def test_nan_that_leaks_through_another_library_is_no_overflow(form: str, why: str) -> None:
    pytest.importorskip("torch" if form == "torch_sdpa" else form)
    value = V.copy()
    value[1, 0, 4, 2] = np.nan
    with pytest.warns(RuntimeWarning, match=f"value holds nan at batch 1, head 0, token 4, .* may not see; .*{why}"):
        attn_exp.attention(Q, K, value, form=form, attn_mask=np.arange(5) < 4)


@pytest.mark.parametrize("form", ["matrix", "looped", "decode", "blockwise", "torch_sdpa", "onnxruntime"])
def test_arrays_may_lie_in_memory_as_they_like(form: str) -> None:
    if form in ("torch_sdpa", "onnxruntime"):
        pytest.importorskip(form.removesuffix("_sdpa"))
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 2, 5, 4)) for _ in range(3))
    expected = attn_exp.attention(q, k, v, is_causal=True, form="matrix")
    near = 1e-6 if form == "onnxruntime" else 1e-12
    turned = [each[..., ::-1].copy()[..., ::-1] for each in (q, k, v)]
    foreign = [each.astype(">f8") for each in (q, k, v)]
    wide = [each.astype("longdouble") for each in (q, k, v)]
    columns = [np.asfortranarray(each) for each in (q, k, v)]
    for arrays in (turned, foreign, wide, columns):
        np.testing.assert_allclose(
            attn_exp.attention(*arrays, is_causal=True, form=form), expected, rtol=near, atol=near
        )


def test_attention_and_trace_list_the_same_arguments() -> None:
    listed, traced = (inspect.signature(each).parameters for each in (attn_exp.attention, attn_exp.trace))
    assert list(listed) == list(traced)
    assert {name for name in listed if listed[name] != traced[name]} == {"form"}


@pytest.mark.parametrize(
    "given", [{"softcap": 0.0}, {"window": [-1, -1]}, {"attn_mask": None, "softmax_precision": None}]
)
def test_settings_at_their_defaults_change_nothing_to_the_bit(given: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((60, 4)) for _ in range(3))
    np.testing.assert_array_equal(attn_exp.attention(q, k, v, **given), attn_exp.attention(q, k, v))


def test_two_axes_are_one_head() -> None:
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 4)), rng.standard_normal((5, 4)), rng.standard_normal((5, 2))
    found = attn_exp.trace(q, k, v)
    assert found.output.shape == (3, 2)
    assert found.weights is not None
    assert found.weights.shape == (3, 5)
    assert found.present_key.shape == (5, 4)
    four = attn_exp.attention(q[None, None], k[None, None], v[None, None], form="matrix")
    np.testing.assert_array_equal(found.output, four[0, 0])


def test_the_tensorflow_tutorials_weights() -> None:
    k, v = [[10, 0, 0], [0, 10, 0], [0, 0, 10], [0, 0, 10]], [[1, 0], [10, 0], [100, 5], [1000, 6]]
    found: Any = attn_exp.trace([[0, 10, 0], [0, 0, 10], [10, 10, 0]], k, v)
    weights = np.array([[0, 1, 0, 0], [0, 0, 0.5, 0.5], [0.5, 0.5, 0, 0]])
    np.testing.assert_allclose(found.weights, weights, atol=1e-12)
    np.testing.assert_allclose(found.output, np.array([[10, 0], [550, 5.5], [5.5, 0]]), atol=1e-9)


def test_karims_illustrated_self_attention() -> None:
    x = np.array([[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]])
    k = x @ [[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]]
    q = x @ [[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]]
    v = x @ [[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]]
    found = attn_exp.trace(q, k, v, scale=1.0)
    np.testing.assert_array_equal(found.logits, [[2, 4, 4], [4, 16, 12], [4, 12, 10]])
    expected = [[1.9366, 6.6831, 1.5951], [2.0000, 7.9640, 0.0540], [1.9997, 7.7599, 0.3584]]
    np.testing.assert_allclose(found.output, expected, atol=5e-5)


def test_keys_of_d2l_that_are_all_ones_give_the_mean_of_the_valid_values() -> None:
    v = np.broadcast_to(np.arange(40.0).reshape(10, 4), (2, 1, 10, 4))
    found = attn_exp.attention(np.full((2, 1, 1, 2), 0.3), np.ones((2, 1, 10, 2)), v,
                               attn_mask=(np.arange(10) < [[2], [6]])[:, None, None])  # fmt: skip
    np.testing.assert_allclose(found.reshape(2, 4), [[2, 3, 4, 5], [10, 11, 12, 13]])


def test_arguments_are_left_as_they_were() -> None:
    rng = np.random.default_rng(0)
    given = [rng.standard_normal((1, 2, 3, 4)) for _ in range(3)]
    copies = [each.copy() for each in given]
    attn_exp.attention(given[0], given[1], given[2], is_causal=True, softcap=1.0, attn_mask=np.zeros((3, 3)))
    for each, copy in zip(given, copies, strict=True):
        np.testing.assert_array_equal(each, copy)


def test_an_overflow_of_finite_numbers_is_a_warning_with_its_type() -> None:
    given = np.full((2, 4), 6e4, "float16")
    with pytest.warns(RuntimeWarning, match="logits overflow float16"):
        attn_exp.attention(given, given, given)


@pytest.mark.parametrize("short", [1, 3])
def test_a_mask_of_fewer_keys_hides_those_that_it_lacks(short: int) -> None:
    """ONNX: an `attn_mask` whose last axis is shorter than the keys is padded with -inf."""
    q, k, v = (np.random.default_rng(seed).normal(size=(2, 4, 5, 8)) for seed in range(3))
    whole = np.ones((5, 5), bool)
    whole[:, 5 - short :] = False
    found = attn_exp.attention(q, k, v, attn_mask=np.ones((5, 5 - short), bool))
    np.testing.assert_allclose(found, attn_exp.attention(q, k, v, attn_mask=whole), rtol=1e-12)
