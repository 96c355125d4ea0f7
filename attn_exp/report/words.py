"""Wording that several packages share; other texts are in their template or function."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str]) -> str:
    """Join names for a sentence: a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


AND, HEAD = "and", "head {number}"

# Sweeps, and two runs or sweeps side by side
METRIC, SETTING, SEEDS, VARIANT_HEAD, SHARE, LARGEST = "metric", "setting", "seeds", "variant", "share", "largest"
ROWS, POINTS, FIRST_ONE, SECOND_ONE = "rows", "points", "first", "second"
MORE_EFFECTS = "The report and effects.csv have {count} more."
PUBLISHED_AGREE = "{tally} published results agree."
ALL_WITH = "(all with {shared})"
ONLY_ROUNDING = "No number moved beyond rounding, in {where}."

# The classroom
ALL_RIGHT = "all right"
STAGE_OF_HEAD = "{stage}, head {number}"
MARKED, MARKED_SHEETS = "marked", "Marked sheets"
MISTAKE, WHAT_IT_IS, NO_MISTAKE = "mistake", "what it is", "No mistake by name."
