"""What a comparison says, in a sentence made from its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attn_exp.experiment.row import Row
from attn_exp.report import words

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
    parts = parts or [words.ONLY_COMPUTED.format(variant=first.variant)]
    lacking = [row for row in rows if row.note and not row.same_as]
    parts += [words.NOT_COMPUTED.format(variant=row.variant, note=row.note) for row in lacking]
    parts += [f"{row.variant}: {row.note}" for row in rows if row.note and row.same_as]
    return f"{'; '.join(parts)}."


def agreement(members: Sequence[Row]) -> str:
    """Say that several variants compute one function, and which of them in another type than the first."""
    others: dict[str, list[str]] = {}
    for row in members:
        if row.computed_in != members[0].computed_in:
            others.setdefault(row.computed_in, []).append(row.variant)
    types = (words.OTHERS_IN_TYPE.format(variants=listed(names), type=kind) for kind, names in others.items())
    variants = listed([row.variant for row in members])
    return ", ".join([words.SAME_FUNCTION.format(variants=variants, letter=members[0].same_as), *types])


def departure(members: Sequence[Row], first: Row) -> str:
    """Say how far a group of variants is from the first row."""
    far = max(row.shift for row in members)
    if math.isnan(far):
        text = words.DIFFERS_IN_SHAPE if len(members) == 1 else words.DIFFER_IN_SHAPE
    else:
        text = words.DIFFERS_BY if len(members) == 1 else words.DIFFER_BY
    return text.format(variants=listed([row.variant for row in members]), first=first.variant, far=far)


def listed(names: Sequence[str]) -> str:
    """Write a list as a sentence does: a, b and c."""
    return f" {words.AND} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def agreed(agreements: Sequence[Agreement]) -> str:
    """Say how many published results a run agrees with, and which could not be compared."""
    tally = words.COUNT_OF.format(count=sum(result.agrees for result in agreements), all=len(agreements))
    sentence = words.PUBLISHED_AGREE.format(tally=tally)
    others = [
        words.PUBLISHED_HAS.format(quantity=result.quantity, computed=result.computed)
        for result in agreements
        if math.isnan(result.largest_difference)
    ]
    return f"{sentence} {words.CHOOSE_A_PART.format(others='; '.join(others))}" if others else sentence
