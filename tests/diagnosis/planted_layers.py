"""Layers with one mistake in rotary positions, a cache or a window, switched on by name; without one they are right."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

Cache = tuple[Tensor, Tensor]


class Base(nn.Module):
    fault: ClassVar[str] = ""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_model // num_heads
        self.q_proj, self.k_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.v_proj, self.out_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def heads(self, x: Tensor) -> list[Tensor]:
        made = (layer(x) for layer in (self.q_proj, self.k_proj, self.v_proj))
        return [one.view(*x.shape[:2], self.num_heads, self.head_dim).transpose(1, 2) for one in made]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
        scores = (q @ k.mT / math.sqrt(self.head_dim)).masked_fill(~keep, -math.inf)
        mixed = scores.softmax(-1) @ v
        result: Tensor = self.out_proj(mixed.transpose(1, 2).reshape(q.shape[0], q.shape[2], -1))
        return result


def causal(rows: int, keys: int) -> Tensor:
    return torch.ones(rows, keys).tril(keys - rows).bool()


class Rotary(Base):
    def turn(self, heads: Tensor, start: int = 0, base: float = 1e4, sign: int = 1) -> Tensor:
        half = self.head_dim // 2
        speeds = base ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = sign * (torch.arange(heads.shape[2]) + start)[:, None] * speeds
        cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
        if self.fault == "mixed pairs":
            cos = angles.cos().repeat_interleave(2, -1)
        return heads * cos + torch.cat([-heads[..., half:], heads[..., :half]], -1) * sin

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        plain_keys = k
        q, k = self.turn(q), self.turn(k)
        k = plain_keys if self.fault == "keys not rotated" else k
        k = self.turn(plain_keys, sign=-1) if self.fault == "keys rotated backwards" else k
        k = self.turn(plain_keys, start=1) if self.fault == "keys one later" else k
        k = self.turn(plain_keys, base=1e3) if self.fault == "another base for keys" else k
        v = self.turn(v) if self.fault == "values rotated" else v
        return self.attend(q, k, v, causal(x.shape[1], x.shape[1]))


class Cached(Base):
    def forward(self, x: Tensor, layer_past: Cache | None = None, use_cache: bool = False) -> Any:
        q, k, v = self.heads(x)
        if layer_past is not None:
            old = layer_past[::-1] if self.fault == "keys for values" else layer_past
            parts = [(old[0], k), (old[1], v)]
            if self.fault == "newest key first":
                parts[0] = (k, old[0])
            if self.fault == "values of the past lost":
                parts[1] = (torch.zeros_like(old[1]), v)
            k, v = (torch.cat(pair, 2) for pair in parts)
        result = self.attend(q, k, v, causal(q.shape[2], k.shape[2]))
        return (result, (k, v)) if use_cache else result


class Kept(Base):
    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.keys = torch.zeros(8, num_heads, 64, self.head_dim, dtype=torch.float64)
        self.values = torch.zeros_like(self.keys)

    def forward(self, x: Tensor, start_pos: int = 0) -> Tensor:
        q, k, v = self.heads(x)
        first = max(start_pos - 1, 0) if self.fault == "written one early" else start_pos
        end = start_pos + x.shape[1]
        self.keys[: len(x), :, first : first + x.shape[1]] = k
        self.values[: len(x), :, first : first + x.shape[1]] = v
        read = end - 1 if self.fault == "newest not read" and start_pos else end
        k, v = self.keys[: len(x), :, :read], self.values[: len(x), :, :read]
        return self.attend(q, k, v, causal(q.shape[2], k.shape[2]))


class Windowed(Base):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        rows = torch.arange(x.shape[1])
        behind = rows[:, None] - rows
        limit = {"one wide": 3, "one narrow": 1}.get(self.fault, 2)
        first = -1 if self.fault == "looks ahead" else 0
        return self.attend(q, k, v, (behind >= first) & (behind <= limit))


ROPE, WINDOW = ("position=rope", "mask=causal"), ("mask=[causal,window]", "mask.window.left=2")
PLANTED: list[tuple[type[Base], tuple[str, ...], str]] = [
    *((Rotary, ROPE, fault) for fault in ("mixed pairs", "keys not rotated", "keys rotated backwards",
                                          "keys one later", "another base for keys", "values rotated")),
    *((Cached, ("mask=causal",), fault)
      for fault in ("keys for values", "newest key first", "values of the past lost")),
    *((Kept, ("mask=causal",), fault) for fault in ("written one early", "newest not read")),
    *((Windowed, WINDOW, fault) for fault in ("one wide", "one narrow", "looks ahead")),
]  # fmt: skip
"""Each class with what it is meant to compute and the mistake in it."""


def plant(kind: type[Base], fault: str) -> type[Base]:
    """Return a class with a mistake in it."""
    return type(kind.__name__, (kind,), {"fault": fault, "__module__": kind.__module__})
