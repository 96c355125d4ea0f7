"""Bugs as people write them in modules of their own: several at once, beside a mask inside, by views, with dropout."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import attn_exp  # noqa: E402


class Three(nn.Module):
    """A layer whose parts are methods, so that a bug is one of them."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.width = num_heads, d_model
        self.to_q, self.to_k, self.to_v, self.mix = (nn.Linear(d_model, d_model) for _ in range(4))

    def cut(self, x: Any) -> Any:
        return x.view(len(x), x.shape[1], self.num_heads, -1).transpose(1, 2)

    def scores(self, q: Any, k: Any) -> Any:
        return q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])

    def weigh(self, scores: Any) -> Any:
        return scores.softmax(-1)

    def put_together(self, context: Any) -> Any:
        return context.transpose(1, 2).flatten(2)

    def forward(self, x: Any) -> Any:
        q, k, v = (self.cut(side(x)) for side in (self.to_q, self.to_k, self.to_v))
        return self.mix(self.put_together(self.weigh(self.scores(q, k)) @ v))


class CausalAndWide(Three):
    def scores(self, q: Any, k: Any) -> Any:
        later = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1)
        return (q @ k.transpose(-1, -2) / math.sqrt(self.width)).masked_fill(later, -math.inf)


def test_a_mistake_beside_a_mask_inside_is_named_with_the_words() -> None:
    verdict = attn_exp.check(CausalAndWide, quick=True)
    assert verdict.mistakes == ("scale_by_sqrt_d_model",), verdict
    assert verdict.computes.startswith("with mask=causal, ")


class Eighth(Three):
    """Right for heads of 64 numbers, and by d for heads of 8."""

    def scores(self, q: Any, k: Any) -> Any:
        return q @ k.transpose(-1, -2) / 8


class Sixth(CausalAndWide):
    """Divides by the root of the width, which is that of a group of others for heads of one size."""

    def scores(self, q: Any, k: Any) -> Any:
        return q @ k.transpose(-1, -2) / math.sqrt(24)


@pytest.mark.parametrize("kind", [Eighth, Sixth])
def test_a_name_is_proved_on_a_layer_of_other_sizes(kind: Any) -> None:
    assert attn_exp.check(kind, quick=True).mistakes == ("scale_fixed",)


class CausalWideAndOverQueries(CausalAndWide):
    def weigh(self, scores: Any) -> Any:
        return scores.softmax(-2)


def test_two_mistakes_beside_a_mask_inside_are_named_with_the_words() -> None:
    verdict = attn_exp.check(CausalWideAndOverQueries, quick=True)
    assert set(verdict.mistakes) == {"scale_by_sqrt_d_model", "softmax_over_queries"}, verdict
    assert verdict.computes.startswith("with mask=causal, ")


class Dropping(Three):
    always = True

    def __init__(self, d_model: int, num_heads: int, drop: float = 0.1) -> None:
        super().__init__(d_model, num_heads)
        self.drop = drop

    def weigh(self, scores: Any) -> Any:
        return F.dropout(scores.softmax(-1), self.drop, training=self.always or self.training)


class DroppingBesides(Dropping):
    def scores(self, q: Any, k: Any) -> Any:
        return q @ k.transpose(-1, -2) / math.sqrt(len(q))


class RightInTraining(Dropping):
    always = False


@pytest.mark.parametrize(
    ("kind", "names"),
    [(Dropping, ("dropout_on",)), (DroppingBesides, ("scale_by_batch", "dropout_on")), (RightInTraining, ())],
)
def test_dropout_that_stays_on_in_evaluation_is_seen_beside_what_else_is_wrong(kind: Any, names: Any) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.mistakes == names and verdict.passed is not bool(names), verdict
    state = {finding.rung: finding.state for finding in verdict.findings}
    assert state["training without dropout"] == "held"
    assert state["dropout in evaluation"] == ("broken" if names else "held")


class MergedByView(Three):
    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.three = nn.Linear(d_model, 3 * d_model)

    def forward(self, x: Any) -> Any:
        q, k, v = self.three(x).view(len(x), x.shape[1], self.num_heads, -1).transpose(1, 2).chunk(3, dim=-1)
        return self.mix((self.weigh(self.scores(q, k)) @ v).reshape(x.shape))


