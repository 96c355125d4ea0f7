"""Right functions in PyTorch and JAX, in odd styles."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor, nn

from tests.zoo.case import Case


def added_four_axes(query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None) -> Any:
    """The mask is [b 1 t s] and added."""
    scores = query @ key.mT / math.sqrt(query.size(-1))
    if attention_mask is not None:
        scores = scores + attention_mask[:, :, :, : key.size(-2)]
    return scores.softmax(-1) @ value


def ones_and_zeros(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Any:
    """1 - mask, which booleans of PyTorch refuse."""
    scores = q @ k.mT / q.size(-1) ** 0.5
    return (scores if mask is None else scores - (1 - mask) * 1e5).softmax(-1) @ v


def annotated(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: Any = None) -> Any:
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(query.size(-1))
    scores = scores if mask is None else scores.masked_fill(mask == 0, -1e9)
    weights = scores.softmax(dim=-1)
    weights = weights if dropout is None else dropout(weights)
    return torch.matmul(weights, value), weights


def in_parts(q: Tensor, k: Tensor, v: Tensor) -> Any:
    """Two halves of the keys, merged by their log-sum-exp."""
    parts = []
    for keys, values in zip(k.tensor_split(2, -2), v.tensor_split(2, -2), strict=True):
        scores = q @ keys.mT / q.size(-1) ** 0.5
        parts.append((scores.logsumexp(-1, keepdim=True), scores.softmax(-1) @ values if keys.size(-2) else 0))
    share = torch.softmax(torch.cat([parts[0][0], parts[1][0]], -1), -1)
    return share[..., :1] * parts[0][1] + share[..., 1:] * parts[1][1]


def grouped(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool = False, is_causal: bool = False) -> Any:
    """[b t h d]; five axes instead of copies."""
    queries = q.reshape(*q.shape[:2], k.size(2), -1, q.size(3))
    scores = torch.einsum("btgrd,bsgd->bgrts", queries, k) / q.size(-1) ** 0.5
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    return torch.einsum("bgrts,bsgd->btgrd", scores.softmax(-1), v).flatten(2, 3)


class FloatSoftmax(nn.Module):
    """Softmax in float32, whatever came, as Hugging Face's layers have it; its own mask is added."""

    def __init__(self, hidden_size: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(hidden_size, hidden_size) for _ in range(3))
        self.o_proj = nn.Linear(hidden_size, hidden_size, bias=False)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        shape = (*hidden_states.shape[:2], self.num_heads, -1)
        layers = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (layer(hidden_states).view(shape).transpose(1, 2) for layer in layers)
        scores = q @ k.mT * q.size(-1) ** -0.5
        scores = scores if attention_mask is None else scores + attention_mask
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2)), weights


class OddWords(nn.Module):
    """One layer holds [q | k | v], and the number of heads has a name of its own."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.parts = num_heads
        self.qkv, self.proj = nn.Linear(embed_dim, 3 * embed_dim), nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.parts, -1)).permute(2, 0, 3, 1, 4)
        mixed: Tensor = self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return mixed


class EncoderLike(nn.MultiheadAttention):
    """A class of the user's own that inherits all of it."""


def jax_rows(q: Any, k: Any, v: Any) -> Any:
    """vmap over every row."""
    import jax  # noqa: PLC0415 - only where it is called

    def row(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(k @ q / math.sqrt(q.shape[-1])) @ v

    over = jax.vmap(jax.vmap(jax.vmap(row, (0, None, None))))
    return over(*(jax.numpy.asarray(side) for side in (q, k, v)))


RIGHT = [
    Case("", added_four_axes),
    Case("", ones_and_zeros),
    Case("", annotated),
    Case("", in_parts),
    Case("", grouped, ("layout=bthd",)),
    Case("", FloatSoftmax, ("head=3", "bias=true")),
    Case("", OddWords),
    Case("", EncoderLike, ("convention=torch_mha", "head=3", "bias=true", "ignore=[is_causal]")),
]
if find_spec("jax"):
    RIGHT += [Case("", jax_rows, ("takes=jax",))]
