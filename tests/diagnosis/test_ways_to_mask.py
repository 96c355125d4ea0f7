"""A mask is written as the function wants it: each shape, each kind of numbers, one for keys alone, or None."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attn_exp


def softmax(s: Any) -> Any:
    with np.errstate(all="ignore"):
        p = np.exp(s - s.max(-1, keepdims=True))
        return p / p.sum(-1, keepdims=True)


def scores(q: Any, k: Any) -> Any:
    return q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])


def for_entries(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return softmax(np.where(mask[:, None] == 0, -1e9, scores(q, k))) @ v


def for_keys(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    s = scores(q, k)
    return softmax(s if mask is None else np.where(mask[:, None, None, :], s, -1e9)) @ v


def no_booleans(q: Any, k: Any, v: Any, mask: Any) -> Any:
    assert mask.dtype != np.bool_
    return softmax(scores(q, k) + (1 - mask) * -1e9) @ v


def for_all_heads(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    flat = [array.reshape(-1, *array.shape[2:]) for array in (q, k, v)]
    s = scores(*flat[:2])
    assert mask is None or mask.shape == s.shape
    return (softmax(s if mask is None else np.where(mask, s, -np.inf)) @ flat[2]).reshape(q.shape)


def of_one_head(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    assert q.ndim == 3
    s = scores(q, k)
    assert mask is None or mask.shape == s.shape
    return softmax(s if mask is None else np.where(mask, s, -1e9)) @ v


def keys_of_one_head(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    assert q.ndim == 3
    s = scores(q, k)
    return softmax(s if mask is None else np.where(mask[:, None, :], s, -1e9)) @ v


def lengths(q: Any, k: Any, v: Any, valid_lens: Any) -> Any:
    s = scores(q, k)
    return softmax(np.where(np.arange(s.shape[-1]) < valid_lens[:, None, None, None], s, -1e6)) @ v


def lengths_of_one_head(q: Any, k: Any, v: Any, valid_lens: Any = None) -> Any:
    assert q.ndim == 3 and (valid_lens is None or len(valid_lens) == len(q))
    s = scores(q, k)
    return (
        softmax(s if valid_lens is None else np.where(np.arange(s.shape[-1]) < valid_lens[:, None, None], s, -1e6))
    ) @ v


def in_an_object(q: Any, k: Any, v: Any, attr_mask: Any) -> Any:
    return softmax(np.where(attr_mask.mask, scores(q, k), -np.inf)) @ v


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (for_entries, "masks [b t s]"),
        (for_keys, ""),
        (no_booleans, "masks of ones and zeros"),
        (for_all_heads, "masks [b*h t s]"),
        (of_one_head, "[h t d]"),
        (keys_of_one_head, ""),
        (lengths, ""),
        (in_an_object, ""),
        (lengths_of_one_head, "[b t d]"),
    ],
)
def test_a_right_function_passes_whatever_mask_it_wants(function: Callable[..., Any], said: str) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert verdict.passed, str(verdict)
    assert said in verdict.findings[0].said
    assert any(one.rung in ("masks", "padding") and one.state == "held" for one in verdict.findings)


def key_padding(q: Any, k: Any, v: Any, key_padding_mask: Any = None) -> Any:
    s = scores(q, k)
    return softmax(s if key_padding_mask is None else np.where(key_padding_mask[:, None, None, :], -np.inf, s)) @ v


def hides(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return softmax(np.where(mask, -np.inf, scores(q, k))) @ v


def hides_keys(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    return key_padding(q, k, v, mask)


@pytest.mark.parametrize(("function", "passed"), [(hides, False), (hides_keys, False), (key_padding, True)])
def test_a_mask_whose_true_hides_is_a_convention(function: Callable[..., Any], passed: bool) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert (verdict.passed, verdict.right_under) == (passed, "convention=torch_mha")
    assert attn_exp.check(function, "convention=torch_mha", quick=True).passed


def test_a_wrong_mask_keeps_its_name() -> None:
    def small(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        s = scores(q, k)
        return softmax(s if mask is None else np.where(mask[:, None, None, :], s, -2.0)) @ v

    assert attn_exp.check(small, quick=True).mistakes == ("mask_small_fill",)


def causal_and_added(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """It is causal by itself, and adds what it is given as a mask."""
    s = np.where(np.tri(q.shape[-2], k.shape[-2], dtype=bool), scores(q, k), -1e4)
    return softmax(s if mask is None else s + mask) @ v


def test_a_mask_that_is_added_beside_a_causal_one_inside_gets_numbers() -> None:
    verdict = attn_exp.check(causal_and_added, "mask=causal", quick=True)
    assert verdict.passed and "masks added" in str(verdict), verdict
