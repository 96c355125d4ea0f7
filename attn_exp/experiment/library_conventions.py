"""How libraries read the same settings: mask polarity, causal alignment, rows without keys, and softmax dtype.

| library | True in a boolean mask | causal, more keys than queries | a row without keys | softmax |
| --- | --- | --- | --- | --- |
| `torch_sdpa` | may attend | first query at first key | zeros | input dtype |
| `torch_mha` | blocked | first at first (set by the caller's mask) | NaN | input dtype |
| `torch_mha_context` | blocked | first at first (set by the caller's mask) | zeros | input dtype |
| `flash` | may attend | last query at last key of the sequence | zeros | float32 |
| `onnx` | may attend | first at first, without a cache | zeros | input dtype |
| `jax` | may attend | first at first | mean of all values | float32 |
| `keras` | may attend | first at first | mean of all values | float32 |
| `keras_scores` | may attend | first at first | zeros | input dtype |
| `keras_attention` | may attend | first at first | softmax of the scores minus 1e9 | float32 |
| `keras_attention_float16` | may attend | first at first | softmax of the scores minus 65504 | float16 |
| `keras_attention_float64` | may attend | first at first | softmax of the scores minus 1e9 | float64 |
| `udl` | may attend | first at first | NaN | input dtype |
| `onnx_old` | may attend | first at first | NaN | input dtype |

All except `onnx_old` cap logits before masking and give query head i the key/value head `i // (h / g)`. `onnx_old` is
ONNX's reference code of version 1.19. Up to 1.21, that code capped after masking: with a cap, masked keys get weight,
so every row has keys. Up to 1.19, it gave query head i the key/value head `i mod g`.

Scores minus 1e9 are rounded to the dtype of the layer, so the result of a row without keys depends on that dtype:

- float32, Keras's default: neighbouring numbers near 1e9 differ by 64. Scores of magnitude up to 32 all become the same
  number, and the row gives the mean of all values. If scores are larger, the largest win.
- float16: neighbouring numbers near 65504 differ by 32. Scores of -16 and below become -inf, and a row with only such
  scores is NaN.
- float64: the row is as if nothing were masked, to six decimals.
- bfloat16: neighbouring numbers near 1e9 differ by 4 million, and the row gives the mean.

All this was observed on JAX. On PyTorch and NumPy, a float64 layer returns float32. On PyTorch, a float16 layer
subtracts 1e9, and the row is NaN.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from attn_exp.arrays import Array, widen
from attn_exp.errors import UserError, unknown
from attn_exp.forms.pipeline import Recipe, Setup, attend
from attn_exp.forms.steps import add_context, repeat_heads
from attn_exp.forms.trace import Trace
from attn_exp.reference.oracle import SUBTRACTED
from attn_exp.rules.rules import Rules, allowed_entries


@dataclass(frozen=True)
class Convention:
    """How a library reads the same settings.

    `source`: where this behaviour is documented.
    `blocks`: whether True in a boolean mask means blocked.
    `align`: which key the first query is aligned with, `top_left` or `bottom_right`.
    `cached`: whether a causal mask counts the past keys of a cache, so that the queries come after them.
    `knows_filler`: whether `bottom_right` means the last key before the padding.
    `empty`: the result of a row without keys: `zeros`, `nan` or the `mean` of all values. A name in `SUBTRACTED`, such
        as `less_1e9`, means the softmax of the row's scores minus that number, in the dtype of the softmax.
    `softmax_dtype`: the dtype of the softmax; None means the dtype of the input.
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

    @property
    def default_align(self) -> str:
        """The alignment of the first query, as a value of `align`, if there is no cache."""
        return "before_filler" if self.knows_filler else self.align


