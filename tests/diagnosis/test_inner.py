"""Layers whose matrices nobody finds: their attention is seen in the operations of a call."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp
from attn_exp.diagnosis.code.watching import watched
from attn_exp.errors import UserError

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch
from torch import nn


class Bent(nn.Module):
    """Its queries, keys and values are bent, and its answer is joined with x and then with its own square."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.root = heads, (dim // heads) ** 0.5
        self.a, self.b, self.c = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def side(self, matrix: Any, x: Any) -> Any:
        return self.cut(matrix(x).relu())

    def cut(self, one: Any) -> Any:
        return one.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def key(self, x: Any) -> Any:
        return self.side(self.b, x).mT

    def beside(self, scores: Any, q: Any) -> Any:
        return scores

    def shares(self, scores: Any) -> Any:
        return scores.softmax(-1)

    def joined(self, context: Any) -> Any:
        return context.transpose(1, 2).flatten(2)

    def forward(self, x: Any) -> Any:
        q = self.side(self.a, x)
        scores = self.beside(q @ self.key(x) / self.root, q)
        context = self.joined(self.shares(scores) @ self.side(self.c, x))
        return torch.tanh(context + x) + (context + x) ** 2


class ByHand(Bent):
    """Its softmax is written out."""

    def shares(self, scores: Any) -> Any:
        large = (scores - scores.amax(-1, keepdim=True)).exp()
        return large / large.sum(-1, keepdim=True)


class InOnePiece(Bent):
    """PyTorch computes its attention in one piece."""

    def forward(self, x: Any) -> Any:
        given = [self.side(matrix, x) for matrix in (self.a, self.b, self.c)]
        context = self.joined(nn.functional.scaled_dot_product_attention(*given))
        return torch.tanh(context + x) + (context + x) ** 2


class HeadByHead(Bent):
    """Its heads are computed one after the other."""

    def forward(self, x: Any) -> Any:
        size, said = x.shape[-1] // self.heads, []
        for head in range(self.heads):
            q, k, v = (m(x).relu()[..., head * size : (head + 1) * size] for m in (self.a, self.b, self.c))
            said.append((q @ k.mT / self.root).softmax(-1) @ v)
        context = torch.cat(said, -1)
        return torch.tanh(context + x) + (context + x) ** 2


class ScaledBefore(Bent):
    """Queries and keys get a part of the scale each."""

    def side(self, matrix: Any, x: Any) -> Any:
        return super().side(matrix, x) / (self.root**0.5 if matrix is not self.c else 1)

    def beside(self, scores: Any, q: Any) -> Any:
        return scores * self.root


class Slopes(Bent):
    """Numbers of the distance alone are added to the scores."""

    def beside(self, scores: Any, q: Any) -> Any:
        places = torch.arange(scores.shape[-1])
        return scores - 0.3 * (places[:, None] - places).abs()


class Distances(Bent):
    """Another product is added to the scores: queries with a row for each distance."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.rows = nn.Parameter(torch.randn(dim // heads, 1))

    def beside(self, scores: Any, q: Any) -> Any:
        return scores + q @ self.rows.expand(-1, scores.shape[-1]) * torch.arange(scores.shape[-1]) / 9


class DistancesByWidth(Distances):
    """The same, with the root of all numbers of a token in place of a head's."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.root = dim**0.5


