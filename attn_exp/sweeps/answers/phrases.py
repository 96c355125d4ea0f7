"""Format effects as sentences and cells, with the digits that their intervals allow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from attn_exp.experiment.column import spoken
from attn_exp.experiment.row import COLUMNS
from attn_exp.sweeps.answers.digits import short, shorten, with_sign
from attn_exp.sweeps.answers.effects import FEW, NO, RATIOS, Effect


def format_effect(rows: Sequence[Effect], is_new: Callable[[str], bool] = bool) -> str:
    """Describe the effect of a change on a metric; of rows at several values of another setting, the largest and
    smallest.

    `is_new` returns whether a note is worth printing.
    """
    largest, *others = sorted({max(rows, key=find_mean), min(rows, key=find_mean)}, key=lambda row: -abs(row.mean))
    what, verb = f"the {spoken(largest.metric)}", find_verb(largest)
    text = f"{shorten(largest.setting)}={short(largest.end)} instead of {short(largest.start)} {verb} {what}"
    text += format_place(largest)
    for row in others:
        again = "" if find_verb(row) == verb else f"{find_verb(row)} it"
        text += f" and {again}{format_place(row)}".replace("  ", " ")
    seeds = "1 seed is" if largest.seeds == 1 else f"{largest.seeds} seeds are"
    few = f"{seeds} too few to tell" if largest.verdict == FEW else ""
    note = largest.note if largest.verdict != NO and is_new(largest.note) else ""
    aside = "; ".join(filter(None, (few, note)))
    if aside and text.endswith(")"):  # a size stands in brackets
        return f"{text[:-1]}; {aside})."
    return f"{text} ({aside})." if aside else f"{text}."


def find_mean(effect: Effect) -> float:
    return effect.mean


def find_verb(effect: Effect) -> str:
    """Return the verb for what a change does, or may do, to a metric."""
    if effect.verdict == NO or effect.mean == 0:
        return "does not change"
    if is_unclear(effect):
        return "does not clearly change"
    verbs = ("raises", "lowers") if effect.sign else ("may raise", "may lower")
    return verbs[effect.mean < 0]


def is_unclear(effect: Effect) -> bool:
    """Return whether an effect at one value of another setting is not significant, as measured over several seeds."""
    return bool(effect.at) and not effect.sign and not math.isnan(effect.low)


def format_place(effect: Effect) -> str:
    """Describe the size of an effect, and at which value of another setting it applies."""
    place = f" at {shorten(effect.at)}" if effect.at else ""
    if effect.mean == 0:
        return place
    if effect.verdict == NO or is_unclear(effect):
        return f"{place} ({format_size(effect)}{find_unit(effect)})"
    size = format_size(effect).lstrip("+−")
    return f" by {f'a factor of {size}' if effect.metric in RATIOS else size + find_unit(effect)}{place}"


def find_unit(effect: Effect) -> str:
    """Return the unit of a metric after a space, or an empty text."""
    unit = COLUMNS[effect.metric].small if effect.metric in COLUMNS and effect.metric not in RATIOS else ""
    return f" {unit}" if unit else ""


def format_size(effect: Effect) -> str:
    """Format an effect with its sign and half its interval; on an error metric, as a factor."""
    if effect.metric in RATIOS:
        sign = -1 if effect.mean < 0 and effect.verdict != NO else 1
        mean, *ends = (10 ** (sign * number) for number in (effect.mean, effect.low, effect.high))
        return f"{mean:.2g}" if math.isnan(ends[0]) else f"{mean:.2g} ({min(ends):.2g} to {max(ends):.2g})"
    return with_sign(effect.mean, effect.low, effect.high)