class AllByView(Three):
    def cut(self, x: Any) -> Any:
        return x.view(len(x), self.num_heads, x.shape[1], -1)

    def put_together(self, context: Any) -> Any:
        return context.reshape(len(context), context.shape[2], -1)


class FourAtOnce(AllByView):
    def scores(self, q: Any, k: Any) -> Any:
        return q @ k.view(*k.shape[:2], k.shape[3], k.shape[2]) / math.sqrt(self.width)

    def weigh(self, scores: Any) -> Any:
        return scores.softmax(1)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (MergedByView, {"heads_merged_wrong"}),
        (AllByView, {"heads_not_transposed"}),
        (FourAtOnce, {"heads_not_transposed", "keys_viewed", "scale_by_sqrt_d_model", "softmax_over_heads"}),
    ],
)
def test_layers_that_mix_tokens_with_heads_are_understood_by_one_token(kind: Any, names: set[str]) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert set(verdict.mistakes) == names, verdict


@pytest.mark.full_search
def test_four_mistakes_of_a_function_are_named_and_a_large_fill_is_none_of_them() -> None:
    def attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        scores = q @ k.reshape(*k.shape[:2], k.shape[3], k.shape[2]) / q.shape[1] ** 0.5
        scores = scores if mask is None else np.where(mask, scores, -1e9)
        powers = np.exp(scores - scores.max(axis=-2, keepdims=True))
        return powers / powers.sum(axis=-2, keepdims=True) @ v

    verdict = attn_exp.check(attention, "layout=bhtd", quick=True)
    assert set(verdict.mistakes) == {"keys_viewed", "scale_by_sqrt_heads", "softmax_over_queries"}, verdict


class HidesLate(Three):
    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = (self.cut(side(x)) for side in (self.to_q, self.to_k, self.to_v))
        weights = self.weigh(self.scores(q, k))
        weights = weights if mask is None else weights.masked_fill(~mask[:, None, None], -math.inf)
        return self.mix(self.put_together(weights @ v))


def test_minus_infinity_after_the_softmax_is_a_mask_too_late() -> None:
    verdict = attn_exp.check(HidesLate, quick=True)
    assert verdict.mistakes == ("mask_after_softmax",) and not verdict.alike, verdict


class OneForAllHeads(nn.Module):
    def __init__(self, embed_size: int, heads: int) -> None:
        super().__init__()
        self.heads, size = heads, embed_size // heads
        self.values, self.keys, self.queries = (nn.Linear(size, size, bias=False) for _ in range(3))
        self.fc_out = nn.Linear(embed_size, embed_size)

    def forward(self, x: Any) -> Any:
        heads = x.view(len(x), x.shape[1], self.heads, -1).transpose(1, 2)
        q, k, v = (side(heads) for side in (self.queries, self.keys, self.values))
        context = (q @ k.transpose(-1, -2) / q.shape[-1]).softmax(-1) @ v
        return self.fc_out(context.transpose(1, 2).flatten(2))


def test_one_projection_for_all_heads_is_known_by_its_name() -> None:
    verdict = attn_exp.check(OneForAllHeads, quick=True)
    assert verdict.mistakes == ("scale_by_d",), verdict


class WithMore(Three):
    def forward(self, x: Any, media_places: Any = None, need_weights: bool = False) -> Any:
        return super().forward(x if media_places is None else x * 0)


def test_words_that_nobody_knows_are_said_as_not_asked() -> None:
    verdict = attn_exp.check(WithMore, quick=True)
    assert verdict.passed and "what media_places would do" in verdict.not_asked, verdict.not_asked


class Named(Three):
    """The same with the usual name of its last layer."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.proj = self.mix
        del self.mix


class MadeAndForgotten(Named):
    def forward(self, x: Any) -> Any:
        q, k, v = (self.cut(side(x)) for side in (self.to_q, self.to_k, self.to_v))
        return self.put_together(self.weigh(self.scores(q, k)) @ v)


class OneForAll(Named):
    """Its keys and values are made by the layer of the queries."""

    def forward(self, x: Any) -> Any:
        q, k, v = (self.cut(side(x)) for side in (self.to_q, self.to_q, self.to_q))
        return self.proj(self.put_together(self.weigh(self.scores(q, k)) @ v))


class WithAnother(Three):
    """Right, and it holds a table that is for words which nobody gave."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.places = nn.Embedding(9, d_model)

    def forward(self, x: Any, places: Any = None) -> Any:
        return super().forward(x if places is None else x + self.places(places))


