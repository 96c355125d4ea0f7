"""Held to ONNX: every backend case of `Attention` and `RotaryEmbedding`, and what that suite does not look at."""

from __future__ import annotations

import functools
import importlib
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given as example
from hypothesis import strategies as st

import attn_exp
from attn_exp import forms

pytest.importorskip("onnx", reason="ONNX is not installed: it comes with the test group")
pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed: it comes with the test group")

import onnx.backend.test.case.node as onnx_cases
from onnx import defs, helper
from onnx.reference.ops.op_attention import _compute_attention

from attn_exp.arrays import Array

RENAMED = {"Q": "query", "K": "key", "V": "value"}
WINDOW = ("left_window_size", "right_window_size")
MODES = ("logits", "capped", "masked", "weights")


FORMS = [None, *(form for form in forms.NAMES if forms.form(form).reference == "logits")]


@functools.cache
def cases(operator: str) -> dict[str, Any]:
    """Return the operator's cases by name, without the copies that spell it out in smaller operators."""
    suite: Any = onnx_cases
    suite._TargetOpType = operator  # the suite's own filter: all operators together take ten times as long
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(f"{onnx_cases.__name__}.{operator.lower()}")
    return {each.name: each for each in onnx_cases._NodeTestCases if each.model.graph.node[0].op_type == operator}


ATTENTION = sorted(cases("Attention"))
ROTARY = sorted(cases("RotaryEmbedding"))


def given(case: Any) -> tuple[Any, dict[str, Any], dict[str, Any], Any]:
    """Return a case's node, inputs and attributes by name, and expected outputs."""
    node, (inputs, expected) = case.model.graph.node[0], case.data_sets[0]
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    schema = defs.get_schema(node.op_type, max(each.version for each in case.model.opset_import))
    names = [schema.inputs[place].name for place, name in enumerate(node.input) if name]
    outputs = [schema.outputs[place].name for place, name in enumerate(node.output) if name]
    return node, dict(zip(names, inputs, strict=True)), attributes, dict(zip(outputs, expected, strict=True))


STAGEWISE = (None, "matrix", "looped")
"""Forms that round half precision after every stage, as the operator defines it; the others round once, at the end.

The suite's own code sums bfloat16 in bfloat16; ours, like libraries, sums in float32: there two units are allowed.
"""


