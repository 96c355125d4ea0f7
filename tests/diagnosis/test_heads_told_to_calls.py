"""Layers of one text each, seen entry by entry, and layers whose call is told how many heads there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attn_exp


def shares(logits: Any) -> Any:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


class OneHeadOfAll:
    """Rows of one text, whose heads are never cut."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        draw = np.random.default_rng(11)
        self.num_heads, self.size = num_heads, d_model // num_heads
        self.to_q, self.to_k, self.to_v = draw.standard_normal((3, d_model, d_model))

    def forward(self, x: Any) -> Any:
        return shares(x @ self.to_q @ (x @ self.to_k).T / np.sqrt(self.size)) @ (x @ self.to_v)


class ToldItsHeads:
    """Rows that are cut into as many heads as a call says."""

    def __init__(self, width: int) -> None:
        draw = np.random.default_rng(13)
        self.to_q, self.to_k, self.to_v = draw.standard_normal((3, width, width))

    def scale(self, width: int, heads: int) -> float:
        return float((width / heads) ** -0.5)

    def attend(self, x: Any, heads_dim: Any) -> Any:
        batch, tokens, width = x.shape
        q, k, v = (
            (x @ w).reshape(batch, tokens, heads_dim, width // heads_dim).swapaxes(1, 2)
            for w in (self.to_q, self.to_k, self.to_v)
        )
        mixed = shares(q @ k.swapaxes(2, 3) * self.scale(width, heads_dim)) @ v
        return self.joined(mixed, x.shape)

    def joined(self, mixed: Any, shape: tuple[int, ...]) -> Any:
        return mixed.swapaxes(1, 2).reshape(shape)


class ScaledByAll(ToldItsHeads):
    def scale(self, width: int, heads: int) -> float:
        return float(width**-0.5)


class JoinedByView(ToldItsHeads):
    def joined(self, mixed: Any, shape: tuple[int, ...]) -> Any:
        return mixed.reshape(shape)


def test_one_head_of_each_entry_is_counted_where_entries_are_called_one_by_one() -> None:
    assert "single_head" in attn_exp.check(OneHeadOfAll, quick=True).mistakes


@pytest.mark.parametrize(
    ("layer", "names"),
    [(ToldItsHeads, ()), (ScaledByAll, ("scale_by_sqrt_d_model",)), (JoinedByView, ("heads_merged_wrong",))],
)
def test_a_call_is_told_several_heads_so_that_what_is_wrong_with_several_shows(layer: Any, names: Any) -> None:
    verdict = attn_exp.check(layer, quick=True)
    assert verdict.mistakes == names, verdict
    assert verdict.passed == (not names)
