"""Layers of PyTorch with several mistakes at once, each of which is named."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import attn_exp  # noqa: E402
from tests.diagnosis.test_inner import Distances, Slopes  # noqa: E402


class Plain(nn.Module):
    """A right layer with a word for a mask, whose parts are bent below."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, dim // heads
        self.queries, self.keys, self.values = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)

    def cut(self, x: Any) -> Any:
        return x.unflatten(-1, (self.heads, self.size)).transpose(1, 2)

    def scaled(self, scores: Any) -> Any:
        return scores / self.size**0.5

    def hidden(self, scores: Any, mask: Any) -> Any:
        return scores if mask is None else scores.masked_fill(mask == 0, float("-inf"))

    def shares(self, scores: Any, mask: Any) -> Any:
        return self.hidden(scores, mask).softmax(-1)

    def sides(self, x: Any) -> Any:
        return self.queries(x), self.keys(x), self.values(x)

    def joined(self, context: Any) -> Any:
        return self.out(context.transpose(1, 2).flatten(2))

    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = map(self.cut, self.sides(x))
        return self.joined(self.shares(self.scaled(q @ k.mT), mask) @ v)


class Causal(Plain):
    """It is causal by itself, and takes no mask."""

    first = 1
    """The first key behind a query that it does not see."""

    def hidden(self, scores: Any, mask: Any) -> Any:
        return scores.masked_fill(torch.ones_like(scores).triu(self.first).bool(), float("-inf"))

    def forward(self, x: Any) -> Any:  # type: ignore[override]  # it takes no mask
        return super().forward(x)


class CausalOverHeads(Causal):
    """What everybody hides has no share: a softmax over heads gives no number there."""

    def scaled(self, scores: Any) -> Any:
        return scores

    def shares(self, scores: Any, mask: Any) -> Any:
        return self.hidden(scores, mask).softmax(1)


class StrictOfQueries(Causal):
    """The first query sees nothing, and keys are made of queries."""

    first = 0

    def sides(self, x: Any) -> Any:
        return self.queries(x), self.queries(x), self.values(x)


class HiddenLate(Causal):
    """Its causal mask is put on the weights, and values are the keys."""

    def sides(self, x: Any) -> Any:
        return self.queries(x), self.keys(x), self.keys(x)

    def shares(self, scores: Any, mask: Any) -> Any:
        return self.hidden(scores.softmax(-1), mask).nan_to_num(neginf=0.0)


class OfCopies(Plain):
    """Its matrices start as copies of one, and have no name of their own; values are the keys."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        del self.queries, self.keys, self.values, self.out
        self.linears = nn.ModuleList(copy.deepcopy(nn.Linear(dim, dim)) for _ in range(1))
        self.linears.extend(copy.deepcopy(self.linears[0]) for _ in range(3))

    def sides(self, x: Any) -> Any:
        return self.linears[0](x), self.linears[1](x), self.linears[1](x)

    def scaled(self, scores: Any) -> Any:
        return scores

    def joined(self, context: Any) -> Any:
        return self.linears[3](context.transpose(1, 2).flatten(2))


class KeysOfCopies(OfCopies):
    """Keys are made with the matrix of the queries, from an input of their own."""

    def sides(self, x: Any) -> Any:
        return self.linears[0](x), self.linears[0](x), self.linears[2](x)

    def shares(self, scores: Any, mask: Any) -> Any:
        return super().shares(scores, mask) / 2


class LastOfCopies(OfCopies):
    """The last of its matrices is never used."""

    def sides(self, x: Any) -> Any:
        return [self.linears[place](x) for place in range(3)]

    def scaled(self, scores: Any) -> Any:
        return scores / self.size**0.5

    def joined(self, context: Any) -> Any:
        return context.transpose(1, 2).flatten(2)


class NeverJoined(Plain):
    """Attention runs over the heads of one token, and the last matrix is never used."""

    def cut(self, x: Any) -> Any:
        return x.unflatten(-1, (self.heads, self.size))

    def joined(self, context: Any) -> Any:
        return context.flatten(2)


class LateByModel(Plain):
    """The weights are divided by the root of the model's size."""

    def scaled(self, scores: Any) -> Any:
        return scores

    def shares(self, scores: Any, mask: Any) -> Any:
        return super().shares(scores, mask) / (self.heads * self.size) ** 0.5


class OnQueries(Plain):
    """A padding hides queries, and the scale is that of the model."""

    def scaled(self, scores: Any) -> Any:
        return scores / (self.heads * self.size) ** 0.5

    def forward(self, x: Any, pad_mask: Any = None) -> Any:
        return super().forward(x, None if pad_mask is None else pad_mask[:, None, :, None])

    def hidden(self, scores: Any, mask: Any) -> Any:
        return scores if mask is None else scores.masked_fill(mask == 0, -1e18)


