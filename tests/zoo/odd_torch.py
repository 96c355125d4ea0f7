"""Wrong functions in PyTorch and JAX, in styles that the others do not have: vmap, baddbmm, scans, bfloat16 inside."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor


def baddbmm(query: Tensor, key: Tensor, value: Tensor) -> Any:
    """beta and alpha changed places: no scale."""
    batch, heads, rows, size = query.shape
    empty = torch.zeros(batch * heads, rows, key.shape[2], dtype=query.dtype)
    scores = torch.baddbmm(empty, query.flatten(0, 1), key.flatten(0, 1).mT, beta=size**-0.5, alpha=1.0)
    return torch.bmm(scores.softmax(-1), value.flatten(0, 1)).view(batch, heads, rows, -1)


def per_head(q: Tensor, k: Tensor, v: Tensor) -> Any:
    """vmap over heads, each with the heads' number for d."""

    def one(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return torch.softmax(q @ k.T / math.sqrt(count), -1) @ v

    count = q.shape[1]
    return torch.vmap(torch.vmap(one))(q, k, v)


def times_root(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, scale: float | None = None) -> Any:
    factor = q.size(-1) ** 0.5 if scale is None else scale
    scores = torch.einsum("bhid,bhjd->bhij", q, k).mul(factor)
    scores = scores if attn_mask is None else scores.masked_fill(attn_mask.logical_not(), -torch.inf)
    return torch.einsum("bhij,bhjd->bhid", scores.softmax(dim=3), v)


def log_softmax_queries(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return (F.log_softmax(q @ k.mT / q.size(-1) ** 0.5, dim=-2)).exp() @ v


def over_heads(q: Tensor, k: Tensor, v: Tensor) -> Any:
    """[b t h d]; the softmax runs over heads, where keys would be in another layout."""
    scores = torch.einsum("bthd,bshd->btsh", q, k) / q.size(-1) ** 0.5
    return torch.einsum("btsh,bshd->bthd", scores.softmax(dim=-1), v)


def keys_for_values(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, None]:
    return F.scaled_dot_product_attention(q, k, k), None


def kqv(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return F.scaled_dot_product_attention(query=k, key=q, value=v)


def turned_weights(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Any:
    scores = q @ k.mT / q.size(-1) ** 0.5
    if is_causal:
        scores = scores + torch.full(scores.shape[-2:], -torch.inf, dtype=q.dtype).triu(1)
    return torch.einsum("bhij,bhie->bhje", scores.softmax(-1), v)


def raw_scores(q: Tensor, k: Tensor, v: Tensor) -> Any:
    """No softmax at all, multiplied in the cheaper order."""
    return q @ (k.mT @ v) / q.size(-1) ** 0.5


def exp_two(q: Tensor, k: Tensor, v: Tensor, sm_scale: float | None = None, causal: bool = False) -> Any:
    """Triton's exp2, without log2(e) in the scale."""
    scores = q @ k.mT * (q.size(-1) ** -0.5 if sm_scale is None else sm_scale)
    if causal:
        scores = torch.where(torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), scores, -torch.inf)
    powers = torch.exp2(scores - scores.amax(-1, keepdim=True))
    return powers @ v / powers.sum(-1, keepdim=True)


def no_max(q: Tensor, k: Tensor, v: Tensor) -> Any:
    powers = torch.einsum("nhqc,nhkc->nhqk", q, k).div(math.sqrt(q.size(-1))).exp()
    return (powers @ v) / powers.sum(-1, True)


def ignores(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Any:
    """The mask is used where it is a float alone."""
    return F.scaled_dot_product_attention(
        query, key, value, mask if mask is not None and mask.is_floating_point() else None
    )


def tiny_fill(q: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor | None = None) -> Any:
    scores = q @ k.mT / q.size(-1) ** 0.5
    if attention_mask is not None:
        scores = scores.masked_fill(attention_mask == 0, 1e-9)
    return F.softmax(scores, -1) @ v


def sees_next(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Any:
    """triu(2) hides from the next but one on; [b t h d]."""
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.size(-1) ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(2).bool(), -torch.inf)
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)


def windows_fixed(q: Tensor, k: Tensor, v: Tensor) -> Any:
    """mask.window.left = 3: four keys with itself were meant, five are seen."""
    away = torch.arange(q.size(-2))[:, None] - torch.arange(k.size(-2))[None]
    bias = torch.zeros_like(away, dtype=q.dtype).masked_fill((away < 0) | (away > 4), -torch.inf)
    return F.scaled_dot_product_attention(q, k, v, bias)


def lengths_short(q: Tensor, k: Tensor, v: Tensor, seqlens_k: Tensor | None = None) -> Any:
    scores = q @ k.mT / q.size(-1) ** 0.5
    if seqlens_k is not None:
        seen = torch.arange(k.size(2))[None] < (seqlens_k[:, None] - 1)
        scores = scores.masked_fill(~seen[:, None, None], -torch.inf)
    return scores.softmax(-1) @ v


def softcap_lost(q: Tensor, k: Tensor, v: Tensor, softcap: float = 0.0, causal: bool = False) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def sinks_lost(q: Tensor, k: Tensor, v: Tensor, attention_sinks: Tensor | None = None) -> Any:
    return torch.softmax(q @ k.mT * q.size(-1) ** -0.5, dim=-1) @ v


def first_group(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return F.scaled_dot_product_attention(
        q, k[:, :1].expand(-1, q.size(1), -1, -1), v[:, :1].expand(-1, q.size(1), -1, -1)
    )


def tiled_groups(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool = False) -> Any:
    times = query.size(1) // key.size(1)
    return F.scaled_dot_product_attention(query, torch.cat([key] * times, 1), torch.cat([value] * times, 1))


def rope_all(q: Tensor, k: Tensor, v: Tensor) -> Any:
    """One function turns q, k and v."""
    size = q.size(-1)
    angles = torch.outer(
        torch.arange(q.size(-2), dtype=q.dtype), 10000 ** (-torch.arange(0, size, 2, dtype=q.dtype) / size)
    )
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

    def turned(heads: Tensor) -> Any:
        return heads * cos + torch.cat([-heads[..., size // 2 :], heads[..., : size // 2]], -1) * sin

    return F.scaled_dot_product_attention(turned(q), turned(k), turned(v))


def half_inside(q: Tensor, k: Tensor, v: Tensor) -> Any:
    """Products in bfloat16, as autocast would have them."""
    weights = (q.bfloat16() @ k.bfloat16().mT / q.size(-1) ** 0.5).softmax(-1)
    return (weights @ v.bfloat16()).to(q.dtype)


def half_out(q: Tensor, k: Tensor, v: Tensor) -> Any:
    """No scale, and the answer in float16."""
    return (torch.softmax(q @ k.mT, -1) @ v).half()


def bfloat_out(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Any:
    """Does not see itself, and answers in bfloat16."""
    scores = q @ k.mT / q.size(-1) ** 0.5
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(-1)
    scores = scores.masked_fill(~seen, -torch.inf) if is_causal else scores
    return (scores.softmax(-1).nan_to_num() @ v).bfloat16()


def mixed_entries(q: Tensor, k: Tensor, v: Tensor) -> Any:
    """The keys of all entries of a batch, one after the other."""
    keys, values = (side.transpose(0, 1).flatten(1, 2) for side in (k, v))
    return torch.stack([F.scaled_dot_product_attention(one, keys, values) for one in q])


def in_training(q: Tensor, k: Tensor, v: Tensor) -> Any:
    drop = torch.nn.Dropout(0.25)
    return drop((q @ k.mT / q.size(-1) ** 0.5).softmax(-1)) @ v


def jax_vmapped(q: Any, k: Any, v: Any) -> Any:
    """vmap per head; divided by d_model's root."""
    import jax  # noqa: PLC0415 - only where it is called

    width = q.shape[1] * q.shape[3]

    def one(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jax.nn.softmax(q @ k.T / math.sqrt(width)) @ v

    return jax.vmap(jax.vmap(one))(*(jax.numpy.asarray(side) for side in (q, k, v)))


def jax_flipped(q: Any, k: Any, v: Any, is_causal: bool = False) -> Any:
    """[b t h d], as jax.nn has it."""
    import jax  # noqa: PLC0415 - only where it is called

    jnp = jax.numpy
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / jnp.sqrt(q.shape[-1])
    seen = jnp.triu(jnp.ones(scores.shape[-2:], bool)) if is_causal else True
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1), jnp.asarray(v))


def jax_scanned(q: Any, k: Any, v: Any) -> Any:
    """A scan over keys, [h t d]: the first power is not taken off, but twice the scale is."""
    import jax  # noqa: PLC0415 - only where it is called

    jnp = jax.numpy
    q, k, v = (jnp.asarray(side) for side in (q, k, v))
    start = (q, jnp.full(q.shape[:2], -jnp.inf), jnp.zeros(q.shape[:2]), jnp.zeros(q.shape))
    (_, _, below, above), _ = jax.lax.scan(jax_step, start, (k.swapaxes(0, 1), v.swapaxes(0, 1)))
    return above / below[..., None]


def jax_step(state: Any, entry: Any) -> Any:
    """One key of it: a function that stays the same is compiled once for each shape, not in each call."""
    from jax import numpy as jnp  # noqa: PLC0415 - only where it is called

    q, top, below, above = state
    key, value = entry
    score = jnp.einsum("htd,hd->ht", q, key) / q.shape[-1]
    new = jnp.maximum(top, score)
    power, shrink = jnp.exp(score - new), jnp.exp(top - new)
    return (q, new, below * shrink + power, above * shrink[..., None] + power[..., None] * value[:, None]), None


def heads_of_one_token(x: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, W_o: Tensor, num_heads: int) -> Any:
    """A view without its transpose runs without an error: the heads of a token are one another's keys."""
    q, k, v = ((x @ matrix).view(len(x), num_heads, -1) for matrix in (W_q, W_k, W_v))
    return ((q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v).reshape(len(x), -1) @ W_o


def heads_of_one_token_causal(x: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, W_o: Tensor, num_heads: int) -> Any:
    q, k, v = ((x @ matrix).view(len(x), num_heads, -1) for matrix in (W_q, W_k, W_v))
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    hidden = torch.ones(scores.shape[-2:]).triu(1).bool()
    return (scores.masked_fill(hidden, -math.inf).softmax(-1) @ v).transpose(0, 1).reshape(len(x), -1) @ W_o
