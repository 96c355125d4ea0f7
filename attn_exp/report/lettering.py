"""Text in drawings of Matplotlib: how wide it is, and which installed fonts can draw it."""

from __future__ import annotations

from collections.abc import Iterable

import matplotlib
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.textpath import text_to_path

from attn_exp.report.plain import visible

FIRST = "DejaVu Sans"
"""The font that comes with matplotlib: everywhere the same."""

FURTHER = (
    "Noto Sans", "Source Han Sans", "WenQuanYi", "Droid Sans Fallback", "IPAGothic", "Arial Unicode", "PingFang",
    "Hiragino", "Microsoft YaHei", "SimHei", "Malgun", "Segoe UI", "Noto Emoji", "Symbola", "Unifont",
)  # fmt: skip
"""How the names of fonts begin that hold other scripts; used where installed and needed."""


def installed() -> list[str]:
    """Return the names of the fonts that are there, the one that comes with matplotlib first."""
    return sorted({entry.name for entry in fontManager.ttflist}, key=lambda name: (name != FIRST, name))


def fonts_for(texts: Iterable[str], first: str = FIRST) -> list[str]:
    """Return the fonts, first choice first, that draw these texts as far as the machine can."""
    fonts = list(dict.fromkeys((first, FIRST)))
    missing = {letter for text in texts for letter in text if not any(has(font, letter) for font in fonts)}
    for name in sorted(
        {entry.name for entry in fontManager.ttflist if entry.name.startswith(FURTHER)} if missing else ()
    ):
        drawn = {letter for letter in missing if has(name, letter)}
        if drawn:
            fonts.append(name)
            missing -= drawn
    return fonts


def has(font: str, character: str) -> bool:
    """Say whether a font can draw a character."""
    return character.isascii() or bool(get_font(findfont(font)).get_char_index(ord(character)))


def drawable(text: str) -> str:
    """Return the text on one line, with each character that no font in use can draw as its number, such as U+4F60."""
    fonts = matplotlib.rcParams["font.family"]
    return "".join(
        letter if any(has(font, letter) for font in fonts) else f"U+{ord(letter):04X}" for letter in visible(text)
    )


def measured(text: str) -> float:
    """Return the width of a text at 8 points in the fonts in use, in inches."""
    return text_to_path.get_text_width_height_descent(text, FontProperties(size=8), False)[0] / 72
