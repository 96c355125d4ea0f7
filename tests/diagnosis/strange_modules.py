"""Modules of PyTorch whose names say nothing, packed and surrounded in the ways of their authors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def mixed(q: Tensor, k: Tensor, v: Tensor) -> Any:
    """Return attention of heads `[b h t d]`."""
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


class Nameless(nn.Module):
    """One matrix of v, k and q side by side within each head, and a last one, both as bare parameters `[in out]`."""

    scale = True

    def __init__(self, planes: int, n: int) -> None:
        super().__init__()
        assert planes % n == 0
        self.n = n
        self.alpha = nn.Parameter(torch.randn(planes, 3 * planes) / planes**0.5)
        self.beta = nn.Parameter(torch.randn(planes, planes) / planes**0.5)
        self.gamma = nn.Parameter(torch.zeros(planes))

    def forward(self, z: Tensor) -> Any:
        v, k, q = (z @ self.alpha).reshape(*z.shape[:2], self.n, 3, -1).permute(3, 0, 2, 1, 4)
        if not self.scale:
            q = q * q.shape[-1] ** 0.5
        return mixed(q, k, v).transpose(1, 2).flatten(2) @ self.beta + self.gamma


class NamelessUnscaled(Nameless):
    scale = False


class Surrounded(nn.Module):
    """An image block: a norm of groups before, 1x1 convolutions, a residual after; k and v lie in one."""

    def __init__(self, chan: int) -> None:
        super().__init__()
        self.pre = nn.GroupNorm(4, chan)
        self.one = nn.Conv2d(chan, chan, 1)
        self.two = nn.Conv2d(chan, 2 * chan, 1)
        self.end = nn.Conv2d(chan, chan, 1)

    def forward(self, image: Tensor) -> Any:
        inner = self.pre(image)
        q, (k, v) = self.one(inner).flatten(2), self.two(inner).flatten(2).chunk(2, 1)
        return image + self.end(mixed(q.mT, k.mT, v.mT).mT.reshape(image.shape))


class PostNorm(nn.Module):
    """A block of the first transformers, called with three inputs and a mask that it needs; einsum weights."""

    def __init__(self, config: Any, layer_idx: int) -> None:
        super().__init__()
        width, heads = config.d_emb, config.num_attn_heads
        self.into = nn.ParameterList(nn.Parameter(torch.randn(heads, width, width // heads) / 5) for _ in range(3))
        self.out_of = nn.Parameter(torch.randn(heads, width // heads, width) / 5)
        self.norm = nn.LayerNorm(width, eps=config.eps)
        self.drop = nn.Dropout(config.p_drop)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> dict[str, Tensor]:
        v, q, k = (torch.einsum("btm,hmd->bhtd", x, w) for x, w in zip((value, query, key), self.into, strict=True))
        logits = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(mask[:, None] == 0, -torch.inf)
        out = torch.einsum("bhtd,hdm->btm", self.drop(logits.softmax(-1)) @ v, self.out_of)
        return {"result": self.norm(query + out)}


class Rms(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.g = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Any:
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * self.g


class RmsNorm(Rms):
    """The same under a name that says what it is."""


class GroupedAndNormed(nn.Module):
    """Query heads that share key/value heads, norms of q and k, tables of angles that it must be given."""

    scaled = True

    def __init__(self, hidden_size: int, num_heads: int, num_kv_heads: int = 1) -> None:
        super().__init__()
        size = hidden_size // num_heads
        self.sizes = (num_heads, num_kv_heads, size)
        self.a = nn.Linear(hidden_size, num_heads * size)
        self.b = nn.Linear(hidden_size, 2 * num_kv_heads * size, bias=False)
        self.c = nn.Linear(num_heads * size, hidden_size, bias=False)
        self.norm_a, self.norm_b = RmsNorm(size), RmsNorm(size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, None]:
        heads, shared, size = self.sizes
        q = self.norm_a(self.a(x).unflatten(-1, (heads, size))) * (1.0 if self.scaled else size**0.5)
        k, v = self.b(x).unflatten(-1, (2 * shared, size)).chunk(2, 2)
        q, k = (one * cos[:, None] + one.roll(size // 2, -1) * sin[:, None] for one in (q, self.norm_b(k)))
        k, v = (one.repeat_interleave(heads // shared, 2) for one in (k, v))
        out = mixed(*(one.transpose(1, 2) for one in (q, k, v)))
        return self.c(out.transpose(1, 2).flatten(2)), None


class NormedAndNotScaled(GroupedAndNormed):
    """The same without a scale: the norms of q and k stand for it."""

    scaled = False


class NoParameters(nn.Module):
    def __init__(self, temperature: float, attn_dropout: float = 0.1) -> None:
        super().__init__()
        self.temperature, self.dropout = temperature, nn.Dropout(attn_dropout)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Any = None) -> tuple[Tensor, Tensor]:
        logits = q / self.temperature @ k.mT
        weights = self.dropout((logits if mask is None else logits.masked_fill(mask == 0, -1e9)).softmax(-1))
        return weights @ v, weights


class KeyMask(nn.Module):
    """Takes a mask of keys alone, `[b s]`, by the name of one of pairs."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.p = nn.Linear(dim, 3 * dim)

    def forward(self, x: Tensor, mask: Any = None) -> Any:
        q, k, v = self.p(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        logits = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            logits = logits.masked_fill(~mask[:, None, None, :], -torch.inf)
        return (logits.softmax(-1) @ v).transpose(1, 2).flatten(2)


class OfLayers(nn.Module):
    """Is made of layers, and cannot do without its memory."""

    def __init__(self, heads: int, q_proj: nn.Module, k_proj: nn.Module, v_proj: nn.Module, out: nn.Module) -> None:
        super().__init__()
        self.heads, self.a, self.b, self.c, self.d = heads, q_proj, k_proj, v_proj, out

    def forward(self, x: Tensor, y: Any = None, mask: Any = None) -> Any:
        if y is None:
            raise ValueError("y is needed")
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.a(x), self.b(y), self.c(y)))
        logits = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            logits = logits.masked_fill(~mask[:, None, :, :], -torch.inf)
        return self.d((logits.softmax(-1) @ v).transpose(1, 2).flatten(2))


