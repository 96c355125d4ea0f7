"""What the page computes with: the run's own numbers, as the bytes of float64."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.executing import answer
from attn_exp.report.views import panels, scores_and_rest, standard_multiplier
from attn_exp.report.walk import distinct

Array = NDArray[Any]

MOST_NUMBERS = 150_000
"""A page carries the arrays of a panel only up to this many numbers each; beyond, what moves is left out."""


def page_data(comparison: Comparison) -> dict[str, Any]:
    """Return the tokens, the weights with what they are computed from, and the answers, ready for JSON."""
    found = [panel for panel in panels(comparison) if panel.weights.size <= MOST_NUMBERS]
    places = {name: place for place, panel in enumerate(found) for name in panel.variants}
    problem = comparison.problem
    return {
        "tokens": distinct(problem.tokens),
        "keys": distinct(problem.key_tokens),
        "panels": [panel_data(comparison, each.title, each.variants[0], each.weights) for each in found],
        "variants": [
            variant_data(comparison, row.variant, row.same_as, places.get(row.variant, -1))
            for row in comparison.rows
            if row.same_as
        ],
    }


def panel_data(comparison: Comparison, title: str, variant: str, weights: Array) -> dict[str, Any]:
    """Return weights `[h t s]`, and the scores and the rest that they are the softmax of, where that is so."""
    settled = next(each for each in comparison.variants if each.name == variant)
    split = scores_and_rest(comparison, variant)
    return {
        "title": title,
        "shape": list(weights.shape),
        "weights": packed(weights),
        "scores": None if split is None else packed(split[0]),
        "rest": None if split is None or not np.any(split[1]) else packed(split[1]),
        "own": settled.multiplier,
        "standard": standard_multiplier(comparison, settled),
    }


def variant_data(comparison: Comparison, variant: str, letter: str, panel: int) -> dict[str, Any]:
    """Return what a variant ends in, its numbers per token, and which panel holds its weights."""
    ends = answer(comparison.traces[variant])
    small = ends.ndim == 2 and ends.size <= MOST_NUMBERS
    return {
        "name": variant,
        "letter": letter,
        "panel": panel,
        "answer": packed(ends) if small else "",
        "size": ends.shape[1] if small else 0,
    }


def packed(array: Array) -> str:
    """Return an array as base64 of float64 in little-endian order."""
    return base64.b64encode(np.ascontiguousarray(array, "<f8").tobytes()).decode()
