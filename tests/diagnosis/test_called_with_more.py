"""Layers that are made of, or called with, more than x: tables for some numbers, modules for places, norms of two."""

from __future__ import annotations

import inspect
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import attn_exp
from attn_exp.diagnosis.calling.search_of_ways import NoWayError
from attn_exp.diagnosis.calling.ways_into_layers import find_way
from attn_exp.diagnosis.judging.check import scaled_as_inside
from attn_exp.experiment.verdict import Finding

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch


class Layer(torch.nn.Module):
    """Attention with one packed matrix; `scores_of` says what q and k become."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.dim = heads, dim
        self.packed, self.out = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)

    def parts(self, x: Any) -> Any:
        return [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.packed(x).chunk(3, -1)]

    def joined(self, scores: Any, v: Any) -> Any:
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class TurnedInPart(Layer):
    """A quarter of each head is turned, by tables of so many numbers."""

    def turned(self, x: Any, cos: Any, sin: Any) -> Any:
        if cos.ndim != 3:
            raise ValueError("cos must have three axes")
        size = self.dim // self.heads // 4
        part, rest = x[..., :size], x[..., size:]
        half = torch.cat([-part[..., size // 2 :], part[..., : size // 2]], -1)
        return torch.cat([part * cos[:, None] + half * sin[:, None], rest], -1)

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        q, k, v = self.parts(x)
        q, k = self.turned(q, cos, sin), self.turned(k, cos, sin)
        return self.joined(q @ k.mT / q.shape[-1] ** 0.5, v)


class OfDistances(Layer):
    """Each entry brings rows for the distances between tokens."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.places = torch.nn.Linear(dim, dim, bias=False)

    def forward(self, x: Any, pos_emb: Any) -> Any:
        (q, k, v), (batch, rows, _) = self.parts(x), x.shape
        far = self.places(pos_emb).view(batch, 2 * rows - 1, self.heads, -1).transpose(1, 2)
        shift = torch.arange(rows)[None] - torch.arange(rows)[:, None] + rows - 1
        scores = q @ k.mT + (q @ far.mT).gather(-1, shift.expand(batch, self.heads, rows, rows))
        return self.joined(scores / q.shape[-1] ** 0.5, v)


@pytest.mark.parametrize("kind", [TurnedInPart, OfDistances])
def test_what_a_layer_needs_beside_x_is_found(kind: Any) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.passed, verdict


