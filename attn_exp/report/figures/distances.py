"""How far the outputs of every two variants are apart."""

from __future__ import annotations

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.comparison import Comparison
from attn_exp.report.charts.chart import LINE, Box, Chart, Heat, Text, name_ticks
from attn_exp.report.charts.widths import fitted, widest
from attn_exp.report.escapes import label
from attn_exp.report.figures._layouts import form_of_numbers
from attn_exp.report.figures.figure import Figure
from attn_exp.report.views import Views


def wanted(views: Views) -> bool:
    """One variant alone has no distance to another."""
    return len(views.comparison.rows) > 1


def plan(views: Views, width: float, height: float | None = None) -> Chart:
    """Show the largest difference between the outputs of every pair of variants."""
    names, matrix = between(views.comparison)
    shown = list(map(label, names))
    longest = widest(shown)
    left = longest + 0.1
    most = 0.65 if height is None else (height - 0.12 - longest - 1.8 * LINE) / len(names)
    cell = min(max(most, 0.2), (width - left - 0.2) / len(names))
    side = cell * len(names)
    turned = longest > 0.9 * cell
    total = max(left + side + 0.2, min(3.2, width))
    finite = np.where(np.isfinite(matrix), matrix, np.nan)
    heat = Heat(
        Box(left, 1.8 * LINE, side, side),
        finite,
        float(np.nanmax(finite)) or 1.0,
        "Oranges",
        form=form_of_numbers(finite, cell, ".2g" if cell > 0.5 else ".1g" if cell > 0.3 else ".0e", most=12),
        rows=name_ticks(shown, False, side),
        columns=name_ticks(shown, turned, side),
    )
    said = fitted("largest difference between outputs", total - left)
    title = Text(72 * left, 72 * 1.8 * LINE - 6, said)
    return Chart(total, 1.8 * LINE + side + 0.12 + (longest if turned else LINE), (heat, title))


def between(comparison: Comparison) -> tuple[tuple[str, ...], Array]:
    """Return the names of the variants and the matrix of the largest differences between their answers."""
    names = tuple(row.variant for row in comparison.rows)
    matrix = np.zeros((len(names), len(names)))
    for distance in comparison.distances:
        pair = names.index(distance.variant), names.index(distance.other)
        matrix[pair] = matrix[pair[::-1]] = distance.difference
    return names, matrix


FIGURE = Figure(
    caption="Largest difference between the outputs of every two variants.",
    plan=plan,
    wanted=wanted,
    place=30,
)
