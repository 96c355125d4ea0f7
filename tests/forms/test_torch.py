"""Held to PyTorch: rules and attention on random shapes, masks and extremes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attn_exp
from attn_exp import forms
from attn_exp.arrays import Array
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.rules import Rules
from attn_exp.rules.scores.added import Added
from attn_exp.rules.scores.t5 import bucket
from tests.forms.by_form import largest_logit

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")


def published_bucket(relative: Any, bidirectional: bool, buckets: int, distance: int) -> Any:
    """The bucket in torch's float32, step by step as T5's paper tells it."""
    result = torch.zeros_like(relative)
    if bidirectional:
        buckets //= 2
        result, relative = (relative > 0).long() * buckets, relative.abs()
    else:
        relative = (-relative).clamp(min=0)
    exact = buckets // 2
    far = exact + (torch.log(relative.float() / exact) / math.log(distance / exact) * (buckets - exact)).long()
    return result + torch.where(relative < exact, relative, far.clamp(max=buckets - 1))


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (16, 64), (8, 100)])
def test_t5_buckets(bidirectional: bool, buckets: int, distance: int) -> None:
    ahead = np.arange(-300, 301)
    expected = published_bucket(torch.from_numpy(ahead), bidirectional, buckets, distance).numpy()
    np.testing.assert_array_equal(bucket(ahead, buckets, distance, bidirectional), expected)


SOFTMAX_FORMS = [name for name in forms.NAMES if forms.form(name).reference == "logits"]
PLAIN = [name for name in SOFTMAX_FORMS if not forms.refuses(name, Rules())]
BY_CAUSAL = [name for name in SOFTMAX_FORMS if not forms.refuses(name, Rules(masks=(Causal(),)))]
SOME = np.zeros((1, 1))
BY_MASKS = [name for name in PLAIN if not forms.refuses(name, Rules(masks=(Allowed(SOME),), scores=(Added(SOME),)))]
KINDS = {"float32": 2e-5, "float64": 1e-12}


def by_torch(q: Array, k: Array, v: Array, **settings: Any) -> Array:
    tensors = (torch.from_numpy(each) for each in (q, k, v))
    with torch.no_grad():
        found: Array = torch.nn.functional.scaled_dot_product_attention(*tensors, enable_gqa=True, **settings).numpy()
    return found


@st.composite
def inputs(draw: Any) -> tuple[Array, Array, Array]:
    """Draw queries, keys and values of random sizes, groups, types and magnitudes."""
    batches, g, per_group, t, s, d, e = (draw(st.integers(1, most)) for most in (3, 3, 3, 6, 6, 9, 5))
    rng = np.random.default_rng(draw(st.integers(0, 9999)))
    size = draw(st.sampled_from([0.1, 1.0, 30.0]))
    kind = draw(st.sampled_from(sorted(KINDS)))
    q, k = rng.standard_normal((batches, g * per_group, t, d)) * size, rng.standard_normal((batches, g, s, d))
    return q.astype(kind), k.astype(kind), rng.standard_normal((batches, g, s, e)).astype(kind)


def agree(form: str, found: Array, expected: Array, logits_size: float = 1.0) -> None:
    kind = forms.form(form).computed_in(expected.dtype)
    tolerance = KINDS[kind.name] * max(1.0, logits_size)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("form", BY_CAUSAL)
@given(arrays=inputs())
def test_causal(form: str, arrays: tuple[Array, Array, Array]) -> None:
    q, k, v = arrays
    agree(
        form,
        attn_exp.attention(q, k, v, is_causal=True, form=form),
        by_torch(q, k, v, is_causal=True),
        largest_logit(q, k),
    )


@pytest.mark.parametrize("form", PLAIN)
@given(arrays=inputs(), scale=st.sampled_from([None, 0.0, 0.3, -1.0]))
def test_plain(form: str, arrays: tuple[Array, Array, Array], scale: float | None) -> None:
    q, k, v = arrays
    agree(
        form, attn_exp.attention(q, k, v, scale=scale, form=form), by_torch(q, k, v, scale=scale), largest_logit(q, k)
    )


@pytest.mark.parametrize("form", BY_MASKS)
@pytest.mark.parametrize("additive", [True, False])
@given(arrays=inputs(), seed=st.integers(0, 999), per_head=st.booleans())
def test_masks(form: str, additive: bool, arrays: tuple[Array, Array, Array], seed: int, per_head: bool) -> None:
    q, k, v = arrays
    rng = np.random.default_rng(seed)
    shape = (*(q.shape[:2] if per_head else (1, 1)), q.shape[2], k.shape[2])
    allowed = rng.random(shape) > rng.random()
    bias = np.where(allowed, rng.standard_normal(shape), -np.inf).astype(q.dtype)
    mask = bias if additive else allowed
    expected = by_torch(q, k, v, attn_mask=torch.from_numpy(mask))
    agree(form, attn_exp.attention(q, k, v, attn_mask=mask, form=form), expected, largest_logit(q, k))


def test_multi_head_attention_module_with_the_same_weights() -> None:
    """PyTorch's module says True = blocked; with that turned, its output and mean weights are ours."""
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(12, 3, batch_first=True, dtype=torch.float64)
    x = torch.randn(1, 5, 12, dtype=torch.float64)
    blocked = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
    with torch.no_grad():
        expected, mean = module(x, x, x, attn_mask=blocked)
        q, k, v = torch.nn.functional.linear(x, module.in_proj_weight, module.in_proj_bias).chunk(3, dim=-1)
    found = attn_exp.trace(q.numpy(), k.numpy(), v.numpy(), attn_mask=~blocked.numpy(), q_num_heads=3, kv_num_heads=3)
    W_o, b_o = (each.detach().numpy() for each in (module.out_proj.weight, module.out_proj.bias))
    np.testing.assert_allclose(found.output @ W_o.T + b_o, expected.numpy(), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(np.asarray(found.weights).mean(axis=1), mean.numpy(), rtol=1e-12, atol=1e-15)