class OfSteps(Layer):
    """A view knows how many tokens there are."""

    def __init__(self, device: str, time_steps: int = 91, feature_dim: int = 256, head_num: int = 4) -> None:
        super().__init__(feature_dim, head_num)
        self.shape = (-1, time_steps, head_num, feature_dim // head_num)

    def forward(self, x: Any, others: Any) -> Any:
        q, k, v = (part.reshape(self.shape).transpose(1, 2) for part in self.packed(x).chunk(3, -1))
        return self.joined(q @ k.mT / q.shape[-1] ** 0.5, v)


class Forgetting(Layer):
    """Scores far away weigh less, by a number of each head that is never 0; q and k may have one matrix."""

    def __init__(self, d_model: int, d_feature: int, n_heads: int, dropout: float, kq_same: Any) -> None:
        super().__init__(d_model, n_heads)
        self.size, self.kq_same = d_feature, kq_same
        self.gammas = torch.nn.Parameter(torch.zeros(n_heads, 1, 1))

    def forward(self, q: Any, k: Any, v: Any, mask: Any, zero_pad: Any) -> Any:
        first = 0 if self.kq_same is False else 1
        q, k, v = (
            self.packed(x).chunk(3, -1)[part].view(len(x), -1, self.heads, self.size).transpose(1, 2)
            for x, part in ((q, first), (k, 1), (v, 2))
        )
        places = torch.arange(q.shape[-2])
        far = (places[:, None] - places).abs() * torch.nn.functional.softplus(self.gammas)
        scores = (q @ k.mT / self.size**0.5 * torch.exp(-far)).masked_fill(mask == 0, -1e32)
        weights = scores.softmax(-1)
        if zero_pad:
            weights = torch.cat([0 * weights[:, :, :1], weights[:, :, 1:]], 2)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize(("kind", "said"), [(OfSteps, "9 tokens"), (Forgetting, "gammas set to -40")])
def test_sizes_switches_and_numbers_that_let_a_layer_be_plain_are_found(kind: Any, said: str) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.passed and said in str(verdict), verdict


def test_what_a_call_never_comes_to_is_not_tried() -> None:
    calls = []

    def layer(x: Any, cos: Any, sin: Any, mask: Any, cache: Any, places: Any) -> Any:
        calls.append(x.shape)
        raise ValueError("it fails before it looks at any of them")

    given = list(inspect.signature(layer).parameters.values())
    with pytest.raises(NoWayError):
        find_way(layer, given, torch.from_numpy, ("btm",), [24], 8)
    assert len(calls) < 120, len(calls)


class PicksRows(Layer):
    """Its mask has a row for each place, of which it takes those that it is told."""

    def forward(self, x: Any, positions: Any, mask: Any = None) -> Any:
        q, k, v = self.parts(x)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        hidden = None if mask is None else mask[positions, : k.shape[-2]]
        return self.joined(scores if hidden is None else scores.masked_fill(~hidden, -torch.inf), v)


class WarnsOfAWord(Layer):
    """An older word for a mask is asked for in vain."""

    def forward(self, x: Any, attention_mask: Any = None, **kwargs: Any) -> Any:
        if "padding_mask" in kwargs:
            raise DeprecationWarning("say attention_mask")
        q, k, v = self.parts(x)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if attention_mask is not None:
            if attention_mask.shape != (len(x), 1, x.shape[1], x.shape[1]):
                raise ValueError("of another shape")
            scores = scores + attention_mask
        return self.joined(scores, v)


class AssertsNoCausal(Layer):
    """A word that stands there for others alone."""

    def forward(self, x: Any, mask: Any = None, is_causal: bool = False) -> Any:
        assert not is_causal, "we shall mend it"
        q, k, v = self.parts(x)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        return self.joined(scores if mask is None else scores.masked_fill(mask, -torch.inf), v)


@pytest.mark.parametrize(
    ("kind", "words"), [(PicksRows, ""), (WarnsOfAWord, ""), (AssertsNoCausal, "convention=torch_mha")]
)
def test_masks_are_given_as_the_code_reads_them(kind: Any, words: str) -> None:
    verdict = attn_exp.check(kind)
    assert verdict.passed or verdict.right_under == words != "", verdict
    states = {finding.rung: finding.state for finding in verdict.findings}
    assert words or states["masks"] == "held"


class TurnedByItsBase(Layer):
    """Its angles are those of a base that it must be told; a base of 0 would be no number."""

    def __init__(self, d_model: int, d_kv: int, num_heads: int, rope_theta: float) -> None:
        super().__init__(d_model, num_heads)
        size = d_model // num_heads
        self.register_buffer("frequencies", rope_theta ** (-torch.arange(0, size, 2) / size))

    def forward(self, x: Any, mask: Any, position_ids: Any = None) -> Any:
        assert position_ids is not None
        angles = (position_ids[..., None] * self.frequencies)[:, None]
        q, k, v = self.parts(x)
        q, k = (
            torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)
            for a, b in (part.chunk(2, -1) for part in (q, k))
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores += mask
        return self.joined(scores, v)


def test_a_base_of_angles_is_the_usual_one() -> None:
    verdict = attn_exp.check(TurnedByItsBase, quick=True)
    assert verdict.right_under == "position=rope", verdict


class OfOneEntry(Layer):
    """A key and a value of zeros stand before all others, and nobody repeated them for a batch."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.null = torch.nn.Parameter(torch.zeros(1, 1, dim))

    def forward(self, x: Any) -> Any:
        q, k, v = self.packed(x).chunk(3, -1)
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (q, torch.cat([self.null, k], 1), torch.cat([self.null, v], 1))
        )
        return self.joined(q @ k.mT / q.shape[-1] ** 0.5, v)


def test_a_layer_that_takes_a_batch_of_one_entry_is_called_with_each() -> None:
    verdict = attn_exp.check(OfOneEntry, quick=True)
    assert "a batch of one entry" in str(verdict), verdict
    assert verdict.computes.startswith("attention with score=sink"), verdict


class LooksAtPictures(Layer):
    """Texts look at the pictures that stand before them; where one stands must be said, though it has a default."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.q = torch.nn.Linear(dim, dim, bias=False)

    def forward(self, x: Any, media: Any, locations: Any = None) -> Any:
        assert locations.shape[1] == x.shape[1]
        batch, pictures, points, _ = media.shape
        _, k, v = self.parts(media.flatten(1, 2))
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        seen = locations.cumsum(-1)[:, :, None] == torch.arange(1, pictures + 1).repeat_interleave(points)
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~seen[:, None], -torch.finfo(q.dtype).max)
        nothing = (locations.cumsum(-1) == 0)[:, None, :, None]
        return self.out((scores.softmax(-1).masked_fill(nothing, 0.0) @ v).transpose(1, 2).reshape(batch, -1, self.dim))


