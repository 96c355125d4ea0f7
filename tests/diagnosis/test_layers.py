"""Layers of PyTorch: right ones in many styles, and each mistake in one method of a plain layer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from tests.diagnosis import layers
from tests.diagnosis.layers import (
    Layer,
    ListOfHeads,
    Masked,
    Methods,
    OfConfig,
    Unread,
    attend,
    changed,
    merge,
    split,
)


def viewed(x: Any) -> Any:
    return x.reshape(*x.shape[:2], x.shape[3], x.shape[2])


BEFORE: dict[str, Methods] = {
    "scale_by_sqrt_d_model": {"score": lambda self, q, k: q @ k.mT / self.width**0.5},
    "softmax_over_queries": {"weigh": lambda _, logits: logits.softmax(-2)},
    "softmax_over_heads": {"weigh": lambda _, logits: logits.softmax(1)},
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


class OfAnotherMemory(Layer):
    """Cross-attention with a mask of the queries and one of the memory; its scale is a parameter."""

    scale: Any

    def forward(self, x: Any, context: Any = None, mask: Any = None, context_mask: Any = None) -> Any:
        other = x if context is None else context
        q, k, v = map(self.split, (self.q_proj(x), self.k_proj(other), self.v_proj(other)))
        rows = torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
        keys = rows if context is None else torch.ones_like(other[..., 0]) > 0 if context_mask is None else context_mask
        hidden = ~(rows[:, None, :, None] & keys[:, None, None])
        return self.output(self.weigh((q @ k.mT * self.scale).masked_fill(hidden, -1e9)) @ v)


@pytest.mark.parametrize(
    ("scale", "left"), [(6**-0.5, ""), (nn.Parameter(torch.tensor(0.7)), "scale `scale` (it is learned,")]
)
def test_a_mask_of_the_memory_hides_its_keys_and_a_learned_scale_is_left_open(scale: Any, left: str) -> None:
    layer = OfAnotherMemory(24, 4)
    layer.scale = scale
    verdict = attn_exp.check(layer.double(), quick=True)
    assert verdict.outcome == ("not verified" if left else "right"), verdict
    assert verdict.not_verified == () if not left else left in verdict.not_verified[-1], verdict


@pytest.mark.parametrize(("heads", "remarks"), [(1, ()), (4, ("no_output_projection",))])
def test_heads_without_an_output_projection_are_right_and_a_remark(heads: int, remarks: tuple[str, ...]) -> None:
    layer = changed(WITH_MATRICES["no_output_projection"])(24, heads).double()
    del layer.out_proj
    verdict = attn_exp.check(layer, quick=True)
    assert (verdict.outcome, verdict.mistakes) == ("right", remarks), verdict


@pytest.mark.long
@pytest.mark.parametrize("name", ["softmax_over_heads", "heads_not_transposed"])
def test_a_mistake_is_named_where_no_matrix_can_be_read(name: str) -> None:
    methods = BEFORE.get(name, {}) | UNREAD["the operations after the output projection are not known"]
    assert attn_exp.check(changed(methods), *["position=rope"] * (name not in BEFORE), quick=True).mistakes == (name,)


UNREAD: dict[str, Methods] = {
    "the output does not have one row per token": {
        "output": lambda self, context: self.out_proj(self.merge(context))[:, 1:]
    },
    "the operations after the output projection are not known": {
        "output": lambda self, context: torch.sin(self.out_proj(self.merge(context)))
    },
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("reason", UNREAD)
def test_projections_that_cannot_be_read_are_not_verified_for_a_reason(reason: str) -> None:
    (left,) = attn_exp.check(changed(UNREAD[reason]), quick=True).not_verified
    assert left.startswith(f"`projections` to queries, keys and values ({reason}")


@pytest.mark.full_search
@pytest.mark.parametrize("name", ["softmax_over_heads", "values_from_keys"])
def test_two_mistakes_are_named_together(name: str) -> None:
    methods = BEFORE["scale_by_sqrt_d_model"] | (BEFORE | WITH_MATRICES)[name]
    assert set(attn_exp.check(changed(methods), quick=True).mistakes) == {"scale_by_sqrt_d_model", name}


MASKS: dict[str, Methods] = {
    "mask_ignored": {"hide": lambda _, logits, mask: logits},
    "mask_small_fill": {"hide": lambda _, logits, mask: logits.masked_fill(mask == 0, -10.0)},
    "mask_transposed": {"hide": lambda _, logits, mask: logits.masked_fill(mask.mT == 0, -torch.inf)},
    "mask_multiplied": {"hide": lambda _, logits, mask: logits * mask},
    "mask_of_first_entry": {"hide": lambda _, logits, mask: logits.masked_fill(mask[:1, None] == 0, -torch.inf)},
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("name", "base"), [*((name, Masked) for name in MASKS), ("mask_transposed", Unread)])
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
@pytest.mark.parametrize(
    ("name", "base"), [*((name, Masked) for name in RIGHT_MASKS), ("keys [b s]", Unread), ("added", Unread)]
)
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
        k, v = (self.share(split(side, self.groups), repeats) for side in (k, v))
        return split(q, self.groups * repeats), k, v

    def share(self, side: Any, repeats: int) -> Any:
        return side.repeat_interleave(repeats, 1)

    def forward(self, x: Any) -> Any:
        return self.last(merge(attend(*self.sides(x))))


class PackedInHeads(Packed):
    """Values, keys and queries lie side by side within each head."""

    def sides(self, x: Any) -> Any:
        v, k, q = split(self.fused(x), self.groups).chunk(3, -1)
        return q, k, v


class PackedByStride(Packed):
    """Its packed projection has an axis for the numbers of a head before that of the heads."""

    def sides(self, x: Any) -> Any:
        return self.fused(x).unflatten(-1, (-1, 3, self.groups)).permute(3, 0, 4, 1, 2)


class Einsum(nn.Module):
    """Bare parameters with an axis for heads."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.into = nn.Parameter(torch.randn(3, heads, dim, dim // heads) / 5)
        self.out_of = nn.Parameter(torch.randn(heads, dim // heads, dim) / 5)

    def forward(self, x: Any) -> Any:
        return torch.einsum("bhtd,hdm->btm", attend(*torch.einsum("btm,shmd->sbhtd", x, self.into)), self.out_of)


class Block(Layer):
    """A norm before, a residual after, and a feed-forward layer with a norm and a residual of its own."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.first, self.second = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.mlp = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))

    def forward(self, x: Any) -> Any:
        x = x + super().forward(self.first(x))
        return x + self.mlp(self.second(x))


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


class Switched(Layer):
    """Its switch for the scale is off."""

    def __init__(self, d_model: int, num_heads: int, scale: bool = False) -> None:
        super().__init__(d_model, num_heads)
        self.scale = scale

    def score(self, q: Any, k: Any) -> Any:
        return q @ k.mT * (q.shape[-1] ** -0.5 if self.scale else 1)


class Cross(Layer):
    """Keys and values of a memory; without one, self-attention."""

    def forward(self, x: Any, context: Any = None) -> Any:
        memory = x if context is None else context
        q, k, v = map(self.split, (self.q_proj(x), self.k_proj(memory), self.v_proj(memory)))
        return self.output(attend(q, k, v if context is None else self.read(v)))

    def read(self, v: Any) -> Any:
        return v


class NeedsMemory(Cross):
    """It says that it could do without a memory, and cannot."""

    def forward(self, x: Any, context: Any = None) -> Any:
        return super().forward(x, context + 0)


class WithMore(Layer):
    def forward(self, x: Any, media_places: Any = None, need_weights: bool = False) -> Any:
        return super().forward(x if media_places is None else x * media_places)


class ThreeInputs(Masked):
    def forward(self, query: Any, key: Any, value: Any, mask: Any = None) -> Any:  # type: ignore[override]
        q, k, v = map(self.split, (self.q_proj(query), self.k_proj(key), self.v_proj(value)))
        logits = self.score(q, k)
        return self.output(self.weigh(logits if mask is None else self.hide(logits, mask)) @ v)


class TokensFirst(Layer):
    """Inputs `[t b m]`."""

    def forward(self, x: Any) -> Any:
        t, b, m = x.shape
        return super().forward(x.transpose(0, 1)).transpose(0, 1).reshape(t, b, m)


class Image(nn.Module):
    """An image `[b c h w]`: convolutions of one point, a norm of groups before and a residual after."""

    power = 0.5

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.out = nn.GroupNorm(4, channels), nn.Conv2d(channels, channels, 1)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)

    def forward(self, x: Any) -> Any:
        b, c, h, w = x.shape
        q, k, v = (side.flatten(2).mT for side in self.qkv(self.norm(x)).chunk(3, 1))
        weights = (q @ k.mT / c**self.power).softmax(-1)
        return x + self.out((weights @ v).mT.reshape(b, c, h, w))


class NoParameters(nn.Module):
    def __init__(self, temperature: float, attn_dropout: float = 0.1) -> None:
        super().__init__()
        self.temperature, self.dropout = temperature, nn.Dropout(attn_dropout)

    def forward(self, q: Any, k: Any, v: Any, mask: Any = None) -> tuple[Any, Any]:
        logits = q / self.temperature @ k.mT
        weights = self.dropout((logits if mask is None else logits.masked_fill(mask == 0, -1e9)).softmax(-1))
        return weights @ v, weights


class OfPackedChannels(nn.Module):
    """It has no parameters, and takes queries, keys and values `[b 3*c t]`."""

    def forward(self, qkv: Any) -> Any:
        q, k, v = (side.mT for side in qkv.chunk(3, dim=1))
        return attend(q, k, v).mT


class Fused(Unread):
    def forward(self, x: Any) -> Any:  # type: ignore[override]
        return self.output(F.scaled_dot_product_attention(*map(self.split, self.project(x))))


class InFloat32(Masked):
    def weigh(self, logits: Any) -> Any:
        return logits.float().softmax(-1).type_as(logits)


class Compiled(nn.Module):
    """PyTorch's compiler leaves it a schema, and no signature."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.packed, self.last = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        b, t, m = x.shape
        q, k, v = self.packed(x).view(b, t, 3, self.heads, m // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q @ k.transpose(-2, -1) / float(q.shape[-1]) ** 0.5).masked_fill(mask == 0, -1e9)
        output: torch.Tensor = self.last((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, m))
        return output


RIGHT = [
    (Layer, (), ""), (Masked, (), ""), (Packed, ("head=6", "kv_head=2"), ""),
    (PackedInHeads, (), ""), (Switched, (), "scale=1"), (ListOfHeads(20, 5), (), ""),
    (Einsum, (), ""), (OfConfig, (), "mask=causal"),
    (OfConfig(SimpleNamespace(n_embd=20, n_head=5, dropout=0.1)), ("mask=causal",), ""), (Block, (), ""),
    (NeedsMemory, (), ""), (WithMore, ("ignore=[media_places]",), ""), (Gated, (), ""), (Sinks, (), ""),
    (Cross, (), ""), (ThreeInputs, (), ""), (TokensFirst, (), ""), (Image, (), ""), (NoParameters, (), ""),
    (OfPackedChannels, (), ""), (Fused, (), ""), (InFloat32, (), ""),
    (changed({"weigh": lambda _, scores: scores.where(torch.ones(8, 8).tril() > 0, -1e9).softmax(-1)}), (),
     "mask=causal"),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("layer", "words", "under"), RIGHT, ids=lambda one: getattr(one, "__name__", None))
def test_a_right_layer_is_not_wrong(layer: Any, words: tuple[str, ...], under: str) -> None:
    verdict = attn_exp.check(layer, *words, quick=True)
    assert not verdict.is_wrong and set(verdict.mistakes) <= {"nan_leaks"}, verdict
    assert verdict.right_under == under, verdict


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # PyTorch says that its compiler is old
def test_a_compiled_module_is_read() -> None:
    assert attn_exp.check(torch.jit.script(Compiled(24, 3)), quick=True).passed
    traced = torch.jit.trace(Compiled(24, 3), (torch.zeros(2, 5, 24), torch.ones(5, 5)))
    assert attn_exp.check(traced, quick=True).passed


class MaskedLate(Masked):
    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = map(self.split, self.project(x))
        weights = self.weigh(self.score(q, k))
        return self.output((weights if mask is None else weights.masked_fill(mask == 0, 0.0)) @ v)


class AlmostNoOutput(Image):
    """Its output projection is almost 0 when it is made, as in models of diffusion."""

    power = 1.0

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        nn.init.normal_(self.out.weight, std=1e-10)


class Deaf(Packed):
    """Has words for keys and values, and makes them of its queries."""

    def forward(self, query: Any, key: Any, value: Any) -> Any:  # type: ignore[override]
        return super().forward(query)


@pytest.mark.long
@pytest.mark.parametrize(
    ("layer", "names"),
    [
        (MaskedLate, ("mask_after_softmax",)), (AlmostNoOutput, ("scale_by_d",)),
        (changed({"share": lambda _, v, count: v.repeat(1, count, 1, 1)}, Packed)(24, 6, 2), ("kv_heads_tiled",)),
        (changed({"read": lambda _, v: v.flip(2)}, Cross), ()), (Deaf, ()),
    ],
)  # fmt: skip
def test_a_wrong_layer_of_another_style_is_wrong(layer: Any, names: tuple[str, ...]) -> None:
    verdict = attn_exp.check(layer, quick=True)
    assert verdict.is_wrong and names in ((), verdict.mistakes), verdict


# What is asked of the user


class OverRows(Layer):
    """Attention between the rows of an alignment `[r c b d]`, in each of its columns."""

    def forward(self, x: Any) -> Any:
        rows, columns, batch, width = x.size()
        q, k, v = (part.view(rows, columns, batch, self.heads, -1) for part in self.project(x))
        weights = (torch.einsum("icnhd,jcnhd->hcnij", q, k) / q.shape[-1] ** 0.5).softmax(-1)
        return self.out_proj(torch.einsum("hcnij,jcnhd->icnhd", weights, v).reshape(rows, columns, batch, width))


def for_two_entries() -> Any:
    """Make a layer that takes as many entries as the example has."""
    layer = Layer(24, 4)

    def call(x: Any) -> Any:
        if x.shape[0] != 2:
            raise RuntimeError("made for two entries")
        return layer(x)

    return call, {"x": torch.randn(2, 6, 24)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("layer", "left"),
    [
        (WithMore, "`media_places`"), (OverRows, "the token axis of its input"),
        (PackedByStride, "which columns form"), (for_two_entries, "other "),
    ],
)  # fmt: skip
def test_what_nobody_can_know_is_not_verified(layer: Any, left: str) -> None:
    verdict = attn_exp.check(layer, quick=True)
    assert verdict.outcome == "not verified" and left in str(verdict), verdict


@pytest.mark.long
@pytest.mark.parametrize("word", ["nh", "n_attention_heads", "n"])
def test_the_number_of_heads_is_found_whatever_it_is_called(word: str) -> None:
    def init(self: Any, width: int, count: int) -> None:
        Layer.__init__(self, width, count)
        del self.heads
        self.other = 6
        setattr(self, word, count)

    methods: Methods = {"__init__": init, "split": lambda self, x: split(x, getattr(self, word))}
    torch.manual_seed(5)  # its matrices are its own, and small ones tell little of a scale
    assert attn_exp.check(changed(methods)(24, 4), quick=True).passed
    unscaled = changed(methods | {"score": lambda _, q, k: q @ k.mT})(24, 4)
    assert attn_exp.check(unscaled, quick=True).mistakes == ("no_scale",)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["bfloat16", "float64", "float16"])
def test_a_small_fill_is_named_in_every_type(kind: str) -> None:
    """Of logits up to 6, `e^-10` is lost in the last bit of a half type: the hidden keys must be far ahead."""

    def hides(fill: float) -> Any:
        def function(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
            logits = layers.logits(q, k)
            return (logits if mask is None else logits.masked_fill(~mask, fill)).softmax(-1) @ v

        return function

    assert attn_exp.check(hides(-10.0), f"dtype={kind}", "takes=torch", quick=True).mistakes == ("mask_small_fill",)
    assert attn_exp.check(hides(-6e4), f"dtype={kind}", "takes=torch", quick=True).passed


def unscaled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.transpose(-2, -1)).softmax(-1) @ v


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_function_is_read() -> None:
    assert attn_exp.check(torch.jit.script(unscaled)).mistakes == ("no_scale",)


def test_a_layer_in_float16_is_not_asked_about_numbers_that_it_cannot_hold() -> None:
    def layer(x: Any, W_q: Any, W_k: Any, W_v: Any) -> Any:
        return attend(x @ W_q, x @ W_k, x @ W_v)

    assert attn_exp.check(layer, "dtype=float16", "takes=torch").passed


# What only some numbers of heads, or only later tokens, show


class OfSlices(nn.Module):
    """One small projection for each head of every side; `sides` says which of them each side is made with."""

    def __init__(self, sides: str) -> None:
        super().__init__()
        self.sides, self.fc_out = sides, nn.Linear(24, 24)
        self.query, self.key, self.value = (nn.Linear(6, 6, bias=False) for _ in "qkv")

    def forward(self, x: Any) -> Any:
        made = {"q": self.query, "k": self.key, "v": self.value}
        return self.fc_out(merge(attend(*(made[side](x.unflatten(-1, (4, 6))).transpose(1, 2) for side in self.sides))))


class TiledHeads(nn.Module):
    """Right with the default, one key/value head."""

    def __init__(self, d_model: int = 24, num_heads: int = 4, num_kv_heads: int = 1) -> None:
        super().__init__()
        self.heads, self.groups, width = num_heads, num_kv_heads, d_model // num_heads * num_kv_heads
        self.q_proj, self.o_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.k_proj, self.v_proj = nn.Linear(d_model, width), nn.Linear(d_model, width)

    def forward(self, x: Any) -> Any:
        k, v = (split(side(x), self.groups).tile(1, self.heads // self.groups, 1, 1)
                for side in (self.k_proj, self.v_proj))  # fmt: skip
        return self.o_proj(merge(attend(split(self.q_proj(x), self.heads), k, v)))


def turned(x: Any) -> Any:
    """Rotate by angles that no table of the catalogue has."""
    (even, odd), angles = (x[..., ::2], x[..., 1::2]), torch.arange(x.shape[-2])[:, None] * 0.37
    return torch.stack(
        [even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()], -1
    ).flatten(-2)


def rotated(sides: str) -> Methods:
    def project(self: Any, x: Any) -> Any:
        made = zip("qkv", Layer.project(self, x), strict=True)
        return [turned(array) if side in sides else array for side, array in made]

    return {"project": project}


@pytest.mark.parametrize(
    ("layer", "outcome", "names"),
    [
        (OfSlices("qkv"), "right", ()),
        (OfSlices("qkk"), "wrong", ("values_from_keys",)),
        (TiledHeads, "wrong", ("kv_heads_tiled",)),
        (changed(rotated("kv"))(24, 4), "wrong", ("position_missing", "rope_on_values")),
    ],
)
def test_what_only_several_heads_or_later_tokens_show_is_named(
    layer: Any, outcome: str, names: tuple[str, ...]
) -> None:
    verdict = attn_exp.check(layer.double() if isinstance(layer, nn.Module) else layer, quick=True)
    assert (verdict.outcome, verdict.mistakes) == (outcome, names), verdict


@pytest.mark.long
def test_what_goes_wrong_only_with_many_tokens_is_not_excused() -> None:
    layer = changed({"merge": lambda self, context: (merge(context) if context.shape[2] <= 16 else context.flatten(1))
                     .reshape(len(context), -1, self.width)})  # fmt: skip
    assert attn_exp.check(layer).is_wrong
