"""How far the outputs of every two variants are apart."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure as Drawing

from attn_exp.experiment.comparison import Comparison
from attn_exp.report.drawing import LINE, Array, axes_at, heat, labels, name_ticks
from attn_exp.report.figures.figure import Figure
from attn_exp.report.lettering import fitted, widest
from attn_exp.report.views import Views


def fill(views: Views, width: float, height: float | None) -> Drawing:
    """Show the largest difference between the outputs of every pair of variants."""
    names, matrix = between(views.comparison)
    names_shown = labels(names)
    left = widest(names_shown) + 0.1
    most = 0.65 if height is None else (height - 0.12 - widest(names_shown) - 1.8 * LINE) / len(names)
    cell = min(max(most, 0.2), (width - left - 0.2) / len(names))
    side = cell * len(names)
    slanted = widest(names_shown) > 0.9 * cell
    bottom = 0.12 + (widest(names_shown) if slanted else LINE)
    drawing = Drawing(figsize=(max(left + side + 0.2, min(3.2, width)), bottom + side + 1.8 * LINE))
    axes = axes_at(drawing, (left, bottom, side, side))
    finite = np.where(np.isfinite(matrix), matrix, np.nan)
    form = ".2g" if cell > 0.5 else ".1g" if cell > 0.3 else ".0e"
    heat(axes, finite, float(np.nanmax(finite)) or 1.0, "Oranges", cell, form=form, most=12)
    name_ticks(axes, names_shown, names_shown, slanted, (side, side))
    axes.set_title(fitted("largest difference between outputs", drawing.get_figwidth() - left), loc="left")
    return drawing


def draw(views: Views, width: float) -> Drawing:
    """Show them as high as they need."""
    return fill(views, width, None)


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
    draw=draw,
    fill=fill,
    place=30,
)
