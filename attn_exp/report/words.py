"""Words that files of several rooms say; what stands in one place is told by its template, or by the function there."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str]) -> str:
    """Write a list as a sentence does: a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


AND = "and"
KEY, HEAD, COUNT_HEADS = "key", "head {number}", "{count} heads"
WEIGHT = "weight"
SIDE_BY_SIDE, COLUMNS, WITH_BIAS, MIXED_BY = "side by side", "columns", "+ {bias}", "×"
QUANTITY, AGREES, LARGEST_DIFFERENCE, TOLERANCE = "quantity", "agrees", "largest difference", "tolerance"

# Sweeps, and two runs or sweeps side by side
METRIC, SETTING, SEEDS, VARIANT_HEAD, SHARE, LARGEST = "metric", "setting", "seeds", "variant", "share", "largest"
ROWS, POINTS, FIRST_ONE, SECOND_ONE = "rows", "points", "first", "second"
MORE_EFFECTS = "The report and effects.csv have {count} more."
PUBLISHED_AGREE = "{tally} published results agree."
ALL_WITH = "(all with {shared})"
ONLY_ROUNDING = "No number moved beyond rounding, in {where}."

# The classroom
RIGHT, WRONG, ALL_RIGHT = "right", "wrong", "all right"
STAGE_OF_HEAD = "{stage}, head {number}"
SOME_MISSING, NOTHING_FILLED_IN = "no number is wrong; some are missing", "nothing is filled in"
WRONG_MARK = "✗ wrong: beside it stands what your numbers before it give"
FOLLOWS_MARK, UNREADABLE_MARK = "→ right, though computed from a wrong number", "? cannot be read"
EMPTY_MARK = "– left empty: beside it stands what is right"
MARKED, MARKED_SHEETS = "marked", "Marked sheets"
MISTAKE, WHAT_IT_IS, NO_MISTAKE = "mistake", "what it is", "No mistake by name."