def tolerance(case: Any, form: str | None, dtype: str) -> tuple[float, float]:
    """Return the suite's own tolerances, or two units in the last place where half precision is rounded otherwise."""
    once = {"float16": 2**-9, "bfloat16": 2**-6}.get(dtype)
    return (case.rtol, case.atol) if once is None or (form in STAGEWISE and dtype != "bfloat16") else (once, once)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name: str, form: str | None) -> None:
    """A stage that a form never forms is not compared; a form that refuses the case says so."""
    case = cases("Attention")[name]
    _, inputs, attributes, expected = given(case)
    mode = attributes.pop("qk_matmul_output_mode", 0)
    left, right = (attributes.pop(side, -1) for side in WINDOW)
    query, key, value = (inputs.pop(letter) for letter in RENAMED)
    chosen: dict[str, Any] = {} if form is None else {"form": form}
    try:
        found: Any = attn_exp.trace(query, key, value, window=(left, right), **inputs, **attributes, **chosen)
    except ValueError as error:
        assert form not in STAGEWISE
        assert f"form={form} cannot compute this" in str(error)
        return
    mine = {"Y": found.output, "present_key": found.present_key, "present_value": found.present_value,
            "qk_matmul_output": getattr(found, MODES[mode])}  # fmt: skip
    for output, numbers in expected.items():
        if mine[output] is None:
            assert form not in STAGEWISE
            continue
        rtol, atol = tolerance(case, form, numbers.dtype.name)
        assert mine[output].dtype == numbers.dtype
        np.testing.assert_allclose(mine[output].astype(np.float64), numbers.astype(np.float64), rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", ROTARY)
def test_rotary_embedding(name: str) -> None:
    case = cases("RotaryEmbedding")[name]
    _, inputs, attributes, expected = given(case)
    found = attn_exp.rotary_embedding(inputs.pop("X"), **inputs, **attributes)
    np.testing.assert_allclose(found, expected["Y"], rtol=case.rtol, atol=case.atol)


def draw(seed: int, *shape: int, kind: Any = np.float64) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(kind)


def test_logits_are_raw_also_where_they_are_capped() -> None:
    q, k, v = draw(0, 1, 1, 2, 4), draw(1, 1, 1, 3, 4), draw(2, 1, 1, 3, 4)
    found: Any = attn_exp.trace(q, k, v, softcap=0.5)
    np.testing.assert_allclose(found.logits, q @ k.swapaxes(-1, -2) / 2)
    np.testing.assert_allclose(found.capped, 0.5 * np.tanh(q @ k.swapaxes(-1, -2) / 2 / 0.5))


def test_softmax_precision_is_used() -> None:
    masked = np.linspace(0, 5, 50)
    q, k, v = np.ones((1, 1), "float16"), masked[:, None].astype("float16"), np.eye(50, dtype="float16")
    logits = k[:, 0].astype("float32")
    exact = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    in_float32 = attn_exp.trace(q, k, v, scale=1.0, softmax_precision=1).weights
    in_float16 = attn_exp.trace(q, k, v, scale=1.0).weights
    assert in_float32 is not None and in_float16 is not None
    np.testing.assert_array_equal(in_float32[0], exact.astype("float16"))
    assert (in_float16 != in_float32).any()
    assert in_float32.dtype == in_float16.dtype == np.float16


def test_bfloat16_stages_are_rounded_one_by_one() -> None:
    import ml_dtypes  # noqa: PLC0415 - beside its only use

    kind = ml_dtypes.bfloat16
    found = attn_exp.trace(draw(0, 3, 8, kind=kind), draw(1, 5, 8, kind=kind), draw(2, 5, 8, kind=kind))
    assert {np.asarray(stage).dtype for stage in found} == {np.dtype(kind)}


def test_heads_side_by_side_are_runs_of_columns() -> None:
    q, k, v = draw(0, 2, 6, 3, 4), draw(1, 2, 3, 5, 4), draw(2, 2, 3, 5, 7)
    flat = [each.swapaxes(1, 2).reshape(2, each.shape[2], -1) for each in (q, k, v)]
    found = attn_exp.attention(*flat, q_num_heads=6, kv_num_heads=3)
    expected = attn_exp.attention(q, k, v).swapaxes(1, 2).reshape(2, 3, 42)
    np.testing.assert_array_equal(found, expected)
    one = attn_exp.attention(*(each[0] for each in flat), q_num_heads=6, kv_num_heads=3)
    np.testing.assert_allclose(one, expected[0], rtol=1e-13)


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e300])
@pytest.mark.parametrize("masked_by", ["bool", "float", "lengths", "causal"])
def test_what_masked_keys_and_values_hold_leaks_nowhere(poison: float, masked_by: str) -> None:
    q, k, v = draw(0, 1, 2, 3, 4), draw(1, 1, 2, 5, 4), draw(2, 1, 2, 5, 4)
    bad_k, bad_v = k.copy(), v.copy()
    bad_k[:, :, 3:], bad_v[:, :, 3:] = poison, poison
    seen = np.arange(5) < 3
    ways: dict[str, dict[str, Any]] = {
        "bool": {"attn_mask": seen},
        "float": {"attn_mask": np.where(seen, 0.0, -np.inf)},
        "lengths": {"nonpad_kv_seqlen": np.array([3])},
        "causal": {"is_causal": True},
    }
    settings = ways[masked_by]
    clean = attn_exp.attention(q, k, v, **settings)
    np.testing.assert_array_equal(attn_exp.attention(q, bad_k, bad_v, **settings), clean)