class DistancesOfThree(Distances):
    """The same with the scale of three terms that are added, as some have it: no mistake is that."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.root = (3 * dim // heads) ** 0.5


class Turned(Bent):
    """Queries and keys are turned by their places, pair by pair."""

    def side(self, matrix: Any, x: Any) -> Any:
        made = super().side(matrix, x)
        return made if matrix is self.c else self.turned(made)

    def turned(self, made: Any) -> Any:
        angles = torch.arange(made.shape[-2])[:, None] / 5.0 ** torch.arange(made.shape[-1] // 2)
        cosines, sines = angles.cos(), angles.sin()
        one, other = made[..., ::2], made[..., 1::2]
        return torch.stack([one * cosines - other * sines, self.of_other(other, cosines) + one * sines], -1).flatten(-2)

    def of_other(self, other: Any, cosines: Any) -> Any:
        return other * cosines


class Remembers(Turned):
    """Its angles are made in the first call of a length, and kept."""

    known: Any = None

    def turned(self, made: Any) -> Any:
        if self.known is None or self.known.shape[0] != made.shape[-2]:
            self.known = torch.arange(made.shape[-2])[:, None] * torch.ones(1) / 3
        return made * torch.ones(1) if made.shape[-1] < 2 else super().turned(made)


class Later(Bent):
    """It hides later keys."""

    def beside(self, scores: Any, q: Any) -> Any:
        return scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)


RIGHT = (Bent, ByHand, InOnePiece, HeadByHead, ScaledBefore, Slopes, Distances, Turned, Remembers)


@pytest.mark.parametrize("layer", RIGHT)
def test_attention_that_is_right_inside_passes_and_says_what_was_not_asked(layer: type[nn.Module]) -> None:
    verdict = attn_exp.check(layer(24, 3), quick=True)
    assert verdict.passed and not verdict.mistakes and not verdict.right_under, verdict
    assert "makes of x in a way of its own" in verdict.computes
    assert any("what it makes of the answer" in one for one in verdict.not_asked)


def test_a_class_is_seen_inside_as_what_is_made_of_it() -> None:
    assert attn_exp.check(Bent, quick=True).passed


def test_a_causal_mask_inside_is_told_in_the_words_for_it() -> None:
    assert attn_exp.check(Later(24, 3), quick=True).right_under == "mask=causal"


class LaterByWidth(Later):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.root = dim**0.5


def test_a_causal_mask_that_is_asked_for_is_seen_inside() -> None:
    verdict = attn_exp.check(Later(24, 3), "mask=causal", quick=True)
    assert verdict.passed and not verdict.right_under, verdict
    wrong = attn_exp.check(LaterByWidth(24, 3), "mask=causal", quick=True)
    assert wrong.mistakes == ("scale_by_sqrt_d_model",) and "settings do not say so" not in wrong.computes, wrong


class Unscaled(Bent):
    def beside(self, scores: Any, q: Any) -> Any:
        return scores * self.root


class ByWidth(Bent):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.root = dim**0.5


class Fixed(Bent):
    def beside(self, scores: Any, q: Any) -> Any:
        return scores * 0.9


class DownTheQueries(Bent):
    def shares(self, scores: Any) -> Any:
        return scores.softmax(-2)


class ByKeys(Bent):
    def beside(self, scores: Any, q: Any) -> Any:
        return scores * self.root / scores.shape[-1] ** 0.5


class ByKeysInverted(Bent):
    """Divided by what it should be multiplied with: no one number, though it is the same in heads of other sizes."""

    def beside(self, scores: Any, q: Any) -> Any:
        return scores * self.root / scores.shape[-1] ** -0.5


class ByHeads(Bent):
    def beside(self, scores: Any, q: Any) -> Any:
        return scores * self.root / scores.shape[1] ** 0.5


class Uncut(Bent):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.root = dim**0.5

    def cut(self, one: Any) -> Any:
        return one[:, None]


class Viewed(Bent):
    def cut(self, one: Any) -> Any:
        return one.reshape(one.shape[0], self.heads, -1, one.shape[-1] // self.heads)

    def joined(self, context: Any) -> Any:
        return context.reshape(context.shape[0], -1, self.heads * context.shape[-1])


class KeysViewed(Bent):
    def key(self, x: Any) -> Any:
        k = self.side(self.b, x)
        return k.reshape(*k.shape[:2], k.shape[3], k.shape[2])


class Joined(Bent):
    def joined(self, context: Any) -> Any:
        return context.reshape(context.shape[0], context.shape[2], -1)


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (Unscaled, "no_scale"), (ByWidth, "scale_by_sqrt_d_model"), (Fixed, "scale_other"),
        (DownTheQueries, "softmax_over_queries"), (Viewed, "heads_not_transposed"), (KeysViewed, "keys_viewed"),
        (Joined, "heads_merged_wrong"), (ByHeads, "scale_by_sqrt_heads"), (Uncut, "single_head"),
        (ByKeys, "scale_by_sqrt_keys"), (ByKeysInverted, "scale_other"),
    ],
)  # fmt: skip
def test_what_is_wrong_inside_is_named(layer: type[nn.Module], name: str) -> None:
    verdict = attn_exp.check(layer(24, 3), quick=True)
    assert verdict.mistakes == (name,) and not verdict.passed, verdict


class TurnedWrongly(Turned):
    def of_other(self, other: Any, cosines: Any) -> Any:
        return other


class OfItself(Bent):
    def beside(self, scores: Any, q: Any) -> Any:
        return scores * (1 + scores.abs())


@pytest.mark.parametrize(
    ("layer", "said"), [(OfItself, "no multiple of q k^T"), (TurnedWrongly, "tell more than distances")]
)
def test_what_has_no_name_is_told_by_its_stage(layer: type[nn.Module], said: str) -> None:
    verdict = attn_exp.check(layer(24, 3), quick=True)
    assert not verdict.passed and not verdict.mistakes
    assert said in str(verdict)


def test_where_a_mask_is_asked_for_it_is_not_enough_that_the_inside_is_right() -> None:
    assert attn_exp.check(Bent(24, 3), "mask=causal", quick=True).mistakes == ("causal_ignored",)
    with pytest.raises(UserError, match="no projections found"):
        attn_exp.check(Bent(24, 3), "mask=window", "mask.window.left=2", quick=True)


@pytest.mark.parametrize("layer, names", [(DistancesByWidth, ("scale_by_sqrt_d_model",)), (DistancesOfThree, ())])
def test_a_scale_is_told_beside_other_products(layer: type[nn.Module], names: tuple[str, ...]) -> None:
    assert attn_exp.check(layer, quick=True).mistakes == names


class OfItsOwnNumbers(Bent):
    """It takes no numbers but those of a first call: what is asked inside changes some."""

    calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        if self.calls > 60 and len(x) == 2 and x[0, 0].equal(x[0, 1]):
            raise RuntimeError("equal tokens")
        return super().forward(x)


def test_a_layer_that_fails_while_it_is_watched_is_said_not_to_be_read() -> None:
    layer = OfItsOwnNumbers(24, 3)
    layer.calls = 60
    with pytest.raises(UserError, match="no projections found"):
        attn_exp.check(layer, quick=True)


def test_operations_are_noted_with_what_they_were_given_and_who_made_it() -> None:
    x, matrix = torch.randn(2, 3, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64)

    def call() -> Any:
        said = x @ matrix
        said += 1.0
        return (said.T * 2.0).softmax(-1)

    operations, answer = watched(call, [x])
    names = [one.name for one in operations]
    assert [name for name in names if name in ("mm", "add", "mul", "_softmax")] == ["mm", "add", "mul", "_softmax"]
    product, added, doubled = (operations[names.index(name)] for name in ("mm", "add", "mul"))
    assert product.of_x == (True, False) and (product.said == (x @ matrix).numpy()).all()
    assert added.made == (names.index("mm"),) and (added.given[0] == product.said).all()
    assert doubled.made == (names.index("add"),) and doubled.numbers == (2.0,)
    assert (operations[-1].said == answer.numpy()).all()


def test_what_an_operation_returns_can_be_exchanged() -> None:
    x = torch.ones(2, 2)
    operations, plain = watched(lambda: (x @ x) * 3, [x])
    place = next(at for at, one in enumerate(operations) if one.is_product)
    assert (watched(lambda: (x @ x) * 3, [x], {place: lambda said: said + 1})[1] == plain + 3).all()


class Pooled(torch.nn.Module):
    """The mean of all tokens asks; nothing but its answer comes out."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.packed, self.out = heads, torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, 10)

    def scores(self, q: Any, k: Any) -> Any:
        return q @ k.mT / q.shape[-1] ** 0.5

    def of_tokens(self, x: Any) -> Any:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.packed(x).chunk(3, -1))
        return (self.scores(q, k).softmax(-1) @ v).transpose(1, 2).flatten(2)

    def forward(self, x: Any) -> Any:
        return self.out(self.of_tokens(torch.cat([x.mean(1, keepdim=True), x], 1))[:, 0])


