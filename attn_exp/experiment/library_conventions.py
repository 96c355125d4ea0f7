"""What libraries mean by the same words: whose True blocks, which query stands where, what a row without keys gives.

| library | a boolean mask's True | causal, more keys than queries | a row without keys | softmax |
| --- | --- | --- | --- | --- |
| `torch_sdpa` | may attend | first query beside first key | zeros | the input's type |
| `torch_mha` | blocked | first beside first (the caller's mask says) | NaN | the input's type |
| `torch_mha_context` | blocked | first beside first (the caller's mask says) | zeros | the input's type |
| `flash` | may attend | last query beside last key of the sequence | zeros | float32 |
| `onnx` | may attend | first beside first, without a cache | zeros | the input's type |
| `jax` | may attend | first beside first | mean of all values | float32 |
| `keras` | may attend | first beside first | mean of all values | float32 |
| `keras_scores` | may attend | first beside first | zeros | the input's type |
| `keras_attention` | may attend | first beside first | as if nothing were masked | the input's type |
| `udl` | may attend | first beside first | NaN | the input's type |
| `onnx_old` | may attend | first beside first | NaN | the input's type |

All but the last cap logits before masking and give query head i the key/value head `i // (h / g)`. `onnx_old` is
ONNX's reference code as it was in 1.19: up to 1.21 it capped after masking, which leaks weight to masked keys, so that
with a cap no row is without keys; up to 1.19 it gave query head i the key/value head `i mod g`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attn_exp.errors import UserError, unknown
from attn_exp.forms.trace import Trace
from attn_exp.rules.rules import Rules, places


@dataclass(frozen=True)
class Convention:
    """How a library reads the same settings.

    `source`: where that is written.
    `blocks`: whether True in a boolean mask blocks.
    `align`: beside which key the first query stands, `top_left` or `bottom_right`.
    `cached`: whether a causal mask counts the past keys of a cache, so that queries stand after them.
    `knows_filler`: whether `bottom_right` means the last key of the sequence, before its padding.
    `empty`: what a row without keys gives: `zeros`, `nan`, `mean` of all values, or `unmasked`, as without masks.
    `softmax_dtype`: the type of the softmax; None is the input's.
    `caps_last`: whether logits are capped after masking.
    `tiled`: whether query head i takes the key/value head `i mod g`.
    """

    source: str
    blocks: bool = False
    align: str = "top_left"
    cached: bool = False
    knows_filler: bool = False
    empty: str = "zeros"
    softmax_dtype: str | None = None
    caps_last: bool = False
    tiled: bool = False


OWN = Convention("this project; as torch_sdpa, but that queries stand after the past", cached=True)

CONVENTIONS = {
    "torch_sdpa": Convention("PyTorch 2.5 to 2.13, scaled_dot_product_attention"),
    "torch_mha": Convention("PyTorch, nn.MultiheadAttention with need_weights=True", blocks=True, empty="nan"),
    "flash": Convention(
        "FlashAttention 2.1, README and tests/test_flash_attn.py",
        align="bottom_right",
        knows_filler=True,
        softmax_dtype="float32",
    ),
    "onnx": Convention("ONNX opsets 23 to 25, Attention", cached=True),
    "jax": Convention("JAX, jax/_src/nn/functions.py, dot_product_attention", empty="mean", softmax_dtype="float32"),
    "keras": Convention("Keras 3 on JAX, layers.MultiHeadAttention", empty="mean", softmax_dtype="float32"),
    "udl": Convention("Prince 2023, Understanding Deep Learning, notebook 12.1", empty="nan"),
    "onnx_old": Convention(
        "ONNX 1.19, reference code of Attention", empty="nan", cached=True, caps_last=True, tiled=True
    ),
    "torch_mha_context": Convention("PyTorch, nn.MultiheadAttention with need_weights=False", blocks=True),
    "keras_scores": Convention("Keras 3, layers.MultiHeadAttention with return_attention_scores=True"),
    "keras_attention": Convention("Keras 3, layers.Attention, which takes 1e9 from masked scores", empty="unmasked"),
}


def convention(name: str) -> Convention:
    """Return the convention of that name; `none` is this project's own, which is that of `torch_sdpa`.

    Raises:
        UserError: no such convention; it is a ValueError.
    """
    if name == "none":
        return OWN
    if name not in CONVENTIONS:
        raise UserError(unknown(name, ("none", *CONVENTIONS), "convention"))
    return CONVENTIONS[name]


def leaks(rules: Rules) -> bool:
    """Say whether logits are bent after masking so that those of masked keys are finite: then every row has keys."""
    masked = -math.inf
    for rule in rules.scores:
        masked = float(rule.bend(masked))
    return rules.bend_last and math.isfinite(masked)


def empty_rows(stages: Trace, rules: Rules, empty: str, attend: Callable[..., Trace]) -> Trace:
    """Return the trace with rows that see no key as a convention has them; `stages` has them as zeros.

    `attend` computes the same function, and can do without masks.
    """
    q, k, v = stages.q, stages.k, stages.v
    if empty == "zeros" or q is None or k is None or leaks(rules):
        return stages
    heads, rows, keys = len(q), q.shape[1], k.shape[1]
    blind = ~places(rules.masks, rows, keys, int(rules.offset), heads).any(axis=-1, keepdims=True)
    context: Any = np.nan
    weights: Any = np.nan
    if empty == "unmasked":
        bare = attend(q, k, v, replace(rules, masks=()))
        context, weights = bare.context, bare.weights
    elif empty == "mean":
        weights = 1 / keys if keys else 0.0
        context = None if v is None else np.repeat(v.mean(axis=1, keepdims=True), heads // len(v), axis=0)
    return stages.replace(
        context=None if stages.context is None else np.where(blind, context, stages.context),
        weights=None if stages.weights is None else np.where(blind, weights, stages.weights),
    )
