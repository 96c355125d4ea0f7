"""Layers that take one query for each entry, `[b m]`, are asked with each token as the query of an entry of its own."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import attn_exp  # noqa: E402


class Ranked(nn.Module):
    """A wish `[b m]` over offers `[b s m]`, of which some are filler."""

    fill = -math.inf

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.of_wish, self.of_offers, self.of_prices, self.last = (nn.Linear(width, width) for _ in range(4))

    def forward(self, wish: Any, offers: Any, mask: Any = None) -> Any:
        q = self.of_wish(wish).view(len(wish), self.num_heads, -1)
        k, v = (side(offers).unflatten(-1, (self.num_heads, -1)) for side in (self.of_offers, self.of_prices))
        scores = torch.einsum("bhd,bshd->bhs", q, k) / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(mask[:, None] == 0, self.fill)
        return self.last(torch.einsum("bhs,bshd->bhd", scores.softmax(-1), v).flatten(1))


class Leaking(Ranked):
    fill = 1e-9


class InARow(Ranked):
    """Its query is a row of one token, and its answer too."""

    def forward(self, query: Any, context: Any, mask: Any = None) -> Any:
        q = self.of_wish(query).view(len(query), 1, self.num_heads, -1).transpose(1, 2)
        k, v = (side(context).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
                for side in (self.of_offers, self.of_prices))  # fmt: skip
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None], self.fill)
        weights = scores.softmax(-1)
        return self.last((weights @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("kind", [Ranked, InARow])
def test_one_query_for_each_entry_is_asked(kind: Any) -> None:
    verdict = attn_exp.check(kind)
    assert verdict.passed and verdict.computes == "attention as it was asked for", verdict
    assert "with each token as the one query of a call" in str(verdict) or kind is Ranked


def test_a_mask_of_keys_hides_others_from_each_query() -> None:
    assert attn_exp.check(Leaking, quick=True).mistakes == ("mask_small_fill",)


class BentOfOneQuery(nn.Module):
    """It bends its queries, keys and values, so that it is seen from inside alone."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.each = heads, nn.ModuleList(nn.Linear(dim, dim) for _ in range(3))

    def forward(self, query: Any, key: Any, value: Any) -> Any:
        assert query.shape[1] == 1
        q, k, v = (one(x).relu().unflatten(2, (self.heads, -1)).transpose(1, 2)
                   for one, x in zip(self.each, (query, key, value), strict=True))  # fmt: skip
        said = ((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)
        return torch.tanh(said + query) + (said + query) ** 2


def test_entries_of_one_query_each_are_no_heads_that_share_keys() -> None:
    assert "kv_heads_tiled" not in attn_exp.check(BentOfOneQuery, quick=True).mistakes