class PooledUnscaled(Pooled):
    def scores(self, q: Any, k: Any) -> Any:
        return q @ k.mT


class EveryOther(Pooled):
    """Half of the tokens come out."""

    def forward(self, x: Any) -> Any:
        return self.of_tokens(x)[:, ::2]


class WithOwnToken(Pooled):
    """A token of its own stands before all others, and comes out."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.first = torch.nn.Parameter(torch.randn(1, 1, dim))

    def forward(self, x: Any) -> Any:
        return self.of_tokens(torch.cat([self.first.expand(len(x), -1, -1), x], 1))


@pytest.mark.parametrize("layer", [Pooled, EveryOther, WithOwnToken])
def test_attention_is_seen_inside_a_layer_that_answers_in_another_shape(layer: Any) -> None:
    verdict = attn_exp.check(layer, quick=True)
    assert verdict.passed and "its answer has no row for each token" in str(verdict), verdict


def test_a_mistake_is_named_inside_a_layer_that_answers_in_another_shape() -> None:
    assert attn_exp.check(PooledUnscaled, quick=True).mistakes == ("no_scale",)


class OverAllQueries(Bent):
    """Its softmax runs down the queries of all entries, of its one head."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim, 1)

    def shares(self, scores: Any) -> Any:
        return scores.flatten(0, 2).softmax(0).view(scores.shape)


