"""How large a figure is drawn: as large as on paper, then printed as many times larger as its text has to be."""

from __future__ import annotations

from dataclasses import fields, replace

from matplotlib.figure import Figure as Drawing

from attn_exp.config.figure_presets import PRESETS, Size
from attn_exp.config.schema import Figures
from attn_exp.report.drawing import DRAWN_AT, FONT_SIZE
from attn_exp.report.figures.figure import Figure
from attn_exp.report.views import Views

NARROWEST = 3.0
"""Inches: labels have room in figures from this width on."""

WIDER = (1.0, 1.3, 1.7, 2.2, 3.0)
"""How many times wider a figure is tried that would be too high: with more maps in a line, say, in smaller print."""


def size(figures: Figures) -> Size:
    """Return how large figures are: what their preset says, or the settings instead."""
    said = {field.name: getattr(figures, field.name) for field in fields(Size)}
    return replace(PRESETS[figures.preset], **{name: value for name, value in said.items() if value is not None})


def drawn(member: Figure, views: Views, wanted: Size) -> Drawing:
    """Return a figure of this width, and height if any; its dots per inch say how much larger it is shown."""
    width = max(NARROWEST, wanted.width * FONT_SIZE / wanted.font_size)
    if wanted.height is None:
        drawing = member.draw(views, width)
        drawing.set_dpi(DRAWN_AT * wanted.width / width)
        return drawing
    drawing = filling(member, views, width, wanted.height * width / wanted.width)
    zoom = min(wanted.width / width, *shrunk(drawing, wanted.width, wanted.height))
    centre(drawing, wanted.width / zoom, wanted.height / zoom)
    drawing.set_dpi(DRAWN_AT * zoom)
    return drawing


def shrunk(drawing: Drawing, width: float, height: float) -> tuple[float, float]:
    """Return how much larger a drawing can be shown in this width, and in this height."""
    return width / drawing.get_figwidth(), height / drawing.get_figheight()


def filling(member: Figure, views: Views, width: float, height: float) -> Drawing:
    """Return a drawing that fills a page of this shape as well as its kind can."""
    if member.fill is not None:
        return member.fill(views, width, height)
    drawings = []
    for wider in WIDER:
        drawings.append(member.draw(views, width * wider))
        if drawings[-1].get_figheight() <= height * wider:
            break
    return max(drawings, key=lambda drawing: min(shrunk(drawing, width, height)))


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
