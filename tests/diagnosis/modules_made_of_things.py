"""Right modules of PyTorch that want other things than numbers: dictionaries, classes of layers, flags, tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from argparse import Namespace
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn


def mixed(q: Tensor, k: Tensor, v: Tensor) -> Any:
    """Return attention of heads `[b h t d]`."""
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


class Packed(nn.Module):
    """What the others share: one layer makes q, k and v, another takes the heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.last = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def sides(self, x: Tensor) -> list[Tensor]:
        return [one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.first(x).chunk(3, -1)]

    def joined(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)

    def attend(self, x: Tensor) -> Any:
        return self.last(self.joined(mixed(*self.sides(x))))


class Plain(Packed):
    """It takes x alone."""

    def forward(self, x: Tensor) -> Any:
        return self.attend(x)


class OfDictionary(Plain):
    """All that it needs stands in a dictionary."""

    def __init__(self, opt: dict[str, Any]) -> None:
        super().__init__(opt["emb_dim"], opt["n_heads"])
        self.drop = nn.Dropout(opt.get("drop_rate", 0.1))
        self.act = opt["activation"]
        assert isinstance(opt["qkv_bias"], bool)


class OfKeywords(Plain):
    """It reads keywords one by one."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(kwargs["hidden_dim"], kwargs.get("num_heads", 4))
        self.drop = nn.Dropout(kwargs.pop("dropout"))


class OfNamespace(Plain):
    """Options of a command, some of which are asked for by `in` and by getattr."""

    def __init__(self, params: Namespace, layer: int) -> None:
        width = params.d_model if hasattr(params, "d_model") else 12
        super().__init__(width, params.nhead)
        if getattr(params, "use_extra_norm", False):
            raise NotImplementedError("extra norm")
        self.gate = {"relu": torch.relu, "gelu": nn.functional.gelu}[params.act_fn]
        self.kind = params.layers[layer]


@dataclass
class Inner:
    heads: int
    head_dim: int
    drop: float = 0.3


@dataclass
class Outer:
    width: int
    inner: Inner
    kind: str = "full"
    names: list[str] = field(default_factory=list)


class OfNestedDataclass(Plain):
    def __init__(self, settings: Outer) -> None:
        super().__init__(settings.width, settings.inner.heads)
        assert settings.width == settings.inner.heads * settings.inner.head_dim
        self.drop = nn.Dropout(settings.inner.drop)


class OfVideo(nn.Module):
    """Video, with three axes of places."""

    def __init__(self, planes: int, head_num: int) -> None:
        super().__init__()
        self.heads, self.first, self.last = head_num, nn.Conv3d(planes, 3 * planes, 1), nn.Conv3d(planes, planes, 1)

    def forward(self, x: Tensor) -> Any:
        b, c, t, h, w = x.shape
        q, k, v = (one.reshape(b, self.heads, -1, t * h * w).mT for one in self.first(x).chunk(3, 1))
        return self.last(mixed(q, k, v).mT.reshape(b, c, t, h, w))


class OfVideoLast(Packed):
    """The same with channels last."""

    def forward(self, x: Tensor) -> Any:
        return self.attend(x.flatten(1, 3)).reshape(x.shape)


class WithRotations(Packed):
    """It needs complex numbers that turn, one row for each place."""

    def turn(self, x: Tensor, freqs_cis: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        assert freqs_cis.shape == (x.shape[1], pairs.shape[-1])
        return torch.view_as_real(pairs * freqs_cis[None, :, None]).flatten(3)

    def forward(self, x: Tensor, start_pos: int, freqs_cis: Tensor, mask: Tensor | None) -> Any:
        q, k, v = self.sides(x)
        q, k = (self.turn(one.transpose(1, 2), freqs_cis).transpose(1, 2) for one in (q, k))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        return self.last(self.joined((scores if mask is None else scores + mask).softmax(-1) @ v))


class Turning(Packed):
    """It turns by tables of cosines and sines with an axis for heads, half as wide as a head."""

    axes = 4

    def turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        assert cos.ndim == sin.ndim == self.axes
        one, other = x.chunk(2, -1)
        return torch.cat([one * cos - other * sin, other * cos + one * sin], -1)

    def turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Any:
        q, k, v = self.sides(x)
        return self.last(self.joined(mixed(self.turn(q, cos, sin), self.turn(k, cos, sin), v)))


class WithTables(Turning):
    """They come as a pair."""

    def forward(self, x: Tensor, pe: tuple[Tensor, Tensor]) -> Any:
        return self.turned(x, *pe)


class WithTwoTables(Turning):
    """The same, as two keywords that it needs."""

    def forward(self, x: Tensor, *, rotary_cos: Tensor, rotary_sin: Tensor, **kwargs: Any) -> Any:
        return self.turned(x, rotary_cos, rotary_sin)


class WithKeywords(Packed):
    """All beside x are keywords, one of which it needs."""

    def forward(self, x: Tensor, *, attn_mask: Tensor, need_weights: bool, **kwargs: Any) -> Any:
        q, k, v = self.sides(x)
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~attn_mask, -torch.inf)
        out = self.last(self.joined(scores.softmax(-1) @ v))
        return (out, scores.softmax(-1)) if kwargs.get("with_weights") else out


class WithStars(Packed):
    """It takes what comes."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.attend(args[0])


