"""Modules of PyTorch in the styles of their authors: odd words for heads, a configuration, a list of heads."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn


class Plain(nn.Module):
    """`word` is what it calls its number of heads; `scaled` says whether it divides its scores."""

    word, scaled = "nh", True

    def __init__(self, width: int, nh: int) -> None:
        super().__init__()
        setattr(self, self.word, nh)
        self.fc_q, self.fc_k, self.fc_v, self.fc_out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Any:
        count = getattr(self, self.word)
        q, k, v = (one(x).unflatten(-1, (count, -1)).transpose(1, 2) for one in (self.fc_q, self.fc_k, self.fc_v))
        scores = q @ k.mT / (math.sqrt(q.shape[-1]) if self.scaled else 1.0)
        return self.fc_out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def plain(word: str, scaled: bool = True) -> type[Plain]:
    """Return a class that calls its number of heads so."""
    return type("Plain", (Plain,), {"word": word, "scaled": scaled})


class OneHead(nn.Module):
    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, size, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Any:
        q, k, v = self.q(x), self.k(x), self.v(x)
        return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


class ListOfHeads(nn.Module):
    def __init__(self, d_model: int, nb_of_heads: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(OneHead(d_model, d_model // nb_of_heads) for _ in range(nb_of_heads))
        self.proj = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Any:
        return self.proj(torch.cat([head(x) for head in self.heads], -1))


class Configured(nn.Module):
    """As in GPT-2: one layer for q, k and v, all sizes in a configuration, causal."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.heads_in_all, self.drop = config.n_head, nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Any:
        parts = self.c_attn(x).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads_in_all, -1)).transpose(1, 2) for part in parts)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(self.drop(mixed.transpose(1, 2).flatten(2)))


class Grouped(nn.Module):
    """Llama's sharing, with one layer for q, k and v, and no word for its heads that anybody knows."""

    def __init__(self, dim: int, n_heads: int, n_kv_heads: int) -> None:
        super().__init__()
        self.a, self.b = n_heads, n_kv_heads
        size = dim // n_heads
        self.qkv = nn.Linear(dim, (n_heads + 2 * n_kv_heads) * size, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor) -> Any:
        size = self.qkv.out_features // (self.a + 2 * self.b)
        parts = self.qkv(x).split([self.a * size, self.b * size, self.b * size], -1)
        q, k, v = (part.unflatten(-1, (-1, size)).transpose(1, 2) for part in parts)
        k, v = (side.repeat_interleave(self.a // self.b, 1) for side in (k, v))
        return self.proj(((q @ k.mT / math.sqrt(size)).softmax(-1) @ v).transpose(1, 2).flatten(2))


layer = ListOfHeads(12, 3)