class ByDistance(nn.Module):
    """Needs a table of distances, and its parameters were never set."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.p = nn.Linear(dim, 3 * dim, bias=False)
        self.u = nn.Parameter(torch.full((heads, dim // heads), torch.nan))
        self.r = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor, pos_emb: Tensor) -> Any:
        q, k, v = self.p(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        places = self.r(pos_emb).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        near = (q @ places.mT)[..., : k.shape[2]]
        assert places.shape[2] == 2 * x.shape[1] - 1
        logits = ((q + self.u[:, None]) @ k.mT + near) / q.shape[-1] ** 0.5
        return (logits.softmax(-1) @ v).transpose(1, 2).flatten(2)


class OfImages(nn.Module):
    """Norms x alone, and takes a memory in groups."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(dim)
        self.a, self.b = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)

    def forward(self, x: Tensor, media: Tensor) -> Any:
        b, _, _, m = media.shape
        q = self.a(self.norm(x)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.b(media.reshape(b, -1, m)).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return ((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)


class Uncallable(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.p = nn.Linear(dim, dim)

    def forward(self, x: Tensor, graph: Any) -> Any:
        return self.p(x) @ graph.edges


class Configuration:
    """Takes what it is told and keeps it, so that nobody can read off what the layer needs."""

    def __init__(self, vocabulary: int, **others: Any) -> None:
        self.vocabulary = vocabulary
        vars(self).update(others)


class Lazy(nn.Module):
    """Needs its tables of angles, though they have a default; x is `[t m]`; its layers have no sizes before a call."""

    def __init__(self, cfg: Configuration) -> None:
        super().__init__()
        self.heads = cfg.n_head  # type: ignore[attr-defined]
        self.l1, self.l2 = (nn.LazyLinear(cfg.n_embd, bias=False) for _ in range(2))  # type: ignore[attr-defined]
        self.l3, self.l4 = (nn.LazyLinear(cfg.n_embd, bias=False) for _ in range(2))  # type: ignore[attr-defined]

    def forward(self, x: Tensor, position_embeddings: Any = None) -> Any:
        cos, _ = position_embeddings
        q, k, v = (one(x).unflatten(-1, (self.heads, -1)).transpose(0, 1) for one in (self.l3, self.l1, self.l2))
        return self.l4(mixed(q * cos, k * cos, v).transpose(0, 1).reshape(len(x), -1))


class BesideAFeedforward(nn.Module):
    """One matrix makes queries, a key and a value for all heads, and what a feedforward layer with a gate takes."""

    scale = True

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.sizes = heads, (dim, dim // heads, dim // heads, 4 * dim)
        self.fused = nn.Linear(dim, sum(self.sizes), bias=False)
        self.last, self.after = nn.Linear(dim, dim, bias=False), nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x: Tensor) -> Any:
        q, k, v, more = self.fused(x).split(self.sizes, dim=-1)
        q = q.unflatten(-1, (self.heads, -1)).transpose(1, 2) * (1 if self.scale else k.shape[-1] ** 0.5)
        value, gate = more.chunk(2, -1)
        said = mixed(q, k[:, None], v[:, None]).transpose(1, 2).flatten(2)
        return self.last(said) + self.after(nn.functional.silu(gate) * value)


class BesideAFeedforwardUnscaled(BesideAFeedforward):
    scale = False
