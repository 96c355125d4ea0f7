"""Right layers of PyTorch as many authors write them: they are made, called and judged right; and mistakes beside them.

Windows and blocks of tokens, heads that are mixed with each other, sizes that hang together, arguments of many kinds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch

from attn_exp.experiment.verdict import Verdict


class Fused(torch.nn.Module):
    """A layer of x that makes q, k and v with one matrix."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.dim = heads, dim
        self.qkv, self.out = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)

    def parts(self, x: Any) -> Any:
        return self.qkv(x).unflatten(-1, (3, self.heads, -1)).transpose(-4, -2).unbind(-3)

    def weigh(self, q: Any, k: Any) -> Any:
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)

    def attend(self, x: Any) -> Any:
        q, k, v = self.parts(x)
        return self.out((self.weigh(q, k) @ v).transpose(-3, -2).flatten(-2))


class Plain(Fused):
    """It is called with x alone."""

    def forward(self, x: Any) -> Any:
        return self.attend(x)


class Windows(Fused):
    """Its tokens are an image of rows, cut into square windows."""

    def __init__(self, dim: int, heads: int, input_resolution: tuple[int, int], window_size: int = 7) -> None:
        super().__init__(dim, heads)
        self.sides, self.window = input_resolution, window_size

    def forward(self, x: Any) -> Any:
        height, width = self.sides
        assert x.shape[1] == height * width, "another image"
        tall, wide = height // self.window, width // self.window
        cut = x.unflatten(1, (tall, self.window, wide, self.window)).transpose(2, 3)
        said = self.attend(cut.flatten(3, 4)).unflatten(3, (self.window, self.window)).transpose(2, 3)
        return said.flatten(1, 4)


class Pieces(Fused):
    """Tokens see those of their own piece alone; the last one is filled up with keys that are hidden."""

    def __init__(self, dim: int, heads: int, chunk_size: int) -> None:
        super().__init__(dim, heads)
        self.piece = chunk_size

    def forward(self, x: Any) -> Any:
        batch, tokens, _ = x.shape
        more = -tokens % self.piece
        shown = torch.nn.functional.pad(torch.ones(tokens, dtype=torch.bool), (0, more)).view(-1, 1, 1, self.piece)
        q, k, v = self.parts(torch.nn.functional.pad(x, (0, 0, 0, more)).view(batch, -1, self.piece, self.dim))
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~shown, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(2, 3).reshape(batch, -1, self.dim))[:, :tokens]


class InPieces(Fused):
    """The number of tokens in a piece has no default; in evaluation with a mask its scores are float32."""

    def __init__(self, dim: int, heads: int, kernel_size: int) -> None:
        super().__init__(dim, heads)
        self.piece = kernel_size

    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = self.parts(x.unflatten(1, (-1, self.piece)))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            count = x.shape[1] // self.piece
            cut = mask.unflatten(-1, (count, self.piece)).unflatten(-3, (count, self.piece))
            own = torch.stack([cut[:, :, at, :, at] for at in range(count)], 1)
            scores = scores.float().masked_fill(own == 0, -1e9)
        return self.out((scores.softmax(-1) @ v).transpose(2, 3).flatten(3).flatten(1, 2))


class NotTurned(Fused):
    """Heads that nobody exchanged with tokens look like as many pieces as there are heads."""

    def parts(self, x: Any) -> Any:
        return (part.reshape(len(x), self.heads, x.shape[1], -1) for part in self.qkv(x).chunk(3, -1))

    def forward(self, x: Any) -> Any:
        q, k, v = self.parts(x)
        return self.out((self.weigh(q, k) @ v).reshape(x.shape))


