"""PyTorch's `scaled_dot_product_attention`, if installed: another row for comparison, not our computation."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms._foreign import beyond, change
from attn_exp.forms.form import Form
from attn_exp.forms.trace import Trace
from attn_exp.rules.rules import Rules

DTYPE = "float64"
"""PyTorch has no wider type."""


def attend(q: Array, k: Array, v: Array | None, rules: Rules) -> Trace:
    """Compute the context with PyTorch; masks and biases are passed as one array `[... h t s]`.

    Shapes as in `matrix`.

    Source: PyTorch, `torch.nn.functional.scaled_dot_product_attention`.
    """
    import torch  # noqa: PLC0415 - only if this form is used

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
    """Return in one line which of these rules PyTorch's function cannot express, or None."""
    if not find_spec("torch"):
        return "PyTorch is not installed: pip install torch"
    return beyond(rules, "PyTorch's function")


def tensor(torch: Any, array: Array) -> Any:
    """Return an array as a tensor, copied if PyTorch cannot share its memory.

    bfloat16 is converted through float32, and types wider than `DTYPE` are rounded to it.
    """
    if array.dtype.name == "bfloat16":
        return torch.tensor(array.astype(np.float32)).bfloat16()
    kind = np.dtype(DTYPE) if array.dtype.itemsize > np.dtype(DTYPE).itemsize else array.dtype.newbyteorder("=")
    as_it_lies = array.dtype == kind and array.flags.writeable and min(array.strides) >= 0
    return torch.from_numpy(array if as_it_lies else array.astype(kind, order="C"))


FORM = Form(
    attend,
    refuses,
    dtype=DTYPE,
    matrices=0,
    library="torch",
    context_alone=True,
    leaks="PyTorch adds -inf to the logit of a masked key, and NaN stays NaN",
)
