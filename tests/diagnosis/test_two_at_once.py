"""Two mistakes of a layer that hide each other: views of some sides, shared keys in turns, masks put on wrongly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import attn_exp  # noqa: E402
from tests.diagnosis.test_bugs_of_others import Three  # noqa: E402


class Viewed(Three):
    """Cuts some of q, k and v with a view alone."""

    sides = "q"
    takes_mask = True

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.to_out = self.mix
        del self.mix

    def factor(self, q: Any) -> float:
        return 1 / math.sqrt(q.shape[-1])

    def forward(self, x: Any, mask: Any = None) -> Any:
        made = {"q": self.to_q(x), "k": self.to_k(x), "v": self.to_v(x)}
        q, k, v = (
            one.view(len(x), self.num_heads, x.shape[1], -1) if side in self.sides else self.cut(one)
            for side, one in made.items()
        )
        scores = q @ k.transpose(-1, -2) * self.factor(q)
        if mask is not None and self.takes_mask:
            scores = scores.masked_fill(mask == 0, -math.inf)
        return self.to_out(self.put_together(self.weigh(scores) @ v))


class QueriesAndKeysViewed(Viewed):
    sides = "qk"


class KeysAndValuesViewedUnscaled(Viewed):
    sides = "kv"

    def factor(self, q: Any) -> float:
        return 1.0


class QueriesViewedUnmasked(Viewed):
    takes_mask = False


class InTurns(nn.Module):
    """Shares keys and values in turns, where each should come as often in a row."""

    def __init__(self, d_model: int, num_heads: int, num_kv_heads: int) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads, size = num_heads, num_kv_heads, d_model // num_heads
        self.q_proj, self.o_proj = nn.Linear(d_model, num_heads * size), nn.Linear(num_heads * size, d_model)
        self.k_proj, self.v_proj = (nn.Linear(d_model, num_kv_heads * size) for _ in range(2))

    def scores(self, q: Any, k: Any) -> Any:
        return q @ k.transpose(-1, -2)

    def forward(self, x: Any, mask: Any = None) -> Any:
        times = self.num_heads // self.num_kv_heads
        q = self.q_proj(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        k, v = (side(x).unflatten(-1, (self.num_kv_heads, -1)).transpose(1, 2).repeat(1, times, 1, 1)
                for side in (self.k_proj, self.v_proj))  # fmt: skip
        scores = self.scores(q, k)
        if mask is not None:
            scores = scores.masked_fill(self.hidden(mask), -math.inf)
        return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def hidden(self, mask: Any) -> Any:
        return ~mask


class InTurnsInverted(InTurns):
    def scores(self, q: Any, k: Any) -> Any:
        return q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])

    def hidden(self, mask: Any) -> Any:
        return mask


class Masked(Three):
    def masked(self, scores: Any, mask: Any) -> Any:
        return scores.masked_fill(mask == 0, -1e9)

    def mixed(self, weights: Any, v: Any) -> Any:
        return weights @ v

    def forward(self, query: Any, key: Any, value: Any, mask: Any = None) -> Any:  # type: ignore[override]
        q, k, v = self.cut(self.to_q(query)), self.cut(self.to_k(key)), self.cut(self.to_v(value))
        scores = self.scores(q, k)
        if mask is not None:
            scores = self.masked(scores, mask)
        return self.mix(self.put_together(self.mixed(self.weigh(scores), v)))


class TurnedAndWide(Masked):
    def scores(self, q: Any, k: Any) -> Any:
        return q @ k.transpose(-1, -2) / math.sqrt(self.width)

    def mixed(self, weights: Any, v: Any) -> Any:
        return weights.transpose(-1, -2) @ v


class FavouredAndMerged(Masked):
    def masked(self, scores: Any, mask: Any) -> Any:
        return scores + (1.0 - mask.to(scores)) * 1e9

    def put_together(self, context: Any) -> Any:
        return context.reshape(len(context), context.shape[2], -1)


class InvertedAndUnscaled(Masked):
    def scores(self, q: Any, k: Any) -> Any:
        return q @ k.transpose(-1, -2)

    def masked(self, scores: Any, mask: Any) -> Any:
        return scores.masked_fill(mask == 1, -1e9)


class Arrays:
    """Multiplies its scores by the mask, and divides them by d."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        self.num_heads = num_heads
        self.w_q, self.w_k, self.w_v, self.w_o = np.random.default_rng(3).standard_normal((4, d_model, d_model)) / 5

    def forward(self, x: Any, mask: Any = None) -> Any:
        b, t, m = x.shape
        q, k, v = ((x @ w).reshape(b, t, self.num_heads, -1).swapaxes(1, 2) for w in (self.w_q, self.w_k, self.w_v))
        scores = q @ k.swapaxes(-1, -2) / q.shape[-1]
        scores = scores if mask is None else scores * mask
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        context = powers / powers.sum(axis=-1, keepdims=True) @ v
        return context.swapaxes(1, 2).reshape(b, t, m) @ self.w_o