def test_an_output_projection_that_is_made_and_never_used_is_missing() -> None:
    verdict = attn_exp.check(MadeAndForgotten, quick=True)
    assert verdict.mistakes == ("no_output_projection",), verdict
    assert "proj.weight changes nothing: it is made and never used" in str(verdict)


def test_another_matrix_that_is_never_used_is_a_remark() -> None:
    verdict = attn_exp.check(WithAnother, quick=True)
    assert verdict.passed, verdict
    assert "places.weight changes nothing" in str(verdict)


def test_keys_and_values_of_the_layer_of_queries_are_named() -> None:
    assert set(attn_exp.check(OneForAll, quick=True).mistakes) == {"keys_from_queries", "values_from_queries"}


@pytest.mark.parametrize("power", [0.5, 1, 2])
def test_scores_times_a_power_of_d_are_multiplied(power: float) -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** power
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True) @ v

    assert attn_exp.check(attention, quick=True).mistakes == ("scale_multiplied",)


class CausalWithMasksOfKeys(Three):
    """Causal inside; its mask is of keys alone, added as `(1 - mask) * -inf`, which is NaN where the mask is 1."""

    def forward(self, x: Any, attention_mask: Any = None) -> Any:
        q, k, v = (self.cut(side(x)) for side in (self.to_q, self.to_k, self.to_v))
        scores = self.scores(q, k).masked_fill(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1), -math.inf)
        if attention_mask is not None:
            batch, length = attention_mask.shape
            scores = scores + (1.0 - attention_mask.view(batch, 1, 1, length).double()) * -math.inf
        return self.mix(self.put_together(self.weigh(scores) @ v))


def test_a_layer_that_is_right_but_for_padding_is_told_so_under_its_words() -> None:
    verdict = attn_exp.check(CausalWithMasksOfKeys, quick=True)
    assert not verdict.passed
    assert verdict.computes.startswith("with mask=causal, though the settings do not say so, "), verdict
    assert "wrong in padding, padding of each entry, and right in values" in verdict.computes


class ReadAsHeadsFirst(Three):
    """Entries lie outside heads, and are read as if heads lay outside."""

    def put_together(self, context: Any) -> Any:
        batch, heads, rows, size = context.shape
        return context.reshape(heads, batch, rows, size).permute(1, 2, 0, 3).reshape(batch, rows, heads * size)


class ReadAndTurned(Three):
    """The same, turned as if entries lay outside."""

    def put_together(self, context: Any) -> Any:
        batch, heads, rows, size = context.shape
        return context.reshape(heads, batch, rows, size).transpose(1, 2).reshape(batch, rows, heads * size)


@pytest.mark.parametrize("kind", [ReadAsHeadsFirst, ReadAndTurned])
def test_entries_read_as_heads_are_mixed_with_them(kind: type) -> None:
    assert attn_exp.check(kind, quick=True).mistakes == ("entries_and_heads_mixed",)


def late_and_in_place(q: Any, k: Any, v: Any, mask: Any = None, scaling: bool = True) -> Any:
    """The mask is put on the weights, with a small number; queries are scaled where they lie, if a switch says so."""
    if scaling:
        q /= q.shape[-1] ** 0.5
    shares = torch.softmax(q @ k.mT, dim=-1)
    return (shares if mask is None else shares.masked_fill(mask == 0, 1e-9)) @ v


def test_a_late_mask_is_named_whatever_it_fills_in_beside_what_else_is_done_to_the_inputs() -> None:
    verdict = attn_exp.check(late_and_in_place, quick=True)
    assert set(verdict.mistakes) == {"mask_after_softmax", "changes_inputs"}, verdict


class HeadByHead(nn.Module):
    """Each head has layers of its own, and what they give stands in a store of float32 that is viewed with no turn."""

    def __init__(self, n_heads: int, dim: int) -> None:
        super().__init__()
        self.size = dim // n_heads
        self.to_q, self.to_k, self.to_v = (
            nn.ModuleList(nn.Linear(dim, self.size) for _ in range(n_heads)) for _ in "qkv"
        )
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Any) -> Any:
        heads = torch.zeros(len(self.to_q), *x.shape[:2], self.size)
        for at, (q, k, v) in enumerate(zip(self.to_q, self.to_k, self.to_v, strict=True)):
            heads[at] = (q(x) @ k(x).mT / self.size**0.5).softmax(-1) @ v(x)
        return self.out(heads.view(x.shape))


