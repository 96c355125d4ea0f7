"""What the page computes with: the run's own numbers, as the bytes of float64."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.executing import answer
from attn_exp.experiment.splits import settled_as, standard_multiplier
from attn_exp.report.shown import MOST_NUMBERS
from attn_exp.report.views import Panel, Views
from attn_exp.report.whose import labels


def page_data(views: Views) -> dict[str, Any]:
    """Return the tokens, the weights with what they are computed from, and the answers, ready for JSON."""
    carried = [panel for panel in views.panels if panel.weights.size <= MOST_NUMBERS]
    places = {name: place for place, panel in enumerate(carried) for name in panel.variants}
    comparison = views.comparison
    queries, keys = labels(comparison.problem)
    return {
        "tokens": queries,
        "keys": keys,
        "panels": [panel_data(comparison, panel) for panel in carried],
        "variants": [
            variant_data(comparison, row.variant, row.same_as, places.get(row.variant, -1))
            for row in comparison.rows
            if row.same_as
        ],
    }


def panel_data(comparison: Comparison, panel: Panel) -> dict[str, Any]:
    """Return weights `[h t s]`, and the scores and the rest that they are the softmax of, where that is so."""
    split, variant = panel.split, panel.variants[0]
    return {
        "title": panel.title,
        "shape": list(panel.weights.shape),
        "weights": packed(panel.weights),
        "scores": None if split is None else packed(split.scores),
        "rest": None if split is None or not np.any(split.rest) else packed(split.rest),
        "own": settled_as(comparison, variant).multiplier,
        "standard": standard_multiplier(comparison, variant),
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
