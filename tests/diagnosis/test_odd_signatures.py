"""Layers and functions that want odd things: switches, flags of which one must be set, tokens beside an image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.errors import UserError

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


class OfSteps:
    """Methods for each step; the last of them speaks of attention and is called by none."""

    def __init__(self, d_model: int) -> None:
        self.d_model = d_model

    def attention_scores(self, q: Any, k: Any) -> Any:
        return q @ k.T / q.shape[-1] ** 0.5

    def shares(self, scores: Any) -> Any:
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    def get_attention_output(self, q: Any, k: Any, v: Any) -> Any:
        return self.shares(self.attention_scores(q, k)) @ v


class OfStepsOverAll(OfSteps):
    def shares(self, scores: Any) -> Any:
        powers = np.exp(scores - scores.max())
        return powers / powers.sum()


class OfStepsWithMatrices(OfSteps):
    def __init__(self, d_model: int) -> None:
        super().__init__(d_model)
        self.wq, self.wk, self.wv = np.random.default_rng(7).standard_normal((3, d_model, d_model))

    def compute_attention(self, x: Any) -> Any:
        return self.get_attention_output(x @ self.wq, x @ self.wk, x @ self.wv)


@pytest.mark.parametrize(
    ("kind", "names"), [(OfSteps, ()), (OfStepsOverAll, ("softmax_over_all",)), (OfStepsWithMatrices, ())]
)
def test_a_method_that_speaks_of_attention_is_what_is_called(kind: type, names: tuple[str, ...]) -> None:
    judged(kind, names)


@pytest.mark.parametrize("layer", [OfPlainTensors, OfPlainTensorsInTraining])
def test_layers_of_no_library_may_hold_tensors_and_be_told_that_they_do_not_train(layer: type) -> None:
    verdict = attn_exp.check(layer, quick=True)
    assert verdict.passed, verdict
    assert verdict.right_under == "mask=causal"


class InWindows(nn.Module):
    """Each window sees itself alone; it holds no matrices, and a size at a call is refused."""

    factor = 1.0

    def __init__(self, window_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.window_size, self.drop = window_size, nn.Dropout(dropout)

    def forward(self, q: Any, k: Any, v: Any, window_size: int | None = None) -> Any:
        assert window_size is None, "another window size is for other code"
        assert q.shape[-2] % self.window_size == 0, "the length must be a multiple"
        q, k, v = (one.unflatten(-2, (-1, self.window_size)) for one in (q, k, v))
        weights = (q @ k.mT * self.factor / q.shape[-1] ** 0.5).softmax(-1)
        return (self.drop(weights) @ v).flatten(-3, -2)


class OfPatterns(Plain):
    """How x is cut is told in letters at the call; the first token sees all, the others each other and the first."""

    def forward(self, x: Any, einops_from: str, einops_to: str) -> Any:
        if sorted(einops_from) != sorted(einops_to) or len(einops_from.split()) != x.ndim:
            raise ValueError(f"{einops_from} -> {einops_to} is for another x")
        return self.attend(x)


class InWindowsUnscaled(InWindows):
    @property
    def factor(self) -> float:  # type: ignore[override]
        return 2.0


class OfPoints(nn.Module):
    """Convolutions make its sides; how large they are has no default."""

    def __init__(self, in_channels: int, kernel_size: int, stride: int, num_heads: int) -> None:
        super().__init__()
        self.count = num_heads
        self.sides = nn.Conv2d(in_channels, 3 * in_channels, kernel_size, stride, padding=(kernel_size - 1) // 2)
        self.last = nn.Conv2d(in_channels, in_channels, 1)

    def forward(self, x: Any) -> Any:
        q, k, v = (one.flatten(2).unflatten(1, (self.count, -1)) for one in self.sides(x).chunk(3, 1))
        weights = (q.mT @ k / q.shape[2] ** 0.5).softmax(-1)
        return self.last((v @ weights.mT).flatten(1, 2).unflatten(2, x.shape[2:]))


@pytest.mark.parametrize(
    ("layer", "names"), [(InWindows, ()), (InWindowsUnscaled, ("scale_other",)), (OfPoints, ()), (OfPatterns, ())]
)
def test_sizes_of_windows_and_kernels_are_such_that_all_is_plain(
    layer: type[nn.Module], names: tuple[str, ...]
) -> None:
    judged(layer, names)


def judged(asked: Any, names: tuple[str, ...]) -> None:
    verdict = attn_exp.check(asked, quick=True)
    assert verdict.mistakes == names, verdict
    assert verdict.passed == (not names)


class OfKeysBefore(Plain):
    """Without a switch it uses the keys that a call before has left."""

    def __init__(self, input_size: int, heads: int, is_self_attn: bool = False) -> None:
        super().__init__(input_size, heads)
        self.is_self_attn = is_self_attn

    def forward(self, x: Any) -> Any:
        if self.is_self_attn:
            self.keys, self.values = self.cut(self.k(x)), self.cut(self.v(x))
        q = self.cut(self.q(x))
        weights = (q @ self.keys.mT / self.root(q)).softmax(-1)
        return self.last((weights @ self.values).transpose(1, 2).flatten(2))


class OfStates(Plain):
    """What keys and values are made of has names of its own, and is wanted."""

    def forward(self, x: Any, k_state: Any, v_state: Any) -> Any:
        if k_state.shape != v_state.shape:
            raise ValueError("keys and values belong together")
        q, k, v = self.cut(self.q(x)), self.cut(self.k(k_state)), self.cut(self.v(v_state))
        weights = (q @ k.mT / self.root(q)).softmax(-1)
        return self.last((weights @ v).transpose(1, 2).flatten(2))


class OfCapitals(nn.Module):
    """Sizes that are said with a capital, of which one begins as a flag does."""

    def __init__(self, D_in: int, D_emb: int, D_output: int) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(D_in, D_emb), nn.Linear(D_in, D_emb), nn.Linear(D_in, D_output)

    def forward(self, x: Any) -> Any:
        q, k = self.a(x), self.b(x)
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ self.c(x)


@pytest.mark.parametrize("kind", [OfKeysBefore, OfStates, OfCapitals])
def test_switches_states_and_sizes_in_capitals_are_understood(kind: type) -> None:
    """What keeps its keys mixes up two threads, which is a remark on an object."""
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.passed and not verdict.mistakes


class OfResidual(Plain):
    """What is added behind it is an argument that it must have."""

    def forward(self, hidden_states: Any, residual: Any) -> Any:
        return self.attend(hidden_states) + residual


def test_a_residual_that_is_given_is_no_memory() -> None:
    verdict = attn_exp.check(OfResidual, quick=True)
    assert verdict.passed and "not asked: cross attention" in str(verdict), verdict


class OfAFile:
    """Its constructor reads its matrices from a file that is not there."""

    def __init__(self, dim: int) -> None:
        self.matrices = open_matrices(dim)

    def forward(self, x: Any) -> Any:
        q, k, v = (x @ one for one in self.matrices)
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


def open_matrices(dim: int) -> Any:
    raise OSError(f"weights of {dim} are not there")


def test_a_class_whose_constructor_raises_is_told_its_own_error() -> None:
    with pytest.raises(UserError, match="are not there"):
        attn_exp.check(OfAFile, quick=True)


class OfQueryMap(nn.Module):
    """Its queries are the points of the second of two images, which have sizes of their own."""

    def __init__(self, D_query: int, D_image: int, D_emb: int, D_output: int) -> None:
        super().__init__()
        self.a, self.b, self.c = (
            nn.Conv2d(D_query, D_emb, 1),
            nn.Conv2d(D_image, D_emb, 1),
            nn.Conv2d(D_image, D_output, 1),
        )

    def forward(self, image: Any, query_space: Any) -> Any:
        q, k, v = self.a(query_space).flatten(2), self.b(image).flatten(2), self.c(image).flatten(2)
        weights = (k.mT @ q / q.shape[1] ** 0.5).softmax(-2)
        return (v @ weights).reshape(len(q), -1, *query_space.shape[2:])


def test_what_speaks_of_queries_may_be_x_where_it_comes_after_what_they_attend_to() -> None:
    verdict = attn_exp.check(OfQueryMap, quick=True)
    assert verdict.passed, verdict
    assert any(one.rung == "keys of another input" for one in verdict.findings)


class OfSeveralTexts(nn.Module):
    """Each entry holds several texts along the last axis, which stands before the features in the answer."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.heads = num_heads
        self.a, self.b, self.c = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, x: Any) -> Any:
        entries, tokens, width, texts = x.shape
        each = x.permute(0, 3, 1, 2)
        q, k, v = (one(each).unflatten(-1, (self.heads, -1)).transpose(2, 3) for one in (self.a, self.b, self.c))
        weights = (q @ k.mT / (width // self.heads) ** 0.5).softmax(-2)
        return (weights @ v).permute(0, 3, 1, 2, 4).reshape(entries, tokens, texts, width)


def test_several_texts_along_an_axis_of_their_own_are_given_where_axes_are_missing() -> None:
    assert attn_exp.check(OfSeveralTexts, quick=True).mistakes == ("softmax_over_queries",)
