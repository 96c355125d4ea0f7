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


def of_a_default(q: Any, k: Any, v: Any, d_k: int = 512) -> Any:
    """Attention that must be told the size of a head, whatever its default is."""
    return (q @ k.mT / math.sqrt(d_k)).softmax(-1) @ v


class OfADefault(nn.Module):
    """The same as a class that holds no matrices."""

    def __init__(self, d_k: int = 128) -> None:
        super().__init__()
        self.d_k = d_k

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        return of_a_default(q, k, v, self.d_k)


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


class WithOwnKeys(CausalInside):
    """Attention that sees learned keys and values beside those of x, `count` of them."""

    count, divides = 3, True

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads, scale=True)
        self.own = nn.Parameter(torch.randn(2, self.count, dim))

    def forward(self, x: Any) -> Any:
        q, *sides = self.net(x).chunk(3, -1)
        k, v = (torch.cat([own.expand(len(x), -1, -1), side], 1) for own, side in zip(self.own, sides, strict=True))
        q, k, v = (side.unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in (q, k, v))
        s = q @ k.mT / (math.sqrt(q.shape[-1]) if self.divides else 1.0)
        return self.out((s.softmax(-1) @ v).transpose(1, 2).flatten(2))


class WithOneOwnKey(WithOwnKeys):
    count = 1


class WithOneOwnKeyUnscaled(WithOneOwnKey):
    divides = False


class Averaged(nn.Module):
    """Heads with queries and keys of their own that share one value, and whose answers are averaged."""

    def __init__(self, d_model: int, n_head: int) -> None:
        super().__init__()
        size = d_model // n_head
        self.q_layers: Any = nn.ModuleList(nn.Linear(d_model, size) for _ in range(n_head))
        self.k_layers: Any = nn.ModuleList(nn.Linear(d_model, size) for _ in range(n_head))
        self.v_layer, self.last = nn.Linear(d_model, size), nn.Linear(size, d_model, bias=False)

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        pairs = [(of_q(q), of_k(k)) for of_q, of_k in zip(self.q_layers, self.k_layers, strict=True)]
        shares = [(one @ other.mT / math.sqrt(one.shape[-1])).softmax(-1) for one, other in pairs]
        return self.last(torch.stack([share @ self.v_layer(v) for share in shares]).mean(0))


class WeightsAveraged(nn.Module):
    """Heads whose weights are averaged before they meet one value of the whole width."""

    def __init__(self, d_model: int, n_head: int) -> None:
        super().__init__()
        self.n_head, self.value, self.last = n_head, nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.pairs = nn.Linear(d_model, 2 * d_model)

    def forward(self, x: Any) -> Any:
        q, k = (part.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for part in self.pairs(x).chunk(2, -1))
        return self.last((q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1).mean(1) @ self.value(x))


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
        (of_a_default, [], ""),
        (OfADefault, [], ""),
        (of_a_number, [], ""),
        (OfANumber, [], ""),
        (InPatches, [], ""),
        (NormedPatches, [], ""),
        (OfSquares, [], ""),
        (OfNodes, [], ""),
        (Averaged, [], ""),
        (WeightsAveraged, [], ""),
        (WithOwnKeys, [], f"score=sink score.sink.logit={math.log(3)}"),
        (WithOneOwnKey, [], "score=sink score.sink.logit=0"),
        (BothKinds, [], "convention=torch_mha"),
    ],
)
def test_right_code_has_no_name(function: Any, words: list[str], under: str) -> None:
    verdict = attn_exp.check(function, *words)
    assert verdict.passed or verdict.right_under, verdict
    assert set(verdict.mistakes) <= REMARKS and verdict.right_under == under, verdict


def over_queries(q: Any, k: Any, v: Any, d_k: int = 512) -> Any:
    """A softmax over queries, in code that must be told the size of a head."""
    return (q @ k.mT / math.sqrt(d_k)).softmax(-2) @ v


