"""What a sweep found, a finding for each metric and setting: as data that can be judged, and in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from attn_exp.experiment.column import spoken
from attn_exp.sweeps.answers.intervals import LEVEL, Estimate, Family, seeds_needed
from attn_exp.sweeps.answers.phrases import (
    HIGHER,
    WAYS,
    both_ways,
    called,
    place,
    settings,
    short,
    signed,
    size,
    two_up,
    unit,
)
from attn_exp.sweeps.answers.profiles import DEPENDS, VARIANT, Cell, Change, Dependence, Profile, is_number
from attn_exp.sweeps.answers.shapes import Shape, shape_of

SURE, UNSURE, FEW_SEEDS = 0, 1, 2
"""How sure a finding is."""
NEITHER = "; neither alone is sure"
MOST_CELLS = 4
"""Effects at other settings that a sentence lists; of more, the ends and what lies beyond them."""


@dataclass(frozen=True)
class Claim:
    """One thing that a sentence says, as data: a metric is higher or lower (`sign`) at the second level than at the
    first, where other settings have these values; `depends` names settings on which that depends."""

    setting: str
    variant: str
    metric: str
    start: str
    end: str
    sign: int
    where: tuple[tuple[str, str], ...] = ()
    depends: tuple[str, ...] = ()
    kind: str = "differs"


@dataclass(frozen=True)
class Finding:
    """What is said of one metric along one setting: who did it, what it does, in which variants, how sure that is.

    `subject` is what changes; between variants there is none, and `says` has a place for them. `sure` is `SURE`,
    `UNSURE` or `FEW_SEEDS`; `weight` is the share of all that varies. `needed` seeds would decide it. What is `aside`
    has a sentence of its own.
    """

    subject: str
    says: str
    metric: str
    variants: tuple[str, ...]
    weight: float
    sure: int = SURE
    claims: tuple[Claim, ...] = ()
    needed: int = 0
    seeds: int = 0
    aside: bool = False


def findings(profiles: Sequence[Profile], family: Family) -> list[Finding]:
    """Return what is found, what explains most first, and what is not sure after what is."""
    found = [finding for profile in profiles for finding in of_profile(profile, family)]
    return sorted(found, key=lambda finding: (finding.sure, -finding.weight))


def of_profile(profile: Profile, family: Family) -> Iterator[Finding]:
    """Yield what is found of one metric along one setting."""
    bare = Finding("", "", profile.metric, (profile.variant,), profile.weight, seeds=profile.seeds)
    if any(estimate.few for estimate in profile.pairs.values()):
        yield from too_few(profile, family, bare)
    elif profile.ordered and not any(sure_dependences(change, family) for change in profile.changes):
        yield of_shape(profile, shape_of(profile, family), family, bare)
    else:
        yield from of_changes(profile, family, bare)


def of_changes(profile: Profile, family: Family, bare: Finding) -> Iterator[Finding]:
    """Yield what each change of a setting does, and on what that depends."""
    changes = [change for change in profile.changes if not change.estimate.nothing or sure_dependences(change, family)]
    if profile.ordered:  # the whole way, or its widest part if only of that it is sure
        changes = [change for change in changes if sure_dependences(change, family)][:1]
    for change in sorted(changes, key=lambda change: -abs(change.estimate.mean)):
        finding = named(bare, profile, change)
        if others := sure_dependences(change, family):
            yield of_cells(profile, change, others, family, finding)
            yield from matters(profile, change, others, family, finding)
        elif family.sure(change.estimate):
            sign = 1 if change.estimate.mean > 0 else -1
            by = f"by {size(change.estimate)}{unit(profile.metric)}{perhaps_dependent(change)}"
            says = f"{verb(profile, sign, change)} {by}"
            yield replace(finding, says=says, claims=(claim_of(profile, change, sign),))
        else:
            yield unsure(finding, profile, change.estimate, family)


def named(bare: Finding, profile: Profile, change: Change) -> Finding:
    """Return a finding of a change, by its name; a variant is itself what is another than the first."""
    start, end = profile.levels[change.start], profile.levels[change.end]
    if profile.setting == VARIANT:
        return replace(bare, variants=(end,))
    name = called(profile.setting)
    if {start, end} == {"true", "false"}:
        return replace(bare, subject=f"{name}={end}")
    if not (is_number(start) and is_number(end)) or (len(profile.levels) > 2 and not profile.ordered):
        return replace(bare, subject=f"{name}={short(end)} instead of {short(start)}")
    return replace(bare, subject=f"{name} from {short(start)} to {short(end)}")


def sure_dependences(change: Change, family: Family) -> list[Dependence]:
    """Return the settings on which an effect surely depends, the widest first."""
    found = [
        each
        for each in change.dependences
        if each.width > DEPENDS and any(family.sure(apart) and not apart.nothing for apart in each.apart)
    ]
    return sorted(found, key=lambda each: -each.width)


def perhaps_dependent(change: Change) -> str:
    """Say on which settings an effect may depend, though that is not sure: its mean over them is no more than that."""
    others = [
        each
        for each in change.dependences
        if each.width > DEPENDS and any(apart.chance <= LEVEL and not apart.nothing for apart in each.apart)
    ]
    return f" on average over {settings(others)}, on which that may depend" if others else ""


def claim_of(
    profile: Profile, change: Change, sign: int, cell: Cell | None = None, depends: tuple[str, ...] = ()
) -> Claim:
    """Return what is said of a change."""
    levels = profile.levels
    where = cell.where if cell else ()
    return Claim(
        profile.setting, profile.variant, profile.metric, levels[change.start], levels[change.end], sign, where, depends
    )


def verb(profile: Profile, sign: int, change: Change | None = None) -> str:
    """Say in which direction a metric is moved; 0 is both or none."""
    name = spoken(profile.metric)
    if profile.setting == VARIANT:
        first = profile.levels[change.start if change else 0]
        return f"{{has}} {HIGHER[sign]} {name} than {first},"
    return f"{WAYS[sign]} the {name}"


def of_cells(profile: Profile, change: Change, others: Sequence[Dependence], family: Family, bare: Finding) -> Finding:
    """Say what a change does at each value of the settings on which that depends."""
    cells, two = change.at(*others[:2]), others[:2]
    sure = [cell for cell in cells if not cell.estimate.nothing and family.sure(cell.estimate)]
    signs = {1 if cell.estimate.mean > 0 else -1 for cell in sure}
    sign = signs.pop() if len(signs) == 1 else 0
    depends = claim_of(profile, change, 0, depends=tuple(each.setting for each in two))
    claims = [claim_of(profile, change, 1 if cell.estimate.mean > 0 else -1, cell) for cell in sure]
    does, units = verb(profile, sign, change), unit(profile.metric)
    if not sure:
        return replace(bare, says=by_more(profile, change, two[0], family), claims=(depends,))
    if len(two) == 1:
        told = told_cells(cells, sign, family, units)
        if grows(cells, two[0], sign):
            more = "more" if abs(cells[-1].estimate.mean) > abs(cells[0].estimate.mean) else "less"
            told = f"the {more} the larger {called(two[0].setting)}: {told}"
    else:
        outer = min((0, 1), key=lambda order: len(two[order].levels))
        told = told_in_turn(cells, outer, sign, family, units)
    return replace(bare, says=f"{does} {told}", claims=(*claims, depends))


def by_more(profile: Profile, change: Change, over: Dependence, family: Family) -> str:
    """Say by how much a change does something else at one value of another setting than at another.

    Only that is sure, and the direction of neither is: no verb has one.
    """
    known = [level for level, apart in enumerate(over.apart, 1) if family.sure(apart)]
    widest = max(known, key=lambda level: abs(over.apart[level - 1].mean))
    more, less = sorted((0, widest), key=lambda level: -abs(over.at[level].mean))
    where = f"{place(over.setting, over.levels[more])} as {place(over.setting, over.levels[less])}"
    apart, name = f"{size(over.apart[widest - 1])}{unit(profile.metric)} apart", spoken(profile.metric)
    does = f"does not do the same to the {name}"
    if profile.setting == VARIANT:
        does = f"{{has}} not the same distance from {profile.levels[change.start]} in the {name}"
    return f"{does} {where} ({apart}){NEITHER}"


def grows(cells: Sequence[Cell], over: Dependence, sign: int) -> bool:
    """Say whether an effect grows, or shrinks, with another setting all the way."""
    sizes = [sign * cell.estimate.mean for cell in cells]
    return len(sizes) > 2 and over.ordered and bool(sign) and sizes in (sorted(sizes), sorted(sizes, reverse=True))


def told_cells(cells: Sequence[Cell], sign: int, family: Family, units: str, only: int = 0) -> str:
    """List effects at the values of one other setting, which is that of the place `only` of several."""
    told = []
    for cell in ends(cells):
        at, estimate = place(*cell.where[only]), cell.estimate
        if estimate.nothing:
            told.append(f"not at all {at}")
        elif family.sure(estimate):
            told.append(f"by {size(estimate) if sign else both_ways(estimate)}{units} {at}")
            units = ""
        else:
            told.append(f"not surely {at} ({both_ways(estimate)})")
    return ", ".join(told)


def told_in_turn(cells: Sequence[Cell], outer: int, sign: int, family: Family, units: str) -> str:
    """List effects at each value of one other setting, and there at those of a second."""
    inner, told, still = 1 - outer, [], []
    for label in dict.fromkeys(cell.where[inner] for cell in cells):
        row = [cell for cell in cells if cell.where[inner] == label]
        if all(cell.estimate.nothing for cell in row):  # whatever the other setting is
            still.append(f"not at all {place(*label)}")
            cells = [cell for cell in cells if cell.where[inner] != label]
    for label in dict.fromkeys(cell.where[outer] for cell in cells):
        row = [cell for cell in cells if cell.where[outer] == label]
        if all(cell.estimate.nothing for cell in row):
            still.append(f"not at all {place(*label)}")
        elif any(family.sure(cell.estimate) and not cell.estimate.nothing for cell in row):
            told.append(f"{place(*label)} {told_cells(row, sign, family, units, inner)}")
            units = ""
        else:
            still.insert(0, f"not surely {place(*label)}")
    return "; ".join([*told, *still])


def ends(cells: Sequence[Cell]) -> list[Cell]:
    """Return the effects that a sentence lists: all of a few, or the first, the last and what lies beyond them."""
    if len(cells) <= MOST_CELLS:
        return list(cells)
    ordered = sorted(cells, key=lambda cell: cell.estimate.mean)
    wanted = [cells[0], cells[-1], ordered[0], ordered[-1]]
    return [cell for cell in cells if any(cell is each for each in wanted)]


def matters(
    profile: Profile, change: Change, others: Sequence[Dependence], family: Family, bare: Finding
) -> Iterator[Finding]:
    """Yield from which value of another setting on a change surely matters, and up to which it surely does not."""
    for each in others:
        if math.isnan(each.threshold) or profile.setting == VARIANT:
            continue
        limit, levels = each.threshold, [short(label) for label in each.levels]
        large = [not at.nothing and at.beyond(limit) <= family.each for at in each.at]
        small = [at.nothing or at.within(limit) <= family.each for at in each.at]
        line, name = f"{limit:g}{unit(profile.metric)}", called(each.setting)
        says = f"matters for the {spoken(profile.metric)}"
        count = len(levels)
        turned = all(large[:1]) and not large[-1]
        first, last = crossing(large[::-1], small[::-1]) if turned else crossing(large, small)
        if not 0 < first < count or any((large[::-1] if turned else large)[:first]):  # it matters elsewhere too
            continue
        known = last >= 0
        if turned:
            first, last = count - 1 - first, count - 1 - max(0, last)
            says = f"{says} up to {name}={levels[first]}, by more than {line}"
            less = f"from {levels[last]} on" if first + 1 < last else "beyond"
        else:
            says = f"{says} from {name}={levels[first]} on, by more than {line}"
            less = f"up to {levels[last]}" if last + 1 < first else "below"
        says = f"{says}; {less} by less" if known else f"{says}; {'beyond' if turned else 'below'} that is not sure"
        claims = [
            replace(claim_of(profile, change, 0, Cell(((each.setting, each.levels[at]),), each.at[at])), kind=kind)
            for at, kind in ((first, "matters"), (last, "matters not"))
            if kind == "matters" or known
        ]
        yield replace(bare, says=says, claims=tuple(claims), weight=0.999 * bare.weight, aside=True)


def crossing(large: Sequence[bool], small: Sequence[bool]) -> tuple[int, int]:
    """Return the first place from which on all are large, and the last up to which all are small, or -1."""
    first = next((place for place in range(len(large)) if all(large[place:])), len(large))
    last = next((place for place in reversed(range(len(small))) if all(small[: place + 1])), -1)
    return first, last


def of_shape(profile: Profile, shape: Shape, family: Family, bare: Finding) -> Finding:
    """Say how a metric goes along a setting of numbers."""
    bare = replace(bare, subject=called(profile.setting))
    if not shape.legs:
        widest = max(profile.pairs.values(), key=lambda estimate: abs(estimate.mean))
        return unsure(bare, profile, widest, family)
    claims = tuple(
        Claim(
            profile.setting, profile.variant, profile.metric, profile.levels[each.start], profile.levels[each.end],
            1 if each.estimate.mean > 0 else -1, kind=kind_of(shape),
        )
        for each in shape.legs
    )  # fmt: skip
    perhaps = next((text for change in profile.changes if (text := perhaps_dependent(change))), "")
    return replace(bare, says=f"{said_of_shape(profile, shape)}{perhaps}", claims=claims)


def kind_of(shape: Shape) -> str:
    """Return what kind of claim the legs of a shape are."""
    if shape.wild:
        return "wild"
    return "turn" if len(shape.legs) > 1 else "levels off" if shape.off >= 0 else "differs"


def said_of_shape(profile: Profile, shape: Shape) -> str:
    """Say a shape as what the setting does to the metric."""
    levels, units, name = [short(label) for label in profile.levels], unit(profile.metric), spoken(profile.metric)
    first = shape.legs[0]
    does = verb(profile, 1 if first.estimate.mean > 0 else -1)
    by = f"by {size(first.estimate)}{units}"
    if shape.wild:
        low, high = (first.start, first.end) if first.estimate.mean > 0 else (first.end, first.start)
        apart = f"{size(first.estimate)}{units} higher at {levels[high]} than at {levels[low]}"
        return f"moves the {name} up and down, in no order: it is {apart}"
    if len(shape.legs) > 1:
        second = shape.legs[1]
        back = "lowers" if second.estimate.mean < 0 else "raises"
        again = f"{back} it from there to {levels[second.end]}, by {size(second.estimate)}{units}"
        return f"{does} up to about {called(profile.setting)}={levels[first.end]}, {by}, and {again}"
    if shape.off >= 0:
        rest = f"by less than {two_up(shape.rest)}{units}"
        return f"{does} up to {levels[shape.off]}, {by}, and hardly from there on ({rest} up to {levels[-1]})"
    steady = " in all, and at every step" if shape.steady else ""
    return f"{does} from {levels[first.start]} to {levels[first.end]}, {by}{steady}"


def unsure(bare: Finding, profile: Profile, estimate: Estimate, family: Family) -> Finding:
    """Say that it is not sure what a setting does."""
    says = f"the {spoken(profile.metric)} ({both_ways(estimate)}{unit(profile.metric)})"
    return replace(bare, says=says, sure=UNSURE, needed=seeds_needed(estimate, family.each))


def too_few(profile: Profile, family: Family, bare: Finding) -> Iterator[Finding]:
    """Show the differences of few seeds, and say how many would decide, from the spread seen."""
    for change in profile.changes[:1] if profile.ordered else profile.changes:
        if not change.estimate.nothing:
            shown = ", ".join(map(signed, change.estimate.numbers))
            says = f"the {spoken(profile.metric)} ({shown}{unit(profile.metric)})"
            needed = seeds_needed(change.estimate, family.each)
            yield replace(named(bare, profile, change), says=says, sure=FEW_SEEDS, needed=needed)