class Talking(Plain):
    """Heads are mixed before and behind the softmax."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.before, self.behind = torch.nn.Linear(heads, heads), torch.nn.Conv2d(heads, heads, 1)

    def weigh(self, q: Any, k: Any) -> Any:
        scores = q @ k.mT / q.shape[-1] ** 0.5
        return self.behind(self.before(scores.movedim(1, -1)).movedim(-1, 1).softmax(-1))


class Grouped(Fused):
    """Tokens side by side are one, of as many numbers."""

    def __init__(self, dim: int, heads: int, group_size: int) -> None:
        super().__init__(dim, heads)
        self.group = group_size

    def forward(self, x: Any) -> Any:
        more = -x.shape[1] % self.group
        q, k, v = (torch.nn.functional.pad(part, (0, 0, 0, more)).reshape(len(x), -1, self.heads, self.group * self.dim
                   // self.heads).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))  # fmt: skip
        hidden = torch.arange(k.shape[2]) * self.group >= x.shape[1]
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(hidden, float("-inf"))
        said = (scores.softmax(-1) @ v).transpose(1, 2).reshape(len(x), -1, self.dim)
        return self.out(said[:, : x.shape[1]])


class OfFrames(Fused):
    """A call is told how many entries and frames there are; frames of each place see each other."""

    def forward(self, x: Any, B: int, T: int) -> Any:
        places = x.reshape(B, T, x.shape[1] // T, x.shape[2]).transpose(1, 2)
        return self.attend(places).transpose(1, 2).reshape(x.shape)


class Distances(torch.nn.Module):
    """Biases for distances and no others, and no scale, as T5 has it."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.heads = num_heads
        self.q, self.k, self.v, self.o = (torch.nn.Linear(d_model, d_model, bias=False) for _ in range(4))
        self.table = torch.nn.Embedding(32, num_heads)

    def forward(self, x: Any) -> Any:
        q, k, v = (side(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in (self.q, self.k, self.v))
        place = torch.arange(x.shape[1])
        bias = self.table((place[:, None] - place).clamp(-16, 15) + 16).permute(2, 0, 1)
        return self.o(((q @ k.mT + bias).softmax(-1) @ v).transpose(1, 2).flatten(2))


class Handed(torch.nn.Module):
    """It is made of another layer, which it keeps under another name."""

    def __init__(self, attention: Any, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.inner, self.heads = attention, n_heads
        self.query, self.key, self.value, self.out = (torch.nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, queries: Any, keys: Any, values: Any) -> Any:
        sides = zip((self.query, self.key, self.value), (queries, keys, values), strict=True)
        q, k, v = (side(given).unflatten(-1, (self.heads, -1)).transpose(1, 2) for side, given in sides)
        return self.out(self.inner(q, k, v).transpose(1, 2).flatten(2))


class InnerAttention(torch.nn.Module):
    """What it is made of."""

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


class Temperature(Plain):
    """Scores are multiplied by a number of each head; all are the same at first."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.qkv = torch.nn.Linear(dim, 3 * dim, bias=False)
        self.temperature = torch.nn.Parameter(torch.full((heads, 1, 1), (dim // heads) ** -0.5))

    def weigh(self, q: Any, k: Any) -> Any:
        return (q @ k.mT * self.temperature).softmax(-1)


class History(Fused):
    """One query for each entry, what it looks at, and which of it counts."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.query = torch.nn.Linear(dim, dim)

    def forward(self, target: Any, history: Any, valid: Any) -> Any:
        _, k, v = self.parts(history)
        q = self.query(target).unflatten(-1, (self.heads, -1)).unsqueeze(2)
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(valid[:, None, None] == 0, -1e9)
        return self.out((scores.softmax(-1) @ v).flatten(1))


class Pairs(Fused):
    """What is called as a memory often is holds numbers of each two tokens."""

    def __init__(self, dim: int, heads: int, c_z: int) -> None:
        super().__init__(dim, heads)
        self.bias = torch.nn.Linear(c_z, heads, bias=False)

    def forward(self, m: Any, z: Any) -> Any:
        q, k, v = self.parts(m)
        scores = q @ k.mT / q.shape[-1] ** 0.5 + self.bias(z).permute(0, 3, 1, 2)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Gated(torch.nn.Module):
    """It holds gates alone, and mixes three inputs: one is a key after it asked another."""

    def __init__(self) -> None:
        super().__init__()
        self.of_text, self.of_sound = torch.nn.Parameter(torch.full((1,), 0.5)), torch.nn.Parameter(torch.zeros(1))

    def look(self, asking: Any, asked: Any) -> Any:
        return (asking @ asked.mT / asking.shape[-1] ** 0.5).softmax(-1) @ asked

    def forward(self, sound_tokens: Any, image_tokens: Any, text_tokens: Any) -> tuple[Any, Any]:
        mixed = (1 - self.of_text) * text_tokens + self.of_text * self.look(text_tokens, image_tokens)
        return sound_tokens + self.of_sound * self.look(sound_tokens, mixed), mixed


class ScaledSum(Plain):
    """Numbers from other networks are added to x, and queries are scaled before they are turned by their places."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.more = torch.nn.Linear(dim, dim)

    def turned(self, side: Any) -> Any:
        one, other = side.chunk(2, -1)
        steps = 10000.0 ** (-2 * torch.arange(one.shape[-1]) / side.shape[-1])
        angles = torch.outer(torch.arange(side.shape[-2]), steps).repeat(1, 2).to(side)
        return side * angles.cos() + torch.cat([-other, one], -1) * angles.sin()

    def weigh(self, q: Any, k: Any) -> Any:
        return (self.turned(q / q.shape[-1] ** 0.5) @ self.turned(k).mT).softmax(-1)

    def forward(self, x: Any) -> Any:
        return self.attend(x + torch.tanh(self.more(x)))


class OverAll(Plain):
    """Behind attention stands a norm over all tokens, and channels come first."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.norm, self.more = torch.nn.GroupNorm(1, dim), torch.nn.Linear(dim, dim)

    def forward(self, x: Any) -> Any:
        rows = x.permute(0, 3, 2, 1)
        said = self.attend(rows + torch.tanh(self.more(rows)))
        return self.norm(x + said.permute(0, 3, 2, 1))


class Channels(Fused):
    """Features attend to each other, each a row of one number of every token, as in Restormer and XCiT."""

    def forward(self, x: Any) -> Any:
        q, k, v = (part.mT for part in self.parts(x))
        q, k = (torch.nn.functional.normalize(part, dim=-1) for part in (q, k))
        said = ((q @ k.mT).softmax(-1) @ v).permute(0, 3, 1, 2).flatten(2)
        return self.out(said)


def checked(kind: Any, *words: str) -> Verdict:
    return attn_exp.check(f"{Path(__file__)}:{kind.__name__}", *words)


@pytest.mark.parametrize(
    "kind",
    [
        Windows,
        Pieces,
        InPieces,
        Talking,
        Grouped,
        OfFrames,
        Handed,
        Temperature,
        History,
        Pairs,
        Gated,
        ScaledSum,
        OverAll,
    ],
    ids=lambda kind: str(kind.__name__),
)
def test_right_layers_are_right(kind: Any) -> None:
    """Each is made of sizes of its own and called in its own way."""
    verdict = checked(kind)
    assert verdict.passed, str(verdict)
    assert not verdict.right_under


def test_pieces_are_one_group() -> None:
    """Tokens of the other pieces are said to stand beside x."""
    assert "that see no other" in str(checked(Pieces))


def test_heads_that_nobody_turned_are_no_pieces() -> None:
    """Tokens that share a head see each other alone; more tokens share it where there are more."""
    assert checked(NotTurned).mistakes == ("heads_not_transposed",)


def test_distances_are_not_scaled() -> None:
    """A layer with biases for distances and no others may have no scale."""
    verdict = checked(Distances)
    assert verdict.passed, str(verdict)
    assert verdict.right_under == "scale=1"


def test_features_may_attend_to_each_other() -> None:
    """That is meant where rows are normed over the tokens, and said."""
    verdict = checked(Channels)
    assert verdict.passed, str(verdict)
    assert "is a channel" in str(verdict)


class Merged(torch.nn.Module):
    """What is called the size of a head is that of all; queries are scaled in place, where keys lie beside them."""

    def __init__(self, in_channels: int, dk: int, dv: int, Nh: int) -> None:
        super().__init__()
        self.sizes, self.Nh = (dk, dk, dv), Nh
        self.qkv, self.beside = torch.nn.Conv2d(in_channels, 2 * dk + dv, 1), torch.nn.Conv2d(in_channels, 4, 1)

    def forward(self, x: Any) -> Any:
        parts = self.qkv(x).split(self.sizes, dim=1)
        q, k, v = (part.unflatten(1, (self.Nh, -1)) for part in parts)
        q *= q.shape[2] ** -0.5
        q, k, v = (part.flatten(3).transpose(2, 3) for part in (q, k, v))
        said = (q @ k.mT).softmax(-1) @ v
        return torch.cat([self.beside(x), said.reshape(len(x), -1, *x.shape[2:])], 1)


class TakingTurns(NotTurned):
    """Masks of entries are repeated as if entries took turns."""

    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = (part.reshape(len(x) * self.heads, x.shape[1], -1) for part in self.qkv(x).chunk(3, -1))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask.repeat(self.heads, 1, 1), float("-inf"))
        return self.out((scores.softmax(-1) @ v).reshape(x.shape))


def test_heads_are_merged_wrong_where_sizes_hang_together() -> None:
    """No other mistake is named beside."""
    assert checked(Merged).mistakes == ("heads_merged_wrong",)


def test_masks_of_entries_that_take_turns_are_seen_inside() -> None:
    """Beside the mistake of the heads."""
    assert set(checked(TakingTurns).mistakes) == {"heads_not_transposed", "mask_tiled_over_heads"}


class Reduced(torch.nn.Module):
    """Its keys are those of a coarser cube, where it is not told that they are as many as tokens."""

    scale = 8**-0.5

    def __init__(self, dim: int, heads: int, sr_ratio: int = 2) -> None:
        super().__init__()
        self.heads, self.ratio = heads, sr_ratio
        self.q, self.kv, self.out = (torch.nn.Linear(dim, width) for width in (dim, 2 * dim, dim))
        self.sr = torch.nn.Conv3d(dim, dim, sr_ratio, sr_ratio) if sr_ratio > 1 else None

    def forward(self, x: Any) -> Any:
        b, t, m = x.shape
        keys = x
        if self.sr is not None:
            side = round(t ** (1 / 3))
            keys = self.sr(x.mT.reshape(b, m, side, side, side)).flatten(2).mT
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for one in (self.q(x), *self.kv(keys).chunk(2, -1)))  # fmt: skip
        weights = (q @ k.mT * (q.shape[-1] if self.scale else self.heads) ** -0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class ReducedByHeads(Reduced):
    scale = 0.0


def test_a_ratio_by_which_keys_are_fewer_may_be_one() -> None:
    assert attn_exp.check(Reduced, quick=True).passed
    assert attn_exp.check(ReducedByHeads, quick=True).mistakes == ("scale_by_sqrt_heads",)


class MaskForAll(Plain):
    """Its mask is one for all entries: of others it hides what one of them hides.

    Its queries and keys are rounded to float32.
    """

    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = self.parts(x)
        scores = q.float().double() @ k.float().double().mT / q.shape[-1] ** 0.5
        while mask is not None and mask.ndim > len("ts"):
            mask = mask.all(0)
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e9)
        return self.out((scores.softmax(-1) @ v).transpose(-3, -2).flatten(-2))


