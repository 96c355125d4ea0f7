"""Right layers and functions that want a mask, a size or x in a way of their own are judged right, without a name."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch
from torch import nn


class OfTime(nn.Module):
    """Attention of x `[t b m]`: its scores lie as `[t s b h]`, and so does what is hidden; 4 axes are not looked at."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.net, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, h: Any, attn_mask: Any = None) -> Any:
        q, k, v = (part.unflatten(-1, (self.heads, -1)) for part in self.net(h).chunk(3, -1))
        s = torch.einsum("ibnd,jbnd->ijbn", q, k) / math.sqrt(q.shape[-1])
        if attn_mask is not None and attn_mask.dim() == 3:
            s = s.masked_fill(attn_mask[..., None], -np.inf)
        return self.out(torch.einsum("ijbn,jbnd->ibnd", s.softmax(1), v).flatten(2))


class HeadsLast(OfTime):
    """Attention of x `[b t m]` whose scores lie as `[b t s h]`, and its mask with them."""

    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = (part.unflatten(-1, (self.heads, -1)) for part in self.net(x).chunk(3, -1))
        s = torch.einsum("bind,bjnd->bijn", q, k) / math.sqrt(q.shape[-1])
        if mask is not None:
            assert mask.dim() == 4
            s = s.masked_fill(mask == 0, -1e9)
        return self.out(torch.einsum("bijn,bjnd->bind", s.softmax(2), v).flatten(2))


class CausalInside(nn.Module):
    """Causal attention that nobody can ask for, without a scale unless its maker wants one."""

    def __init__(self, dim: int, heads: int, scale: bool = False) -> None:
        super().__init__()
        self.heads, self.scale = heads, scale
        self.net, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Any) -> Any:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.net(x).chunk(3, -1))
        s = q @ k.mT / (math.sqrt(q.shape[-1]) if self.scale else 1.0)
        hidden = torch.ones_like(s).triu(1).bool()
        return self.out((s.masked_fill(hidden, -np.inf).softmax(-1) @ v).transpose(1, 2).flatten(2))


def of_a_switch(q: Any, k: Any, v: Any, mask: bool = False) -> Any:
    """Attention `[b t d]` of one head; `mask` is no mask, but the word for causal."""
    s = q @ k.transpose(2, 1) / math.sqrt(q.shape[-1])
    if mask:
        s = s + torch.ones_like(s).triu(1) * -1e9
    return s.softmax(-1) @ v


def of_a_number(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Attention that hides where its mask is -100, and nothing else."""
    s = q @ k.mT / math.sqrt(q.shape[-1])
    return s.masked_fill(mask == -100, torch.finfo(s.dtype).min).softmax(-1) @ v


class OfANumber(CausalInside):
    """A layer that hides where its mask is -1."""

    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.net(x).chunk(3, -1))
        s = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            s = s.masked_fill(mask == -1, -1e30)
        return self.out((s.softmax(-1) @ v).transpose(1, 2).flatten(2))


class InPatches(CausalInside):
    """Attention of x `[b p n m]` over n, for each p apart."""

    def forward(self, x: Any) -> Any:
        b, p, n, m = x.shape
        q, k, v = (part.reshape(b, p, n, self.heads, -1).transpose(2, 3) for part in self.net(x).chunk(3, -1))
        s = q @ k.mT / math.sqrt(q.shape[-1])
        return self.out((s.softmax(-1) @ v).transpose(2, 3).reshape(b, p, n, m))


class NormedPatches(InPatches):
    """The same behind a norm, with a residual."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Any) -> Any:
        return x + super().forward(self.norm(x))


class OfSquares(nn.Module):
    """Attention among the points of square images `[b m h w]` alone, behind a norm of groups, with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(4, 32)
        self.net, self.out = nn.Conv2d(32, 96, 1), nn.Conv2d(32, 32, 1)

    def forward(self, x: Any) -> Any:
        q, k, v = self.net(self.norm(x)).flatten(2).chunk(3, 1)
        seen = v @ (q.mT @ k / math.sqrt(q.shape[1])).softmax(-1).mT
        side = int(math.sqrt(seen.shape[-1]))
        return x + self.out(seen.reshape(len(x), -1, side, side))


class OfNodes(nn.Module):
    """Attention of queries, keys and values `[b n t m]` over t; its mask `[b t s]` is that of each node and head."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.linears: Any = nn.ModuleList(nn.Linear(dim, dim) for _ in range(4))

    def forward(self, query: Any, key: Any, value: Any, mask: Any = None) -> Any:
        nodes = query.shape[1]
        q, k, v = (net(x).view(len(x), nodes, -1, self.heads, net.out_features // self.heads).transpose(2, 3)
                   for net, x in zip(list(self.linears), (query, key, value), strict=False))  # fmt: skip
        s = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            s = s.masked_fill(mask[:, None, None] == 0, -1e9)
        return self.linears[-1]((s.softmax(-1) @ v).transpose(2, 3).flatten(3))


class BothKinds(nn.Module):
    """Attention of `[t b m]` that adds its mask, and hides keys of filler where the other is True."""

    q_proj: Any
    k_proj: Any
    v_proj: Any
    out_proj: Any

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.heads = num_heads
        for side in ("q_proj", "k_proj", "v_proj", "out_proj"):
            self.add_module(side, nn.Linear(embed_dim, embed_dim))

    def forward(self, query: Any, key: Any, value: Any, attn_mask: Any = None, key_padding_mask: Any = None) -> Any:
        t, b, m = query.shape
        q, k, v = (net(x).contiguous().view(-1, b * self.heads, m // self.heads).transpose(0, 1)
                   for net, x in ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value)))  # fmt: skip
        s = q @ k.mT / math.sqrt(m // self.heads)
        if attn_mask is not None:
            s = s + attn_mask
        if key_padding_mask is not None:
            hidden = key_padding_mask[:, None, None]
            s = s.view(b, self.heads, t, -1).masked_fill(hidden, -np.inf).view(b * self.heads, t, -1)
        return self.out_proj((s.softmax(-1) @ v).transpose(0, 1).reshape(t, b, m))


REMARKS = {"nan_leaks", "empty_row_nan"}


@pytest.mark.parametrize(
    ("function", "words", "under"),
    [
        (OfTime, [], "convention=torch_mha"),
        (HeadsLast, [], ""),
        (CausalInside, ["scale=false"], "mask=causal"),
        (of_a_switch, [], ""),
        (of_a_number, [], ""),
        (OfANumber, [], ""),
        (InPatches, [], ""),
        (NormedPatches, [], ""),
        (OfSquares, [], ""),
        (OfNodes, [], ""),
        (BothKinds, [], "convention=torch_mha"),
    ],
)
def test_right_code_has_no_name(function: Any, words: list[str], under: str) -> None:
    verdict = attn_exp.check(function, *words)
    assert verdict.passed or verdict.right_under, verdict
    assert set(verdict.mistakes) <= REMARKS and verdict.right_under == under, verdict