class OverEntries(Bent):
    """Its softmax runs over the entries of a batch, as it does in code that thinks of one entry alone."""

    def shares(self, scores: Any) -> Any:
        return scores.softmax(0)


class HeadsInList(nn.Module):
    """PyTorch knows of none of its projections, which are in a list of mappings; each head has its softmax."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.sides = [{side: nn.Linear(dim, dim // heads) for side in "qkv"} for _ in range(heads)]
        self.out = nn.Linear(dim, dim)

    def shares(self, scores: Any) -> Any:
        return scores.softmax(-1)

    def forward(self, x: Any) -> Any:
        cut = [{side: matrix(x) for side, matrix in head.items()} for head in self.sides]
        heads = [self.shares(one["q"] @ one["k"].mT / one["q"].shape[-1] ** 0.5) @ one["v"] for one in cut]
        return self.out(torch.cat(heads, -1))


class HeadsInListOverEntries(HeadsInList):
    def shares(self, scores: Any) -> Any:
        return scores.softmax(0)


class OfSums(Bent):
    """A query and a key have one number each, the sum of theirs."""

    def forward(self, x: Any) -> Any:
        q, k = (self.side(matrix, x).sum(-1, keepdim=True) for matrix in (self.a, self.b))
        context = self.joined((q @ k.mT / self.root).softmax(-1) @ self.side(self.c, x))
        return torch.tanh(context + x) + (context + x) ** 2


def test_a_softmax_down_the_queries_of_all_entries_is_two_mistakes() -> None:
    assert set(attn_exp.check(OverAllQueries, quick=True).mistakes) == {"softmax_over_queries", "batch_mixed"}


@pytest.mark.parametrize("layer", [OverEntries, HeadsInListOverEntries])
def test_a_softmax_over_the_entries_of_a_batch_is_named(layer: Any) -> None:
    assert attn_exp.check(layer, quick=True).mistakes == ("batch_mixed",)


def test_projections_in_plain_lists_are_parts_of_a_layer() -> None:
    verdict = attn_exp.check(HeadsInList, quick=True)
    assert verdict.passed and "from inside" not in str(verdict), verdict


def test_products_of_sums_are_no_other_scale() -> None:
    verdict = attn_exp.check(OfSums, quick=True)
    assert not verdict.passed and not verdict.mistakes
    assert verdict.unexplained and verdict.stage == "logits"
    assert "a query has one number where a value has several" in str(verdict)


class OneMatrixTwice(Turned):
    """Its queries and keys have norms of their own, and are turned; what makes keys is told."""

    def __init__(self, dim: int, heads: int, of_keys: str = "k_proj", of_queries: str = "q_proj") -> None:
        super().__init__(dim, heads)
        self.of_queries = of_queries
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(dim, dim) for _ in range(4))
        norms = [nn.LayerNorm(dim // heads) for _ in "qk"]
        self.of_keys, self.norms = of_keys, nn.ModuleList(norms)
        del self.a, self.b, self.c
        for norm in norms:
            nn.init.normal_(norm.weight)

    def forward(self, x: Any) -> Any:
        made = [self.cut(getattr(self, name)(x)) for name in (self.of_queries, self.of_keys, "v_proj")]
        q, k = (self.turned(norm(one)) for norm, one in zip(self.norms, made, strict=False))
        return self.o_proj(self.joined(self.shares(q @ k.mT / self.root) @ made[2]))


def test_keys_that_are_made_with_the_matrix_of_the_queries_are_named_whatever_is_done_to_them_afterwards() -> None:
    assert attn_exp.check(OneMatrixTwice(24, 3), quick=True).passed
    assert attn_exp.check(OneMatrixTwice(24, 3, "q_proj"), quick=True).mistakes == ("keys_from_queries",)
    of_keys = OneMatrixTwice(24, 3, of_queries="k_proj")
    assert attn_exp.check(of_keys, quick=True).mistakes == ("queries_from_keys",)


class ByName(Bent):
    """Its matrices say what they make; the first of `made_by` makes what asks."""

    def __init__(self, dim: int, heads: int, made_by: str) -> None:
        super().__init__(dim, heads)
        del self.a, self.b, self.c
        self.to_q, self.to_k, self.to_v = (nn.Linear(dim, dim) for _ in range(3))
        self.made_by = made_by

    def forward(self, x: Any) -> Any:
        q, k, v = (self.side(getattr(self, f"to_{side}"), x) for side in self.made_by)
        context = self.joined(self.shares(q @ k.mT / self.root) @ v)
        return torch.tanh(context + x) + (context + x) ** 2


@pytest.mark.long
def test_queries_and_keys_that_are_made_with_the_matrices_of_each_other_are_named_inside() -> None:
    assert attn_exp.check(ByName(24, 3, "kqv"), quick=True).mistakes == ("queries_keys_swapped",)
    assert attn_exp.check(ByName(24, 3, "qkv"), quick=True).passed


class AnotherOrder(nn.Module):
    """Values are asked and keys are mixed, and the scores are scaled, or not."""

    def __init__(self, dim: int, root: float) -> None:
        super().__init__()
        self.root = root
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(dim, dim, bias=False) for _ in range(3))

    def forward(self, x: Any) -> Any:
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        return torch.softmax(q @ v.mT / self.root, -1) @ k


def test_values_that_change_places_with_keys_are_named_beside_another_mistake() -> None:
    assert attn_exp.check(AnotherOrder(24, 24**0.5), quick=True).mistakes == ("qkv_order",)
    assert set(attn_exp.check(AnotherOrder(24, 1.0), quick=True).mistakes) == {"no_scale", "qkv_order"}


class OneOfThree(nn.Module):
    """One head of the whole width does the work of several, with their scale."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.scale = num_heads, (dim // num_heads) ** -0.5
        self.qkv: nn.Module = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Any) -> Any:
        entries, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(entries, tokens, 3, -1, width).permute(2, 0, 3, 1, 4)
        shares = (q @ k.mT * self.scale).softmax(-1)
        return self.proj((shares @ v).transpose(1, 2).reshape(entries, tokens, -1))


