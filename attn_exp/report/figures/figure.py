"""What a figure of the report is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attn_exp.config.figure_presets import Size
from attn_exp.report.charts.chart import Chart
from attn_exp.report.views import Views

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing  # a page of charts alone waits for no Matplotlib


def always(views: Views) -> bool:
    """Say of every comparison that it has something to show."""
    return True


@dataclass(frozen=True)
class Figure:
    """One figure of the report, drawn with Matplotlib or planned as a chart: one of the two is given.

    `caption`: what it shows, in a sentence that stands below it.
    `draw`: makes it with Matplotlib from the views of a comparison, so many inches wide.
    `wanted`: says whether a comparison has something to show in it.
    `place`: where it stands among the others; the smallest comes first.
    `fill`: makes it so many inches wide and high, where it can use the height; others are shown smaller, or centred.
    `plan`: makes it as a chart, which becomes an SVG without Matplotlib; a height is None where nobody asked for one.
    `svg`: writes it as SVG by itself, beside what `draw` does for other formats.
    `in_page`: whether the page shows it; what stands there in another way is not shown twice.
    """

    caption: str
    draw: Callable[[Views, float], Drawing] | None = None
    wanted: Callable[[Views], bool] = always
    place: int = 100
    fill: Callable[[Views, float, float], Drawing] | None = None
    plan: Callable[[Views, float, float | None], Chart] | None = None
    svg: Callable[[Views, Size], bytes] | None = None
    in_page: bool = True
