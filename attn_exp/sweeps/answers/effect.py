"""One effect: the row of the table of effects, its sentence, and numbers with the digits that intervals allow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from attn_exp.experiment.row import COLUMNS, spoken
from attn_exp.report.sweep.plotted import is_number

YES, NO, FEW = "yes", "no", "too few seeds"
RATIOS = frozenset(
    ("error", "row_sum_error", "max_error", "mean_error", "rms_error", "relative_rms", "log_sum_exp_error")
)
"""Metrics of rounding, which differ by powers of ten: their effects are differences of log10."""
NOISE = 1e-9
"""Half of an interval below this share of the mean is rounding."""

GROUPS = ("embeddings.", "model.", "projections.", "mask.", "score.", "position.")
"""Groups of settings whose members are clear without the prefix."""


@dataclass(frozen=True)
class Effect:
    """The effect of changing a setting from `start` to `end` on a metric, overall or `at` a value of another setting.

    `mean` is the mean over seeds of the paired differences, whose pairs share seed and all other settings; `low` and
    `high` are its 95 % interval, NaN for one seed and where all seeds agree. `explains` is the share of the metric's
    variance that the setting explains. `sign` is 0 unless the effect is significant.
    """

    setting: str
    start: str
    end: str
    metric: str
    at: str
    mean: float
    low: float
    high: float
    chance: float
    seeds: int
    explains: float
    verdict: str
    note: str
    sign: int = 0

    @property
    def key(self) -> tuple[str, ...]:
        """Shared by the rows of an effect at several values of another setting."""
        return self.setting, self.start, self.end, self.metric


def format_effects(rows: Sequence[Effect]) -> str:
    """Describe the effect of a change on a metric; of rows at several values of another setting, the largest and the
    smallest."""
    ends = {max(rows, key=lambda row: row.mean), min(rows, key=lambda row: row.mean)}
    largest, *others = sorted(ends, key=lambda row: -abs(row.mean))
    verb, size = format_effect(largest)
    text = f"{shorten(largest.setting)}={short(largest.end)} instead of {short(largest.start)}"
    text += f" {verb} the {spoken(largest.metric)}{size}"
    for other, size in map(format_effect, others):
        text += f" and{'' if other == verb else f' {other} it'}{size}"
    seeds = "1 seed is" if largest.seeds == 1 else f"{largest.seeds} seeds are"
    few = f"{seeds} too few to tell" if largest.verdict == FEW else ""
    return "; ".join(filter(None, (text, few, largest.note if largest.verdict != NO else ""))) + "."


def format_effect(effect: Effect) -> tuple[str, str]:
    """Return what a change does to a metric, and by how much and at which value of another setting."""
    at = f" at {shorten(effect.at)}" if effect.at else ""
    unit = COLUMNS[effect.metric].small if effect.metric in COLUMNS and effect.metric not in RATIOS else ""
    size = f"{format_size(effect)} {unit}".rstrip()
    is_unclear = bool(effect.at) and not effect.sign and not math.isnan(effect.low)
    if effect.mean == 0:
        return "does not change", at
    if effect.verdict == NO or is_unclear:
        return f"does not {'change' if effect.verdict == NO else 'clearly change'}", f"{at} ({size})"
    verbs = ("raises", "lowers") if effect.sign else ("may raise", "may lower")
    factor = "a factor of " if effect.metric in RATIOS else ""
    return verbs[effect.mean < 0], f" by {factor}{size.lstrip('+−')}{at}"


def format_size(effect: Effect) -> str:
    """Format an effect with its sign and half its interval; on an error metric, as a factor."""
    if effect.metric in RATIOS:
        sign = -1 if effect.mean < 0 and effect.verdict != NO else 1
        mean, *ends = (10 ** (sign * number) for number in (effect.mean, effect.low, effect.high))
        return f"{mean:.2g}" if math.isnan(ends[0]) else f"{mean:.2g} ({min(ends):.2g} to {max(ends):.2g})"
    return with_sign(effect.mean, effect.low, effect.high)


def with_interval(mean: float, low: float, high: float) -> str:
    """Format a number with the digits that its interval allows: `2.2 ± 0.4`."""
    half = max(mean - low, high - mean)
    if not half > NOISE * abs(mean):
        return f"{mean:.3g}"
    decimals = -math.floor(math.log10(half)) + f"{half:.1e}".startswith("1")
    if abs(decimals) > 6:
        return f"{mean:.2g} ± {half:.1g}"
    shown, around = (f"{round(number, decimals) + 0.0:.{max(0, decimals)}f}" for number in (mean, half))
    return f"{shown} ± {around}"


def with_sign(mean: float, low: float, high: float) -> str:
    """Format a number with its interval and its sign; no sign if it is 0 to the digits shown."""
    text = with_interval(mean, low, high)
    sign = "" if float(text.split(" ")[0]) == 0 else "−" if mean < 0 else "+"
    return sign + text.removeprefix("-")


def signed(number: float) -> str:
    """Format a number with two digits and its sign."""
    return "0" if number == 0 else f"{number:+.2g}".replace("-", "−")


def short(label: str) -> str:
    """Format the value of a setting, shortening a number with very many digits to six."""
    return f"{float(label):g}" if len(label) > 8 and is_number(label) else label


def shorten(setting: str) -> str:
    """Strip the group from the name of a setting."""
    return next((setting.removeprefix(group) for group in GROUPS if setting.startswith(group)), setting)
