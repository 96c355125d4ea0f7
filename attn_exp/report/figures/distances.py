"""The largest difference between the outputs of each pair of variants."""

from __future__ import annotations

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.row import Comparison
from attn_exp.report.charts.chart import Chart
from attn_exp.report.charts.layout import MapLabels, weight_maps
from attn_exp.report.escapes import label
from attn_exp.report.figures.figure import Figure
from attn_exp.report.views import Head, Views

FEW = 5
"""With at most this many variants, cells have room for two digits of a number such as 4.4e-16."""


def wanted(views: Views) -> bool:
    return len(views.comparison.rows) > 1


def plan(views: Views, width: float, height: float | None = None) -> Chart:
    variants, matrix = distance_matrix(views.comparison)
    labels, form = list(map(label, variants)), ".2g" if len(variants) <= FEW else ".1g"
    map_labels = MapLabels(labels, labels, "variant", "", "variant", colours="Oranges", form=form)
    finite = np.where(np.isfinite(matrix), matrix, np.nan)
    return weight_maps([Head("largest difference between outputs", None, finite)], map_labels, width, 1.0, height)


def distance_matrix(comparison: Comparison) -> tuple[tuple[str, ...], Array]:
    """Return the names of the variants, and the matrix of the largest differences between their outputs."""
    variants = tuple(row.variant for row in comparison.rows)
    matrix = np.zeros((len(variants), len(variants)))
    for distance in comparison.distances:
        pair = variants.index(distance.variant), variants.index(distance.other)
        matrix[pair] = matrix[pair[::-1]] = distance.difference
    return variants, matrix


FIGURE = Figure(
    caption="Largest difference between the outputs of each pair of variants.",
    plan=plan,
    wanted=wanted,
    place=30,
)
