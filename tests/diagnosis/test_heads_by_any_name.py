"""A number of heads is known by what code does with it, whatever it is called; a switch of the scale is switched on."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import attn_exp  # noqa: E402


class Parted(nn.Module):
    """Its heads are parts of a view; a residual and a norm stand around."""

    def __init__(self, dim: int, parts_n: int) -> None:
        super().__init__()
        self.part = dim // parts_n
        self.parts_n = parts_n
        self.asks, self.answers, self.gives, self.joins = (nn.Linear(dim, dim) for _ in range(4))
        self.evens = nn.LayerNorm(dim)

    def forward(self, k: Any, v: Any, q: Any) -> Any:
        sides = self.asks(q), self.answers(k), self.gives(v)
        one, other, third = (side.reshape(len(q) * self.parts_n, -1, self.part) for side in sides)
        mixed = (one @ other.transpose(1, 2) / self.part**0.5).softmax(2) @ third
        return self.evens(q + self.joins(mixed.reshape(q.shape)))


def test_views_of_heads_by_any_name_are_named() -> None:
    assert attn_exp.check(Parted, quick=True).mistakes == ("heads_not_transposed",)


class Switched(nn.Module):
    def __init__(self, d_model: int, num_heads: int, use_scale: bool = False) -> None:
        super().__init__()
        self.num_heads, self.use_scale = num_heads, use_scale
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: Any) -> Any:
        q, k, v = (side(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for side in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2)
        scores = scores / q.shape[-1] ** 0.5 if self.use_scale else scores
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_a_scale_that_is_switched_off_by_default_is_no_mistake() -> None:
    assert attn_exp.check(Switched, quick=True).passed


class CountedInWords(nn.Module):
    """Its settings are a mapping that says 0 where it is not told how many there are."""

    def __init__(self, settings_config: dict[str, int]) -> None:
        super().__init__()
        width, self.heads, self.groups = (
            settings_config.get(word, 0) for word in ("embedding", "number_of_heads", "number_of_groups")
        )
        size = width // self.heads
        assert self.heads % self.groups == 0
        self.q, self.o = (nn.Linear(width, width) for _ in range(2))
        self.k, self.v = (nn.Linear(width, size * self.groups) for _ in range(2))

    def forward(self, x: Any) -> Any:
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (side(x).unflatten(-1, (self.groups, -1)).transpose(1, 2) for side in (self.k, self.v))
        k, v = (side.repeat_interleave(self.heads // self.groups, 1) for side in (k, v))
        return self.o(((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_what_is_counted_in_words_is_known() -> None:
    assert attn_exp.check(CountedInWords, quick=True).passed
