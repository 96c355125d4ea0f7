"""Functions of heads whose tokens lie in columns, `[b h d t]`: what they say of their axes, and masks of keys alone."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch

pytestmark = pytest.mark.long


def by_the_second_axis(q: Any, k: Any, v: Any) -> Any:
    """Attend from step to step: each array is (entries, heads, size, steps)."""
    weights = (q.mT @ k / q.shape[1] ** 0.5).softmax(-1)
    return weights @ v.mT


def of_three_axes(q: Any, k: Any, v: Any) -> Any:
    """Attend from step to step: each array is (entries, size, steps)."""
    weights = (q.mT @ k / q.shape[1] ** 0.5).softmax(-1)
    return weights @ v.mT


class WithItsFiller(torch.nn.Module):
    """Tokens in columns come back in rows, heads side by side; `keep` is 0 for filler."""

    axis = -1

    def forward(self, q: Any, k: Any, v: Any, keep_mask: Any) -> Any:
        """Attend; q, k and v are [batch, heads, size, steps], and what tells filler is [batch, steps]."""
        scores = q.mT @ k / q.shape[2] ** 0.5
        rows = torch.stack([keep_mask] * q.shape[3], dim=1)[:, None]
        weights = scores.masked_fill(rows == 0, -1e9).softmax(self.axis)
        return (weights @ v.mT).transpose(1, 2).flatten(2)


class DownTheQueries(WithItsFiller):
    """Its softmax is over the queries, and it says nothing of its axes."""

    axis = -2

    def forward(self, q: Any, k: Any, v: Any, keep_mask: Any) -> Any:
        return super().forward(q, k, v, keep_mask)


def test_a_function_is_held_to_the_axes_of_its_docstring() -> None:
    assert attn_exp.check(by_the_second_axis).mistakes == ("scale_by_sqrt_heads",)


def test_a_function_that_speaks_of_no_heads_may_take_none() -> None:
    assert attn_exp.check(of_three_axes).passed


def test_a_mask_that_must_be_given_may_be_one_of_keys() -> None:
    assert attn_exp.check(WithItsFiller).passed
    assert "softmax_over_queries" in attn_exp.check(DownTheQueries).mistakes