def test_rows_that_see_nothing_are_zero_also_without_past() -> None:
    mask = np.where(np.tril(np.ones((5, 2)), -3) > 0, 0.0, -np.inf)
    found = attn_exp.trace(draw(0, 5, 4), draw(1, 2, 4), draw(2, 2, 4), attn_mask=mask)
    assert found.weights is not None
    np.testing.assert_array_equal(found.weights.sum(axis=-1) > 0, [False, False, False, True, True])
    np.testing.assert_array_equal(found.output[:3], 0.0)


def test_a_mask_of_large_finite_numbers_forbids_nothing() -> None:
    found = attn_exp.trace(draw(0, 2, 4), draw(1, 3, 4), draw(2, 3, 4), attn_mask=np.full((2, 3), -1e9)).weights
    np.testing.assert_allclose(np.asarray(found).sum(axis=-1), 1.0)


@pytest.mark.parametrize("mask", [np.ones((2, 3), bool), np.zeros((2, 3)), np.array([True, True, True])])
def test_a_mask_that_ends_early_forbids_the_keys_past_its_end(mask: Array) -> None:
    q, k, v = draw(0, 2, 4), draw(1, 5, 4), draw(2, 5, 4)
    np.testing.assert_allclose(attn_exp.attention(q, k, v, attn_mask=mask), attn_exp.attention(q, k[:3], v[:3]))


SETTINGS = st.fixed_dictionaries(
    {
        "is_causal": st.booleans(),
        "softcap": st.sampled_from([0.0, 0.7]),
        "scale": st.sampled_from([None, 0.01, 1.0]),
        "left_window_size": st.integers(-1, 3),
        "right_window_size": st.integers(-1, 3),
    }
)


@pytest.mark.long
@example(
    SETTINGS,
    st.tuples(*[st.integers(1, 4)] * 4),
    st.sampled_from([(1, 1), (4, 1), (4, 2), (3, 3)]),
    st.sampled_from(["none", "bool", "float"]),
    st.sampled_from(["none", "past", "lengths"]),
    st.integers(0, 999),
)
def test_any_settings_against_the_operators_reference(
    settings: dict[str, Any],
    sizes: tuple[int, int, int, int],
    heads: tuple[int, int],
    mask: str,
    cache: str,
    seed: int,
) -> None:
    (batches, rows, keys, size), (h, g) = sizes, heads
    q, k, v = (
        draw(seed, batches, h, rows, size),
        draw(seed + 1, batches, g, keys, size),
        draw(seed + 2, batches, g, keys, 3),
    )
    past = 2 if cache == "past" else 0
    extra: dict[str, Any] = {}
    if past:
        extra |= {"past_key": draw(seed + 3, batches, g, past, size), "past_value": draw(seed + 4, batches, g, past, 3)}
    if cache == "lengths":
        extra["nonpad_kv_seqlen"] = np.random.default_rng(seed).integers(1, keys + 1, batches)
    allowed = draw(seed + 5, h, rows, keys + past) > -0.5
    if mask != "none":
        extra["attn_mask"] = allowed if mask == "bool" else np.where(allowed, draw(seed + 6, *allowed.shape), -np.inf)
    window = {name: settings[name] for name in WINDOW}
    own = {name: value for name, value in settings.items() if name not in WINDOW}
    with np.errstate(invalid="ignore"):
        expected = _compute_attention(q, k, v, **own, **window, **extra, qk_matmul_output_mode=3)
    found = attn_exp.trace(q, k, v, window=tuple(window.values()), **own, **extra)
    for mine, theirs in zip(
        (found.output, found.present_key, found.present_value, found.weights), expected, strict=True
    ):
        np.testing.assert_allclose(np.asarray(mine), theirs, rtol=1e-9, atol=1e-12)
