"""Layers of PyTorch: right ones in many styles, and each mistake in one method of a plain layer."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

Methods = dict[str, Callable[..., Any]]


def split(x: Any, heads: int) -> Any:
    """Split `[b t m]` into heads `[b h t d]`."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge(context: Any) -> Any:
    return context.transpose(1, 2).flatten(2)


def attend(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


def rotate(x: Any, base: float = 10000.0) -> Any:
    """Turn the halves of each head by the angles of RoPE."""
    first, second = x.chunk(2, -1)
    angles = torch.arange(x.shape[-2])[:, None] * base ** (-torch.arange(first.shape[-1]) / first.shape[-1])
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)


def is_later(logits: Any, first: int = 1) -> Any:
    """Return where a key is at least so many tokens after the query."""
    return torch.ones_like(logits).triu(first).bool()


class Layer(nn.Module):
    """Multi-head attention with one method per step."""

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


def viewed(x: Any) -> Any:
    return x.reshape(*x.shape[:2], x.shape[3], x.shape[2])


BEFORE: dict[str, Methods] = {
    "no_scale": {"score": lambda _, q, k: q @ k.mT},
    "scale_by_d": {"score": lambda _, q, k: q @ k.mT / q.shape[-1]},
    "scale_by_sqrt_d_model": {"score": lambda self, q, k: q @ k.mT / self.width**0.5},
    "scale_by_sqrt_heads": {"score": lambda _, q, k: q @ k.mT / q.shape[1] ** 0.5},
    "scale_by_sqrt_keys": {"score": lambda _, q, k: q @ k.mT / k.shape[-2] ** 0.5},
    "scale_fixed": {"score": lambda _, q, k: q @ k.mT / 8},
    "scale_multiplied": {"score": lambda _, q, k: q @ k.mT * q.shape[-1] ** 0.5},
    "softmax_over_queries": {"weigh": lambda _, logits: logits.softmax(-2)},
    "softmax_over_heads": {"weigh": lambda _, logits: logits.softmax(1)},
    "log_softmax": {"weigh": lambda _, logits: logits.log_softmax(-1)},
    "weights_transposed": {"weigh": lambda _, logits: logits.softmax(-1).mT},
    "scale_after_softmax": {
        "score": lambda _, q, k: q @ k.mT,
        "weigh": lambda self, logits: logits.softmax(-1) / (self.width / self.heads) ** 0.5,
    },
    "keys_viewed": {"score": lambda _, q, k: q @ viewed(k) / q.shape[-1] ** 0.5},
    "heads_merged_wrong": {"merge": lambda _, context: context.reshape(len(context), context.shape[2], -1)},
    "heads_not_transposed": {
        "split": lambda self, x: x.reshape(len(x), self.heads, x.shape[1], -1),
        "merge": lambda _, context: context.reshape(len(context), context.shape[2], -1),
    },
}  # fmt: skip
"""A mistake between the projections and the output."""

WITH_MATRICES: dict[str, Methods] = {
    "keys_from_queries": {"project": lambda self, x: (self.q_proj(x), self.q_proj(x), self.v_proj(x))},
    "values_from_keys": {"project": lambda self, x: (self.q_proj(x), self.k_proj(x), self.k_proj(x))},
    "values_from_queries": {"project": lambda self, x: (self.q_proj(x), self.k_proj(x), self.q_proj(x))},
    "projected_twice": {
        "project": lambda self, x: (self.q_proj(x), *(side(self.q_proj(x)) for side in (self.k_proj, self.v_proj)))
    },
    "single_head": {"split": lambda _, x: x[:, None]},
    "no_output_projection": {"output": lambda _, context: merge(context)},
    "entries_and_heads_mixed": {
        "merge": lambda _, context: merge(context.reshape(*context.shape[1::-1], *context.shape[2:]).transpose(0, 1))
    },
    "dropout_on": {"weigh": lambda _, logits: F.dropout(logits.softmax(-1), 0.1)},
    "gradients_cut": {"split": lambda self, x: split(x.detach(), self.heads)},
    "no_softmax": {"weigh": lambda _, logits: logits},
}  # fmt: skip