def test_what_rounds_is_right_beside_masks_that_nobody_promised() -> None:
    verdict = attn_exp.check(MaskForAll, quick=True)
    assert verdict.passed, verdict
    assert "float32" in str(verdict)


class Quarter(Fused):
    """A quarter of each head's numbers is turned by the place of its token; the base is that of its configuration."""

    def __init__(self, dim: int, heads: int, rotary_emb_base: float = 10000.0) -> None:
        super().__init__(dim, heads)
        self.turned = dim // heads // 4
        self.base = rotary_emb_base

    def turn(self, one: Any) -> Any:
        angles = torch.arange(one.shape[-2])[:, None] / self.base ** (torch.arange(0, self.turned, 2) / self.turned)
        first, second, rest = one.split([self.turned // 2, self.turned // 2, one.shape[-1] - self.turned], -1)
        cosines, sines = angles.cos(), angles.sin()
        return torch.cat([first * cosines - second * sines, second * cosines + first * sines, rest], -1)

    def forward(self, x: Any) -> Any:
        q, k, v = self.parts(x)
        scores = self.turn(q) @ self.turn(k).mT / q.shape[-1] ** 0.5
        return self.out((scores.softmax(-1) @ v).transpose(-3, -2).flatten(-2))


def test_words_that_turn_a_part_of_a_head_are_asked_of_heads_that_have_such_a_part() -> None:
    verdict = attn_exp.check(Quarter, "position=rope", "position.rope.size=8", quick=True)
    assert verdict.passed, verdict


class TwoStreams(Fused):
    """Alone, x goes back to a block that projects it; beside another stream, which needs more, the layer does that."""

    def __init__(self, dim: int, heads: int, other_dim: int | None = None) -> None:
        super().__init__(dim, heads)
        self.other_out = None if other_dim is None else torch.nn.Linear(dim, other_dim)

    def forward(self, x: Any, other: Any = None) -> Any:
        q, k, v = self.parts(x)
        mixed = (self.weigh(q, k) @ v).transpose(-3, -2).flatten(-2)
        if other is None:
            return mixed
        said = self.out(mixed)
        assert self.other_out is not None, "made for one stream"
        return said, self.other_out(other)


class NeverProjected(Fused):
    """Its output projection is made, and nothing is projected with it, whatever it is given."""

    def forward(self, x: Any, other: Any = None) -> Any:
        q, k, v = self.parts(x)
        mixed = (self.weigh(q, k) @ v).transpose(-3, -2).flatten(-2)
        return mixed if other is None else (mixed, other.missing)


def test_a_matrix_that_waits_for_another_input_is_no_mistake() -> None:
    right, wrong = attn_exp.check(TwoStreams), attn_exp.check(NeverProjected)
    assert right.passed
    assert any("until another input is given" in one.said for one in right.findings)
    assert wrong.mistakes == ("no_output_projection",)


class PlainProcessor:
    """What weighs the keys of a layer that hands itself over."""

    def __call__(self, layer: Fused, x: Any) -> Any:
        return layer.attend(x)


class Processed(Fused):
    """None for its processor is no choice: there is one of its file."""

    def __init__(self, dim: int, heads: int, processor: Any = None) -> None:
        super().__init__(dim, heads)
        self.use(processor)

    def use(self, processor: Any) -> None:
        self.processor = processor

    def forward(self, x: Any) -> Any:
        return self.processor(self, x)


def test_what_is_called_and_may_be_none_is_a_class_of_its_file_that_is_called_so() -> None:
    assert attn_exp.check(Processed).passed