class OfPointsTurned(nn.Module):
    """Of `[b c n]`: weights of no scale meet the values turned."""

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.proj = nn.Conv1d(channels, 3 * channels, 1), nn.Conv1d(channels, channels, 1)

    def forward(self, x: Any) -> Any:
        b, c, n = x.shape
        q, k, v = self.qkv(x).reshape(b, 3, self.num_heads, -1, n).unbind(1)
        return self.proj((v @ (q.transpose(-1, -2) @ k).softmax(-1)).reshape(b, c, n))


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Viewed, {"heads_not_transposed"}),
        (QueriesAndKeysViewed, {"heads_not_transposed"}),
        (KeysAndValuesViewedUnscaled, {"heads_not_transposed", "no_scale"}),
        (QueriesViewedUnmasked, {"heads_not_transposed", "mask_ignored"}),
        (InTurns, {"kv_heads_tiled", "no_scale"}),
        (TurnedAndWide, {"weights_transposed", "scale_by_sqrt_d_model"}),
        (FavouredAndMerged, {"mask_sign", "heads_merged_wrong"}),
        (Arrays, {"mask_multiplied", "scale_by_d"}),
        (OfPointsTurned, {"weights_transposed", "no_scale"}),
    ],
)
def test_each_of_two_mistakes_is_named(kind: Any, names: set[str]) -> None:
    verdict = attn_exp.check(kind)
    assert set(verdict.mistakes) == names and not verdict.passed, verdict


@pytest.mark.parametrize(("kind", "name"), [(InTurnsInverted, "kv_heads_tiled"), (InvertedAndUnscaled, "no_scale")])
def test_a_mask_that_hides_what_is_true_is_said_beside_a_mistake(kind: Any, name: str) -> None:
    verdict = attn_exp.check(kind)
    assert verdict.mistakes == (name,), verdict
    assert {name, "mask_inverted"} in map(set, verdict.alike), verdict
    assert "convention=torch_mha" in verdict.computes


def unmasked_in_single(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """Its mask has no effect, and its positions, of tables in float32, are one apart."""
    places, speeds = np.arange(8192.0), 10000.0 ** -(np.arange(q.shape[-1] // 2) / (q.shape[-1] // 2))
    angles = np.outer(places, speeds).astype(np.float32)
    tables = np.cos(angles), np.sin(angles)

    def turned(one: Any, first: int) -> Any:
        cos, sin = (table[first : first + one.shape[-2]] for table in tables)
        low, high = np.split(one, 2, -1)
        return np.concatenate([low * cos - high * sin, high * cos + low * sin], -1)

    scores = turned(q, 1) @ turned(k, 0).swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ v


def test_a_mistake_of_masks_beside_another_is_named_where_all_is_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attn_exp.diagnosis.explaining.explanations.EXPLAINING", 0.0)  # what takes long would find none
    verdict = attn_exp.check(unmasked_in_single, "position=rope", quick=True)
    assert set(verdict.mistakes) == {"rope_off_by_one", "mask_ignored"}, verdict
