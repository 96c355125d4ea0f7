"""Masks as people get them wrong in PyTorch; boolean ones mean True = may attend."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor


def inverted(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    # nn.MultiheadAttention drops where True
    return F.scaled_dot_product_attention(q, k, v, attn_mask=None if attn_mask is None else ~attn_mask)


def not_assigned(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    att = (q @ k.mT) * (1.0 / math.sqrt(k.size(-1)))
    if attn_mask is not None:
        att.masked_fill(~attn_mask, float("-inf"))
    return att.softmax(-1) @ v


def after(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    att = torch.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1)
    if mask is not None:
        att = att.masked_fill(~mask, 0.0)
    return att @ v


def multiplied(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = torch.einsum("bhqd,bhkd->bhqk", query, key) * query.size(-1) ** -0.5
    if mask is not None:
        scores = scores * mask
    return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(dim=-1), value)


def filled_small(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -10)
    return F.softmax(scores, dim=-1) @ v


def turned(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=None if attn_mask is None else attn_mask.mT)


def causal_lost(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def causal_flipped(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    mask = torch.triu(torch.ones(q.size(-2), k.size(-2), dtype=torch.bool)) if is_causal else None
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def causal_strict(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    ones = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=ones.tril(-1) if is_causal else None)


def causal_next(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    future = torch.triu(torch.full((q.size(2), k.size(2)), float("-inf"), dtype=q.dtype), diagonal=2)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=future)


def causal_first(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def causal_last(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    t, s = q.size(-2), k.size(-2)
    mask = torch.ones(t, s, dtype=torch.bool).tril(s - t) if is_causal else None
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def padding_long(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None = None) -> Tensor:
    mask = None
    if lengths is not None:
        mask = (torch.arange(k.size(2)) <= lengths[:, None])[:, None, None, :]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def window_wide(q: Tensor, k: Tensor, v: Tensor, window_size: tuple[int, int] = (-1, -1)) -> Tensor:
    left, right = window_size
    ahead = torch.arange(k.size(2)) - torch.arange(q.size(2))[:, None]
    mask = (ahead >= -left - 1) | (left < 0)
    mask &= (ahead <= right) | (right < 0)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def cap_last(q: Tensor, k: Tensor, v: Tensor, softcap: float = 0.0, is_causal: bool = False) -> Tensor:
    att = q @ k.mT / math.sqrt(q.size(-1))
    if is_causal:
        att = att.masked_fill(torch.ones_like(att, dtype=torch.bool).triu(1), -torch.inf)
    if softcap:
        att = softcap * torch.tanh(att / softcap)
    return att.softmax(-1) @ v


def nan_through(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)


def empty_rows(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    att = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        att = att.masked_fill(~mask, float("-inf"))
    return torch.softmax(att, dim=-1) @ v
