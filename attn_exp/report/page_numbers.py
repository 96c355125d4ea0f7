"""How numbers travel with a page: as the bytes of float64, or in two bytes each where they are very many."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from attn_exp.arrays import Array

NOTHING = 65_535
"""The level of what is no number."""


def packed(array: Array) -> str:
    """Return an array as base64 of float64 in little-endian order."""
    return in_base64(array, "<f8")


def in_base64(array: Array, kind: str) -> str:
    """Return an array as base64 of numbers of a kind."""
    return base64.b64encode(np.ascontiguousarray(array, kind).tobytes()).decode()


def as_text(places: Array) -> str:
    """Return truth as 1 and 0, place by place."""
    return "".join("01"[int(each)] for each in places.ravel())


def one_head(array: Array) -> Array:
    """Return an array `[h t s]`, or its first head where all are alike."""
    return array[:1] if (array == array[:1]).all() else array


def in_two_bytes(array: Array) -> dict[str, Any]:
    """Return finite numbers and NaN as levels of 0 to 65,534, ready for JSON: each is off by at most half a step."""
    known = array[~np.isnan(array)]
    low, high = float(known.min(initial=0)), float(known.max(initial=0))
    step = (high - low) / (NOTHING - 1) or 1.0
    levels = np.where(np.isnan(array), NOTHING, np.rint((np.nan_to_num(array) - low) / step))
    return {"low": low, "step": step, "levels": in_base64(levels, "<u2")}
