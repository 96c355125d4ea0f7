"""PyTorch's own `scaled_dot_product_attention`: one more row to compare with, if PyTorch is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np

from attn_exp import registry
from attn_exp.arrays import Array
from attn_exp.forms.form import Form
from attn_exp.forms.trace import Trace
from attn_exp.rules.masks.mask import AllOf
from attn_exp.rules.rules import Rules, whole_grid
from attn_exp.rules.scores.score import Score

DTYPE = "float64"
"""The widest type that PyTorch supports; wider inputs are rounded to it."""


def attend(q: Array, k: Array, v: Array | None, rules: Rules) -> Trace:
    """Compute the context with PyTorch; masks and biases are passed as one array `[... h t s]`.

    Shapes as in `matrix`.

    Source: PyTorch, `torch.nn.functional.scaled_dot_product_attention`.
    """
    import torch  # noqa: PLC0415 - only if this form is used

    mask = merge_masks_and_biases(q, k, rules)
    context = torch.nn.functional.scaled_dot_product_attention(
        to_tensor(torch, q),
        to_tensor(torch, k),
        to_tensor(torch, k if v is None else v),
        attn_mask=None if mask is None else to_tensor(torch, mask),
        scale=rules.scale,
        enable_gqa=q.shape[-3] != k.shape[-3],
    )
    wide = context.float() if context.dtype == torch.bfloat16 else context
    return Trace(q=q, k=k, v=v, context=None if v is None else wide.numpy().astype(q.dtype, copy=False))


def refuses(rules: Rules) -> str | None:
    """Return why this form cannot run, or None: PyTorch is missing, or its function cannot express a rule."""
    if not find_spec("torch"):
        return "PyTorch is not installed: pip install torch"
    return find_unsupported(rules, "PyTorch's function")


def to_tensor(torch: Any, array: Array) -> Any:
    """Return an array as a tensor, copied if PyTorch cannot share its memory.

    bfloat16 is converted through float32, and types wider than `DTYPE` are rounded to it.
    """
    if array.dtype.name == "bfloat16":
        return torch.tensor(array.astype(np.float32)).bfloat16()
    dtype = np.dtype(DTYPE) if array.dtype.itemsize > np.dtype(DTYPE).itemsize else array.dtype.newbyteorder("=")
    can_share = array.dtype == dtype and array.flags.writeable and min(array.strides) >= 0
    return torch.from_numpy(array if can_share else array.astype(dtype, order="C"))


# Rules as the arguments of any library's attention: one array for masks and biases


def find_unsupported(rules: Rules, name: str, caps: int = 0, dtype: str | None = None) -> str | None:
    """Return why a library cannot compute these rules, or None if masks, biases and `caps` soft-caps express them.

    `name` is the library's name in messages. `dtype` is the type of its softmax if that is not the type of the input.
    """
    if rules.pairing is not None:
        return f"{name} multiplies queries by keys; score={registry.name_of(rules.pairing)} does not"
    if not rules.normalizer.exponential:
        return f"{name} supports only softmax, not {rules.normalizer.name}"
    if rules.softmax_dtype is not None and np.dtype(rules.softmax_dtype) != dtype:
        return f"{name} computes its softmax in {dtype or 'its input dtype'}, not in {np.dtype(rules.softmax_dtype)}"
    nonlinear = [rule for rule in rules.scores if type(rule).bend is not Score.bend]
    soft_caps = [rule for rule in nonlinear if rule.bound() is not None][:caps]
    if len(nonlinear) > len(soft_caps) or any(type(rule).extra is not Score.extra for rule in rules.scores):
        supported = "biases on the logits" + (" and a soft-cap" if caps else "")
        return f"{name} supports {supported}, but no other score rule"
    return None


def merge_masks_and_biases(q: Array, k: Array, rules: Rules) -> Array | None:
    """Return all masks and biases as one array `[... h t s]`; None if there are none.

    Without biases, the array is boolean, True = may attend. Otherwise it holds numbers to add to the logits.
    """
    grid = whole_grid(rules, q.shape[-3], q.shape[-2], k.shape[-2], batches=q.shape[0] if q.ndim == 4 else None)
    shape = (*q.shape[:-1], k.shape[-2])
    biases = [bias for rule in rules.scores if (bias := rule.bias(grid)) is not None]
    if not biases and not rules.masks:
        return None
    allowed = np.array(np.broadcast_to(AllOf(rules.masks).allows(grid), shape), bool)
    if not biases:
        return allowed
    total = sum(biases, start=np.zeros(shape))
    return np.asarray(np.where(allowed, total, -np.inf)).astype(q.dtype)


FORM = Form(
    attend,
    refuses,
    dtype=DTYPE,
    matrices=0,
    library="torch",
    context_alone=True,
    leaks="PyTorch adds -inf to the logit of a masked key, and NaN stays NaN",
)
