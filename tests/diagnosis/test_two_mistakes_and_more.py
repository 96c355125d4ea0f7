"""Two mistakes and more at once, in layers and in functions: each has its name, whatever stands beside it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.diagnosis.code.watching import watched
from attn_exp.diagnosis.inside.cores import core, softmaxes
from attn_exp.own_code import find_function

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch
from torch import nn


class Heads(nn.Module):
    """A layer of heads, with steps that others exchange."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.heads = num_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def cut(self, x: Any) -> Any:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def made(self, x: Any) -> tuple[Any, Any, Any]:
        return self.cut(self.w_q(x)), self.cut(self.w_k(x)), self.cut(self.w_v(x))

    def weighed(self, scores: Any) -> Any:
        return (scores * (self.w_q.out_features // self.heads) ** -0.5).softmax(-1)

    def forward(self, x: Any) -> Any:
        q, k, v = self.made(x)
        return self.w_o((self.weighed(q @ k.transpose(-2, -1)) @ v).transpose(1, 2).flatten(2))


class OfOneMatrix(Heads):
    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = (self.cut(self.w_q(x)) for _ in range(3))
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        scores = scores if mask is None else scores + mask * 1e-9
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


@pytest.mark.long
def test_an_output_projection_that_is_missing_and_a_mask_that_hides_nothing_are_told_beside_keys_of_the_queries() -> (
    None
):
    names = {"keys_from_queries", "values_from_queries", "no_output_projection", "mask_small_fill"}
    assert set(attn_exp.check(OfOneMatrix, quick=True).mistakes) == names


class Bent(Heads):
    """Queries, keys and values that no matrix alone makes."""

    def made(self, x: Any) -> tuple[Any, Any, Any]:
        return super().made(torch.tanh(x) + x**2)

    def weighed(self, scores: Any) -> Any:
        return (scores * (self.w_q.out_features // self.heads) ** 0.5).softmax(-1).softmax(-1)


def test_another_scale_is_told_inside_where_two_softmaxes_stand_behind_it() -> None:
    assert set(attn_exp.check(Bent, quick=True).mistakes) == {"softmax_twice", "scale_multiplied"}


class TurnedAndStrict(Bent):
    def weighed(self, scores: Any) -> Any:
        later = torch.ones(scores.shape[-2:]).triu().bool()
        scores = (scores * (self.w_q.out_features // self.heads) ** -0.5).masked_fill(later, -1e9)
        return scores.softmax(-1).transpose(-2, -1)


def test_a_causal_mask_is_read_as_its_weights_lie_before_they_are_turned() -> None:
    names = {"weights_transposed", "causal_strict"}
    assert set(attn_exp.check(TurnedAndStrict, "mask=causal", quick=True).mistakes) == names


class OverHeads(Bent):
    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = self.made(x)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        scores = scores if mask is None else self.masked(scores, mask)
        return self.w_o((self.shares(scores) @ v).transpose(1, 2).flatten(2))

    def masked(self, scores: Any, mask: Any) -> Any:
        return scores.masked_fill(~mask, 1e9)

    def shares(self, scores: Any) -> Any:
        return scores.softmax(1)


class Without(OverHeads):
    def masked(self, scores: Any, mask: Any) -> Any:
        return scores + mask * -1e9

    def shares(self, scores: Any) -> Any:
        return scores


def test_a_mask_before_a_softmax_over_heads_is_not_said_to_come_behind_it() -> None:
    assert set(attn_exp.check(OverHeads, quick=True).mistakes) == {"softmax_over_heads", "mask_sign"}


def test_where_no_softmax_is_no_sign_of_what_is_added_is_wrong() -> None:
    assert attn_exp.check(Without, quick=True).mistakes == ("no_softmax",)


class RoundedScale(Heads):
    """Its scale is a number of float32, so that its answers in float64 are right to those bits alone."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.root = torch.sqrt(torch.FloatTensor([d_model // num_heads]))

    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = self.cut(self.w_q(x)), self.cut(self.w_q(x)), self.cut(self.w_v(x))
        scores = q @ k.transpose(-2, -1) / self.root
        scores = scores if mask is None else scores.masked_fill(mask == 0, -10.0)
        return self.w_o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_a_small_fill_is_told_where_the_score_of_a_token_with_itself_is_far_above_it() -> None:
    assert set(attn_exp.check(RoundedScale, quick=True).mistakes) == {"keys_from_queries", "mask_small_fill"}


def softmax(scores: Any) -> Any:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def test_the_power_of_a_logarithm_of_shares_is_a_softmax() -> None:
    q, k, v = torch.randn(3, 2, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def attend() -> Any:
        scores = q @ k.transpose(-2, -1)
        return torch.exp(scores - torch.log(torch.exp(scores).sum(-1, keepdim=True))) @ v

    operations = watched(attend, [q, k, v])[0]
    places = list(softmaxes(operations))
    assert [operations[place].name for place in places] == ["exp"]
    seen = core(operations, places[0])
    assert seen is not None
    assert np.allclose(seen.logits - seen.scores, 0.0)


class OneUnderTwoNames(nn.Module):
    """One causal head whose values are made by what makes its queries, under two names."""

    def __init__(self, n_embd: int, head_size: int) -> None:
        super().__init__()
        self.key, self.query = (
            nn.Sequential(nn.Linear(n_embd, head_size), nn.GELU(), nn.Linear(head_size, head_size)) for _ in range(2)
        )
        self.value = self.query

    def forward(self, x: Any) -> Any:
        scores = self.query(x) @ self.key(x).transpose(-2, -1) * x.shape[-1] ** -0.5
        return scores.softmax(-1) @ self.value(x)


def test_a_module_with_two_names_is_left_as_it_was() -> None:
    assert attn_exp.check(OneUnderTwoNames, quick=True).mistakes == ("scale_by_sqrt_d_model",)


def raw_and_fused(Q: Any, K: Any, V: Any, tau: Any = None) -> Any:
    return Q @ K.T / (float(Q.shape[-1]) if tau is None else tau) @ V


@pytest.mark.full_search
def test_where_no_softmax_is_no_scale_stands_behind_it() -> None:
    assert set(attn_exp.check(raw_and_fused, quick=True).mistakes) == {"no_softmax", "scale_by_d"}


# Layers of other libraries, which give numbers in a first call


def checked(text: str, folder: Path, name: str) -> set[str]:
    (folder / "of_others.py").write_text(text, encoding="utf-8")
    sys.modules.pop("of_others", None)
    return set(attn_exp.check(find_function(f"{folder / 'of_others.py'}:{name}").function, quick=True).mistakes)


OF_KERAS = """
import keras
from keras import layers, ops

class Layer(layers.Layer):
    def __init__(self, units, num_heads):
        super().__init__()
        self.heads, self.size = num_heads, units // num_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (layers.Dense(units) for _ in range(4))

    def call(self, x):
        entries, rows, width = ops.shape(x)
        q, k, v = (ops.transpose(ops.reshape(made, (entries, rows, self.heads, self.size)), (0, 2, 1, 3))
                   for made in (self.w_q(x), self.w_q(x), self.w_v(x)))
        weights = ops.softmax(ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) / self.size, axis=-1)
        return ops.reshape(ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3)), (entries, rows, width))
"""
OF_FLAX = """
import jax
import jax.numpy as jnp
from flax import linen as nn

class Layer(nn.Module):
    dim: int
    num_heads: int

    def setup(self):
        self.query, self.key, self.value = nn.Dense(self.dim), nn.Dense(self.dim), nn.Dense(self.dim)
        self.out = nn.Dense(self.dim)

    def __call__(self, x):
        q, k, v = (made.reshape(*x.shape[:-1], self.num_heads, -1)
                   for made in (self.query(x), self.query(x), self.value(x)))
        weights = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) / q.shape[-1], axis=-1)
        return jnp.einsum("bhts,bshd->bthd", weights, v).reshape(x.shape)
"""
OF_HAIKU = """
import haiku as hk
import jax
import jax.numpy as jnp

class Layer(hk.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.heads = num_heads
        self.query, self.key, self.value, self.out = (hk.Linear(dim) for _ in range(4))

    def __call__(self, x):
        q, k, v = (made.reshape(*x.shape[:-1], self.heads, -1)
                   for made in (self.query(x), self.query(x), self.value(x)))
        weights = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) / q.shape[-1], axis=-1)
        return jnp.einsum("bhts,bshd->bthd", weights, v).reshape(x.shape)