class OfOneHead(nn.Module):
    """One head of as many numbers as it is told, divided by the root of the width of x."""

    def __init__(self, model_dim: int, embedding_dim: int) -> None:
        super().__init__()
        self.root = model_dim**0.5
        self.sides: Any = nn.ModuleList(nn.Linear(model_dim, embedding_dim) for _ in range(3))

    def forward(self, queries: Any, keys: Any, values: Any) -> Any:
        q, k, v = (net(x) for net, x in zip(self.sides, (queries, keys, values), strict=True))
        return (q @ k.mT / self.root).softmax(-1) @ v


@pytest.mark.parametrize(
    ("function", "name"), [(over_queries, "softmax_over_queries"), (OfOneHead, "scale_by_sqrt_d_model")]
)
def test_sizes_that_are_told_apart_show_a_mistake(function: Any, name: str) -> None:
    verdict = attn_exp.check(function)
    assert verdict.mistakes == (name,), verdict


class Repeats(nn.Module):
    """One head whose answer stands side by side as often as there should be heads."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(dim, dim // heads) for _ in range(3))
        self.linear = nn.Linear(dim, dim)

    def forward(self, x: Any) -> Any:
        q, k, v = self.query(x), self.key(x), self.value(x)
        return self.linear(torch.cat([(q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v] * self.heads, -1))


class NearZero(nn.Module):
    """A number near 0 where the mask hides, which is no multiplication though it computes the same."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.net, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def masked(self, scores: Any, mask: Any) -> Any:
        return scores.masked_fill(mask == 0, -1e-15)

    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.net(x).chunk(3, -1))
        s = q @ k.mT / math.sqrt(q.shape[-1])
        s = s if mask is None else self.masked(s, mask)
        return self.out((s.softmax(-1) @ v).transpose(1, 2).flatten(2))


class TimesMask(NearZero):
    """The multiplication."""

    def masked(self, scores: Any, mask: Any) -> Any:
        return scores * mask


class Forgets(CausalInside):
    """Makes what it returns beside the last layer, which it then leaves out."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.linear = self.out
        del self.out

    def forward(self, x: Any) -> Any:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.net(x).chunk(3, -1))
        heads = ((q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v).transpose(1, 2).flatten(2)
        self.linear(heads)
        return heads


@pytest.mark.parametrize(
    ("function", "name"),
    [(Repeats, "single_head"), (NearZero, "mask_small_fill"), (TimesMask, "mask_multiplied"),
     (WithOneOwnKeyUnscaled, "no_scale"),
     (Forgets, "no_output_projection")],
)  # fmt: skip
def test_what_a_layer_makes_of_its_mask_and_its_last_matrix_is_named(function: Any, name: str) -> None:
    verdict = attn_exp.check(function)
    assert verdict.mistakes == (name,), verdict


class Inner(nn.Module):
    """One head, of any width."""

    axis = -1

    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.sides: Any = nn.ModuleList(nn.Linear(wide, out) for _ in range(3))

    def forward(self, x: Any) -> Any:
        q, k, v = (net(x) for net in self.sides)
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(self.axis) @ v


class InnerDown(Inner):
    axis = -2


class AsWideAsAll(nn.Module):
    """It is told how many heads it has, keeps no number of them, and makes one head as wide as all."""

    inner: type[Inner] = Inner

    def __init__(self, input_dim: int, heads_num: int, head_dim: int = 15) -> None:
        super().__init__()
        self.all_heads, self.last = (
            self.inner(input_dim, head_dim * heads_num),
            nn.Linear(head_dim * heads_num, input_dim),
        )

    def forward(self, x: Any) -> Any:
        return self.last(self.all_heads(x))


class AsWideAsAllDown(AsWideAsAll):
    inner = InnerDown


@pytest.mark.parametrize(
    ("layer", "names"), [(AsWideAsAll, {"single_head"}), (AsWideAsAllDown, {"single_head", "softmax_over_queries"})]
)
def test_one_head_where_a_class_is_told_several_is_named(layer: Any, names: set[str]) -> None:
    assert set(attn_exp.check(layer, quick=True).mistakes) == names