def test_heads_of_their_own_layers_may_be_mixed_with_entries() -> None:
    assert attn_exp.check(HeadByHead, quick=True).mistakes == ("entries_and_heads_mixed",)


class CausalUnlessTold(Three):
    """Causal by default, and not where it is told so."""

    def forward(self, x: Any, causal: bool = True) -> Any:
        q, k, v = (self.cut(side(x)) for side in (self.to_q, self.to_k, self.to_v))
        scores = self.scores(q, k)
        if causal:
            scores = scores.masked_fill(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1), -math.inf)
        return self.mix(self.put_together(self.weigh(scores) @ v))


def test_a_switch_of_a_layer_is_off_where_nobody_asks_for_it() -> None:
    verdict = attn_exp.check(CausalUnlessTold, quick=True)
    assert verdict.passed and not verdict.right_under, verdict
    assert "its own causal=True only where asked for" in str(verdict)


def divided(q: Any, k: Any, v: Any, scale: float | None = None) -> Any:
    """Scores are divided by what is passed as the scale."""
    scores = q @ np.swapaxes(k, -1, -2) / (math.sqrt(q.shape[-1]) if scale is None else scale)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ v


def squared(q: Any, k: Any, v: Any, scale: float | None = None) -> Any:
    """The scale that is passed is squared, which is neither."""
    scores = q @ np.swapaxes(k, -1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale**2)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ v


def divided_twice(q: Any, k: Any, v: Any, scale: float | None = None) -> Any:
    """Queries and then scores are divided by what is passed as the scale."""
    root = math.sqrt(q.shape[-1]) if scale is None else scale
    scores = (q / root) @ np.swapaxes(k, -1, -2) / root
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ v


def test_a_scale_that_divides_twice_is_one_mistake() -> None:
    verdict = attn_exp.check(divided_twice, quick=True)
    assert verdict.mistakes == ("scale_twice",), verdict


def test_a_scale_that_divides_is_a_way_to_say_it() -> None:
    verdict = attn_exp.check(divided, quick=True)
    assert verdict.passed, verdict
    assert "what is passed as its scale divides" in str(verdict)
    assert not attn_exp.check(squared, quick=True).passed


def turned_in_single(q: Any, k: Any, v: Any, pe: Any) -> Any:
    """Queries and keys are turned in float32 by a matrix for each two numbers, as models of images do."""

    def turn(x: Any) -> Any:
        pairs = x.float().reshape(*x.shape[:-1], -1, 1, 2)
        return (pe[..., 0] * pairs[..., 0] + pe[..., 1] * pairs[..., 1]).reshape(x.shape).type_as(x)

    return F.scaled_dot_product_attention(turn(q), turn(k), v)


class TurnedByMatrices(Three):
    def forward(self, x: Any, pe: Any) -> Any:  # type: ignore[override] # it wants more
        q, k, v = (self.cut(side(x)) for side in (self.to_q, self.to_k, self.to_v))
        return self.mix(self.put_together(turned_in_single(q, k, v, pe)))


def test_positions_as_matrices_are_given_so_that_they_turn_nothing() -> None:
    verdict = attn_exp.check(TurnedByMatrices, quick=True)
    assert verdict.passed, verdict
    function = attn_exp.check(turned_in_single, quick=True)
    assert function.passed, function
    assert "it rounds queries and keys to float32" in str(function)


class CausalAndMultiplied(CausalAndWide):
    power, factor = 0.5, 1.0

    def scores(self, q: Any, k: Any) -> Any:
        later = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1)
        return (q @ k.transpose(-1, -2) * self.factor * self.width**self.power).masked_fill(later, -math.inf)


class CausalAndFixed(CausalAndMultiplied):
    power, factor = 0.0, 0.123


class CausalQueriesTwice(CausalAndWide):
    """Its keys are made and never used."""

    def scores(self, q: Any, k: Any) -> Any:
        later = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1)
        return (q @ q.transpose(-1, -2) / math.sqrt(k.shape[-1])).masked_fill(later, -math.inf)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (CausalAndMultiplied, "scale_multiplied"),
        (CausalAndFixed, "scale_fixed"),
        (CausalQueriesTwice, "keys_from_queries"),
    ],
)
def test_numbers_of_ones_own_and_unused_keys_are_named_beside_a_mask_inside(kind: Any, name: str) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.mistakes == (name,) and verdict.computes.startswith("with mask=causal, "), verdict