"""


@pytest.mark.long
@pytest.mark.parametrize(("library", "text"), [("keras", OF_KERAS), ("flax", OF_FLAX), ("haiku", OF_HAIKU)])
def test_layers_that_are_made_and_never_called_are_missed(library: str, text: str, tmp_path: Path) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed: pip install {library}")
    assert checked(text, tmp_path, "Layer") == {"keys_from_queries", "scale_by_d", "no_output_projection"}


OF_JAX = """
import jax
import jax.numpy as jnp

def packed(x, W_qkv, W_o, num_heads: int = 3):
    b, t, _ = x.shape
    made = (x @ W_qkv).reshape(b, t, num_heads, -1)
    q, k, v = jnp.split(made, 3, axis=-1)
    weights = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) / jnp.sqrt(k.shape[1]), axis=-1)
    return jnp.einsum("bhts,bshd->bthd", weights, v).reshape(b, t, -1) @ W_o
"""


@pytest.mark.long
def test_matrices_that_lie_head_by_head_are_in_no_wrong_order_beside_another_scale(tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
    assert checked(OF_JAX, tmp_path, "packed") == {"scale_by_sqrt_keys"}


OF_SHARED_KEYS = """
import jax
import jax.numpy as jnp
from flax import linen as nn

class Layer(nn.Module):
    dim: int
    num_heads: int

    @nn.compact
    def __call__(self, x):
        seen = jnp.tanh(x)
        q = nn.Dense(self.dim, name="query")(seen).reshape(*x.shape[:-1], self.num_heads, -1).swapaxes(1, 2)
        k, v = (nn.Dense(self.dim // self.num_heads, name=name)(seen)[:, None] for name in ("key", "value"))
        weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / q.shape[-1], axis=-1)
        return nn.Dense(self.dim, name="out")((weights @ v).swapaxes(1, 2).reshape(x.shape)) + x
"""


@pytest.mark.long
def test_heads_of_jax_that_share_their_keys_are_seen_inside(tmp_path: Path) -> None:
    pytest.importorskip("flax", reason="Flax is not installed: pip install flax")
    assert checked(OF_SHARED_KEYS, tmp_path, "Layer") == {"scale_by_d"}
