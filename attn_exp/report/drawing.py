"""What all drawings of Matplotlib share: one style, names of tokens, and the bytes of a file.

Drawings are made on `matplotlib.figure.Figure` alone, so that equal comparisons give equal bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from attn_exp.report.lettering import drawable
from attn_exp.report.plain import label

WIDTH = 6.3
"""Inches: the text width of an A4 page."""

STYLE = Path(__file__).with_name("paper.mplstyle")
DRAWN_AT = 100
"""Dots per inch of a drawing that is shown as large as it is drawn; with twice as many it is shown twice as large."""

CELLS_AS_THEY_ARE = 10_000
"""Maps of up to so many cells are small enough to be stored cell by cell."""


def look(further: Mapping[str, Any] = MappingProxyType({})) -> AbstractContextManager[None]:
    """Return the context to draw in: our style upon Matplotlib's defaults, so that no user's settings change a figure.

    `rc_context` would take the file itself, but first reads every style that comes with Matplotlib.
    """
    style: dict[Any, Any] = {**matplotlib.rc_params_from_file(STYLE), **further}
    del style["backend"]  # a choice of windows, which no figure needs
    return matplotlib.rc_context(style)


def encoded(figure: Figure, form: str) -> bytes:
    """Return the bytes of a figure as `png`, `svg` or `pdf`, equal for equal figures."""
    with look():
        return saved(figure, form)


def saved(figure: Figure, form: str) -> bytes:
    """Return the bytes of a figure in the look that holds now."""
    stream, zoom = BytesIO(), figure.dpi / DRAWN_AT
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None, "ModDate": None}}
    FigureCanvasAgg(figure)
    sharpen(figure, "none" if form == "svg" else "nearest")
    if form == "pdf" and zoom != 1:
        return larger_pdf(figure, zoom, dates["pdf"])
    options: dict[str, Any] = {"pil_kwargs": {"compress_level": 2}} if form == "png" else {}  # faster, as small
    figure.savefig(stream, format=form, dpi=160 * zoom, metadata=dates.get(form), **options)
    return larger_svg(stream.getvalue(), zoom) if form == "svg" else stream.getvalue()


def larger_svg(svg: bytes, zoom: float) -> bytes:
    """Return a picture that is shown so many times larger: its coordinates stay."""
    if zoom == 1:
        return svg
    return re.sub(rb'(?:width|height)="([\d.]+)pt"', lambda size: enlarged(size, zoom), svg, count=2)


def enlarged(size: re.Match[bytes], zoom: float) -> bytes:
    """Return `width="2pt"` or `height="2pt"` with so many times as many points."""
    return size[0].replace(size[1], b"%g" % (zoom * float(size[1])))


def larger_pdf(figure: Figure, zoom: float, dates: Mapping[str, None]) -> bytes:
    """Return a figure as PDF that is shown so many times larger; Matplotlib's own way has no word for that."""
    pdf: Any = import_module("matplotlib.backends.backend_pdf")  # few are larger; it has no types
    (width, height), stream = figure.get_size_inches(), BytesIO()
    file = pdf.PdfFile(stream, metadata=dates)
    file.newPage(width * zoom, height * zoom)
    dots = 160 * zoom
    file.output(zoom, 0, 0, zoom, 0, 0, pdf.Op.concat_matrix)
    renderer = pdf.MixedModeRenderer(figure, width, height, dots, pdf.RendererPdf(file, dots, height, width))
    figure.set_dpi(72)  # a PDF counts in points
    figure.draw(renderer)
    renderer.finalize()
    figure.set_dpi(DRAWN_AT * zoom)
    file.finalize()
    content = stream.getvalue()
    file.close()
    return content


def sharpen(figure: Figure, interpolation: str) -> None:
    """Let maps of few cells be stored cell by cell, with edges sharp at any size, or as pixels.

    Browsers draw the cells of an SVG as they are; some viewers of PDF would smooth them.
    """
    for image in (image for axes in figure.axes for image in axes.images):
        if image.get_size()[0] * image.get_size()[1] <= CELLS_AS_THEY_ARE:
            image.set_interpolation(interpolation)


def labels(tokens: Sequence[str]) -> list[str]:
    """Return tokens as labels that the fonts in use can draw."""
    return [drawable(label(token)) for token in tokens]
