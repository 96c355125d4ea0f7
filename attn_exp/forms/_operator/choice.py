"""Which form computes a problem where nobody says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attn_exp.forms._blocks.plain import FEW
from attn_exp.rules.rules import Rules

AUTO = "auto"
"""The word for "whichever form is fastest here"."""


def form(logits: tuple[int, ...], dtype: np.dtype[Any], rules: Rules) -> str:
    """Return the form for logits of that shape: `matrix` for few of them, `blockwise` for many.

    Half precision is rounded stage by stage, and so is a softmax in a type of its own: only `matrix` has the stages.
    """
    staged = dtype.itemsize <= 2 or rules.softmax_dtype is not None
    return "matrix" if staged or math.prod(logits) <= FEW else "blockwise"
