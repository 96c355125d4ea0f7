"""What a comparison says, in a sentence made from its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attn_exp.experiment.documents.published import Agreement
from attn_exp.experiment.row import Row


def sentence(rows: Sequence[Row]) -> str:
    """Say which variants compute the same function, and how far the others are from the first."""
    groups: dict[str, list[Row]] = {}
    computed = [each for each in rows if each.same_as]
    for each in computed:
        groups.setdefault(each.same_as, []).append(each)
    told = [agreement(members) for members in groups.values() if len(members) > 1]
    first = computed[0]
    told += [departure(members, first) for members in groups.values() if members[0].same_as != first.same_as]
    told = told or [f"{first.variant} stands alone"]
    told += [f"{each.variant} was not computed: {each.note}" for each in rows if each.note]
    return f"{'; '.join(told)}."


def agreement(members: Sequence[Row]) -> str:
    """Say that several variants compute one function, and which of them in another type than the first."""
    others: dict[str, list[str]] = {}
    for each in members:
        if each.computed_in != members[0].computed_in:
            others.setdefault(each.computed_in, []).append(each.variant)
    types = "".join(f", {listed(names)} in {kind}" for kind, names in others.items())
    return f"{listed([each.variant for each in members])} compute the same function ({members[0].same_as}){types}"


def departure(members: Sequence[Row], first: Row) -> str:
    """Say how far a group of variants is from the first row."""
    verb = "differs" if len(members) == 1 else "differ"
    far = max(each.shift for each in members)
    how = "in the shape of the output" if math.isnan(far) else f"by up to {far:.2g} in the output"
    return f"{listed([each.variant for each in members])} {verb} from {first.variant} {how}"


def listed(words: Sequence[str]) -> str:
    """Write a list as a sentence does: a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def agreed(agreements: Sequence[Agreement]) -> str:
    """Say how many published results a run agrees with."""
    return f"{sum(each.agrees for each in agreements)} of {len(agreements)} published results agree."
