"""What a sweep found, a finding for each metric and setting: as data that can be judged, and in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from attn_exp.experiment.column import spoken
from attn_exp.sweeps.answers.interactions import alone, matters, mean_over, of_cells, sure_dependences
from attn_exp.sweeps.answers.intervals import LEVEL, Estimate, Family, seeds_needed
from attn_exp.sweeps.answers.phrases import (
    FEW_SEEDS,
    SLIGHT,
    UNSURE,
    Claim,
    Finding,
    both_ways,
    called,
    claim_of,
    named,
    not_enough,
    places,
    short,
    signed,
    size,
    two_up,
    unit,
    verb,
)
from attn_exp.sweeps.answers.profiles import DEPENDS, Cell, Change, Dependence, Profile, dependence
from attn_exp.sweeps.answers.shapes import HARDLY, Leg, Shape, shape_of


def findings(profiles: Sequence[Profile], family: Family) -> list[Finding]:
    """Return what is found, what explains most first, and what is not sure after what is."""
    found = [finding for profile in profiles for finding in of_profile(profile, family)]
    return sorted(found, key=lambda finding: (finding.sure, -finding.weight))


def of_profile(profile: Profile, family: Family) -> Iterator[Finding]:
    """Yield what is found of one metric along one setting."""
    bare = Finding("", "", profile.metric, (profile.variant,), profile.weight, seeds=profile.seeds)
    few = tuple(change for change in profile.changes if change.estimate.few)
    yield from too_few(replace(profile, changes=few), family, bare)
    profile = replace(
        profile,
        changes=tuple(change for change in profile.changes if not change.estimate.few),
        pairs={pair: estimate for pair, estimate in profile.pairs.items() if not estimate.few},
    )
    if not profile.changes or (few and profile.ordered):
        return
    if profile.ordered and not any(sure_dependences(change, family) for change in profile.changes):
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
            over = mean_over(profile, change, family)
            by = f"{size(change.estimate)}{unit(profile.metric)}{alone(change)}"
            says = f"{verb(profile, sign, change)} by {by}{over.text}"
            claim = replace(claim_of(profile, change, sign), averaged=over.settings)
            yield replace(finding, says=says, claims=(claim, *over.claims))
        else:
            yield unsure(finding, profile, change, family)


def of_shape(profile: Profile, shape: Shape, family: Family, bare: Finding) -> Finding:
    """Say how a metric goes along a setting of numbers."""
    bare = replace(bare, subject=called(profile.setting))
    ways = [replace(profile.changes[0], start=each.start, end=each.end, estimate=each.estimate) for each in shape.legs]
    hidden = [(way, others) for way in ways if (others := not_at_each(way))]
    if hidden and (is_part(profile, shape) or len(ways) > 1):
        way, others = hidden[0]
        part = replace(way, dependences=others)
        if any(family.sure(cell.estimate) and not cell.estimate.nothing for cell in part.at(others[0])):
            found = of_cells(profile, part, others[:1], family, named(bare, profile, part))
            return replace(found, claims=tuple(claim for claim in found.claims if not claim.depends))
        ways = []
    if not ways:
        (start, end), widest = max(profile.pairs.items(), key=lambda pair: abs(pair[1].mean))
        between = f"{called(profile.setting)} from {short(profile.levels[start])} to {short(profile.levels[end])}"
        change = replace(profile.changes[0], start=start, end=end, estimate=widest)
        return unsure(replace(bare, subject=between), profile, change, family)
    shape = replace(shape, steady=shape.steady and at_every_step(profile, shape))
    over = [mean_over(profile, way, family) for way in ways]
    claims = tuple(
        Claim(
            profile.setting, profile.variant, profile.metric, profile.levels[each.start], profile.levels[each.end],
            1 if each.estimate.mean > 0 else -1, kind=kind_of(shape), averaged=over[0].settings,
        )
        for each in shape.legs
    )  # fmt: skip
    said = [f"{alone(way)}{each.text}" for way, each in zip(ways, over, strict=True)]
    says = said_of_shape(profile, shape, said)
    return replace(bare, says=says, claims=(*claims, *over[0].claims))


def at_every_step(profile: Profile, shape: Shape) -> bool:
    """Say whether a metric goes one way at each step, and there at each combination of the other settings."""
    (only,), change = shape.legs, profile.changes[0]
    whole = {cell.where for cell in cells_of(replace(change, start=only.start, end=only.end))}
    steps = (replace(change, start=place, end=place + 1) for place in range(only.start, only.end))
    cells = [cell for step in steps for cell in cells_of(step)]
    return all(cell.estimate.mean * only.estimate.mean > 0 for cell in cells if cell.where in whole)


def is_part(profile: Profile, shape: Shape) -> bool:
    """Say whether only a part of the way is sure, which was found by looking for it."""
    (first, *others), last = shape.legs, len(profile.levels) - 1
    return not others and shape.off < 0 and (first.start, first.end) != (0, last)


def not_at_each(change: Change) -> tuple[Dependence, ...]:
    """Return the settings at some value of which an effect has another direction, or is hardly there."""
    slab, whole = change.slab, change.estimate.mean
    differences = slab.difference(change.start, change.end)
    found = (dependence(slab, differences, place, math.nan) for place in range(len(slab.names)))
    return tuple(each for each in found if each and any(at.mean / whole <= DEPENDS for at in each.at))


def cells_of(change: Change) -> list[Cell]:
    """Return an effect at each combination of the other settings; of very many, at each value of each of them alone."""
    slab = change.slab
    values = [[(name, label) for label in labels] for name, labels in zip(slab.names, slab.levels, strict=True)]
    combined = math.prod(map(len, values)) <= MOST_COMBINED
    places = product(*values) if combined else ((value,) for each in values for value in each)
    cells = ((where, slab.compare(change.start, change.end, where)) for where in places)
    return [Cell(where, estimate) for where, estimate in cells if estimate is not None]


MOST_COMBINED = 24
"""Combinations of other settings that are looked at one by one where a mean over them is not sure."""


def kind_of(shape: Shape) -> str:
    """Return what kind of claim the legs of a shape are."""
    if shape.wild:
        return "wild"
    if shape.parts:
        return "differs"
    return "turn" if len(shape.legs) > 1 else "levels off" if shape.off >= 0 else "differs"


def said_of_shape(profile: Profile, shape: Shape, over: Sequence[str]) -> str:
    """Say a shape as what the setting does to the metric; `over` says of each leg over what it is a mean."""
    levels, units, name = [short(label) for label in profile.levels], unit(profile.metric), spoken(profile.metric)
    first = shape.legs[0]
    does = verb(profile, 1 if first.estimate.mean > 0 else -1)
    by = f"by {size(first.estimate)}{units}"
    if shape.wild:
        low, high = (first.start, first.end) if first.estimate.mean > 0 else (first.end, first.start)
        apart = f"{size(first.estimate)}{units} higher at {levels[high]} than at {levels[low]}{over[0]}"
        return f"moves the {name} up and down, in no order: it is {apart}"
    if len(shape.legs) > 1:
        second = shape.legs[1]
        back = "lowers" if second.estimate.mean < 0 else "raises"
        if shape.parts:
            again = f"{back} it from {levels[second.start]} to {levels[second.end]}, by {size(second.estimate)}{units}"
            return f"{does} from {levels[first.start]} to {levels[first.end]}, {by}{over[0]}, and {again}{over[1]}"
        again = f"{back} it from there to {levels[second.end]}, by {size(second.estimate)}{units}{over[1]}"
        return f"{does} up to about {called(profile.setting)}={levels[first.end]}, {by}{over[0]}, and {again}"
    if shape.off >= 0:
        rest = f"hardly from there on (by less than {two_up(shape.rest)}{units} up to {levels[-1]})"
        return f"{does} up to {levels[shape.off]}, {by}{over[0]}, and {rest if shape.rest else 'not from there on'}"
    if shape.steady:
        by = f"{by} in all{',' if over[0] else ''}"
    steady = ", and at every step" if shape.steady else ""
    more = steady or turned(profile, first) or further(profile, first)
    return f"{does} from {levels[first.start]} to {levels[first.end]}, {by}{over[0]}{more}"


def turned(profile: Profile, whole: Leg) -> str:
    """Say where the mean is beyond that of the first value, though it then goes the other way; that is not sure."""
    sign = 1 if whole.estimate.mean > 0 else -1
    least = min(range(whole.start, whole.end + 1), key=lambda level: sign * profile.values[level])
    beyond = sign * (profile.values[whole.start] - profile.values[least])
    if not beyond > HARDLY * abs(whole.estimate.mean):
        return ""
    called_so = f"{called(profile.setting)}={short(profile.levels[least])}"
    return f", though on this way its mean is {'lowest' if sign > 0 else 'highest'} at {called_so}"


def further(profile: Profile, part: Leg) -> str:
    """Say where the mean goes on after the part of the way that is sure, which is not."""
    sign = 1 if part.estimate.mean > 0 else -1
    later = range(part.end, len(profile.levels))
    most = max(later, key=lambda level: sign * profile.values[level])
    if not sign * (profile.values[most] - profile.values[part.end]) > HARDLY * abs(part.estimate.mean):
        return ""
    where = f"{called(profile.setting)}={short(profile.levels[most])}"
    return f"; at {where} its mean is {'higher' if sign > 0 else 'lower'} still, which is not sure"


def unsure(bare: Finding, profile: Profile, change: Change, family: Family) -> Finding:
    """Say that it is not sure what a setting does, or that it surely does too little to matter, wherever it is."""
    estimate, units = change.estimate, unit(profile.metric)
    cells = cells_of(change)
    every = [estimate, *(cell.estimate for cell in cells), *(profile.pairs.values() if profile.ordered else ())]
    limit = profile.threshold
    if not math.isnan(limit) and all(each.nothing or each.within(limit) <= family.each for each in every):
        shown = f"{both_ways(estimate)}{units}"
        return replace(bare, says=f"the {spoken(profile.metric)} ({shown})", sure=SLIGHT, shown=shown)
    shown = f"{not_enough(estimate, family, units)}{hidden(cells, estimate, family.each)}"
    shown += f",{there}" if (there := alone(change)) else ""
    says, needed = f"the {spoken(profile.metric)} ({shown})", seeds_needed(estimate, family.each)
    return replace(bare, says=says, sure=UNSURE, needed=needed, shown=shown)


def hidden(cells: Sequence[Cell], whole: Estimate, level: float) -> str:
    """Say from where to where effects range of which a mean is not sure, where one of them is clear.

    Where it is no clearer than many of them would be by chance, it must also part them by more than is not sure.
    """
    clear = [cell.estimate for cell in cells if cell.estimate.chance <= LEVEL and not cell.estimate.nothing]
    if not clear:
        return ""
    ordered = sorted(cells, key=lambda cell: cell.estimate.mean)
    low, high = ordered[0], ordered[-1]
    sure = any(each.chance <= level / len(cells) for each in clear) and low is not high
    if not sure and not high.estimate.mean - low.estimate.mean > whole.high - whole.low:
        return ""
    ends = (f"{signed(cell.estimate.mean)} {places(cell.where)}" for cell in (low, high))
    return f"; {' to '.join(ends)}"


def too_few(profile: Profile, family: Family, bare: Finding) -> Iterator[Finding]:
    """Show the differences of few seeds, and say how many would decide, from the spread seen."""
    for change in profile.changes[:1] if profile.ordered else profile.changes:
        if not change.estimate.nothing:
            shown = ", ".join(map(signed, change.estimate.numbers))
            says = f"the {spoken(profile.metric)} ({shown}{unit(profile.metric)}{alone(change)})"
            needed, count = seeds_needed(change.estimate, family.each), change.estimate.count
            over = change.slab.bearing(change.slab.difference(change.start, change.end))
            yield replace(
                named(bare, profile, change), says=says, sure=FEW_SEEDS, needed=needed, over=over, seeds=count
            )
