"""Figures as Matplotlib's, in one look, as large as is wanted, with fonts for every token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure as Drawing

from attn_exp.config.schema import Size
from attn_exp.errors import UserError
from attn_exp.report.charts.matplotlib_figure import (
    DRAWN_AT,
    FIRST,
    drawable,
    figure_of,
    fonts_for,
    look,
    measured,
    saved,
)
from attn_exp.report.charts.widths import Lettering
from attn_exp.report.charts.widths import width as width_of
from attn_exp.report.figures.figure import Figure, best_of, drawn_width, planned, size, zooms
from attn_exp.report.views import Views


def drawings(views: Views, members: Mapping[str, Figure]) -> dict[str, Drawing]:
    """Return figures as large as asked for; letters that no font at hand has stand there by their numbers."""
    comparison = views.comparison
    problem, wanted = comparison.problem, size(comparison.config.figures)
    fonts = fonts_for((*problem.tokens, *problem.key_tokens, *comparison.traces), wanted.font)
    with look({"font.family": fonts}):
        lettering = Lettering(drawable, width_of if wanted.font == FIRST else measured)
        lettered = views._replace(lettering=lettering)
        return {name: drawing(name, member, lettered, wanted) for name, member in members.items()}


def files(
    views: Views, members: Mapping[str, Figure], forms: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, bytes]]:
    """Return the bytes of figures in the formats that each needs, by name and format."""
    figures = drawings(views, members)
    with look():
        return {name: {form: saved(figure, form) for form in forms[name]} for name, figure in figures.items()}


def drawing(name: str, member: Figure, views: Views, wanted: Size) -> Drawing:
    """Return one figure, planned or drawn; its dots per inch say how much larger it is shown."""
    if member.plan is not None:
        plan = member.plan
        chart = planned(lambda width, height: plan(views, width, height), wanted)
        figure = figure_of(chart)
        if chart.page is not None:
            centre(figure, *chart.page)
        figure.set_dpi(DRAWN_AT * chart.zoom)
        return figure
    if member.draw is None:
        raise UserError(f"figure {name}: expected draw or plan, got neither")
    width = drawn_width(wanted)
    if wanted.height is None:
        figure = member.draw(views, width)
        figure.set_dpi(DRAWN_AT * wanted.width / width)
        return figure
    return filled(member, views, wanted, width)


def filled(member: Figure, views: Views, wanted: Size, width: float) -> Drawing:
    """Return a drawing of this width that fills its page as well as its kind can."""
    assert member.draw is not None and wanted.height is not None
    draw, height = member.draw, wanted.height * width / wanted.width
    if member.fill is not None:
        figure = member.fill(views, width, height)
    else:
        figure = best_of(lambda wide: draw(views, wide), extent, width, height)
    zoom = min(wanted.width / width, *zooms(extent(figure), wanted.width, wanted.height))
    centre(figure, wanted.width / zoom, wanted.height / zoom)
    figure.set_dpi(DRAWN_AT * zoom)
    return figure


def extent(figure: Drawing) -> tuple[float, float]:
    """Return the width and the height of a drawing, in inches."""
    return figure.get_figwidth(), figure.get_figheight()


def centre(drawing: Drawing, width: float, height: float) -> None:
    """Make the page of a drawing larger, and put what is on it into the middle; a layout engine does so by itself."""
    wide, high = drawing.get_figwidth() / width, drawing.get_figheight() / height
    drawing.set_size_inches(width, height)
    if drawing.get_layout_engine() is not None:
        return
    left, bottom = (1 - wide) / 2, (1 - high) / 2
    for axes in drawing.axes:
        box = axes.get_position(original=True)
        axes.set_position((left + box.x0 * wide, bottom + box.y0 * high, box.width * wide, box.height * high))
    for text in drawing.texts:
        x, y = text.get_position()
        text.set_position((left + x * wide, bottom + y * high))
