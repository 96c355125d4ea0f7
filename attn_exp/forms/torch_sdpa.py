"""PyTorch's `scaled_dot_product_attention`, where it is installed: another row to compare with, not our computation."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np

from attn_exp.forms.matrix import mix  # noqa: F401 - where a problem starts at its weights there is no such call
from attn_exp.rules.rule import Array, Rules, Score, whole_grid
from attn_exp.stages import Trace

LEAKS = "PyTorch adds -inf to the logit of a masked key, and NaN stays NaN"
"""Why what masked keys hold can reach the answer; forms without this constant promise that it cannot."""


MATRICES = 0
"""PyTorch's kernel works by blocks, and hands out no weights."""


def attend(q: Array, k: Array, v: Array | None, rules: Rules) -> Trace:
    """Compute the context with PyTorch; masks and biases go in as one array `[... h t s]`.

    Shapes as in `matrix`.

    Source: PyTorch, `torch.nn.functional.scaled_dot_product_attention`.
    """
    import torch  # noqa: PLC0415 - only where this form is asked for

    added = change(q, k, rules)
    context = torch.nn.functional.scaled_dot_product_attention(
        tensor(torch, q),
        tensor(torch, k),
        tensor(torch, k if v is None else v),
        attn_mask=None if added is None else tensor(torch, added),
        scale=rules.scale,
        enable_gqa=q.shape[-3] != k.shape[-3],
    )
    wide = context.float() if context.dtype == torch.bfloat16 else context
    return Trace(q=q, k=k, v=v, context=None if v is None else wide.numpy().astype(q.dtype, copy=False))


def refuses(rules: Rules) -> str | None:
    """Return what of these rules PyTorch's function has no argument for, in one line, or None."""
    if not find_spec("torch"):
        return "PyTorch is not installed: pip install torch"
    return beyond(rules, "PyTorch's function")


def beyond(rules: Rules, name: str) -> str | None:
    """Return why one array added to the logits before a softmax does not express these rules."""
    if rules.normalizer != "softmax":
        return f"{name} has the softmax alone, not {rules.normalizer}"
    if any(type(rule).bend is not Score.bend or type(rule).extra is not Score.extra for rule in rules.scores):
        return f"{name} takes numbers to add to the logits, and no other change of them"
    return None


def change(q: Array, k: Array, rules: Rules) -> Array | None:
    """Return booleans (True = may attend) or numbers to add, `[... h t s]`, or None where the rules change nothing."""
    grid = whole_grid(rules, q.shape[-3], q.shape[-2], k.shape[-2], batches=q.shape[0] if q.ndim == 4 else None)
    whole = (*q.shape[:-1], k.shape[-2])
    biases = [bias for rule in rules.scores if (bias := rule.bias(grid)) is not None]
    if not biases and not rules.masks:
        return None
    allowed = np.ones(whole, bool)
    for mask in rules.masks:
        allowed = allowed & mask.allows(grid)
    if not biases:
        return allowed
    total = sum(biases, start=np.zeros(whole))
    return np.asarray(np.where(allowed, total, -np.inf)).astype(q.dtype)


def tensor(torch: Any, array: Array) -> Any:
    """Return an array as a tensor; types that PyTorch does not take from NumPy go by way of float32."""
    if array.dtype.name == "bfloat16":
        return torch.tensor(array.astype(np.float32)).bfloat16()
    return torch.from_numpy(array if array.flags.writeable else array.copy())
