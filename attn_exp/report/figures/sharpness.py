"""How the weights sharpen as the multiplier of the scores grows."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure as Drawing

from attn_exp.experiment.curves import curves
from attn_exp.report.drawing import COLOURS, MARKERS, NARROW, legend_above, plot_below_legend
from attn_exp.report.figures.figure import Figure
from attn_exp.report.lettering import drawable
from attn_exp.report.views import Views


def wanted(views: Views) -> bool:
    """Only a softmax of scores can be computed at another multiplier."""
    return any(panel.split is not None for panel in views.panels)


def fill(views: Views, width: float, height: float | None) -> Drawing:
    """Show how the mean entropy of the weights falls as the multiplier of the scores grows; the run's own is marked."""
    shown = curves([(panel.title, panel.split) for panel in views.panels if panel.split is not None])
    drawing, axes = plot_below_legend(len(shown), 0.42 if width > NARROW else 0.56, width, height)
    for place, curve in enumerate(shown):
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(curve.multipliers, curve.entropy, color=colour, label=drawable(curve.title))
        axes.axvline(curve.standard, color=colour, linewidth=0.7, linestyle=":")
        if curve.own > 0:
            height = float(np.interp(curve.own, curve.multipliers, curve.entropy))
            axes.plot([curve.own], [height], MARKERS[place % len(MARKERS)], color=colour)
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda multiplier, place: f"{multiplier:g}")
    axes.set_ylim(0, None)
    between = " " if width > NARROW else "\n"
    axes.set_xlabel(f"multiplier of the scores{between}(dotted: 1/sqrt(d); marked: this run)")
    axes.set_ylabel("mean entropy (nats)")
    legend_above(axes, width)
    return drawing


def draw(views: Views, width: float) -> Drawing:
    """Show it as high as is usual."""
    return fill(views, width, None)


FIGURE = Figure(
    caption=("How the weights sharpen as the multiplier of the scores grows: mean entropy, with 1/sqrt(d) dotted."),
    draw=draw,
    fill=fill,
    wanted=wanted,
    place=50,
)
