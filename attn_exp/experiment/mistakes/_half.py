"""Half precision: rounding to float16 and bfloat16."""

from __future__ import annotations

import numpy as np

from attn_exp.arrays import Array

KINDS = ("float16", "bfloat16")


def rounded(array: Array, kind: str) -> Array:
    """Return the array rounded to a half type and back."""
    if kind == "float16":
        return array.astype(np.float16).astype(np.float64)
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    nearest = bits + 0x7FFF + ((bits >> 16) & 1)
    cut = np.where(np.isfinite(array), nearest & np.uint32(0xFFFF0000), bits)
    return cut.astype(np.uint32).view(np.float32).astype(np.float64)
