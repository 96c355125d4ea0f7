"""Layers and functions that want odd things: switches, flags of which one must be set, tokens beside an image."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch
from torch import nn


class Plain(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.count = heads
        self.q, self.k, self.v, self.last = (nn.Linear(dim, dim) for _ in range(4))

    def cut(self, one: Any) -> Any:
        return one.unflatten(-1, (self.count, -1)).transpose(1, 2)

    def attend(self, x: Any, memory: Any = None) -> Any:
        memory = x if memory is None else memory
        q, k, v = self.cut(self.q(x)), self.cut(self.k(memory)), self.cut(self.v(memory))
        weights = (q @ k.mT / self.root(q)).softmax(-1)
        return self.last((weights @ v).transpose(1, 2).flatten(2))

    def root(self, q: Any) -> float:
        return float(q.shape[-1] ** 0.5)


class OfSwitches(Plain):
    """Its file lacks what the switches ask for."""

    def __init__(self, setup: Any) -> None:
        super().__init__(setup.hidden_dim, setup.heads)
        if setup.rotary_embedding:
            self.rope = Missing(setup.heads)  # type: ignore[name-defined]  # noqa: F821
        self.norm = Missing(3) if setup.hidden_norm and not setup.fused_heads else nn.Identity()  # type: ignore[name-defined]  # noqa: F821

    def forward(self, x: Any) -> Any:
        return self.attend(self.norm(x))


class OneOfTwo(Plain):
    def __init__(self, dim: int, heads: int, to_itself: bool = False, to_others: bool = False) -> None:
        super().__init__(dim, heads)
        self.to_itself, self.to_others = to_itself, to_others
        assert self.to_itself ^ self.to_others

    def forward(self, x: Any) -> Any:
        return self.attend(x)


class OneOfTwoRaised(Plain):
    def __init__(self, dim: int, heads: int, encoder: bool = False, decoder: bool = False) -> None:
        super().__init__(dim, heads)
        if encoder == decoder:
            raise ValueError("say encoder or decoder")

    def forward(self, x: Any) -> Any:
        return self.attend(x)


class OneOfTwoWrong(OneOfTwo):
    def root(self, q: Any) -> float:
        return float((q.shape[-1] * self.count) ** 0.5)


@pytest.mark.parametrize(
    ("layer", "names"),
    [(OfSwitches, ()), (OneOfTwo, ()), (OneOfTwoRaised, ()), (OneOfTwoWrong, ("scale_by_sqrt_d_model",))],
)
def test_switches_are_read_off_the_code(layer: type[nn.Module], names: tuple[str, ...]) -> None:
    judged(layer, names)


class BesideAnImage(Plain):
    """One token of x stands before those of an image, in which each sees its neighbours first."""

    before = 1

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.near = nn.Conv2d(dim, dim, 3, padding=1, groups=dim)
        self.near_k = nn.Sequential(nn.Conv2d(dim, dim, 3, padding=1, groups=dim, bias=False), nn.BatchNorm2d(dim))

    def of_neighbours(self, x: Any, near: Any, height: int, width: int) -> Any:
        first, rest = torch.split(x, [self.before, height * width], 1)
        made = near(rest.transpose(1, 2).reshape(len(x), x.shape[-1], height, width))
        return torch.cat([first, made.flatten(2).transpose(1, 2)], 1)

    def forward(self, x: Any, h: int, w: int) -> Any:
        return self.attend(self.of_neighbours(x, self.near, h, w), self.of_neighbours(x, self.near_k, h, w))


class BesideAnImageByWidth(BesideAnImage):
    def root(self, q: Any) -> float:
        return float((q.shape[-1] * self.count) ** 0.5)


class TwoBesideAnImage(BesideAnImage):
    before = 2

    def forward(self, x: Any, hw: Any, _: Any = None) -> Any:
        return super().forward(x, *hw)


class OfAGrid(Plain):
    """A place of its own for each pair of the points of a grid and one token before them."""

    def __init__(self, dim: int, num_heads: int = 12, window_size: Any = None) -> None:
        super().__init__(dim, num_heads)
        if window_size is None:
            raise ValueError("say how large the grid is")
        self.high, self.wide = window_size if isinstance(window_size, tuple) else (window_size, window_size)
        self.places = nn.Parameter(torch.zeros(num_heads, self.high * self.wide + 1, self.high * self.wide + 1))

    def forward(self, x: Any) -> Any:
        if x.shape[1] != self.high * self.wide + 1:
            raise ValueError(f"expected {self.high * self.wide + 1} tokens, got {x.shape[1]}")
        q, k, v = self.cut(self.q(x)), self.cut(self.k(x)), self.cut(self.v(x))
        weights = (q @ k.mT / self.root(q) + self.places).softmax(-1)
        return self.last((weights @ v).transpose(1, 2).flatten(2))


class OfAnotherGrid(OfAGrid):
    def __init__(self, dim: int, num_heads: int = 12, input_resolution: Any = None) -> None:
        super().__init__(dim, num_heads, input_resolution)


class HalfOfHalf(Plain):
    """A factor for each number of one half gives the other half."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.q, self.k, self.v = (nn.Linear(dim, dim // 2, bias=False) for _ in range(3))
        self.q2, self.k2, self.v2 = (nn.Conv1d(dim // 2, dim // 2, 1, groups=dim // 2, bias=False) for _ in range(3))

    def forward(self, x: Any) -> Any:
        ways = ((self.q, self.q2), (self.k, self.k2), (self.v, self.v2))
        q, k, v = (self.cut(torch.cat([one(x), other(one(x).mT).mT], -1)) for one, other in ways)
        return self.last(((q @ k.mT / self.root(q)).softmax(-1) @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize(
    ("layer", "names"),
    [
        (BesideAnImage, ()), (TwoBesideAnImage, ()), (BesideAnImageByWidth, ("scale_by_sqrt_d_model",)),
        (HalfOfHalf, ()), (OfAGrid, ()), (OfAnotherGrid, ()),
    ],
)  # fmt: skip
def test_tokens_may_stand_beside_an_image(layer: type[nn.Module], names: tuple[str, ...]) -> None:
    judged(layer, names)


class Times:
    """A matrix of nobody's library."""

    def __init__(self, rows: int, columns: int) -> None:
        self.held = {"W": torch.randn(rows, columns) / rows**0.5, "kind": torch.tensor([1])}

    def __call__(self, x: Any) -> Any:
        return x @ self.held["W"]


class Dropped:
    """It is told in which mode it is before it is called; its word for no training is its own."""

    def __call__(self, x: Any) -> Any:
        return x if self.mode == "test" else x * (torch.rand(x.shape) > 0.5)  # type: ignore[attr-defined]


class OfPlainTensors:
    def __init__(self, in_size: int, heads: int, n_timesteps: int) -> None:
        self.parts = {name: Times(in_size, in_size) for name in "qkvo"}
        self.hidden = torch.ones(n_timesteps, n_timesteps).tril()
        self.dropped, self.heads = Dropped(), heads

    def forward(self, x: Any) -> Any:
        q, k, v = (self.parts[name](x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for name in "qkv")
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores = scores.masked_fill(self.hidden[: x.shape[1], : x.shape[1]] == 0, -torch.inf)
        return self.parts["o"]((self.dropped(scores.softmax(-1)) @ v).transpose(1, 2).flatten(2))


class OfPlainTensorsInTraining(OfPlainTensors):
    """What it calls the number of tokens says nothing, and its switch is set nowhere."""

    def __init__(self, in_size: int, heads: int, upto: int) -> None:
        super().__init__(in_size, heads, 1)
        self.hidden = torch.tril(torch.ones((upto, upto)))

    def forward(self, x: Any) -> Any:
        if self.is_train:  # type: ignore[attr-defined]
            raise RuntimeError("nobody trains")
        return super().forward(x)


@pytest.mark.parametrize("layer", [OfPlainTensors, OfPlainTensorsInTraining])
def test_layers_of_no_library_may_hold_tensors_and_be_told_that_they_do_not_train(layer: type) -> None:
    verdict = attn_exp.check(layer, quick=True)
    assert verdict.passed, verdict
    assert verdict.right_under == "mask=causal"


def judged(asked: Any, names: tuple[str, ...]) -> None:
    verdict = attn_exp.check(asked, quick=True)
    assert verdict.mistakes == names, verdict
    assert verdict.passed == (not names)