@pytest.mark.parametrize("bent", [False, True])
def test_one_head_with_the_scale_of_several_has_one_mistake(bent: bool) -> None:
    layer = OneOfThree(24, 3)
    if bent:
        layer.qkv = nn.Sequential(nn.Linear(24, 48), nn.Tanh(), nn.Linear(48, 72))
    assert attn_exp.check(layer, quick=True).mistakes == ("single_head",)
    assert bent or attn_exp.check(OneOfThree, quick=True).mistakes == ("single_head",)


class SpreadWithOneNumber(nn.Module):
    """Queries and keys have one number; the weights are turned where they meet the values, which lie as columns."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.query_conv, self.key_conv, self.value_conv = (
            nn.Conv1d(dim, 1, 1),
            nn.Conv1d(dim, 1, 1),
            nn.Conv1d(dim, dim, 1),
        )

    def forward(self, x: Any) -> Any:
        columns = x.mT
        scores = self.query_conv(columns).mT @ self.key_conv(columns)
        said = self.value_conv(columns) @ scores.softmax(-1)
        return said.view(x.shape)


def test_matrices_of_one_column_tell_queries_from_keys() -> None:
    verdict = attn_exp.check(SpreadWithOneNumber, quick=True)
    assert verdict.mistakes == ("weights_transposed",)
    assert "Beside that, the answer: what the query of token 2 mixes reaches token 1" in verdict.computes


class OfSeveralFrames(nn.Module):
    """Queries of several frames meet the keys of one, and the softmax runs along those of each frame."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.heads = num_heads
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, query: Any, key_value: Any) -> Any:
        q, k, v = (made.unflatten(-1, (self.heads, -1)) for made in (
            self.query(query), self.key(key_value), self.value(key_value)))  # fmt: skip
        scores = torch.einsum("bfthd,bshd->bfhts", q, k) / q.shape[-1] ** 0.5
        return self.out(torch.einsum("bfhts,bshd->bfthd", scores.softmax(-2), v).flatten(-2))


