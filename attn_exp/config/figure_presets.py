"""Where figures are shown, and how large that makes them: a preset is a line here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """How large figures are, in inches; `font_size` is in points. Without a height, each is as high as it needs."""

    width: float
    height: float | None = None
    font_size: float = 8
    font: str = "DejaVu Sans"


PRESETS = {
    "paper": Size(width=6.3),  # the text width of an A4 page
    "slides": Size(width=13.333, height=7.5, font_size=21),  # 16:9, with the letters of a slide's own text
    "poster": Size(width=18, font_size=26),  # half the width of A0 upright, read from two steps away
}