class OnlyKeywords(Packed):
    """Nothing has a place."""

    def forward(self, **kwargs: Any) -> Any:
        return self.attend(kwargs["hidden_states"])


class NeverSet(nn.Module):
    """Its numbers are whatever lay in memory, and one buffer holds NaN until it is filled."""

    def __init__(self, d: int, h: int) -> None:
        super().__init__()
        self.h = h
        self.a, self.b, self.c = (nn.Parameter(torch.full((h, d, d // h), torch.nan)) for _ in range(3))
        self.d = nn.Parameter(torch.zeros(d, d))
        self.register_buffer("kept", torch.full((1,), torch.nan))

    def forward(self, x: Tensor) -> Any:
        q, k, v = (torch.einsum("btm,hmd->bhtd", x, one) for one in (self.a, self.b, self.c))
        return mixed(q, k, v).transpose(1, 2).flatten(2) @ self.d + self.kept


class MadeByCall(nn.Module):
    """Layers are made when the first input comes."""

    def __init__(self, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.made = heads, False

    def forward(self, x: Tensor) -> Any:
        if not self.made:
            self.first = nn.Linear(x.shape[-1], 3 * x.shape[-1]).to(x)
            self.last, self.made = nn.Linear(x.shape[-1], x.shape[-1]).to(x), True
        sides = [one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.first(x).chunk(3, -1)]
        return self.last(mixed(*sides).transpose(1, 2).flatten(2))


class UnlikeHeads(nn.Module):
    """Its heads have more numbers in values than in keys."""

    def __init__(self, in_dim: int, num_heads: int, qk_dim: int = 12, v_dim: int = 30) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q, self.k = nn.Linear(in_dim, qk_dim), nn.Linear(in_dim, qk_dim)
        self.v, self.o = nn.Linear(in_dim, v_dim), nn.Linear(v_dim, in_dim)

    def forward(self, x: Tensor) -> Any:
        q, k, v = (one(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for one in (self.q, self.k, self.v))
        return self.o(mixed(q, k, v).transpose(1, 2).flatten(2))


class Large(Plain):
    """It has sizes of its own, far more than a test would take."""

    def __init__(self, config: Any = None) -> None:
        super().__init__(512, 8)


class PartlyMade(Plain):
    """The class of its layers has a default."""

    def __init__(self, ch: int, num_head_channels: int, linear_cls: Any = nn.Linear) -> None:
        super().__init__(ch, ch // num_head_channels)
        self.first, self.last = linear_cls(ch, 3 * ch), linear_cls(ch, ch)


class OfShape(Plain):
    """It is told the shape of what comes."""

    def __init__(self, in_shape: tuple[int, int], heads: int) -> None:
        super().__init__(in_shape[-1], heads)


class OfLists(Plain):
    """One number for each of two levels."""

    def __init__(self, dims: list[int], n_heads: list[int], level: int) -> None:
        super().__init__(dims[level], n_heads[level])


class OfOthers(nn.Module):
    """The attention itself is another class of this file, which this one is given."""

    def __init__(self, attention_layer: nn.Module, d_model: int) -> None:
        super().__init__()
        self.attention_layer, self.norm = attention_layer, nn.LayerNorm(d_model)

    def forward(self, x: Tensor) -> Any:
        return x + self.attention_layer(self.norm(x))


class LastAsks(Packed):
    """Its last token alone asks."""

    def forward(self, x: Tensor) -> Any:
        q, k, v = self.sides(x)
        return self.last(self.joined(mixed(q[:, :, -1:], k, v)))


class OfSignals(nn.Module):
    """Convolutions along time, and keys of another signal that no name tells."""

    def __init__(self, n: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.a, self.b, self.c, self.d = (nn.Conv1d(n, n, 1) for _ in range(4))

    def forward(self, x: Tensor, g: Tensor) -> Any:
        sides = (self.a(x), self.b(g), self.c(g))
        q, k, v = (one.reshape(len(one), self.heads, -1, one.shape[-1]).mT for one in sides)
        return self.d(mixed(q, k, v).mT.flatten(1, 2))


class WithFlags(Packed):
    """Flags `[b t 1]` say what is a token; to change between training and use returns nothing."""

    def train(self, mode: bool = True) -> None:  # type: ignore[override] # as people forget it
        super().train(mode)

    def forward(self, x: Tensor, m: Tensor) -> Any:
        q, k, v = self.sides(x)
        hidden = (m[:, None] * m[:, :, None]).permute(0, 3, 1, 2) == 0
        weights = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(hidden, -1e30).softmax(-1)
        return self.last(self.joined(weights @ v)) * m


class SwitchedOff(Packed):
    """It begins as its own residual: what it adds is multiplied by 0."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.gamma = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Any:
        return x + self.gamma * self.attend(x)


@dataclass
class Settings:
    """What all settings have."""

    name: str = ""


class OwnSettings(Settings):
    """Those of one class: by keywords that it reads, with defaults that are far too large."""

    def __init__(self, width: int = 768, **kwargs: Any) -> None:
        super().__init__()
        self.width, self.count = width, kwargs.get("num_heads", 12)
        self.size = kwargs.get("head_dim", width // self.count)


class OfOwnSettings(Packed):
    def __init__(self, config: OwnSettings) -> None:
        assert config.size * config.count == config.width < 700
        super().__init__(config.width, config.count)

    def forward(self, x: Tensor) -> Any:
        return self.attend(x)


class Side(Enum):
    """What another parameter may be alone."""

    LEFT = 1
    RIGHT = 2


class OfScalars(Packed):
    """It is told by what queries are multiplied, and where logits are capped, if they are."""

    def __init__(self, dim: int, heads: int, query_scalar: float, soft_cap: float | None, side: Side) -> None:
        super().__init__(dim, heads)
        self.query_scalar, self.soft_cap, self.side = query_scalar, soft_cap, Side(side)

    def forward(self, x: Tensor) -> Any:
        q, k, v = self.sides(x)
        scores = q * self.query_scalar @ k.mT
        scores = scores if self.soft_cap is None else self.soft_cap * (scores / self.soft_cap).tanh()
        return self.last(self.joined(scores.softmax(-1) @ v))


class InWindows(Packed):
    """It takes images, and attends within windows of so many rows and columns."""

    def __init__(self, dim: int, heads: int, window_size: int) -> None:
        super().__init__(dim, heads)
        self.side = window_size

    def forward(self, x: Tensor) -> Any:
        batch, high, wide, width = x.shape
        shape = (batch, high // self.side, self.side, wide // self.side, self.side, width)
        parts = x.reshape(shape).transpose(2, 3).reshape(-1, self.side**2, width)
        return self.attend(parts).reshape(*shape[:2], shape[3], *shape[2:5:2], width).transpose(2, 3).reshape(x.shape)


class OfStates(Packed):
    """Keys and values are made of states, where positions are made of vectors: both are needed, and so is a mask."""

    def __init__(self, size: int, n_heads: int) -> None:
        super().__init__(size, n_heads)
        self.of_places = nn.Linear(size, size, bias=False)

    def forward(self, x: Tensor, states: Tensor, pos_embedding: Tensor, mask: Any) -> Any:
        q, k, v = (one(of)[..., part] for one, of, part in (
            (self.first, x, slice(x.shape[-1])), (self.first, states, slice(x.shape[-1], 2 * x.shape[-1])),
            (self.first, states, slice(2 * x.shape[-1], None))))  # fmt: skip
        k = k + self.of_places(pos_embedding).mean(1, keepdim=True).expand(len(x), 1, -1)
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (q, k, v))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        assert pos_embedding.shape == x.shape
        scores = scores if mask is None else scores.masked_fill(mask == 0, -torch.inf)
        return self.last(self.joined(scores.softmax(-1) @ v))


class InSingle(Plain):
    """It takes float32 alone."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)

    def forward(self, x: Tensor) -> Any:
        assert x.dtype == torch.float32
        return super().forward(x)


class OfItsOwnSizes(Plain):
    """Its sizes are its own, and so is the number of tokens."""

    def __init__(self) -> None:
        super().__init__(40, 2)
        self.register_buffer("seen", torch.ones(11, 11))

    def forward(self, x: Tensor) -> Any:
        q, k, v = self.sides(x)
        return self.last(self.joined((q @ k.mT / q.shape[-1] ** 0.5 * self.seen).softmax(-1) @ v))


class HiddenName(Plain):
    """Its configuration has a name that Python writes otherwise within a class."""

    def __init__(self, __C: Any) -> None:
        self.__C = __C
        super().__init__(__C.HIDDEN_SIZE, __C.MULTI_HEAD)
        self.drop = nn.Dropout(__C.DROPOUT_R)


class WithTypesForDefaults(Plain):
    """Types stand where its notes should."""

    def __init__(self, d_model=int, h=int, dropout=float) -> None:  # type: ignore[no-untyped-def]
        super().__init__(d_model, h)
        self.drop = nn.Dropout(dropout)


class Hiding(Enum):
    """What a mask is for."""

    PADDING = 1
    NOTHING = 2


class OfMembers(Plain):
    """It is told its kind of masks without a note, by the name of the kind or by another one."""

    def __init__(self, width: int, heads: int, hiding, other) -> None:  # type: ignore[no-untyped-def]
        super().__init__(width, heads)
        self.hiding, self.other = hiding, other

    def forward(self, x: Tensor) -> Any:
        for one in (self.hiding, self.other):
            if one == Hiding["PADDING"]:
                said = super().forward(x)
            elif one == Hiding.NOTHING:
                said = super().forward(x) * 1.0
        return said


class NotOne(Packed):
    """Its default is what it refuses."""

    def __init__(self, dim: int, num_heads: int = 8, ws: int = 1) -> None:
        assert ws != 1
        super().__init__(dim, num_heads)
        self.ws = ws

    def forward(self, x: Tensor, H: int, W: int) -> Any:
        size = self.ws
        rows = x.reshape(len(x), H // size, size, W // size, size, -1).transpose(2, 3)
        said = self.attend(rows.flatten(3, 4).flatten(0, 2)).reshape(rows.shape)
        return said.transpose(2, 3).reshape(x.shape)


class OfKeyNumbers(Packed):
    """It needs a mask of keys in numbers, `[b s]`, and refuses one of True and False."""

    def forward(self, x: Tensor, mask: Tensor) -> Any:
        q, k, v = self.sides(x)
        hidden = 1 - mask.unsqueeze(1).unsqueeze(1).expand(-1, self.heads, x.shape[1], -1)
        return self.last(self.joined((q @ k.mT / q.shape[-1] ** 0.5 - 1e30 * hidden).softmax(-1) @ v))


batch_size, seq_len, d_model, n_heads = 8, 320, 512, 8
d_k = d_model // n_heads


class OfItsFile(Packed):
    """All of its sizes stand above it, those of a call too."""

    def __init__(self) -> None:
        super().__init__(d_model, n_heads)

    def forward(self, x: Tensor) -> Any:
        parts = [one.view(batch_size, seq_len, n_heads, d_k).transpose(1, 2) for one in self.first(x).chunk(3, -1)]
        return self.last(mixed(*parts).transpose(1, 2).contiguous().view(batch_size, seq_len, d_model))


hidden_dim, num_heads = 64, 4
rate = (hidden_dim // num_heads) ** -0.5


class OfAScaleOfItsFile(Packed):
    """What its file makes of sizes belongs to those sizes."""

    def __init__(self) -> None:
        super().__init__(hidden_dim, num_heads)

    def forward(self, x: Tensor) -> Any:
        q, k, v = self.sides(x)
        return self.last(self.joined((q @ k.mT * rate).softmax(-1) @ v))


class OfLetters(nn.Module):
    """Keeps sizes of its settings, which only the shapes of its matrices tell."""

    def __init__(self, hps: Any) -> None:
        super().__init__()
        self.H, self.M, self.K, self.V = hps.H, hps.M, hps.K, hps.V
        self.q, self.k = (nn.Parameter(torch.randn([self.H, self.M, self.K])) for _ in "qk")
        self.v = nn.Parameter(torch.randn([self.H, self.M, self.V]))
        self.o = nn.Parameter(torch.randn([self.H, self.V, self.M]))

    def forward(self, x: Any) -> Any:
        q, k, v = (torch.einsum("btm,hmd->bhtd", x, side) for side in (self.q, self.k, self.v))
        weights = (q @ k.mT / self.K**0.5).softmax(-1)
        return torch.einsum("bhtd,hdm->btm", weights @ v, self.o)


class OfHeadsOfOneSize(Plain):
    """Its heads have 64 numbers each, whatever its width, and so its scores are scaled."""

    def __init__(self, d_model: int) -> None:
        size = 64
        super().__init__(d_model, d_model // size)
        self.rate = size**-0.5

    def attend(self, x: Tensor) -> Any:
        q, k, v = self.sides(x)
        return self.last(self.joined((q @ k.mT * self.rate).softmax(-1) @ v))


def heads_of_192(width: int) -> int:
    """Return how many heads of 192 numbers a width has."""
    if width % 192:
        raise ValueError(f"the width must be a multiple of 192, not {width}")
    return width // 192


class OfAMultiple(Plain):
    """An error alone says what its width is a multiple of."""

    def __init__(self, width: int) -> None:
        super().__init__(width, heads_of_192(width))


class Unmade(ABC):
    """Settings of which nothing can be made: those of others say how they are read."""

    @abstractmethod
    def read(self) -> None: ...


class OfAbstractSettings(Plain):
    def __init__(self, config: Unmade) -> None:
        super().__init__(config.embed_dim, config.num_heads)  # type: ignore[attr-defined]


class OfASwitchOfItsSettings(Plain):
    """Its settings have a switch for the scale, and one for another that nobody needs."""

    def __init__(self, config: Any) -> None:
        super().__init__(config.hidden_size, config.num_attention_heads)
        self.scale_attn_weights, self.by_index = config.scale_attn_weights, config.scale_attn_by_inverse_layer_idx

    def attend(self, x: Tensor) -> Any:
        q, k, v = self.sides(x)
        scores = q @ k.mT
        if self.scale_attn_weights:
            scores = scores / q.shape[-1] ** 0.5
        if self.by_index:
            scores = scores / 2.0
        return self.last(self.joined(scores.softmax(-1) @ v))


class OfASwitch(Plain):
    """It has a switch for the scale, which is off by default."""

    def __init__(self, dim: int, heads: int, scaling: bool = False) -> None:
        super().__init__(dim, heads)
        self.scaling = scaling

    def attend(self, x: Tensor) -> Any:
        q, k, v = self.sides(x)
        return self.last(self.joined((q @ k.mT / (q.shape[-1] ** 0.5 if self.scaling else 1.0)).softmax(-1) @ v))


class MixingAttention(nn.Module):
    """What mixes values, as a layer of its own."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Any:
        return mixed(q, k, v)


class OfTheClassOfAnother(Plain):
    """It makes a layer of the class that it is given."""

    def __init__(self, dim: int, heads: int, attention_head: Any) -> None:
        super().__init__(dim, heads)
        self.mixing = attention_head()

    def attend(self, x: Tensor) -> Any:
        return self.last(self.joined(self.mixing(*self.sides(x))))
