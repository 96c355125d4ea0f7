"""A softmax in float32 inside a function of float64 is everybody's habit: a remark, where nothing else is rounded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import attn_exp


def softmax(s: Any, more: float = 0.0) -> Any:
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / (p.sum(-1, keepdims=True) + more)


def scores(q: Any, k: Any) -> Any:
    return q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])


def test_a_softmax_in_float32_is_a_remark() -> None:
    def habit(q: Any, k: Any, v: Any) -> Any:
        return softmax(scores(q, k).astype(np.float32)).astype(q.dtype) @ v

    verdict = attn_exp.check(habit, quick=True)
    assert verdict.passed, str(verdict)
    assert "its softmax is one of float32" in str(verdict)


def test_all_in_float32_is_a_remark_in_pytorch_where_nobody_asked_for_float64() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

    def single(q: Any, k: Any, v: Any) -> Any:
        weights = torch.softmax(q.float() @ k.float().mT / q.shape[-1] ** 0.5, -1)
        return (weights @ v.float()).type_as(q)

    assert "it rounds what it is given to float32" in str(attn_exp.check(single, quick=True))
    assert attn_exp.check(single, quick=True).passed
    assert not attn_exp.check(single, "dtype=float64", quick=True).passed


def test_all_in_float32_in_numpy_or_a_small_number_below_is_none() -> None:
    def single(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (array.astype(np.float32) for array in (q, k, v))
        return (softmax(scores(q, k)) @ v).astype(np.float64)

    def epsilon(q: Any, k: Any, v: Any) -> Any:
        return softmax(scores(q, k), 1e-7) @ v

    assert not attn_exp.check(single, quick=True).passed
    assert not attn_exp.check(epsilon, quick=True).passed