class Block(nn.Module):
    """A block whose attention has a softmax over the heads; what stands around it is set aside to read its matrices."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.inner, self.norm = self.Kind(dim, heads), nn.LayerNorm(dim)
        self.more = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, x: Any, mask: Any = None) -> Any:
        x = self.norm(x + self.inner(x, mask))
        return self.norm(x + self.more(x))

    class Kind(Plain):
        def shares(self, scores: Any, mask: Any) -> Any:
            return self.hidden(scores, mask).softmax(1)

        def hidden(self, scores: Any, mask: Any) -> Any:
            return scores if mask is None else scores.masked_fill(mask == 0, -1e10)


class BlockOfChance(Block):
    """Weights are dropped in evaluation too."""

    class Kind(Plain):
        def shares(self, scores: Any, mask: Any) -> Any:
            return nn.functional.dropout(super().shares(scores, mask), 0.2)


class Switched(Plain):
    """A word of its class says that it is causal, and then the mask is put on the weights."""

    def __init__(self, dim: int, heads: int, mask: bool = False) -> None:
        super().__init__(dim, heads)
        self.mask = mask

    def shares(self, scores: Any, mask: Any) -> Any:
        late = torch.ones_like(scores).triu(1).bool() & torch.tensor(self.mask)
        return scores.softmax(-1).masked_fill(late, 0.0)

    def forward(self, x: Any) -> Any:  # type: ignore[override]  # it takes no mask
        return super().forward(x)


class OnePerToken(Plain):
    """Tokens and heads are exchanged twice: there is a softmax for each token, over its heads, turned by places."""

    def cut(self, x: Any) -> Any:
        turned = x.reshape(len(x), self.heads, -1, self.size)
        angles = torch.arange(turned.shape[2])[:, None] / torch.arange(1, self.size // 2 + 1)
        first, second = turned.chunk(2, -1)
        turned = [first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()]
        return torch.cat(turned, -1).transpose(1, 2)

    def joined(self, context: Any) -> Any:
        return self.out(context.transpose(1, 2).reshape(len(context), context.shape[1], -1))


@pytest.mark.parametrize(
    ("layer", "names"),
    [
        (CausalOverHeads, {"no_scale", "softmax_over_heads"}),
        (StrictOfQueries, {"causal_strict", "keys_from_queries"}),
        (HiddenLate, {"mask_after_softmax", "values_from_keys"}),
        (OfCopies, {"no_scale", "values_from_keys"}),
        (KeysOfCopies, {"keys_from_queries", "scale_after_softmax"}),
        (LastOfCopies, {"no_output_projection"}),
        (NeverJoined, {"heads_not_transposed", "no_output_projection"}),
        (LateByModel, {"scale_after_softmax", "scale_by_sqrt_d_model"}),
        (OnQueries, {"padding_on_queries", "scale_by_sqrt_d_model"}),
        (Block, {"softmax_over_heads"}),
        (BlockOfChance, {"dropout_on"}),
        (Switched, {"mask_after_softmax"}),
        (OnePerToken, {"heads_not_transposed"}),
    ],
)
def test_each_of_several_mistakes_is_named(layer: type[nn.Module], names: set[str]) -> None:
    torch.manual_seed(5)
    verdict = attn_exp.check(layer, quick=True)
    assert set(verdict.mistakes) == names and not verdict.passed, verdict


@pytest.mark.parametrize("seed", [3, 10, 31])
@pytest.mark.parametrize("layer", [Slopes, Distances])
def test_what_is_added_to_scores_is_not_taken_for_keys_of_another_entry(layer: type[nn.Module], seed: int) -> None:
    torch.manual_seed(seed)
    assert attn_exp.check(layer(24, 3), quick=True).passed


def test_plain_layers_bent_above_are_right() -> None:
    assert attn_exp.check(Plain, quick=True).passed
    assert attn_exp.check(Causal, quick=True).right_under == "mask=causal"


class Packed(nn.Module):
    """One matrix makes q, k and v, of x that is normed; x is added to the answer, and tokens see no later ones."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = heads, dim // heads
        self.norm, self.qkv, self.out = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def parts(self, x: Any) -> Any:
        return self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)

    def shares(self, scores: Any) -> Any:
        later = torch.ones_like(scores).triu(1).bool()
        return (scores / self.head_dim**0.5).masked_fill(later, float("-inf")).softmax(-1)

    def joined(self, context: Any) -> Any:
        return context.transpose(1, 2).flatten(2)

    def forward(self, x: Any) -> Any:
        q, k, v = self.parts(self.norm(x))
        return x + self.out(self.joined(self.shares(q @ k.mT) @ v))