@pytest.mark.parametrize("name", [*BEFORE, *WITH_MATRICES])
def test_a_mistake_is_named_alone(name: str) -> None:
    verdict = attn_exp.check(changed((BEFORE | WITH_MATRICES)[name]), quick=True)
    assert verdict.is_wrong and verdict.mistakes == (name,), verdict


@pytest.mark.long
@pytest.mark.parametrize("name", [*BEFORE][::3])
def test_a_mistake_is_named_where_no_matrix_can_be_read(name: str) -> None:
    verdict = attn_exp.check(changed(BEFORE[name], Unread), quick=True)
    if name in ("keys_viewed", "heads_merged_wrong", "heads_not_transposed"):  # outside of what is compared inside
        assert verdict.outcome == "not verified", verdict
    else:
        assert verdict.is_wrong and (verdict.mistakes == (name,) or name == "weights_transposed"), verdict


SEVERAL = {
    ("no_scale", "softmax_over_queries"),
    ("scale_by_sqrt_d_model", "softmax_over_queries"),
    ("no_scale", "values_from_keys"),
    ("scale_by_sqrt_d_model", "softmax_over_heads"),
}


@pytest.mark.full_search
@pytest.mark.parametrize("names", sorted(SEVERAL), ids="+".join)
def test_several_mistakes_are_named_together(names: tuple[str, ...]) -> None:
    methods: Methods = {}
    for name in names:
        methods |= (BEFORE | WITH_MATRICES)[name]
    verdict = attn_exp.check(changed(methods), quick=True)
    assert set(verdict.mistakes) == set(names), verdict


MASKS: dict[str, Methods] = {
    "mask_ignored": {"hide": lambda _, logits, mask: logits},
    "mask_small_fill": {"hide": lambda _, logits, mask: logits.masked_fill(mask == 0, -10.0)},
    "mask_transposed": {"hide": lambda _, logits, mask: logits.masked_fill(mask.mT == 0, -torch.inf)},
    "mask_multiplied": {"hide": lambda _, logits, mask: logits * mask},
    "mask_of_first_entry": {"hide": lambda _, logits, mask: logits.masked_fill(mask[:1, None] == 0, -torch.inf)},
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "base"), [*((name, Masked) for name in MASKS), ("mask_ignored", Unread), ("mask_transposed", Unread)]
)
def test_a_wrong_mask_is_named(name: str, base: type[nn.Module]) -> None:
    verdict = attn_exp.check(changed(MASKS[name], base), quick=True)
    assert verdict.is_wrong and verdict.mistakes == (name,), verdict


