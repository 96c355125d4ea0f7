"""The pen that writes elements of an SVG: it turns inches from the lower left into points from the upper left."""

from __future__ import annotations

from html import escape
from typing import Literal, NamedTuple

from attn_exp.report.charts.chart import Box
from attn_exp.report.charts.widths import known, width

BODY, TICK = 8.0, 7.5
"""Points: the size of titles and names, and of what stands at ticks and in legends."""

ABOVE, BELOW = 0.76, 0.236
"""How far letters reach above and below the line that they stand on, in sizes of the type. Source: DejaVu Sans."""

ANCHORS = {"left": "", "center": ' text-anchor="middle"', "right": ' text-anchor="end"'}
Up = Literal["base", "bottom", "middle", "tick", "top"]
LIFT = {"base": 0.0, "bottom": -BELOW, "middle": (ABOVE - BELOW) / 2, "tick": ABOVE / 2, "top": ABOVE}
"""How far below a place the line of a text lies that stands on it, above it, across it, beside its tick or under it."""

STROKES = {"spine": 'stroke-width=".6"', "tick": 'stroke-width=".8"'}


class Pen(NamedTuple):
    """Writes on a sheet that is `height` inches high."""

    height: float

    def at(self, place: tuple[float, float]) -> tuple[float, float]:
        """Return a place in points from the upper left."""
        return place[0] * 72, (self.height - place[1]) * 72

    def text(
        self, text: str, place: tuple[float, float], size: float, side: str = "left", up: Up = "base",
        turned: bool = False, ink: str = "",
    ) -> str:  # fmt: skip
        """Return a text at a place; letters of a known width take just that, whatever the font."""
        x, y = self.at(place)
        if turned:
            where = f'transform="translate({short(x + LIFT[up] * size)} {short(y)})rotate(-90)"'
        else:
            where = f'x="{short(x)}" y="{short(y + LIFT[up] * size)}"'
        points = width(text, size) * 72
        length = f' textLength="{short(points)}" lengthAdjust="spacingAndGlyphs"' if points and known(text) else ""
        fill = f' fill="{ink}"' if ink else ""
        return f'<text {where} font-size="{size:g}"{ANCHORS[side]}{length}{fill}>{escape(text, quote=False)}</text>'

    def below(self, name: str, place: tuple[float, float], turned: bool) -> str:
        """Return a name under a place of an axis, across or upwards."""
        return self.text(name, place, TICK, "right" if turned else "center", "middle" if turned else "top", turned)

    def line(self, start: tuple[float, float], end: tuple[float, float], look: str) -> str:
        """Return a black line: a `spine` of an axis, or a `tick`."""
        (x, y), (to_x, to_y) = self.at(start), self.at(end)
        return f'<path d="M{short(x)} {short(y)}L{short(to_x)} {short(to_y)}" stroke="#000" {STROKES[look]}/>'

    def placed(self, box: Box) -> str:
        """Return where a box is, as attributes."""
        x, y = self.at((box.left, box.bottom + box.height))
        return f'x="{short(x)}" y="{short(y)}" width="{short(box.width * 72)}" height="{short(box.height * 72)}"'


def short(number: float) -> str:
    """Return a number of points to the hundredth, in few characters."""
    return f"{round(number, 2) + 0.0:.7g}"
