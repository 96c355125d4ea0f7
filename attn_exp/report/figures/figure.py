"""What a figure of the report is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure as Drawing

from attn_exp.report.views import Views


def always(views: Views) -> bool:
    """Say of every comparison that it has something to show."""
    return True


@dataclass(frozen=True)
class Figure:
    """One figure of the report.

    `caption`: what it shows, in a sentence that stands below it.
    `draw`: makes it from the views of a comparison, so many inches wide.
    `wanted`: says whether a comparison has something to show in it.
    `fill`: makes it so many inches wide and high, where it can use the height; others are shown smaller, or centred.
    `place`: where it stands among the others; the smallest comes first.
    """

    caption: str
    draw: Callable[[Views, float], Drawing]
    wanted: Callable[[Views], bool] = always
    place: int = 100
    fill: Callable[[Views, float, float], Drawing] | None = None
