"""Layers with a cache or a window: no mistake that engineers make there is called right."""

from __future__ import annotations

import math
from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch
from torch import Tensor

from tests.diagnosis.layers import Layer

Cache = tuple[Tensor, Tensor]


class Faulty(Layer):
    """Causal attention with one mistake, switched on by name; without one it is right."""

    fault = ""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None = None) -> Any:
        keep = torch.ones(q.shape[2], k.shape[2]).tril(k.shape[2] - q.shape[2]).bool() if keep is None else keep
        return self.output(self.weigh(self.score(q, k).masked_fill(~keep, -math.inf)) @ v)


class Cached(Faulty):
    """Its cache is handed over and returned."""

    def forward(self, x: Tensor, layer_past: Cache | None = None, use_cache: bool = False) -> Any:
        q, k, v = map(self.split, self.project(x))
        if layer_past is not None:
            old = layer_past[::-1] if self.fault == "keys for values" else layer_past
            parts = [(old[0], k), (old[1], v)]
            if self.fault == "newest key first":
                parts[0] = (k, old[0])
            if self.fault == "values of the past lost":
                parts[1] = (torch.zeros_like(old[1]), v)
            k, v = (torch.cat(pair, 2) for pair in parts)
        result = self.attend(q, k, v)
        return (result, (k, v)) if use_cache else result


class Kept(Faulty):
    """Its cache is a buffer, written from a place that it is told."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.keys = torch.zeros(8, num_heads, 64, d_model // num_heads, dtype=torch.float64)
        self.values = torch.zeros_like(self.keys)

    def forward(self, x: Tensor, start_pos: int = 0) -> Any:
        q, k, v = map(self.split, self.project(x))
        first = max(start_pos - 1, 0) if self.fault == "written one early" else start_pos
        end = start_pos + x.shape[1]
        self.keys[: len(x), :, first : first + x.shape[1]] = k
        self.values[: len(x), :, first : first + x.shape[1]] = v
        read = end - 1 if self.fault == "newest not read" and start_pos else end
        return self.attend(q, self.keys[: len(x), :, :read], self.values[: len(x), :, :read])


class Growing(Faulty):
    """It keeps its cache, and adds to it if it is told to."""

    past: Cache | None = None

    def forward(self, x: Tensor, use_cache: bool = False) -> Any:
        q, k, v = map(self.split, self.project(x))
        if use_cache:
            old = self.past or (k[:, :, :0], v[:, :, :0])
            k, v = self.past = torch.cat([old[0], k], 2), torch.cat([old[1], v], 2)
        return self.attend(q, k, v, torch.ones(q.shape[2], k.shape[2]).tril().bool() if self.fault else None)


class Windowed(Faulty):
    """A query sees itself and two tokens before it."""

    def forward(self, x: Tensor) -> Any:
        q, k, v = map(self.split, self.project(x))
        rows = torch.arange(x.shape[1])
        behind = rows[:, None] - rows
        limit = {"one wide": 3, "one narrow": 1}.get(self.fault, 2)
        first = -1 if self.fault == "looks ahead" else 0
        return self.attend(q, k, v, (behind >= first) & (behind <= limit))


class Rotated(Kept):
    """Its caller rotates queries and keys, by a table for the tokens of this call."""

    def forward(self, x: Tensor, freqs_cis: Tensor, start_pos: int = 0) -> Any:  # type: ignore[override]
        def rotate(side: Tensor) -> Tensor:
            pairs = torch.view_as_complex(side.reshape(*side.shape[:-1], -1, 2).contiguous())
            return torch.view_as_real(pairs * freqs_cis).flatten(-2)

        q, k, v = map(self.split, self.project(x))
        end = start_pos + x.shape[1]
        self.keys[: len(x), :, start_pos:end], self.values[: len(x), :, start_pos:end] = rotate(k), v
        keep = torch.ones(x.shape[1], end).tril().bool() if self.fault else None
        return self.attend(rotate(q), self.keys[: len(x), :, :end], self.values[: len(x), :, :end], keep)


class Bent(Cached):
    """Its queries cannot be read from its parameters."""

    def project(self, x: Tensor) -> Any:
        q, k, v = super().project(x)
        return torch.tanh(q), k, v


@pytest.mark.long
def test_a_cache_that_no_definition_can_be_compared_with_is_not_verified() -> None:
    verdict = attn_exp.check(Bent, "ignore=[projections]", quick=True)
    assert verdict.not_verified == ("cache `layer_past` (no definition gives the outputs of the layer)",), verdict


WINDOW = ("mask=[causal,window]", "mask.window.left=2")
ROPE = ("position=rope", "position.rope.interleaved=true")


@pytest.mark.parametrize(
    ("kind", "words"), [(Cached, ()), (Kept, ()), (Growing, ()), (Rotated, ROPE), (Windowed, WINDOW)]
)
def test_without_a_mistake_each_layer_is_right(kind: type[Faulty], words: tuple[str, ...]) -> None:
    verdict = attn_exp.check(kind, *words)
    assert (verdict.outcome, verdict.mistakes) == ("right", ())
    assert kind is Windowed or "decoding with a cache" in verdict.verified


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "words", "fault"),
    [
        (Cached, ("mask=causal",), "keys for values"), (Cached, ("mask=causal",), "newest key first"),
        (Cached, ("mask=causal",), "values of the past lost"), (Kept, ("mask=causal",), "written one early"),
        (Kept, ("mask=causal",), "newest not read"), (Growing, ("mask=causal",), "first key alone"),
        (Rotated, ROPE, "first key alone"),
        (Windowed, WINDOW, "one wide"), (Windowed, WINDOW, "one narrow"), (Windowed, WINDOW, "looks ahead"),
    ],
)  # fmt: skip
def test_no_layer_with_a_mistake_is_called_right(kind: type[Faulty], words: tuple[str, ...], fault: str) -> None:
    assert attn_exp.check(type(kind.__name__, (kind,), {"fault": fault}), *words).outcome != "right"


class PairCache:
    """Keys and values of earlier tokens; a class of its own beside the layer."""

    def __init__(self) -> None:
        self.pair: Cache | None = None

    def append(self, k: Tensor, v: Tensor) -> Cache:
        self.pair = (k, v) if self.pair is None else (torch.cat([self.pair[0], k], 2), torch.cat([self.pair[1], v], 2))
        return self.pair


class OfObject(Faulty):
    """Its cache is an object; with one, the layer may forget to hide later tokens of a prompt."""

    def forward(self, x: Tensor, cache: PairCache | None = None) -> Any:
        q, k, v = map(self.split, self.project(x))
        k, v = (k, v) if cache is None else cache.append(k, v)
        sees_all = cache is not None and self.fault == "prompt not causal"
        return self.attend(q, k, v, torch.ones(q.shape[2], k.shape[2]).bool() if sees_all else None)


@pytest.mark.parametrize("words", [("mask=causal",), ()])
@pytest.mark.parametrize(("fault", "mistakes"), [("", ()), ("prompt not causal", ("causal_ignored",))])
def test_a_prompt_of_several_tokens_fills_a_cache_causally(
    fault: str, mistakes: tuple[str, ...], words: tuple[str, ...]
) -> None:
    verdict = attn_exp.check(type("OfObject", (OfObject,), {"fault": fault}), *words, quick=True)
    assert (verdict.outcome, verdict.mistakes) == ("wrong" if mistakes else "right", mistakes), verdict
    assert "decoding with a cache" in verdict.verified