def test_a_softmax_over_the_queries_of_each_frame_is_named() -> None:
    assert attn_exp.check(OfSeveralFrames, quick=True).mistakes == ("softmax_over_queries",)


class FirstKeys(Bent):
    """Keys of three heads are made, and all queries are held against those of the first."""

    def key(self, x: Any) -> Any:
        return super().key(x)[:, :1].expand(-1, self.heads, -1, -1)


class OneKey(Bent):
    """Keys of one head are made, and all queries share them."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.b = nn.Linear(dim, dim // heads)

    def key(self, x: Any) -> Any:
        return self.b(x).relu().mT[:, None].expand(-1, self.heads, -1, -1)


def test_heads_that_read_the_first_of_several_keys_are_told_from_those_that_share_one() -> None:
    assert attn_exp.check(FirstKeys(24, 3), quick=True).mistakes == ("kv_heads_first",)


class FirstValuesHeadByHead(HeadByHead):
    """Its heads are computed one after the other, and all of them mix the values of the first."""

    def forward(self, x: Any) -> Any:
        size, said = x.shape[-1] // self.heads, []
        q, k, v = (m(x).relu().split(size, -1) for m in (self.a, self.b, self.c))
        for head in range(self.heads):
            said.append((q[head] @ k[head].mT / self.root).softmax(-1) @ v[0])
        context = torch.cat(said, -1)
        return torch.tanh(context + x) + (context + x) ** 2


class OneValueHeadByHead(FirstValuesHeadByHead):
    """There are no others: heads share values on purpose."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.c = nn.Linear(dim, dim // heads)


def test_heads_that_all_mix_the_first_of_several_values_are_named() -> None:
    assert attn_exp.check(FirstValuesHeadByHead(24, 3), quick=True).mistakes == ("kv_heads_first",)
    assert attn_exp.check(OneValueHeadByHead(24, 3), quick=True).passed
    assert attn_exp.check(OneKey(24, 3), quick=True).passed


class TurnsAll(Turned):
    """Values are turned too, after a norm of x, which makes scores the same however large x is."""

    def side(self, matrix: Any, x: Any) -> Any:
        return self.turned(self.cut(matrix(nn.functional.layer_norm(x, x.shape[-1:])).relu()))


