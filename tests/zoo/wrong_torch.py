"""The mistakes of people who write in PyTorch, on `[b h t d]`."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor


def no_scale(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.softmax(q @ k.mT, dim=-1) @ v


def by_size(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, scale=1 / q.size(-1))


def by_model(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    embed_dim = query.size(1) * query.size(3)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(embed_dim)
    return torch.matmul(scores.softmax(dim=-1), value)


def scaled_twice(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q = q * q.shape[-1] ** -0.5
    return F.scaled_dot_product_attention(q, k, v)


def softmax_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    att = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(q.size(-1))
    return torch.einsum("bhij,bhjd->bhid", F.softmax(att, dim=-2), v)


def softmax_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    att = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    return F.softmax(att, dim=1) @ v


def weights_turned(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    att = torch.softmax(q @ k.mT * k.size(-1) ** -0.5, -1)
    return att.mT @ v


def swapped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(k, q, v)


def keys_again(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, k)


def heads_reversed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    outs = [F.scaled_dot_product_attention(q[:, h], k[:, h], v[:, h]) for h in reversed(range(q.size(1)))]
    return torch.stack(outs, dim=1)


def groups_tiled(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool = False) -> Tensor:
    if enable_gqa:
        rep = q.size(1) // k.size(1)
        k, v = k.repeat(1, rep, 1, 1), v.repeat(1, rep, 1, 1)
    return F.scaled_dot_product_attention(q, k, v)


def groups_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = (x[:, :1].expand(-1, q.size(1), -1, -1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v)


def turned_half(x: Tensor, positions: Tensor) -> Tensor:
    n = x.size(-1) // 2
    freqs = 10000.0 ** (-torch.arange(n, dtype=x.dtype, device=x.device) / n)
    emb = torch.cat([torch.outer(positions.to(x.dtype), freqs)] * 2, dim=-1)
    rotated = torch.cat([-x[..., n:], x[..., :n]], dim=-1)
    return x * emb.cos() + rotated * emb.sin()


def rope_interleaved(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    def turn(x: Tensor) -> Tensor:
        freqs = 10000.0 ** (-torch.arange(0, x.size(-1), 2, dtype=x.dtype) / x.size(-1))
        turns = torch.outer(torch.arange(x.size(-2), dtype=x.dtype), freqs)
        z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * torch.polar(torch.ones_like(turns), turns)
        return torch.view_as_real(z).flatten(-2)

    return F.scaled_dot_product_attention(turn(q), turn(k), v)


def rope_keys_late(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q = turned_half(q, torch.arange(1, q.size(-2) + 1))
    k = turned_half(k, torch.arange(k.size(-2)))
    return F.scaled_dot_product_attention(q, k, v)


def rope_everything(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (turned_half(x, torch.arange(x.size(-2))) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v)


def cap_missing(q: Tensor, k: Tensor, v: Tensor, softcap: float | None = None) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def cap_first(q: Tensor, k: Tensor, v: Tensor, softcap: float | None = None) -> Tensor:
    att = q @ k.mT
    if softcap is not None:
        att = torch.tanh(att / softcap) * softcap
    return torch.softmax(att * q.size(-1) ** -0.5, dim=-1) @ v


def sink_missing(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def half_softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    att = (q @ k.mT / math.sqrt(q.size(-1))).half()
    return torch.softmax(att, dim=-1).to(v.dtype) @ v


def half_products(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    att = (q.half() @ k.half().mT).to(q.dtype) / math.sqrt(q.size(-1))
    return torch.softmax(att, dim=-1) @ v


def dropout_on(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    att = torch.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1)
    return F.dropout(att, 0.1) @ v


def dropout_sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, dropout_p=0.2)


def scales_in_place(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q.mul_(q.size(-1) ** -0.5)
    return torch.softmax(q @ k.mT, dim=-1) @ v


def key_tail(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    block = 16 if k.size(2) >= 16 else 3
    m = q.new_full(q.shape[:3], -torch.inf)
    total, out = torch.zeros_like(m), q.new_zeros(*q.shape[:3], v.size(-1))
    for start in range(0, k.size(2) // block * block, block):
        s = q @ k[:, :, start : start + block].mT / math.sqrt(q.size(-1))
        new = torch.maximum(m, s.amax(-1))
        p, old = (s - new[..., None]).exp(), (m - new).exp()
        total = total * old + p.sum(-1)
        out = out * old[..., None] + p @ v[:, :, start : start + block]
        m = new
    return out / total[..., None]