class SpreadByItsOwnFactor(Three):
    def scores(self, q: Any, k: Any) -> Any:
        return q @ k.transpose(-1, -2) * 0.06

    def weigh(self, scores: Any) -> Any:
        return scores.softmax(-1).transpose(-1, -2)


def test_a_factor_is_read_off_beside_another_mistake() -> None:
    verdict = attn_exp.check(SpreadByItsOwnFactor, quick=True)
    assert set(verdict.mistakes) == {"scale_fixed", "weights_transposed"}, verdict


class ColumnsMergedByView(nn.Module):
    """Tokens are columns, and what the heads give is read as if they still were."""

    def __init__(self, channels: int, heads: int = 1) -> None:
        super().__init__()
        self.heads, self.out = heads, nn.Conv2d(channels, channels, 1)
        self.to_q, self.to_k, self.to_v = (nn.Conv1d(channels, channels, 1, bias=False) for _ in range(3))

    def forward(self, x: Any) -> Any:
        q, k, v = (side(x.flatten(2)).unflatten(1, (self.heads, -1)).mT for side in (self.to_q, self.to_k, self.to_v))
        weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
        return self.out((weights @ v).reshape(x.shape))


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (ColumnsMergedByView, {"heads_merged_wrong"}),
    ],
)
def test_columns_and_single_sides_that_are_viewed_are_named(kind: Any, names: set[str]) -> None:
    assert set(attn_exp.check(kind, quick=True).mistakes) == names


class CopiesItsQueries(Three):
    def scores(self, q: Any, k: Any) -> Any:
        return q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])

    def forward(self, x: Any) -> Any:
        q, k, v = (torch.tensor(self.cut(side(x)).numpy(force=True)) for side in (self.to_q, self.to_k, self.to_v))
        return self.put_together(self.weigh(self.scores(q, k)) @ v)


class NeverTrained(Three):
    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            return super().forward(x)


def test_a_layer_that_no_gradient_reaches_is_wrong_unless_it_says_so_itself() -> None:
    verdict = attn_exp.check(CopiesItsQueries, quick=True)
    assert verdict.mistakes == ("gradients_cut",) and not verdict.passed, verdict
    verdict = attn_exp.check(NeverTrained, quick=True)
    assert verdict.passed, verdict
    assert next(one for one in verdict.findings if one.rung == "gradients").state == "remark"