class TurnsBack(TurnsAll):
    """What the queries mix is turned back, so that distances alone count."""

    def joined(self, context: Any) -> Any:
        angles = -torch.arange(context.shape[-2])[:, None] / 5.0 ** torch.arange(context.shape[-1] // 2)
        one, other, cosines, sines = context[..., ::2], context[..., 1::2], angles.cos(), angles.sin()
        return super().joined(
            torch.stack([one * cosines - other * sines, other * cosines + one * sines], -1).flatten(-2)
        )


def test_values_that_are_turned_by_their_places_are_told_unless_they_are_turned_back() -> None:
    assert attn_exp.check(TurnsAll(24, 3), quick=True).mistakes == ("rope_on_values",)
    assert attn_exp.check(TurnsBack(24, 3), quick=True).passed


class Favours(Later):
    """Each key behind is favoured by a number of the head."""

    sign = 1

    def beside(self, scores: Any, q: Any) -> Any:
        places, slopes = torch.arange(scores.shape[-1]), 2.0 ** -torch.arange(1, self.heads + 1)
        gaps = places[:, None] - places
        return super().beside(scores + self.sign * slopes[:, None, None] * gaps, q)


class FavoursNear(Favours):
    sign = -1


def test_distances_that_are_added_instead_of_taken_away_are_named() -> None:
    assert attn_exp.check(Favours(24, 3), quick=True).mistakes == ("alibi_sign",)
    assert attn_exp.check(FavoursNear(24, 3), quick=True).right_under == "mask=causal"


class HeadsByAView(Bent):
    """Heads are cut by a view alone, and the tokens of what makes the values lie in columns."""

    def side(self, matrix: Any, x: Any) -> Any:
        made = matrix(x).relu()
        made = made.mT.contiguous() if matrix is self.c and self.turned else made
        return made.view(len(x), self.heads, x.shape[1], -1)

    turned = True


def test_values_of_other_tokens_than_those_of_queries_and_keys_say_nothing_of_keys() -> None:
    verdict = attn_exp.check(HeadsByAView(24, 3), quick=True)
    assert verdict.mistakes == ("heads_not_transposed",), verdict
    assert "the values inside" in verdict.computes


def test_where_positions_are_asked_for_what_is_seen_inside_tells_what_is_wrong_alone() -> None:
    assert attn_exp.check(TurnsAll(24, 3), "position=rope", quick=True).mistakes == ("rope_on_values",)
    with pytest.raises(UserError):  # by which angles it turns is not known
        attn_exp.check(Turned(24, 3), "position=rope", "position.rope.base=7", quick=True)


class Logarithms(Bent):
    """The logarithms of its weights are mixed with the values."""

    def shares(self, scores: Any) -> Any:
        return scores.log_softmax(-1)


class LogarithmsDown(Bent):
    def shares(self, scores: Any) -> Any:
        return scores.log_softmax(-2)


def test_logarithms_of_weights_are_named_alone_and_beside_another_axis() -> None:
    assert attn_exp.check(Logarithms(24, 3), quick=True).mistakes == ("log_softmax",)
    assert set(attn_exp.check(LogarithmsDown(24, 3), quick=True).mistakes) == {"log_softmax", "softmax_over_queries"}


class SharedByRows(nn.Module):
    """All heads read the same keys and values: those of a token ask in rows that lie side by side."""

    tokens = 0

    def __init__(self, dim: int, heads: int, size: int = 0) -> None:
        super().__init__()
        self.heads, self.size = heads, size or dim // heads
        wide = (self.heads * self.size, self.size, self.size)
        self.a, self.b, self.c = (nn.Linear(dim, many) for many in wide)
        self.last = nn.Linear(self.heads * self.size, dim)

    def forward(self, x: Any, mask: Any = None) -> Any:
        assert self.tokens in (0, x.shape[1])
        q, k, v = (one(x).relu() for one in (self.a, self.b, self.c))
        scores = torch.einsum("bshc,btc->bsht", q.unflatten(-1, (self.heads, -1)), k) / self.size**0.5
        weights = self.masked(scores, mask).softmax(-1)
        return torch.tanh(self.last(torch.einsum("bsht,btc->bshc", weights, v).flatten(2)) + x)

    def masked(self, scores: Any, mask: Any) -> Any:
        return scores if mask is None else scores + mask.unsqueeze(1)


class OfTwoTokens(SharedByRows):
    tokens = 2


class SharedUnmasked(SharedByRows):
    def masked(self, scores: Any, mask: Any) -> Any:
        return scores


class SharedByWidth(SharedByRows):
    def masked(self, scores: Any, mask: Any) -> Any:
        return super().masked(scores * (self.size / (self.size * self.heads)) ** 0.5, mask)


@pytest.mark.parametrize(("layer", "names"), [
    (SharedByRows(24, 3), ()), (SharedByRows(24, 3, size=16), ()), (OfTwoTokens(24, 3), ()),
    (SharedUnmasked(24, 3), ("mask_ignored",)), (SharedByWidth(24, 3), ("scale_by_sqrt_d_model",)),
])  # fmt: skip
def test_rows_of_heads_that_read_the_same_keys_are_no_mixed_tokens(layer: Any, names: tuple[str, ...]) -> None:
    verdict = attn_exp.check(layer, quick=True)
    assert verdict.mistakes == names and verdict.passed is not bool(names), verdict


class SharedAndLater(SharedByRows):
    def forward(self, x: Any) -> Any:  # type: ignore[override] # it takes no mask
        return super().forward(x)

    def masked(self, scores: Any, mask: Any) -> Any:
        return scores.masked_fill(torch.ones(scores.shape[1], scores.shape[1]).triu(1).bool()[:, None], -torch.inf)


def test_a_causal_mask_of_heads_that_share_keys_is_told_in_the_words_for_it() -> None:
    assert attn_exp.check(SharedAndLater(24, 3), quick=True).right_under == "mask=causal"


class LargestTakenAway(Bent):
    """The largest logit of each query is 0 in every call, which is no number that is filled in."""

    def shares(self, scores: Any) -> Any:
        return (scores - scores.amax(-1, keepdim=True)).softmax(-2)


class SpreadUnderAMask(Bent):
    """Its weights are turned, which a mask shows too."""

    def forward(self, x: Any, mask: Any = None) -> Any:
        q = self.side(self.a, x)
        scores = q @ self.key(x) / self.root
        scores = scores if mask is None else scores.masked_fill(mask == 0, -torch.inf)
        context = self.joined(scores.softmax(-1).mT @ self.side(self.c, x))
        return torch.tanh(context + x) + (context + x) ** 2


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (LargestTakenAway, "softmax_over_queries"),
        (SpreadUnderAMask, "weights_transposed"),
    ],
)
def test_what_only_looks_like_a_second_mistake_is_none(layer: type[nn.Module], name: str) -> None:
    assert attn_exp.check(layer(24, 3), quick=True).mistakes == (name,)