class PackedQueriesMixed(Packed):
    def parts(self, x: Any) -> Any:
        q, k, _ = super().parts(x)
        return q, k, q


class PackedByHeadKeysMixed(Packed):
    def parts(self, x: Any) -> Any:
        q, k, _ = self.qkv(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2).chunk(3, -1)
        return q, k, k


class PackedTurned(Packed):
    """What is packed first are the queries, which are asked here by the keys; there is no mask."""

    def forward(self, x: Any) -> Any:
        q, k, v = self.parts(self.norm(x))
        return x + self.out(self.joined((q @ k.mT / self.head_dim**0.5).softmax(-1).mT @ v))


class PackedDropped(Packed):
    def shares(self, scores: Any) -> Any:
        return nn.functional.dropout(super().shares(scores), 0.1)


class PackedViewed(Packed):
    """No head is exchanged with tokens, neither before nor behind."""

    def parts(self, x: Any) -> Any:
        batch, tokens, _ = x.shape
        return [one.reshape(batch, self.num_heads, tokens, -1) for one in self.qkv(x).chunk(3, -1)]

    def joined(self, context: Any) -> Any:
        batch, _, tokens, _ = context.shape
        return context.reshape(batch, tokens, -1)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (PackedQueriesMixed, "values_from_queries"),
        (PackedByHeadKeysMixed, "values_from_keys"),
        (PackedTurned, "weights_transposed"),
        (PackedDropped, "dropout_on"),
        (PackedViewed, "heads_not_transposed"),
    ],
)
def test_a_mistake_between_a_norm_and_a_residual_has_its_name(kind: type[nn.Module], name: str) -> None:
    assert attn_exp.check(kind).mistakes == (name,)


class Settings:
    """Sizes by names of their own, with defaults."""

    def __init__(self, in_dim: int = 64, head_num: int = 8) -> None:
        self.in_dim, self.head_num = in_dim, head_num


class Configured(nn.Module):
    """Its scale is right for the sizes of its defaults alone."""

    def __init__(self, config: Settings) -> None:
        super().__init__()
        dim = config.in_dim
        self.heads = config.head_num
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in "qkvo")

    def forward(self, x: Any) -> Any:
        q, k, v = (one(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.q, self.k, self.v))
        return self.o(((q @ k.mT * 0.125).softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_a_configuration_with_defaults_is_made_in_other_sizes() -> None:
    assert attn_exp.check(Configured).mistakes == ("scale_fixed",)


class FirstKeys(nn.Module):
    """Keys and values of several heads are made, and all queries read the first."""

    def __init__(self, dim: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.size, self.norm = dim // heads, nn.LayerNorm(dim)
        self.q_proj, self.o_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.k_proj, self.v_proj = (nn.Linear(dim, kv_heads * self.size) for _ in "kv")

    def turned(self, x: Any) -> Any:
        angles = torch.arange(x.shape[2])[:, None] / 1e4 ** (torch.arange(self.size) % (self.size // 2) * 2 / self.size)
        left, right = x.chunk(2, -1)
        return x * angles.cos() + torch.cat([-right, left], -1) * angles.sin()

    def forward(self, x: Any) -> Any:
        made = [side(self.norm(x)).unflatten(-1, (-1, self.size)) for side in (self.q_proj, self.k_proj, self.v_proj)]
        q, k, v = (one.transpose(1, 2) for one in made)
        scores = self.turned(q) @ self.turned(k)[:, :1].mT / self.size**0.5
        late = torch.ones(scores.shape[-2:]).triu(1).bool()
        context = scores.masked_fill(late, -1e9).softmax(-1) @ v[:, :1]
        return x + self.o_proj(context.transpose(1, 2).flatten(2))


class AroundFirstKeys(nn.Module):
    """The same with two layers behind."""

    def __init__(self, dim: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.inner, self.norm = FirstKeys(dim, heads, kv_heads), nn.LayerNorm(dim)
        self.more = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, x: Any) -> Any:
        x = self.inner(x)
        return x + self.more(self.norm(x))


def test_keys_that_nobody_reads_are_told_beside_answers_that_are_right_with_one() -> None:
    torch.manual_seed(7)
    assert attn_exp.check(AroundFirstKeys(32, 4, 2), quick=True).mistakes == ("kv_heads_first",)
    assert attn_exp.check(AroundFirstKeys(32, 4, 1), quick=True).right_under == "mask=causal position=rope"
