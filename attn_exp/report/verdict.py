"""What a comparison says, in a sentence made from its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attn_exp.experiment.row import Row

if TYPE_CHECKING:
    from attn_exp.experiment.documents.agreement import Agreement


def who_agrees(rows: Sequence[Row]) -> str:
    """Say which variants compute the same function, and how far the others are from the first."""
    groups: dict[str, list[Row]] = {}
    computed = [row for row in rows if row.same_as]
    for row in computed:
        groups.setdefault(row.same_as, []).append(row)
    parts = [agreement(members) for members in groups.values() if len(members) > 1]
    first = computed[0]
    parts += [departure(members, first) for members in groups.values() if members[0].same_as != first.same_as]
    parts = parts or [f"Only {first.variant} was computed"]
    parts += [f"{row.variant} was not computed: {row.note}" for row in rows if row.note and not row.same_as]
    parts += [f"{row.variant}: {row.note}" for row in rows if row.note and row.same_as]
    return f"{'; '.join(parts)}."


def agreement(members: Sequence[Row]) -> str:
    """Say that several variants compute one function, and which of them in another type than the first."""
    others: dict[str, list[str]] = {}
    for row in members:
        if row.computed_in != members[0].computed_in:
            others.setdefault(row.computed_in, []).append(row.variant)
    types = "".join(f", {listed(names)} in {kind}" for kind, names in others.items())
    return f"{listed([row.variant for row in members])} compute the same function ({members[0].same_as}){types}"


def departure(members: Sequence[Row], first: Row) -> str:
    """Say how far a group of variants is from the first row."""
    verb = "differs" if len(members) == 1 else "differ"
    far = max(row.shift for row in members)
    how = "in the shape of the output" if math.isnan(far) else f"by up to {far:.2g} in the output"
    return f"{listed([row.variant for row in members])} {verb} from {first.variant} {how}"


def listed(words: Sequence[str]) -> str:
    """Write a list as a sentence does: a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def agreed(agreements: Sequence[Agreement]) -> str:
    """Say how many published results a run agrees with, and which could not be compared."""
    sentence = f"{sum(result.agrees for result in agreements)} of {len(agreements)} published results agree."
    others = [
        f"{result.quantity} has {result.computed}" for result in agreements if math.isnan(result.largest_difference)
    ]
    if not others:
        return sentence
    return f"{sentence} {'; '.join(others)}; row: and first: in its entry choose a part."