def over_another_axis(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return torch.softmax(scores if mask is None else scores.masked_fill(mask == 0, -math.inf), dim=1) @ v


def test_a_softmax_over_heads_of_hidden_keys_alone_is_nan_and_no_mistake_of_masks() -> None:
    assert attn_exp.check(over_another_axis, quick=True).mistakes == ("softmax_over_heads",)


def favouring_later_keys(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """ALiBi as a model has it that hides later keys with its mask: each key gets a number by its own place."""
    heads, keys = q.shape[1], k.shape[-2]
    powers = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    powers = powers + np.array([2.0 ** (-8 * (one + 1) / heads) for one in range(heads)])[:, None, None] * np.arange(
        keys
    )
    powers = powers if mask is None else np.where(mask, powers, -np.inf)
    powers = np.exp(powers - powers.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ v


def test_alibi_that_keeps_the_sign_of_its_distances_is_a_convention() -> None:
    verdict = attn_exp.check(favouring_later_keys, "head=4", quick=True)
    assert verdict.passed and "score=alibi score.alibi.signed=true" in verdict.right_under, verdict


def by_distance(q: Any, k: Any, v: Any, sign: int = 1) -> Any:
    """Each key gets a number by its distance, whichever side it is on: far ones are favoured, or near ones."""
    heads, (rows, keys) = q.shape[1], (q.shape[-2], k.shape[-2])
    rates = np.array([2.0 ** (-8 * (one + 1) / heads) for one in range(heads)])
    away = abs(np.arange(rows)[:, None] - np.arange(keys))
    powers = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]) + sign * rates[:, None, None] * away
    powers = np.exp(powers - powers.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ v


@pytest.mark.parametrize("signed", ["true", "false"])
def test_a_wrong_sign_of_alibi_is_named_whichever_distances_are_asked_for(signed: str) -> None:
    words = ("score=alibi", f"score.alibi.signed={signed}", "head=4")
    assert attn_exp.check(partial(by_distance, sign=1), *words, quick=True).mistakes == ("alibi_sign",)
    near = attn_exp.check(partial(by_distance, sign=-1), *words, quick=True)
    assert near.passed == (signed == "false") and not near.mistakes  # it favours no far keys


class CausalWindow(Three):
    reach = 64

    def scores(self, q: Any, k: Any) -> Any:
        far = torch.arange(q.shape[-2])[:, None] - torch.arange(k.shape[-2])
        return (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill((far < 0) | (far > self.reach), -math.inf)


class NarrowWindow(CausalWindow):
    reach = 8


@pytest.mark.long
@pytest.mark.parametrize("kind", [CausalWindow, NarrowWindow])
def test_a_window_that_only_long_texts_show_is_read_off_and_no_small_fill(kind: Any) -> None:
    words = f"mask=[causal,window] mask.window.left={kind.reach}"
    assert attn_exp.check(kind).right_under == words
    verdict = attn_exp.check(kind, "mask=causal")
    assert not verdict.passed and not verdict.mistakes, verdict


class DropsAlways:
    """A layer of arrays that drops weights whatever it is told."""

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.1) -> None:
        rng = np.random.default_rng(3)
        self.num_heads, self.dropout = num_heads, dropout
        self.W_q, self.W_k, self.W_v, self.W_o = (rng.standard_normal((d_model, d_model)) / 5 for _ in range(4))

    def forward(self, x: Any) -> Any:
        q, k, v = (
            (x @ w).reshape(*x.shape[:2], self.num_heads, -1).swapaxes(1, 2) for w in (self.W_q, self.W_k, self.W_v)
        )
        powers = np.exp(q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]))
        weights = powers / powers.sum(axis=-1, keepdims=True)
        if self.dropout:
            weights = weights * (np.random.random(weights.shape) >= self.dropout) / (1 - self.dropout)
        return (weights @ v).swapaxes(1, 2).reshape(x.shape) @ self.W_o


def test_a_layer_of_no_library_that_drops_in_evaluation_is_seen() -> None:
    assert "dropout_on" in attn_exp.check(DropsAlways, quick=True).mistakes


class Quiet(nn.Module):
    """Its last matrix is near 0 at first, and so is the factor of what it adds to x."""

    axis, first, factor = -1, 1e-5, 1.0

    def __init__(self, dim: int, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.root = heads, (dim // heads) ** 0.5
        self.qkv, self.last = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        nn.init.xavier_uniform_(self.last.weight, gain=self.first)
        self.gamma = nn.Parameter(self.factor * torch.ones(dim))

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT / self.root).softmax(self.axis)
        return x + self.gamma * self.last((weights @ v).transpose(1, 2).flatten(2))


class QuietDown(Quiet):
    axis = -2


class QuietDownByAFactor(QuietDown):
    first, factor = 1.0, 1e-6


@pytest.mark.parametrize("layer", [QuietDown, QuietDownByAFactor])
def test_attention_that_hardly_adds_to_x_at_first_is_asked_loudly(layer: type[nn.Module]) -> None:
    assert attn_exp.check(Quiet(24), quick=True).passed
    for one in (layer, layer(24)):
        assert attn_exp.check(one, quick=True).mistakes == ("softmax_over_queries",)


class OwnMask(Three):
    """What is added to its scores is ALiBi beside a causal mask, unless another mask is given."""

    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = (self.cut(side(x)) for side in (self.to_q, self.to_k, self.to_v))
        if mask is None:
            places, slopes = torch.arange(x.shape[1]), 2.0 ** -(8.0 / 4 * torch.arange(1, 5))
            far = slopes[: self.num_heads, None, None] * (places - places[:, None])
            mask = far.masked_fill(places > places[:, None], -math.inf)
        scores = self.scores(q, k) * (self.num_heads**-0.5 if self.is_wrong else 1.0) + mask
        return self.mix(self.put_together(self.weigh(scores) @ v))

    is_wrong = False


class OwnMaskAndWide(OwnMask):
    is_wrong = True


def test_a_mask_that_would_take_the_place_of_alibi_is_not_given() -> None:
    words = ("mask=causal", "score=alibi", "head=4")
    assert attn_exp.check(OwnMask, *words, quick=True).passed
    assert attn_exp.check(OwnMaskAndWide, *words, quick=True).mistakes == ("scale_by_sqrt_d_model",)