RIGHT_MASKS: dict[str, Methods] = {
    "booleans [t s]": {},
    "per entry [b t s]": {"hide": lambda _, logits, mask: logits.masked_fill(mask[:, None] == 0, -1e9)},
    "keys [b s]": {"hide": lambda _, logits, mask: logits.masked_fill(mask[:, None, None] == 0, -torch.inf)},
    "added": {"hide": lambda _, logits, mask: logits + mask},
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("base", [Masked, Unread])
@pytest.mark.parametrize("name", RIGHT_MASKS)
def test_a_mask_is_given_as_the_layer_takes_it(name: str, base: type[nn.Module]) -> None:
    verdict = attn_exp.check(changed(RIGHT_MASKS[name], base), quick=True)
    assert not verdict.is_wrong and not verdict.mistakes, verdict
    assert not any("masks" in one for one in verdict.not_asked), verdict.not_asked


@pytest.mark.long
def test_a_mask_whose_true_hides_is_a_question_to_the_user() -> None:
    hides = changed({"hide": lambda _, logits, mask: logits.masked_fill(mask, -torch.inf)}, Masked)
    verdict = attn_exp.check(hides, quick=True)
    assert (verdict.outcome, verdict.right_under) == ("not verified", "convention=torch_mha"), verdict
    assert attn_exp.check(hides, "convention=torch_mha", quick=True).passed
    assert attn_exp.check(nn.MultiheadAttention, quick=True).right_under == "convention=torch_mha"


@pytest.mark.long
def test_a_mask_after_the_softmax_is_named() -> None:
    class Late(Masked):
        def forward(self, x: Any, mask: Any = None) -> Any:
            q, k, v = map(self.split, self.project(x))
            weights = self.weigh(self.score(q, k))
            return self.output((weights if mask is None else weights.masked_fill(mask == 0, 0.0)) @ v)

    assert attn_exp.check(Late, quick=True).mistakes == ("mask_after_softmax",)


CAUSAL: dict[str, Methods] = {
    "causal_next": {"weigh": lambda _, logits: logits.masked_fill(is_later(logits, 2), -torch.inf).softmax(-1)},
    "causal_strict": {"weigh": lambda _, logits: logits.masked_fill(is_later(logits, 0), -1e9).softmax(-1)},
    "causal_flipped": {"weigh": lambda _, logits: logits.masked_fill(is_later(logits.mT).mT, -torch.inf).softmax(-1)},
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("words", [(), ("mask=causal",)], ids=str)
@pytest.mark.parametrize("name", CAUSAL)
def test_a_wrong_causal_mask_is_named(name: str, words: tuple[str, ...]) -> None:
    verdict = attn_exp.check(changed(CAUSAL[name]), *words, quick=True)
    assert verdict.is_wrong and verdict.mistakes == (name,), verdict


@pytest.mark.long
@pytest.mark.parametrize("base", [Layer, Unread])
def test_a_layer_that_is_causal_by_itself_is_right_under_that_word(base: type[nn.Module]) -> None:
    def weigh(_: Any, logits: Any) -> Any:
        return logits.masked_fill(is_later(logits), -torch.inf).softmax(-1)

    verdict = attn_exp.check(changed({"weigh": weigh}, base), quick=True)
    assert not verdict.is_wrong and verdict.right_under == "mask=causal", verdict
    assert not attn_exp.check(changed({"weigh": weigh}, base), "mask=causal", quick=True).right_under
    assert attn_exp.check(base, "mask=causal", quick=True).mistakes == ("causal_ignored",)


@pytest.mark.long
@pytest.mark.parametrize("base", [Layer, Unread])
def test_a_mistake_beside_a_causal_mask_is_named_with_the_words(base: type[nn.Module]) -> None:
    def weigh(_: Any, logits: Any) -> Any:
        return logits.masked_fill(is_later(logits), -torch.inf).softmax(-1)

    wrong = attn_exp.check(changed({"weigh": weigh} | BEFORE["scale_by_sqrt_d_model"], base), quick=True)
    assert wrong.mistakes == ("scale_by_sqrt_d_model",), wrong
    assert base is Unread or wrong.computes.startswith("with mask=causal, "), wrong


def with_positions(*, of_values: bool = False, of_keys: bool = True, base: float = 10000.0) -> type[nn.Module]:
    class Rotary(Layer):
        def forward(self, x: Any) -> Any:
            q, k, v = map(self.split, self.project(x))
            k, v = rotate(k, base) if of_keys else k, rotate(v, base) if of_values else v
            return self.output(self.weigh(self.score(rotate(q, base), k)) @ v)

    return Rotary


@pytest.mark.long
def test_rotary_positions() -> None:
    assert attn_exp.check(with_positions(), quick=True).right_under == "position=rope"
    assert attn_exp.check(with_positions(), "position=rope", quick=True).passed
    assert attn_exp.check(with_positions(of_values=True), "position=rope", quick=True).mistakes == ("rope_on_values",)
    assert attn_exp.check(with_positions(of_keys=False), "position=rope", quick=True).is_wrong
    assert attn_exp.check(Layer, "position=rope", quick=True).mistakes == ("position_missing",)


@pytest.mark.long
def test_rotary_positions_that_nobody_asked_for() -> None:
    assert not attn_exp.check(with_positions(base=500.0), quick=True).is_wrong
    assert not attn_exp.check(with_positions(of_values=True), quick=True).passed


# Right layers in the styles of their authors


class Packed(nn.Module):
    """One matrix for q, k and v, with as many key/value heads as it is told; no names that anybody knows."""

    def __init__(self, dim: int, n_heads: int, n_kv_heads: int | None = None) -> None:
        super().__init__()
        size, self.groups = dim // n_heads, n_kv_heads or n_heads
        self.sizes = [n_heads * size, self.groups * size, self.groups * size]
        self.fused, self.last = nn.Linear(dim, sum(self.sizes)), nn.Linear(dim, dim)

    def sides(self, x: Any) -> Any:
        q, k, v = self.fused(x).split(self.sizes, -1)
        repeats = self.sizes[0] // self.sizes[1]
        k, v = (split(side, self.groups).repeat_interleave(repeats, 1) for side in (k, v))
        return split(q, self.groups * repeats), k, v

    def forward(self, x: Any) -> Any:
        return self.last(merge(attend(*self.sides(x))))


class PackedInHeads(Packed):
    """Values, keys and queries lie side by side within each head."""

    def sides(self, x: Any) -> Any:
        v, k, q = split(self.fused(x), self.groups).chunk(3, -1)
        return q, k, v


class ListOfHeads(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        size, self.proj = dim // heads, nn.Linear(dim, dim)
        self.sides: Any = nn.ModuleList(nn.ModuleList(nn.Linear(dim, size) for _ in "qkv") for _ in range(heads))

    def forward(self, x: Any) -> Any:
        return self.proj(torch.cat([attend(*(side(x) for side in head)) for head in self.sides], -1))


class Einsum(nn.Module):
    """Bare parameters with an axis for heads."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.into = nn.Parameter(torch.randn(3, heads, dim, dim // heads) / 5)
        self.out_of = nn.Parameter(torch.randn(heads, dim // heads, dim) / 5)

    def forward(self, x: Any) -> Any:
        return torch.einsum("bhtd,hdm->btm", attend(*torch.einsum("btm,shmd->sbhtd", x, self.into)), self.out_of)


class OfConfig(Layer):
    """Sizes in a configuration, causal, with dropout, as in GPT-2."""

    def __init__(self, config: Any) -> None:
        super().__init__(config.n_embd, config.n_head)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Any) -> Any:
        q, k, v = map(self.split, self.project(x))
        return self.drop(self.output(F.scaled_dot_product_attention(q, k, v, is_causal=True)))


class Block(Layer):
    """A norm before, a residual after, and a feed-forward layer with a norm and a residual of its own."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.first, self.second = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.mlp = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))

    def forward(self, x: Any) -> Any:
        x = x + super().forward(self.first(x))
        return x + self.mlp(self.second(x))


class PostNorm(Block):
    def forward(self, x: Any) -> Any:
        return self.second(x + Layer.forward(self, x))


class Normed(Layer):
    """Norms of queries and keys."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.q_norm, self.k_norm = nn.RMSNorm(d_model // num_heads), nn.RMSNorm(d_model // num_heads)

    def score(self, q: Any, k: Any) -> Any:
        return super().score(self.q_norm(q), self.k_norm(k))


class Gated(Layer):
    """The context is multiplied by a gate of x."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.gate = nn.Linear(d_model, d_model)

    def forward(self, x: Any) -> Any:
        return self.out_proj(merge(attend(*map(self.split, self.project(x)))) * self.gate(x).sigmoid())


class Sinks(Layer):
    """A learned logit of each head beside those of the keys."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.sinks = nn.Parameter(torch.randn(num_heads))

    def weigh(self, logits: Any) -> Any:
        beside = self.sinks.view(-1, 1, 1).expand(*logits.shape[:-1], 1)
        return torch.cat([logits, beside], -1).softmax(-1)[..., :-1]


class Cross(Layer):
    """Keys and values of a memory; without one, self-attention."""

    def forward(self, x: Any, context: Any = None) -> Any:
        memory = x if context is None else context
        q, k, v = map(self.split, (self.q_proj(x), self.k_proj(memory), self.v_proj(memory)))
        return self.output(attend(q, k, self.late(v)))

    def late(self, v: Any) -> Any:
        return v


class ThreeInputs(Layer):
    def forward(self, query: Any, key: Any, value: Any, mask: Any = None) -> Any:  # type: ignore[override]
        q, k, v = map(self.split, (self.q_proj(query), self.k_proj(key), self.v_proj(value)))
        logits = self.score(q, k)
        return self.output(self.weigh(logits if mask is None else logits.masked_fill(mask == 0, -1e9)) @ v)


class TokensFirst(Layer):
    """Inputs `[t b m]`."""

    def forward(self, x: Any) -> Any:
        t, b, m = x.shape
        return super().forward(x.transpose(0, 1)).transpose(0, 1).reshape(t, b, m)


class Image(nn.Module):
    """An image `[b c h w]`: convolutions of one point, a norm of groups before and a residual after."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.out = nn.GroupNorm(4, channels), nn.Conv2d(channels, channels, 1)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)

    def forward(self, x: Any) -> Any:
        b, c, h, w = x.shape
        q, k, v = (side.flatten(2).mT for side in self.qkv(self.norm(x)).chunk(3, 1))
        return x + self.out(attend(q, k, v).mT.reshape(b, c, h, w))


class NoParameters(nn.Module):
    def __init__(self, temperature: float, attn_dropout: float = 0.1) -> None:
        super().__init__()
        self.temperature, self.dropout = temperature, nn.Dropout(attn_dropout)

    def forward(self, q: Any, k: Any, v: Any, mask: Any = None) -> tuple[Any, Any]:
        logits = q / self.temperature @ k.mT
        weights = self.dropout((logits if mask is None else logits.masked_fill(mask == 0, -1e9)).softmax(-1))
        return weights @ v, weights


class Fused(Unread):
    def forward(self, x: Any) -> Any:  # type: ignore[override]
        return self.output(F.scaled_dot_product_attention(*map(self.split, self.project(x))))


class InFloat32(Masked):
    def weigh(self, logits: Any) -> Any:
        return logits.float().softmax(-1).type_as(logits)


class ScaledQueries(Unread):
    def score(self, q: Any, k: Any) -> Any:
        return (q * q.shape[-1] ** -0.5) @ k.mT


RIGHT = [
    (Layer, (), ""), (Layer(20, 5), (), ""), (Masked, (), ""), (Packed, (), ""), (Packed(24, 6, 2), (), ""),
    (Packed, ("head=6", "kv_head=2"), ""), (PackedInHeads, (), ""), (ListOfHeads, (), ""), (Einsum, (), ""),
    (OfConfig, ("mask=causal",), ""), (OfConfig, (), "mask=causal"),
    (OfConfig(SimpleNamespace(n_embd=20, n_head=5, dropout=0.1)), ("mask=causal",), ""),
    (Block, (), ""), (PostNorm, (), ""), (Normed, (), ""), (Gated, (), ""), (Sinks, (), ""), (Cross, (), ""),
    (ThreeInputs, (), ""),
    (TokensFirst, (), ""), (Image, (), ""), (NoParameters, (), ""), (Unread(24, 3), (), ""),
    (Fused, (), ""), (ScaledQueries, (), ""), (InFloat32, (), ""),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("layer", "words", "under"), RIGHT, ids=lambda one: getattr(one, "__name__", None))
def test_a_right_layer_is_not_wrong(layer: Any, words: tuple[str, ...], under: str) -> None:
    verdict = attn_exp.check(layer, *words, quick=True)
    assert not verdict.is_wrong and set(verdict.mistakes) <= {"nan_leaks"}, verdict
    assert verdict.right_under == under, verdict


def test_key_value_heads_in_the_wrong_order_are_named() -> None:
    class Tiled(Packed):
        def sides(self, x: Any) -> Any:
            q, k, v = map(split, self.fused(x).split(self.sizes, -1), (6, 2, 2))
            return q, k.repeat(1, 3, 1, 1), v.repeat(1, 3, 1, 1)

    assert attn_exp.check(Tiled(24, 6, 2), quick=True).mistakes == ("kv_heads_tiled",)


@pytest.mark.long
def test_a_memory_is_asked_with_a_length_of_its_own() -> None:
    late = changed({"late": lambda _, v: v.flip(2)}, Cross)
    assert attn_exp.check(late, quick=True).is_wrong


@pytest.mark.long
def test_words_that_nobody_knows_are_not_verified() -> None:
    class WithMore(Layer):
        def forward(self, x: Any, media_places: Any = None, need_weights: bool = False) -> Any:
            return super().forward(x if media_places is None else x * media_places)

    verdict = attn_exp.check(WithMore, quick=True)
    assert verdict.outcome == "not verified" and "`media_places`" in str(verdict), verdict
    assert attn_exp.check(WithMore, "ignore=[media_places]", quick=True).passed


class TinyOutput(nn.Module):
    """Its output projection is almost 0 when it is made, as in models of diffusion."""

    def __init__(self, channels: int, heads: int = 1) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)
        nn.init.normal_(self.out.weight, std=1e-10)

    def forward(self, x: Any) -> Any:
        b, c, h, w = x.shape
        q, k, v = self.qkv(x).view(b, self.heads, -1, h * w).chunk(3, dim=2)
        weights = (q.mT @ k / c**0.5).softmax(-1)
        return x + self.out((v @ weights.mT).reshape(b, c, h, w))


def test_a_nearly_empty_output_projection_hides_no_mistake() -> None:
    verdict = attn_exp.check(TinyOutput, quick=True)
    assert verdict.mistakes == ("scale_by_sqrt_d_model",), verdict


class OfPackedChannels(nn.Module):
    def forward(self, qkv: Any) -> Any:
        width = qkv.shape[1] // 3
        q, k, v = qkv.split(width, dim=1)
        return torch.einsum("bts,bcs->bct", (torch.einsum("bct,bcs->bts", q, k) / width**0.5).softmax(-1), v)


def test_a_layer_without_parameters_that_packs_queries_keys_and_values_has_one_head() -> None:
    assert attn_exp.check(OfPackedChannels, quick=True).outcome == "right"


class OverRows(nn.Module):
    """Attention between the rows of an alignment `[r c b d]`, in each of its columns."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

    def forward(self, x: Any) -> Any:
        rows, columns, batch, width = x.size()
        q, k, v = (
            part(x).view(rows, columns, batch, self.heads, -1) for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        weights = (torch.einsum("icnhd,jcnhd->hcnij", q, k) / q.shape[-1] ** 0.5).softmax(-1)
        return self.out_proj(torch.einsum("hcnij,jcnhd->icnhd", weights, v).reshape(rows, columns, batch, width))


@pytest.mark.long
def test_axes_that_nobody_names_are_no_mistake_of_the_batch() -> None:
    verdict = attn_exp.check(OverRows, quick=True)
    assert verdict.outcome == "not verified" and "which axis of its input" in str(verdict), verdict


class Strided(nn.Module):
    """Its packed projection has an axis for the numbers of a head before that of the heads."""

    def __init__(self, dim: int, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.to_qkv, self.to_out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Any) -> Any:
        q, k, v = self.to_qkv(x).unflatten(-1, (-1, 3, self.heads)).permute(3, 0, 4, 1, 2)
        return self.to_out(merge(attend(q, k, v)))


@pytest.mark.long
def test_which_numbers_make_a_head_of_a_layer_is_a_question_to_the_user() -> None:
    verdict = attn_exp.check(Strided, quick=True)
    assert verdict.outcome == "not verified" and "which numbers make `heads`" in verdict.not_verified[0], verdict


class Unscaled(Layer):
    def __init__(self, d_model: int, num_heads: int, scale: bool = False) -> None:
        super().__init__(d_model, num_heads)
        self.scale = scale

    def score(self, q: Any, k: Any) -> Any:
        return q @ k.mT * (q.shape[-1] ** -0.5 if self.scale else 1)


@pytest.mark.long
def test_a_switch_for_the_scale_that_is_off_is_no_mistake() -> None:
    verdict = attn_exp.check(Unscaled, quick=True)
    assert (verdict.outcome, verdict.right_under) == ("right", "scale=1"), verdict


def for_two_entries() -> Any:
    """Make a layer that takes as many entries as the example has."""
    layer = Layer(24, 4)

    def call(x: Any) -> Any:
        if x.shape[0] != 2:
            raise RuntimeError("made for two entries")
        return layer(x)

    return call, {"x": torch.randn(2, 6, 24)}


def test_sizes_that_the_inputs_of_a_factory_rule_out_are_not_verified() -> None:
    verdict = attn_exp.check(for_two_entries, quick=True)
    assert verdict.outcome == "not verified", verdict
    assert any("other `sizes`" in one or "other keys" in one for one in verdict.not_verified), verdict
