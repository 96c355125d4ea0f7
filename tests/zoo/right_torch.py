"""Right functions that need PyTorch, its own among them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor, nn


def sdpa(
    q: Tensor, k: Tensor, v: Tensor, *,
    attn_mask: Tensor | None = None, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    if attn_mask is not None and is_causal:
        attn_mask, is_causal = attn_mask & torch.ones_like(attn_mask).tril(), False
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )


def one_product(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    b, h, t, d = q.shape
    empty = q.new_empty(b * h, t, k.size(2))
    s = torch.baddbmm(empty, q.flatten(0, 1), k.flatten(0, 1).mT, beta=0, alpha=d**-0.5)
    return torch.bmm(s.softmax(-1), v.flatten(0, 1)).view(b, h, t, -1)


def mapped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    def one(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        scores = keys @ query / math.sqrt(query.numel())
        return torch.softmax(scores, dim=0) @ values

    rows = torch.vmap(one, in_dims=(0, None, None))
    result: Tensor = torch.vmap(torch.vmap(rows))(q, k, v)
    return result


def log_weights(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False) -> Tensor:
    s = torch.einsum("bhid,bhjd->bhij", query, key) / query.size(-1) ** 0.5
    if is_causal:
        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -torch.inf)
    return torch.log_softmax(s, dim=-1).exp() @ value


def least_number(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    s = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        s = s.masked_fill(~mask, torch.finfo(s.dtype).min)
    return s.softmax(dim=-1) @ v


class Multihead(nn.MultiheadAttention):
    """PyTorch's own layer, asked about itself."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__(embed_dim, num_heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = super().forward(x, x, x, need_weights=False)[0]
        return result
