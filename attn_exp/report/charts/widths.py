"""The width of a text without any font: a table for common letters, and an upper bound for all others."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

ALIKE = {
    250: "′", 275: "'", 300: "IJijlıłʹΙϳІЈіј", 325: " ,.··‘’‚‛‧", 350: "/:;\\|¦ι․", 375: "-fſ‐‑", 400: "()[]tŧᵀ",
    425: "!r¡²³¹", 475: '"ªº', 500: "*_`§¨¯°´¸΄–‖†‡", 525: "szгѕ“”„‟", 550: "?cεζϲзсэє", 575: "FLĿŁΓνξ",
    600: "kvxyĸγκλςυχвтухчь•‣", 625: "PTYaeo«»ÞðøΡΤΥδθοπτГРТУабекояђ",
    650: "$0123456789ESbdghnpqu{}¢£¤¥µ¶ßþđŋΕΞΣβημρσЅЕЗилр√", 675: "KΚαφψнпћџ‥∆∑",
    700: "ABCRVXZħΑΒΔΖΛΧЄАБВСХЧЬЭЯдц", 725: "Къ", 750: "NUŊΝИ∧∨∩∪", 775: "DGHÐĐΗΠΩЏЛНПм", 800: "&OQØΘΟΦΨЂЋДОЦы",
    825: "w", 850: "#+<=>^~¬±×÷ωЪю←↑→↓−∓∗∞≈≠≡≤≥", 875: "MΜМФф∈", 900: "Ыњ", 925: "Ħжшљ", 975: "%щm¼½¾Æ",
    1000: "@W©®æ—…", 1025: "œ", 1050: "Њ≪≫", 1075: "ŒШ", 1100: "ЉЖЩЮ",
}  # fmt: skip
"""Letters by width in thousandths of the font size, rounded up to the next 25.

Source: the advance widths of DejaVu Sans, which Verdana shares: hardly any common font has wider letters.
"""

WIDTHS = {letter: width / 1000 for width, letters in ALIKE.items() for letter in letters}

SCRIPTS = (
    (0x0590, 0x05FF, 0.8), (0x0600, 0x077F, 1.3), (0x0B80, 0x0DFF, 2.0), (0x0F00, 0x109F, 2.0), (0x1400, 0x16FF, 1.7),
    (0x1780, 0x18AF, 2.0), (0x1A00, 0x1CFF, 2.0), (0x1F00, 0x1FFF, 1.15), (0x2000, 0x2BFF, 1.75),
    (0x2E80, 0xA4CF, 1.0), (0xA800, 0xABFF, 2.0), (0xAC00, 0xD7AF, 1.0), (0xF900, 0xFAFF, 1.0), (0xFDF0, 0xFDFF, 8.0),
    (0xFF00, 0xFFEF, 1.0), (0x10000, 0x1FFFF, 1.75), (0x20000, 0x3FFFF, 1.0),
)  # fmt: skip
"""Other letters: first and last code point, and the largest width in any common font."""

BROAD = 1.55
"""Upper bound for all other letters."""


def width(text: str, size: float = 8.0) -> float:
    """Return the width of a text's longest line in inches; `size` is in points."""
    return max(sum(map(letter_width, line)) for line in text.split("\n")) * size / 72


def widest(names: Iterable[str], size: float = 8.0) -> float:
    return max((width(name, size) for name in names), default=0.0)


def known(text: str) -> bool:
    """Return whether the table has every letter, so that the width is exact and not an upper bound."""
    return all(letter in WIDTHS for letter in text)


def letter_width(letter: str) -> float:
    """Return the width of a letter relative to the font size; an upper bound if it is not in the table."""
    if letter in WIDTHS:
        return WIDTHS[letter]
    code, kind = ord(letter), unicodedata.category(letter)
    if kind in ("Mn", "Cf"):
        return 0.5 if 0x0600 <= code <= 0x06FF else 0.0
    base = unicodedata.normalize("NFD", letter)[0]
    if base in WIDTHS and code < 0x1F00:
        return WIDTHS[base] + 0.2  # room for a hook or a caron beside the letter
    return next((width for first, last, width in SCRIPTS if first <= code <= last), BROAD)


def fitted(text: str, room: float, size: float = 8.0) -> str:
    """Shorten a text to at most `room` inches."""
    while width(text, size) > room and len(text) > 4:
        text = f"{text[:-2].rstrip('…')}…"
    return text