OWN = Convention("this project: as torch_sdpa, except that queries come after the past", cached=True)

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
    "keras_attention": Convention(
        "Keras 3, layers.Attention, which subtracts 1e9 from masked scores", empty="less_1e9", softmax_dtype="float32"
    ),
    "keras_attention_float16": Convention(
        "Keras 3, layers.Attention of dtype float16, which subtracts 65504 from masked scores",
        empty="less_65504",
        softmax_dtype="float16",
    ),
    "keras_attention_float64": Convention(
        "Keras 3, layers.Attention of dtype float64", empty="less_1e9", softmax_dtype="float64"
    ),
}


def convention(name: str) -> Convention:
    """Return a convention by its name; `none` is this project's own.

    Raises:
        UserError: there is no convention of that name.
    """
    conventions = {"none": OWN, **CONVENTIONS}
    if name not in conventions:
        raise UserError(unknown(name, tuple(conventions), "convention"))
    return conventions[name]


def mask_leaks(rules: Rules) -> bool:
    """Return whether masked keys get weight, because score rules that are applied after masking make -inf finite.

    If masked keys get weight, every row has keys.
    """
    masked_logit = functools.reduce(lambda logit, rule: rule.bend(logit), rules.scores, -math.inf)
    return rules.bend_last and math.isfinite(masked_logit)


def fill_empty_rows(recipe: Recipe, empty: str) -> Recipe:
    """Return a recipe in which rows without keys give the result that `empty` names (see `Convention`), not zeros."""
    if empty == "zeros":
        return recipe

    def subtract(setup: Setup, logits: Array, allowed: Array) -> Array:
        masked = recipe.forbid(setup, logits, allowed)
        dtype = np.dtype(setup.rules.softmax_dtype or logits.dtype)
        with np.errstate(over="ignore"):
            lowered = logits.astype(dtype) - dtype.type(SUBTRACTED[empty])
        as_masked = masked if masked.dtype == dtype else widen(masked)  # float16 and bfloat16 have no common type
        return np.where(sees_nothing(masked), lowered, as_masked)

    def normalize(setup: Setup, masked: Array) -> Array:
        weights = recipe.normalize(setup, masked)
        return np.where(sees_nothing(masked), 1 / masked.shape[-1] if empty == "mean" else np.nan, weights)

    rules = recipe.rules
    if empty not in SUBTRACTED:
        return recipe.changed(normalize=normalize)
    is_softmax = rules.normalizer.exponential and all(rule.extra(0) is None for rule in rules.scores)
    # if all scores are -inf even after the subtraction, the softmax of the row is NaN
    return recipe.changed(forbid=subtract, normalize=normalize if is_softmax else recipe.normalize)


def sees_nothing(masked: Array) -> Array:
    """Return whether every logit of each row is masked, `[... h t 1]`; False if there are no keys."""
    return np.asarray(np.isneginf(masked).all(axis=-1, keepdims=True) & bool(masked.shape[-1]))


def replace_empty_rows(stages: Trace, rules: Rules, empty: str) -> Trace:
    """Return the stages of a form; rows without keys get the result that `empty` names (see `Convention`)."""
    q, k, v = stages.q, stages.k, stages.v
    if empty == "zeros" or q is None or k is None or mask_leaks(rules):
        return stages
    heads, rows, keys = len(q), q.shape[1], k.shape[1]
    is_empty = ~allowed_entries(rules.masks, rows, keys, int(rules.offset), heads).any(axis=-1, keepdims=True)
    fillers: dict[str, Any] = {"weights": np.nan, "context": np.nan}
    if empty in SUBTRACTED:
        refilled = attend(fill_empty_rows(Recipe(rules), empty), q, k, v)
        weights = np.asarray(refilled.weights, q.dtype)
        fillers = {"weights": weights, "context": add_context(refilled.replace(weights=weights)).context}
    elif empty == "mean":
        fillers["weights"] = 1 / max(keys, 1)
        fillers["context"] = (
            v if v is None else repeat_heads(widen(v).mean(axis=1, keepdims=True), heads).astype(v.dtype)
        )
    affected = ((name, array) for name, array in stages.stages() if name in fillers)
    return stages.replace(**{name: np.where(is_empty, fillers[name], array) for name, array in affected})