class ConvolutionThrownAway(nn.Module):
    """Queries, keys and values of the points of an image are made by a convolution, and x is used instead."""

    def __init__(self, in_dim: int, num_heads: int) -> None:
        super().__init__()
        self.heads = num_heads
        self.conv = nn.Sequential(nn.Conv2d(in_dim, in_dim, 3, padding=1), nn.BatchNorm2d(in_dim))

    def forward(self, x: Any) -> Any:
        side = int(x.shape[1] ** 0.5)
        q, k, v = (self.conv(x.mT.unflatten(-1, (side, side))).flatten(2).mT for _ in range(3))
        q, k, v = (x.unflatten(-1, (-1, self.heads)).permute(0, 3, 1, 2) for _ in (q, k, v))
        return ((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)


def test_what_is_made_of_x_itself_has_no_matrix_of_another() -> None:
    assert attn_exp.check(ConvolutionThrownAway, quick=True).mistakes == ("projections_unused",)


class MixedBefore(nn.Module):
    """Neighbours in a graph are summed before the weights mix them: of none, nothing is mixed."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.o = heads, nn.Linear(dim, dim)
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x: Any, adj: Any) -> Any:
        q, k, v = (side(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in (self.q, self.k, self.v))
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return self.o((weights @ (adj.unsqueeze(1) @ v)).transpose(1, 2).flatten(2))


def test_of_values_that_are_all_zero_nothing_is_named() -> None:
    assert not attn_exp.check(MixedBefore(24, 3), quick=True).mistakes


class OfNeighbours(nn.Module):
    """Its queries, keys and values are made by a convolution of the points of an image, each channel alone."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.near = nn.Conv2d(channels, 3 * channels, 3, padding=1, groups=channels)
        self.out = nn.Conv2d(channels, channels, 1)

    def values(self, v: Any) -> Any:
        return v.mT

    def forward(self, x: Any) -> Any:
        q, k, v = (part.unflatten(1, (self.heads, -1)).flatten(3) for part in self.near(x).chunk(3, 1))
        weights = (q.mT @ k / q.shape[2] ** 0.5).softmax(-1)
        return self.out((weights @ self.values(v)).mT.reshape(x.shape)) + x


class OfNeighboursViewed(OfNeighbours):
    def values(self, v: Any) -> Any:
        return v.reshape(*v.shape[:2], v.shape[3], v.shape[2])


def test_values_of_neighbours_that_are_viewed_are_named() -> None:
    assert attn_exp.check(OfNeighboursViewed, quick=True).mistakes == ("values_viewed",)
    assert attn_exp.check(OfNeighbours, quick=True).passed


class TurnedByHead(Bent):
    """Its rotary positions count heads, as they lie where tokens were expected: all are turned alike."""

    def side(self, matrix: Any, x: Any) -> Any:
        cut = super().side(matrix, x)
        turned = torch.stack([-cut[..., 1::2], cut[..., ::2]], dim=-1).flatten(-2)
        angles = torch.arange(self.heads, dtype=cut.dtype)[:, None, None]
        return cut * angles.cos() + turned * angles.sin()


def test_positions_that_are_asked_for_and_turn_nothing_are_named() -> None:
    verdict = attn_exp.check(TurnedByHead, "position=rope", quick=True)
    assert verdict.mistakes == ("position_missing",), verdict
    assert not attn_exp.check(TurnedByHead, quick=True).mistakes
