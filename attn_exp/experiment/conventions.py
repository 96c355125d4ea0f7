"""What libraries mean by the same words: whose True blocks, which query stands where, what a row without keys gives.

| library | a boolean mask's True | causal, more keys than queries | a row without keys | softmax |
| --- | --- | --- | --- | --- |
| `torch_sdpa` | may attend | first query beside first key | zeros | the input's type |
| `torch_mha` | blocked | first beside first (the caller's mask says) | NaN | the input's type |
| `flash` | may attend | last query beside last key | zeros | float32 |
| `onnx` | may attend | first beside first, without a cache | zeros | the input's type |
| `jax` | may attend | first beside first | mean of all values | float32 |
| `keras` | may attend | first beside first | mean of all values | float32 |
| `udl` | may attend | first beside first | NaN | the input's type |
| `onnx_old` | may attend | first beside first | zeros | the input's type |

All but the last cap logits before masking and give query head i the key/value head `i // (h / g)`. `onnx_old` is ONNX's
reference code as it was: up to 1.21 it capped after masking, which leaks weight to masked keys, and until September
2025 it gave query head i the key/value head `i mod g`.

Sources: PyTorch 2.5 to 2.13, `scaled_dot_product_attention`, `nn.MultiheadAttention` with `need_weights=True`;
FlashAttention 2.1, README; ONNX opsets 23-25, `Attention`; JAX, `jax/_src/nn/functions.py`; Keras 3,
`keras/src/layers/attention`; Prince 2023, "Understanding Deep Learning", notebook 12.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attn_exp.errors import UserError, unknown
from attn_exp.forms.trace import Trace
from attn_exp.rules.grid import Array
from attn_exp.rules.picture import places
from attn_exp.rules.rules import Rules


@dataclass(frozen=True)
class Convention:
    """How a library reads the same settings.

    `blocks`: True in a boolean mask blocks; `align`: beside which key the first query stands; `empty`: what a row
    without keys gives, `zeros`, `nan` or `mean` (of all values); `softmax_dtype`: the type of the softmax, None = the
    input's.
    """

    blocks: bool = False
    align: str = "top_left"
    empty: str = "zeros"
    softmax_dtype: str | None = None
    caps_last: bool = False
    tiled: bool = False


CONVENTIONS = {
    "torch_sdpa": Convention(),
    "torch_mha": Convention(blocks=True, empty="nan"),
    "flash": Convention(align="bottom_right", softmax_dtype="float32"),
    "onnx": Convention(),
    "jax": Convention(empty="mean", softmax_dtype="float32"),
    "keras": Convention(empty="mean", softmax_dtype="float32"),
    "udl": Convention(empty="nan"),
    "onnx_old": Convention(caps_last=True, tiled=True),
}


def convention(name: str) -> Convention:
    """Return the convention of that name; `none` is this project's own, which is that of `torch_sdpa`.

    Raises:
        UserError: no such convention; it is a ValueError.
    """
    if name == "none":
        return Convention()
    if name not in CONVENTIONS:
        raise UserError(unknown(name, ("none", *CONVENTIONS), "convention"))
    return CONVENTIONS[name]


def empty_rows(stages: Trace, rules: Rules, empty: str) -> Trace:
    """Return the trace with rows that see no key as a convention has them; `stages` has them as zeros."""
    if empty == "zeros" or stages.context is None or stages.q is None or stages.k is None or stages.v is None:
        return stages
    heads, rows, keys = len(stages.q), stages.q.shape[1], stages.k.shape[1]
    blind = ~places(rules.masks, rows, keys, int(rules.offset), heads).any(axis=-1, keepdims=True)
    values = np.repeat(stages.v.mean(axis=1, keepdims=True), heads // len(stages.v), axis=0)
    held: tuple[Array | float, float] = (values, 1 / keys) if empty == "mean" else (np.nan, np.nan)
    weights = None if stages.weights is None else np.where(blind, held[1], stages.weights)
    return stages.replace(context=np.where(blind, held[0], stages.context), weights=weights)
