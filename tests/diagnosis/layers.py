"""A layer of PyTorch with one method per step, of which tests make right layers in many styles and wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

Methods = dict[str, Callable[..., Any]]


def split(x: Any, heads: int) -> Any:
    """Split `[b t m]` into heads `[b h t d]`."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge(context: Any) -> Any:
    return context.transpose(1, 2).flatten(2)


def logits(q: Any, k: Any) -> Any:
    return q @ k.mT / q.shape[-1] ** 0.5


def attend(q: Any, k: Any, v: Any) -> Any:
    return logits(q, k).softmax(-1) @ v


def hide_later(scores: Any, first: int = 1) -> Any:
    """Hide the keys that are at least so many tokens after the query."""
    return scores.masked_fill(torch.ones_like(scores).triu(first).bool(), -torch.inf)


class Layer(nn.Module):
    """Multi-head attention."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.heads, self.width = num_heads, d_model
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(d_model, d_model) for _ in range(4))

    def project(self, x: Any) -> Any:
        return self.q_proj(x), self.k_proj(x), self.v_proj(x)

    def split(self, x: Any) -> Any:
        return split(x, self.heads)

    def score(self, q: Any, k: Any) -> Any:
        return q @ k.mT / q.shape[-1] ** 0.5

    def weigh(self, logits: Any) -> Any:
        return logits.softmax(-1)

    def merge(self, context: Any) -> Any:
        return merge(context)

    def output(self, context: Any) -> Any:
        return self.out_proj(self.merge(context))

    def forward(self, x: Any) -> Any:
        q, k, v = map(self.split, self.project(x))
        return self.output(self.weigh(self.score(q, k)) @ v)


class Masked(Layer):
    """The same with a mask: True attends."""

    def hide(self, logits: Any, mask: Any) -> Any:
        return logits.masked_fill(mask == 0, -torch.inf)

    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = map(self.split, self.project(x))
        logits = self.score(q, k)
        return self.output(self.weigh(logits if mask is None else self.hide(logits, mask)) @ v)


class Unread(Masked):
    """Projections behind a nonlinearity and an output that is no projection: its matrices cannot be read."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        del self.out_proj

    def project(self, x: Any) -> Any:
        return [F.relu(side) for side in super().project(x)]

    def output(self, context: Any) -> Any:
        return torch.tanh(self.merge(context)) + self.merge(context) ** 2


def changed(methods: Methods, base: type[nn.Module] = Layer) -> type[nn.Module]:
    """Return a subclass with these methods."""
    return type("Changed", (base,), methods)


class ListOfHeads(nn.Module):
    def __init__(self, dim: int, nb_of_heads: int) -> None:
        super().__init__()
        size, self.proj = dim // nb_of_heads, nn.Linear(dim, dim)
        self.sides: Any = nn.ModuleList(nn.ModuleList(nn.Linear(dim, size) for _ in "qkv") for _ in range(nb_of_heads))

    def forward(self, x: Any) -> Any:
        return self.proj(torch.cat([attend(*(side(x) for side in head)) for head in self.sides], -1))


class OfConfig(nn.Module):
    """As in GPT-2: one layer for q, k and v, all sizes in a configuration, causal, with dropout."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(config.n_embd, 3 * config.n_embd), nn.Linear(config.n_embd, config.n_embd)
        self.heads_in_all, self.drop = config.n_head, nn.Dropout(config.dropout)

    def forward(self, x: Any) -> Any:
        q, k, v = (split(part, self.heads_in_all) for part in self.c_attn(x).chunk(3, -1))
        return self.drop(self.c_proj(merge(F.scaled_dot_product_attention(q, k, v, is_causal=True))))
