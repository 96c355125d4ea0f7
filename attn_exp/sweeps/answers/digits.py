"""Numbers with as many digits as their uncertainty lets stand, and short names of settings."""

from __future__ import annotations

import math

from attn_exp.report.sweep.plotted import is_number

NOISE = 1e-9
"""Half of an interval below this share of its mean is rounding."""

GROUPS = ("embeddings.", "model.", "projections.", "mask.", "score.", "position.")
"""Groups of settings whose names say enough without them."""


def with_interval(mean: float, low: float, high: float) -> str:
    """Write a number with the digits that its uncertainty allows: `2.2 ± 0.4`, or `2.2 (2.0 to 3.1)`."""
    half = max(mean - low, high - mean)
    if not half > NOISE * abs(mean):
        return f"{mean:.3g}"
    decimals = -math.floor(math.log10(half)) + f"{half:.1e}".startswith("1")
    for more in range(4):
        shown, around = (fixed(number, decimals + more, 1 + more) for number in (mean, half))
        if low * high <= 0 or abs(float(shown)) > float(around):  # what leaves out 0 must be seen to
            break
    return f"{shown} ± {around}"


def with_sign(mean: float, low: float, high: float) -> str:
    """Write a number with its interval and its sign; one that is 0 to the digits shown has none."""
    text = with_interval(mean, low, high)
    if float(text.split(" ")[0]) == 0:
        return text.removeprefix("-")
    return f"−{text[1:]}" if text.startswith("-") else f"+{text}"


def from_to(mean: float, least: float, most: float) -> str:
    """Write a number and the range that it comes from, all with digits enough to part the ends: `2.89 (2.85..2.93)`."""
    decimals, digits = parting(least, most)
    shown, low, high = (fixed(number, decimals, digits) for number in (mean, least, most))
    return f"{shown} ({low}..{high})"


def parting(least: float, most: float) -> tuple[int, int]:
    """Return how many decimals part two numbers, and how many digits where they are written with a power of ten."""
    apart = most - least or abs(most) or 1.0
    decimals = -math.floor(math.log10(apart)) + f"{apart:.1e}".startswith("1")
    ends = [abs(number) for number in (least, most) if number]
    if ends and 2 * min(ends) < 10.0**-decimals:  # it would be written as 0
        decimals += 1
    largest = max(abs(least), abs(most))
    return decimals, max(1, min(16, decimals + math.floor(math.log10(largest)))) if largest else 1


def fixed(number: float, decimals: int, digits: int = 1) -> str:
    """Write a number with so many decimals; one that is very small or very large by them, with a power of ten and so
    many `digits`."""
    if abs(decimals) > 5:
        return f"{number:.{digits}e}" if number else "0"
    rounded = round(number, decimals) + 0.0
    return f"{rounded:.{max(0, decimals)}f}"


def signed(number: float) -> str:
    """Write a number in two digits with its sign."""
    return "0" if number == 0 else f"{number:+.2g}".replace("-", "−")


def short(label: str) -> str:
    """Write the value of a setting; a number of very many digits in six."""
    return f"{float(label):g}" if len(label) > 8 and is_number(label) else label


def shorten(setting: str) -> str:
    """Return a setting without its group."""
    return next((setting.removeprefix(group) for group in GROUPS if setting.startswith(group)), setting)
