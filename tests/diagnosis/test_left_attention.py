"""Layers in which no attention is seen, or none of tokens: the first stage that is wrong is said, and no name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import attn_exp
from attn_exp.experiment.verdict import Verdict

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
from torch import nn  # noqa: E402 - after what may be missing

from tests.diagnosis.test_inner import Bent, Later  # noqa: E402

pytestmark = pytest.mark.long


class OfPoints(nn.Module):
    """Each point of an image is weighed by itself: what stands for queries and keys is multiplied number by number."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.ask, self.give, self.take = (nn.Conv2d(dim, dim, 1) for _ in range(3))

    def forward(self, image: Any) -> Any:
        return image + (self.ask(image) * self.give(image)).softmax(1) * self.take(image)


class Heads(nn.Module):
    """Heads side by side, each with a matrix of its own for each side."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k, self.to_v, self.to_out = (nn.Linear(dim, dim) for _ in range(4))

    def sides(self, x: Any) -> Any:
        cut = (one(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.to_q, self.to_k, self.to_v))
        return self.changed(*cut)

    def changed(self, q: Any, k: Any, v: Any) -> Any:
        return q, k, v

    def shares(self, scores: Any, x: Any) -> Any:
        return scores.softmax(-1)

    def forward(self, x: Any) -> Any:
        q, k, v = self.sides(x)
        context = self.mixed(self.shares(q @ k.mT / q.shape[-1] ** 0.5, x), v)
        return self.to_out(context.transpose(1, 2).flatten(2))

    def mixed(self, shares: Any, v: Any) -> Any:
        return shares @ v


class OneKey(Heads):
    """Its keys and values are averaged into one of each."""

    def changed(self, q: Any, k: Any, v: Any) -> Any:
        return q, k.mean(2, keepdim=True), v.mean(2, keepdim=True)


class OfTheInput(Heads):
    """Its softmax is of x and not of the scores, and all the shares of a token are summed."""

    def shares(self, scores: Any, x: Any) -> Any:
        return x.softmax(-1)[:, None]

    def mixed(self, shares: Any, v: Any) -> Any:
        return shares.sum(-1, keepdim=True) * v


class AlongTokens(Heads):
    """Queries and keys are given a length of 1 along the tokens."""

    def changed(self, q: Any, k: Any, v: Any) -> Any:
        return nn.functional.normalize(q, dim=2), nn.functional.normalize(k, dim=2), v


def says(verdict: Verdict, stage: str, words: str) -> None:
    """Hold a verdict to a stage and to what is said, and to no name."""
    assert (verdict.passed, verdict.mistakes, verdict.stage) == (False, (), stage), verdict
    assert words in verdict.computes


@pytest.mark.parametrize(
    ("layer", "words", "stage", "said"),
    [
        (OfPoints, (), "scores", "queries and keys are nowhere multiplied"),
        (OneKey, (), "k", "all tokens are made into one key"),
        (OfTheInput, (), "weights", "its softmax is not of the product of queries and keys"),
        (OfTheInput, ("mask=causal",), "weights", "each query gets the value of its own token alone"),
        (AlongTokens, (), "q", "each number of k and q is normed over all tokens"),
    ],
)
def test_where_a_layer_leaves_attention_is_said(
    layer: type[nn.Module], words: tuple[str, ...], stage: str, said: str
) -> None:
    says(attn_exp.check(layer, *words, quick=True), stage, said)


def test_a_causal_layer_seen_inside_is_right_where_that_is_asked_and_no_other_is() -> None:
    verdict = attn_exp.check(Later(24, 3), "mask=causal", quick=True)
    assert verdict.passed and not verdict.right_under
    assert attn_exp.check(Bent(24, 3), "mask=causal", quick=True).mistakes == ("causal_ignored",)


OF_NUMBERS = """
import equinox as eqx, jax

class Within(eqx.Module):
    a: eqx.nn.Linear
    b: eqx.nn.Linear
    c: eqx.nn.Linear

    def __init__(self, size, key):
        one, two, three = jax.random.split(key, 3)
        self.a = eqx.nn.Linear(WIDTH, size, use_bias=False, key=one)
        self.b = eqx.nn.Linear(WIDTH, size, use_bias=False, key=two)
        self.c = eqx.nn.Linear(WIDTH, size, use_bias=False, key=three)

    def __call__(self, token):
        table = self.a(token)[:, None] @ self.b(token)[None]
        return jax.nn.softmax(table, axis=-1) @ self.c(token)

WIDTH = 40

class Layer(eqx.Module):
    within: Within

    def __init__(self, key):
        self.within = Within(WIDTH, key)

    def __call__(self, x):
        return jax.vmap(self.within)(x)
"""
OF_PARTS = """
import flax.linen as nn, jax

class Layer(nn.Module):
    dim: int
    heads: int

    @nn.compact
    def __call__(self, x):
        b, t, m = x.shape
        q, k, v = (nn.Dense(self.dim)(x).reshape(b, t, m // self.heads, self.heads) for _ in range(3))
        shares = jax.nn.softmax(q @ k.swapaxes(2, 3) / self.heads ** 0.5, axis=-1)
        return nn.Dense(self.dim)((shares @ v).reshape(b, t, m))
"""


@pytest.mark.parametrize(
    ("library", "code", "stage", "said"),
    [
        ("equinox", OF_NUMBERS, "scores", "the numbers of one token are the keys of a softmax"),
        ("flax", OF_PARTS, "q", "the parts of one token are the keys of a softmax"),
    ],
)
def test_what_is_within_one_token_is_said(tmp_path: Path, library: str, code: str, stage: str, said: str) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed")
    file = tmp_path / f"of_{library}.py"
    file.write_text(code)
    verdict = attn_exp.check(f"{file}:Layer", quick=True)
    assert not verdict.passed and (verdict.mistakes or (verdict.stage == stage and said in verdict.computes)), verdict
    assert set(verdict.mistakes) <= {"heads_not_transposed", "scale_by_sqrt_heads"}


class SummedApart(nn.Module):
    """Names keys and values by two letters, so that the weights of a query, and values, are summed apart."""

    letters = "bhts,bhne->bhte"

    def __init__(self, width: int = 24, heads: int = 3) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.w_q, self.w_k, self.w_v = (nn.Linear(self.size, self.size, bias=False) for _ in range(3))
        self.last = nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        heads = x.reshape(*x.shape[:2], self.heads, self.size).transpose(1, 2)
        q, k, v = self.w_q(heads), self.w_k(heads), self.w_v(heads)
        weights = (q @ k.mT / self.size**0.5).softmax(-1)
        return self.last(torch.einsum(self.letters, weights, v).transpose(1, 2).flatten(2))


class MeansTakenBeside(SummedApart):
    """Right, though the weights are summed up too: by what sums to 1 the answer may be divided."""

    letters = "bhts,bhse->bhte"

    def forward(self, x: Any) -> Any:
        heads = x.reshape(*x.shape[:2], self.heads, self.size).transpose(1, 2)
        q, k, v = self.w_q(heads), self.w_k(heads), self.w_v(heads)
        weights = (q @ k.mT / self.size**0.5).softmax(-1)
        mixed = torch.einsum(self.letters, weights, v) * weights.sum(-1, keepdim=True)
        return self.last(mixed.transpose(1, 2).flatten(2))


def test_weights_and_values_that_are_summed_apart_are_named_where_no_matrix_of_queries_is_found() -> None:
    assert attn_exp.check(SummedApart, quick=True).mistakes == ("values_summed",)
    assert attn_exp.check(MeansTakenBeside, quick=True).passed
