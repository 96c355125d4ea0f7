"""What a comparison says, in a sentence made from its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attn_exp.compare import Row


def sentence(rows: Sequence[Row]) -> str:
    """Say which variants compute the same function, and how far the others are from the first."""
    groups: dict[str, list[Row]] = {}
    for each in rows:
        groups.setdefault(each.same_as, []).append(each)
    told = [agreement(members) for members in groups.values() if len(members) > 1]
    told += [departure(members, rows[0]) for members in groups.values() if members[0].same_as != rows[0].same_as]
    return f"{'; '.join(told) or f'{rows[0].variant} stands alone'}."


def agreement(members: Sequence[Row]) -> str:
    """Say that several variants compute one function."""
    return f"{listed([each.variant for each in members])} compute the same function ({members[0].same_as})"


def departure(members: Sequence[Row], first: Row) -> str:
    """Say how far a group of variants is from the first row."""
    verb = "differs" if len(members) == 1 else "differ"
    far = max(each.shift for each in members)
    how = "in the shape of the output" if math.isnan(far) else f"by up to {far:.2g} in the output"
    return f"{listed([each.variant for each in members])} {verb} from {first.variant} {how}"


def listed(words: Sequence[str]) -> str:
    """Write a list as a sentence does: a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
