"""Right layers as classes of PyTorch, `x` `[b t m]`, that others of this folder inherit and break."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor, nn


class Four(nn.Module):
    """Four linear layers and a plain forward; those below change one step."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_model // num_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.size(0), -1, self.num_heads, self.head_dim).transpose(1, 2)

    def merge(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.mT / math.sqrt(self.head_dim), dim=-1) @ v

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.split(layer(x)) for layer in (self.q_proj, self.k_proj, self.v_proj))
        result: Tensor = self.out_proj(self.merge(self.mix(q, k, v)))
        return result


class Fused(nn.Module):
    """One matrix for all three, as in nn.MultiheadAttention."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj_weight = nn.Parameter(torch.randn(3 * embed_dim, embed_dim) / embed_dim**0.5)
        self.in_proj_bias = nn.Parameter(torch.randn(3 * embed_dim))
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def projected(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(F.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1))

    def forward(self, x: Tensor) -> Tensor:
        b, t, m = x.shape
        q, k, v = (a.view(b, t, self.num_heads, -1).transpose(1, 2) for a in self.projected(x))
        z = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, m)
        result: Tensor = self.out_proj(z)
        return result
