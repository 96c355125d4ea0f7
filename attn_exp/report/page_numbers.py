"""How numbers travel with a page: as the bytes of float64, or in two bytes each where they are very many."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.report.views import Panel
from attn_exp.rules.normalizers.softmax import softmax


class Coarse(NamedTuple):
    """Numbers as levels of 0 to 65,534 between the least and the largest; the level 65,535 is NaN."""

    low: float
    step: float
    levels: Array

    @property
    def numbers(self) -> Array:
        """The numbers that a page makes of them."""
        return np.where(self.levels == NOTHING, np.nan, self.low + self.step * self.levels)


NOTHING = 65_535
"""The level of what is no number."""

NEAR = 5e-4
"""Weights may be so far off where they are the softmax of coarse scores: two decimals are right."""


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


def coarse(array: Array) -> Coarse:
    """Return finite numbers and NaN as levels: each is off by at most half a step."""
    known = array[~np.isnan(array)]
    low, high = float(known.min(initial=0)), float(known.max(initial=0))
    step = (high - low) / (NOTHING - 1) or 1.0
    levels = np.where(np.isnan(array), NOTHING, np.rint((np.nan_to_num(array) - low) / step))
    return Coarse(low, step, levels)


def in_two_bytes(array: Array) -> dict[str, Any]:
    """Return an array as levels, ready for JSON."""
    small = coarse(array)
    return {"low": small.low, "step": small.step, "levels": in_base64(small.levels, "<u2")}


def many_numbers(panel: Panel) -> dict[str, Any]:
    """Return the scores of a panel in two bytes each, or its weights where nothing else makes them, or not these."""
    split = panel.split
    if split is not None and np.isfinite(split.scores).all() and not np.isfinite(split.rest[split.rest != 0]).any():
        near = softmax(split.own * coarse(split.scores).numbers + split.rest)
        if np.abs(near - panel.weights).max(initial=0) <= NEAR:
            return {"scores": in_two_bytes(split.scores)}
    return {"weights": in_two_bytes(panel.weights)}
