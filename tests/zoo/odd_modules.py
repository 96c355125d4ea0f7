"""Wrong layers in PyTorch: one matrix for q, k and v, einsum over parameters, Llama's and BERT's names."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor, nn


class InProjected(nn.Module):
    """Like nn.MultiheadAttention inside: one in_proj_weight; `mistake` says where it parts from it."""

    mistake = ""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj_weight = nn.Parameter(torch.randn(3 * embed_dim, embed_dim) / embed_dim**0.5)
        self.in_proj_bias = nn.Parameter(torch.randn(3 * embed_dim))
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        nn.init.normal_(self.out_proj.bias)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        batch, rows, width = query.shape
        bias = None if self.mistake == "no bias" else self.in_proj_bias
        joined = F.linear(query, self.in_proj_weight, bias)
        q, k, v = self.heads(joined)
        scores = q @ k.mT
        scores = scores if self.mistake == "no scale" else scores / math.sqrt(q.size(-1))
        weights = scores.softmax(1 if self.mistake == "over heads" else -1)
        mixed = weights @ v
        mixed = mixed.flip(1) if self.mistake == "reversed" else mixed
        mixed = mixed if self.mistake == "merged" else mixed.transpose(1, 2)
        merged = mixed.reshape(batch, rows, width)
        return (merged if self.mistake == "no output" else self.out_proj(merged)), weights.mean(1)

    def heads(self, joined: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, rows, width = joined.shape
        if self.mistake == "per head":
            q, k, v = joined.view(batch, rows, self.num_heads, -1).transpose(1, 2).chunk(3, -1)
            return q, k, v
        size = width // 3 // self.num_heads
        parts = joined.chunk(3, -1)
        parts = (parts[2], parts[0], parts[1]) if self.mistake == "order" else parts
        if self.mistake == "viewed":
            q, k, v = (part.reshape(batch, self.num_heads, rows, size) for part in parts)
        else:
            q, k, v = (part.view(batch, rows, self.num_heads, size).transpose(1, 2) for part in parts)
        return q, k, v


class InNoScale(InProjected):
    mistake = "no scale"


class InNoBias(InProjected):
    mistake = "no bias"


class InOverHeads(InProjected):
    mistake = "over heads"


class InReversed(InProjected):
    mistake = "reversed"


class InMerged(InProjected):
    mistake = "merged"


class InNoOutput(InProjected):
    mistake = "no output"


class InPerHead(InProjected):
    mistake = "per head"


class InOrder(InProjected):
    mistake = "order"


class InViewed(InProjected):
    mistake = "viewed"


class Llama(nn.Module):
    """Shared heads and rotary positions, causal by itself."""

    mistake = ""

    def __init__(self, hidden_size: int, num_heads: int, num_kv_heads: int = 2) -> None:
        super().__init__()
        self.n_heads, self.size = num_heads, hidden_size // num_heads
        self.wq = nn.Linear(hidden_size, hidden_size, bias=False)
        self.wk = nn.Linear(hidden_size, num_kv_heads * self.size, bias=False)
        self.wv = nn.Linear(hidden_size, num_kv_heads * self.size, bias=False)
        self.wo = nn.Linear(hidden_size, hidden_size, bias=False)

    def turned(self, heads: Tensor, start: int = 0) -> Tensor:
        rows, half = heads.size(2), self.size // 2
        speeds = 10000.0 ** (-torch.arange(half, dtype=heads.dtype) / half)
        angles = torch.outer(torch.arange(start, start + rows, dtype=heads.dtype), speeds)
        one, two = heads[..., :half], heads[..., half:]
        return torch.cat([one * angles.cos() - two * angles.sin(), one * angles.sin() + two * angles.cos()], -1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for layer in (self.wq, self.wk, self.wv))
        q = q if self.mistake == "queries unturned" else self.turned(q)
        k = self.turned(k, 1 if self.mistake == "off by one" else 0)
        times = self.n_heads // k.size(1)
        k, v = (
            side.repeat(1, times, 1, 1) if self.mistake == "tiled" else side.repeat_interleave(times, 1)
            for side in (k, v)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.mistake != "not causal")
        return self.wo(mixed.transpose(1, 2).flatten(2))


class LlamaTiled(Llama):
    mistake = "tiled"


class LlamaOffByOne(Llama):
    mistake = "off by one"


class LlamaUnturned(Llama):
    mistake = "queries unturned"


class LlamaSeesAll(Llama):
    mistake = "not causal"


class BertLike(nn.Module):
    """BERT's names, and an additive mask of its own polarity."""

    mistake = ""

    def __init__(self, hidden_size: int, num_attention_heads: int) -> None:
        super().__init__()
        self.num_attention_heads = num_attention_heads
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)
        for layer in (self.query, self.key, self.value, self.dense):
            nn.init.normal_(layer.bias)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor]:
        batch, rows, width = hidden_states.shape
        shape = (batch, rows, self.num_attention_heads, -1)
        q, k, v = (layer(hidden_states).view(shape).transpose(1, 2) for layer in (self.query, self.key, self.value))
        if self.mistake == "values":
            v = F.linear(hidden_states, self.value.weight).view(shape).transpose(1, 2)
        size = width if self.mistake == "width" else q.size(-1)
        scores = q @ k.mT / math.sqrt(size)
        scores = scores if attention_mask is None else scores + attention_mask
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, rows, width)
        if self.mistake == "dense":
            return (F.linear(mixed, self.dense.weight.T, self.dense.bias),)
        return (self.dense(mixed),)


class BertValues(BertLike):
    mistake = "values"


class BertWidth(BertLike):
    mistake = "width"


class BertDense(BertLike):
    mistake = "dense"
