"""Format numbers with as many digits as their uncertainty allows, and shorten names of settings."""

from __future__ import annotations

import math

from attn_exp.report.sweep.plotted import is_number

NOISE = 1e-9
"""Half of an interval below this share of the mean is rounding."""

GROUPS = ("embeddings.", "model.", "projections.", "mask.", "score.", "position.")
"""Groups of settings whose members are clear without the prefix."""


def with_interval(mean: float, low: float, high: float) -> str:
    """Format a number with the digits that its uncertainty allows: `2.2 ± 0.4`."""
    half = max(mean - low, high - mean)
    if not half > NOISE * abs(mean):
        return f"{mean:.3g}"
    decimals = -math.floor(math.log10(half)) + f"{half:.1e}".startswith("1")
    for more in range(4):
        shown, around = (fixed(number, decimals + more, 1 + more) for number in (mean, half))
        if low * high <= 0 or abs(float(shown)) > float(around):  # an interval without 0 must look like one
            break
    return f"{shown} ± {around}"


def with_sign(mean: float, low: float, high: float) -> str:
    """Format a number with its interval and its sign; no sign if it is 0 to the digits shown."""
    text = with_interval(mean, low, high)
    if float(text.split(" ")[0]) == 0:
        return text.removeprefix("-")
    return f"−{text[1:]}" if text.startswith("-") else f"+{text}"


def from_to(mean: float, least: float, most: float) -> str:
    """Format a number and its range with enough digits to tell the ends apart: `2.89 (2.85..2.93)`."""
    decimals, digits = parting(least, most)
    shown, low, high = (fixed(number, decimals, digits) for number in (mean, least, most))
    return f"{shown} ({low}..{high})"


def parting(least: float, most: float) -> tuple[int, int]:
    """Return the decimals that tell two numbers apart, and the digits for exponential notation."""
    apart = most - least or abs(most) or 1.0
    decimals = -math.floor(math.log10(apart)) + f"{apart:.1e}".startswith("1")
    ends = [abs(number) for number in (least, most) if number]
    if ends and 2 * min(ends) < 10.0**-decimals:  # or it would be shown as 0
        decimals += 1
    largest = max(abs(least), abs(most))
    return decimals, max(1, min(16, decimals + math.floor(math.log10(largest)))) if largest else 1


def fixed(number: float, decimals: int, digits: int = 1) -> str:
    """Format a number with `decimals`, or, beyond 5 of them either way, in exponential notation with `digits`."""
    if abs(decimals) > 5:
        return f"{number:.{digits}e}" if number else "0"
    rounded = round(number, decimals) + 0.0
    return f"{rounded:.{max(0, decimals)}f}"


def signed(number: float) -> str:
    """Format a number with two digits and its sign."""
    return "0" if number == 0 else f"{number:+.2g}".replace("-", "−")


def short(label: str) -> str:
    """Format the value of a setting, shortening a number with very many digits to six."""
    return f"{float(label):g}" if len(label) > 8 and is_number(label) else label


def shorten(setting: str) -> str:
    """Strip the group from the name of a setting."""
    return next((setting.removeprefix(group) for group in GROUPS if setting.startswith(group)), setting)