def test_where_something_begins_is_the_first_token() -> None:
    verdict = attn_exp.check(LooksAtPictures, quick=True)
    assert verdict.passed and not any("cross" in said for said in verdict.not_asked), verdict


class HidesWithInfinity(torch.nn.Module):
    """-inf is put over the weights, not the scores: most of its answer is no number."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.wq, self.wk, self.wv, self.wo = (torch.nn.Linear(dim, dim) for _ in "qkvo")

    def weights(self, scores: Any) -> Any:
        return scores.softmax(-1).masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)

    def forward(self, x: Any) -> Any:
        q, k, v = (side(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in (self.wq, self.wk, self.wv))
        return self.wo((self.weights(q @ k.mT / q.shape[-1] ** 0.5) @ v).transpose(1, 2).flatten(2))


def test_what_answers_with_no_number_is_called_all_the_same() -> None:
    verdict = attn_exp.check(HidesWithInfinity, quick=True)
    assert not verdict.passed and set(verdict.mistakes) <= {"mask_after_softmax"}, verdict


class CannotDoWithoutItsMask(Layer):
    """The default of its mask is a number, which it does not bear."""

    def forward(self, x: Any, mask: Any = 1) -> Any:
        q, k, v = self.parts(x)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = torch.where(mask.unsqueeze(1) > 0, scores, -torch.inf)
        return self.joined(scores, v)


def test_a_mask_whose_default_is_a_number_is_given_where_that_is_an_error() -> None:
    assert attn_exp.check(CannotDoWithoutItsMask, quick=True).passed


def test_a_factor_is_no_mistake_where_the_heads_inside_want_it() -> None:
    """Other inputs may fill a part of each head."""
    seen = attn_exp.check(torch.nn.MultiheadAttention(8, 2, batch_first=True), quick=True)
    told = replace(seen, passed=False, mistakes=("scale_other",))
    for state, said in (("held", True), ("broken", False), ("absent", False)):
        inside = replace(seen, passed=True, findings=(Finding("the scale inside", state, ""),))
        tried: Any = SimpleNamespace(function=SimpleNamespace(layer=object(), look=lambda inside=inside: inside))
        assert scaled_as_inside(told, tried).passed == said


class OfOneLayer(torch.nn.Module):
    """Which layer it is need not be said, and has to be."""

    def __init__(
        self, hidden_size: int, num_heads: int, kinds: tuple[str, ...] = ("full",), layer_idx: int | None = None
    ):
        super().__init__()
        assert kinds[layer_idx] == "full"  # type: ignore[index]
        self.inner = torch.nn.MultiheadAttention(hidden_size, num_heads, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.inner(x, x, x)[0]


def test_which_layer_it_is_is_said_where_it_has_to_be() -> None:
    assert attn_exp.check(OfOneLayer, quick=True).passed
