"""Functions that need more than their arrays: a window, a mapping that helpers read, what was kept of earlier calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attn_exp


def softmax(scores: Any) -> Any:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def windowed(q: Any, k: Any, v: Any, window_size: int, rest: int) -> Any:
    assert window_size % 2 == rest, "of the other kind"
    rows, keys = np.indices((q.shape[-2], k.shape[-2]))
    near = abs(rows - keys) <= window_size // 2
    scores = np.where(near, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -np.inf)
    return softmax(scores) @ v


@pytest.mark.parametrize("rest", [0, 1])
def test_a_window_that_must_be_even_or_odd_is_as_wide_as_all(rest: int) -> None:
    def attention(q: Any, k: Any, v: Any, window_size: int) -> Any:
        return windowed(q, k, v, window_size, rest)

    verdict = attn_exp.check(attention, quick=True)
    assert verdict.passed, verdict
