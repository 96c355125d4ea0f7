"""The fast paths of `attention()` hold to ONNX's suite and to PyTorch, with tiles and thresholds so small that
everything is cut, shared out and, where it overflows, computed with care."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.forms._blocks import block, operands, plain, tasks, threads
from tests.forms.test_onnx import ATTENTION, RENAMED, WINDOW, cases, given

WHOLE = [name for name in ATTENTION if "16" not in name]
"""Half precision is rounded stage by stage, by `matrix` alone."""

SHAPES = [(1, 1, 1, 1, 3), (2, 3, 5, 7, 4), (1, 4, 16, 17, 2), (3, 1, 33, 33, 8)]
"""Batch entries, heads, queries, keys, head size: around the tile of 16 keys."""


@pytest.fixture(params=[1, 2, 7], ids="{} threads".format)
def workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    count = int(request.param)
    monkeypatch.setattr(threads, "default_threads", lambda: count)
    monkeypatch.setattr("attn_exp.forms.blockwise.default_threads", lambda: count)
    return count


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is too small to be cut."""
    for module, name, value in (
        (tasks, "KEYS", 16),
        (tasks, "TILE_LOGITS", 256),
        (operands, "ROWS", 8),
        (operands, "LEAST_ROWS", 4),
        (tasks, "SLIVER", 3),
        (block, "PIECE", 32),
        (operands, "RELATIVE_FROM", 32),
        (plain, "ONE_THREAD_LOGITS", 8),
        (plain, "ONE_THREAD_PRODUCT", 64),
    ):
        monkeypatch.setattr(module, name, value)
    yield


@pytest.mark.usefixtures("small", "workers")
@pytest.mark.parametrize("form", ["auto", "blockwise"])
@pytest.mark.parametrize("name", WHOLE)
def test_onnx_suite(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attn_exp.forms._operator.FEW_LOGITS", 0)
    case = cases("Attention")[name]
    _, inputs, attributes, expected = given(case)
    attributes.pop("qk_matmul_output_mode", 0)
    window = tuple(attributes.pop(side, -1) for side in WINDOW)
    query, key, value = (inputs.pop(letter) for letter in RENAMED)
    found = attn_exp.attention(query, key, value, window=window, form=form, **inputs, **attributes)
    np.testing.assert_allclose(found, expected["Y"], rtol=case.rtol, atol=case.atol)


@pytest.mark.usefixtures("small", "workers")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("spread", [1.0, 300.0], ids=["small logits", "large logits"])
def test_pytorch(shape: tuple[int, ...], kind: str, spread: float, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr("attn_exp.forms._operator.FEW_LOGITS", 0)
    monkeypatch.setattr(plain, "FEW_LOGITS", 0)
    b, h, t, s, d = shape
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((b, h, *each)).astype(kind) for each in ((t, d), (s, d), (s, 2)))
    q *= spread
    allowed = rng.random((t, s)) < 0.6
    near: dict[str, Any] = (
        {"rtol": 1e-4, "atol": 3e-5 * spread} if kind == "float32" else {"rtol": 1e-10, "atol": 1e-11}
    )
    for mine, theirs in (
        ({}, {}),
        ({"scale": 0.3}, {"scale": 0.3}),
        ({"is_causal": True}, {"is_causal": True}),
        ({"attn_mask": allowed}, {"attn_mask": torch.from_numpy(allowed)}),
    ):
        expected = torch.nn.functional.scaled_dot_product_attention(*map(torch.from_numpy, (q, k, v)), **theirs)
        np.testing.assert_allclose(attn_exp.attention(q, k, v, **mine), expected.numpy(), **near)
