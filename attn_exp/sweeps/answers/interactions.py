"""What a change does where that depends on other settings: at each of their values, or the mean over them and from
where to where it ranges."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

from attn_exp.experiment.column import spoken
from attn_exp.report.words import listed
from attn_exp.sweeps.answers.intervals import LEVEL, Estimate, Family
from attn_exp.sweeps.answers.phrases import (
    Claim,
    Finding,
    at_each,
    both_ways,
    called,
    claim_of,
    not_enough,
    parted,
    place,
    places,
    places_again,
    settings,
    short,
    signed,
    size,
    unit,
    verb,
)
from attn_exp.sweeps.answers.profiles import DEPENDS, VARIANT, Cell, Change, Dependence, Profile, order_of
from attn_exp.sweeps.answers.shapes import HARDLY, Shape, shape_of

SLIGHT = 0.02
"""What an effect varies by over another setting is not worth a word below this share of its largest."""
MOST_CELLS = 4
"""Effects at other settings that a sentence lists; of more, the ends and what lies beyond them."""
GROWS = {
    "head": "{grows} with more heads",
    "kv_head": "{grows} with more key/value heads",
    "tokens": "{grows} with more tokens",
}
"""How it is said that an effect is larger at larger values of a setting; of other settings, `the more the larger d`."""
MOST_PLACES = 2
"""Places where nothing changes, or nothing is sure, that a sentence names one by one."""


def sure_dependences(change: Change, family: Family) -> list[Dependence]:
    """Return the settings on which an effect surely depends, and by much, the widest first."""
    found = [each for each in change.dependences if each.width > DEPENDS and surely(each, family)]
    return sorted(found, key=lambda each: -each.width)


def surely(dependence: Dependence, family: Family) -> bool:
    """Say whether an effect surely depends on another setting, by however little."""
    return any(family.sure(apart) and not apart.nothing for apart in dependence.apart)


def bears(dependence: Dependence, family: Family) -> bool:
    """Say whether another setting surely bears on an effect, by enough for a word."""
    return dependence.width > SLIGHT and surely(dependence, family)


def sure_beside(change: Change, family: Family) -> list[tuple[Dependence, Dependence]]:
    """Return the settings on which an effect surely depends, and by much, where another has some value, and that other.

    Over all rows, what it does at one value may hide what it does at the next."""
    return beside(change, family.each)


def beside(change: Change, level: float) -> list[tuple[Dependence, Dependence]]:
    """Return the settings on which an effect depends where another setting has some value, and that other, at a level
    that all of these questions share."""
    questions = max(1, sum(len(each.there.apart) for each in change.beside))
    found = [
        each
        for each in change.beside
        if each.there.width > DEPENDS
        and any(not apart.nothing and apart.chance <= level / questions for apart in each.there.apart)
    ]
    return list({(each.one.setting, each.other.setting): (each.one, each.other) for each in found}.values())


@dataclass(frozen=True)
class Over:
    """The settings that a mean is taken over though they bear on it: what is said of that, and as claims."""

    settings: tuple[str, ...] = ()
    text: str = ""
    claims: tuple[Claim, ...] = ()


def mean_over(profile: Profile, change: Change, family: Family) -> Over:
    """Say over which settings an effect is a mean: from where to where it ranges over those that surely bear on it,
    by however little, and on which it may depend, though that is not sure."""
    changes = profile.changes if profile.ordered else (change,)
    bearing = [each for other in changes for each in other.dependences if each.width > SLIGHT]
    known = {each.setting: each for each in bearing if surely(each, family)}
    known |= {each.setting: each for pair in sure_beside(change, family) for each in pair}
    doubtful = {
        each.setting: each
        for each in bearing
        if each.width > DEPENDS
        and each.setting not in known
        and any(apart.chance <= LEVEL and not apart.nothing for apart in (*each.apart, *between_all(change, each)))
    }
    doubtful |= {one.setting: one for one, _ in beside(change, LEVEL) if one.setting not in known}
    if not known:
        perhaps = f" on average over {settings([*doubtful.values()])}, on which that may depend" if doubtful else ""
        return Over(tuple(doubtful), perhaps)
    cells = change.at(*list(known.values())[:2])
    sizes = sorted(cells, key=lambda cell: math.copysign(1, change.estimate.mean) * cell.estimate.mean)
    ends = [math.copysign(each.estimate.mean, each.estimate.mean * change.estimate.mean) for each in sizes]
    low, high = (text.replace("-", "−") for text in parted(ends[0], ends[-1]))
    ranges = f" ({low} {places(sizes[0].where)} to {high} {places_again(sizes[-1].where)})"
    perhaps = f", and may depend on {settings([*doubtful.values()])}" if doubtful else ""
    claim = claim_of(profile, change, 0, depends=tuple(known))
    alike = ends[-1] - ends[0] <= SLIGHT * abs(ends[-1])  # of this part of the way; not of all of it
    text = perhaps if alike else f" on average over {settings([*known.values()])}{ranges}{perhaps}"
    return Over((*known, *doubtful), text, (claim,))


def between_all(change: Change, over: Dependence) -> list[Estimate]:
    """Return how far an effect at each value of another setting is from that at each later one.

    An effect may be the same at the first value as at the others, and differ between these.
    """
    steps = (change.step(over.setting, *pair) for pair in combinations(over.levels[1:], 2))
    return [step for step in steps if step is not None]


@dataclass(frozen=True)
class Told:
    """What all the effects of one sentence share: the change, the direction in which they go, or 0 for both, and how
    the metric turns at each of them."""

    profile: Profile
    change: Change
    family: Family
    sign: int
    turns: Mapping[tuple[tuple[str, str], ...], Turn]

    def turn(self, cell: Cell) -> Turn:
        """Return how the metric turns where other settings have some values."""
        return self.turns[cell.where]

    def is_sure(self, cell: Cell) -> bool:
        """Say whether there surely is an effect."""
        return self.family.sure(cell.estimate) and not cell.estimate.nothing

    def amount(self, cell: Cell) -> str:
        """Write an effect that is sure, without a sign where the sentence has a direction."""
        return size(cell.estimate) if self.sign else both_ways(cell.estimate)

    @property
    def units(self) -> str:
        """The unit of the metric."""
        return unit(self.profile.metric)


def of_cells(profile: Profile, change: Change, others: Sequence[Dependence], family: Family, bare: Finding) -> Finding:
    """Say what a change does at each value of the settings on which that depends: of two of them, if there are more."""
    hidden = [one for one, other in sure_beside(change, family) if other is others[0]]
    two = [*others, *(each for each in hidden if each not in others)][:2]
    cells = change.at(*two)
    sure = [cell for cell in cells if not cell.estimate.nothing and family.sure(cell.estimate)]
    if not sure:
        depends = claim_of(profile, change, 0, depends=(two[0].setting,))
        return replace(bare, says=by_more(profile, change, two[0], family), claims=(depends,))
    signs = {sign_of(cell.estimate) for cell in sure}
    turns = {cell.where: turn_of(profile, change, family, cell) for cell in cells}
    told = Told(profile, change, family, signs.pop() if len(signs) == 1 else 0, turns)
    claims = [claim_of(profile, change, sign_of(cell.estimate), cell) for cell in sure]
    claims.append(claim_of(profile, change, 0, depends=tuple(each.setting for each in two)))
    claims += [claim for cell in cells for claim in told.turn(cell).claims]
    if len(two) == 1:
        text = in_a_row(told, cells)
        if way := growth(told, two[0]):
            name, grows = called(two[0].setting), "more" if way > 0 else "less"
            text = f"{GROWS.get(name, 'the {grows} the larger {name}').format(grows=grows, name=name)}: {text}"
            claims.append(replace(claim_of(profile, change, way * told.sign, depends=(two[0].setting,)), kind="grows"))
    else:
        text = in_turn(told, cells) if len(cells) <= MOST_CELLS else from_to(told, cells)
    bearing = [one for one, _ in sure_beside(change, family)]
    rest = [each for each in change.dependences if each not in two and (bears(each, family) or each in bearing)]
    perhaps = [one for one, other in beside(change, LEVEL) if other in two and one not in two and one not in rest]
    what = "each" if len(sure) > 1 else "that"
    mean = f"; {what} is the mean over {settings(rest)}, on which it depends too" if rest else ""
    if perhaps:
        mean += f"; {'it' if rest else what} may depend on {settings(list(dict.fromkeys(perhaps)))} too"
    says = f"{verb(profile, told.sign, change)} {text}{mean}{alone_in(change, cells)}"
    return replace(bare, says=says, claims=tuple(claims))


def alone(change: Change, where: Sequence[tuple[str, str]] = ()) -> str:
    """Say at which values of other settings alone a change can be seen, where both sides are nowhere else."""
    there = [at_each(*each) for each in change.slab.only_at(change.start, change.end, where)]
    return f" {listed(there)} alone" if there else ""


def alone_in(change: Change, cells: Sequence[Cell]) -> str:
    """Say the same of each of some effects, or once of all."""
    said = {cell.where: alone(change, cell.where) for cell in cells}
    if len(set(said.values())) == 1:
        there = said[cells[0].where]
        return f"; compared{there}" if there else ""
    return "".join(f"; {places(where)} compared{there}" for where, there in said.items() if there)


def sign_of(estimate: Estimate) -> int:
    """Return whether an effect is above or below 0."""
    return 1 if estimate.mean > 0 else -1


def growth(told: Told, over: Dependence) -> int:
    """Return 1 where an effect surely grows with every step of another setting, -1 where it shrinks; else 0."""
    slab = told.change.slab
    labels = slab.levels[slab.names.index(over.setting)]
    levels = tuple(labels[level] for level in order_of(labels))
    cells = told.change.at(replace(over, levels=levels))
    if not (told.sign and over.ordered and len(levels) > 2) or sum(map(told.is_sure, cells)) < len(levels) - 1:
        return 0
    steps = [told.change.step(over.setting, *pair) for pair in pairwise(levels)]
    ways = {sign_of(step) if step and told.family.sure(step) and not step.nothing else 0 for step in steps}
    way = ways.pop() if len(ways) == 1 else 0
    third = [each for each in told.change.dependences if each.setting != over.setting]
    return told.sign * way if all(goes(told, replace(over, levels=levels), each, way) for each in third) else 0


def goes(told: Told, over: Dependence, third: Dependence, way: int) -> bool:
    """Say whether an effect grows, or shrinks, with another setting at each value of a third."""
    cells = told.change.at(over, third)
    rows = ([cell.estimate.mean for cell in cells if cell.where[1][1] == level] for level in third.levels)
    return all(way * (row[-1] - row[0]) >= 0 for row in rows)


@dataclass(frozen=True)
class Turn:
    """That a metric goes both up and down inside a change: in words, and as claims."""

    text: str = ""
    claims: tuple[Claim, ...] = ()


def turn_of(profile: Profile, change: Change, family: Family, cell: Cell) -> Turn:
    """Return whether a metric turns between the ends of a change of numbers, where other settings have some values."""
    if not profile.ordered:
        return Turn()
    slab = change.slab
    pairs = {pair: found for pair in profile.pairs if (found := slab.compare(*pair, cell.where))}
    shape = shape_of(replace(profile, pairs=pairs, values=slab.means(cell.where)), family)
    kind = "wild" if shape.wild else "differs" if shape.parts else "turn"
    legs = [(replace(change, start=leg.start, end=leg.end), sign_of(leg.estimate)) for leg in shape.legs]
    claims = tuple(replace(claim_of(profile, part, sign, cell), kind=kind) for part, sign in legs)
    text = turn_text(profile, change, shape)
    return Turn(text, claims) if text else Turn()


def turn_text(profile: Profile, change: Change, shape: Shape) -> str:
    """Say how a metric turns; nothing where it does not, or by too little: then its ends say which way it goes."""
    if shape.wild:
        return "up and down between"
    sizes = [abs(leg.estimate.mean) for leg in shape.legs]
    if len(sizes) < 2 or min(sizes) < HARDLY * max(sizes):
        return ""
    one, other = shape.legs
    levels = [short(label) for label in profile.levels]
    if shape.parts:
        steps = [f"{both_ways(leg.estimate)} from {levels[leg.start]} to {levels[leg.end]}" for leg in shape.legs]
        return listed(steps)
    if (one.start, one.end) == (change.start, change.end):  # what is told is the first half of the way
        return f"then {'down' if one.estimate.mean > 0 else 'up'} by {size(other.estimate)} to {levels[other.end]}"
    which, side = ("highest", "above") if one.estimate.mean > 0 else ("lowest", "below")
    ends = f"{size(one.estimate)} {side} {levels[one.start]}, {size(other.estimate)} {side} {levels[other.end]}"
    return f"{which} at {called(profile.setting)}={levels[one.end]}: {ends}"


def in_a_row(told: Told, cells: Sequence[Cell], only: int = 0, units: str | None = None) -> str:
    """List effects at the values of one other setting, which is that of the place `only` of several."""
    texts, units, listed_cells = [], told.units if units is None else units, ends(cells)
    still, unsure = [], []
    for cell in listed_cells:
        turn = told.turn(cell).text
        if told.is_sure(cell):
            texts.append(f"by {told.amount(cell)}{units} {place(*cell.where[only])}{f' ({turn})' if turn else ''}")
            units = ""
        elif cell.estimate.nothing:
            still.append(f"{place(*cell.where[only])}{f' ({turn})' if turn else ''}")
        else:
            shown = "; ".join(filter(None, [not_enough(cell.estimate, told.family), turn]))
            unsure.append(f"{place(*cell.where[only])} ({shown})")
    texts += [f"not at all {listed(still)}"] if still else []
    texts += [f"but that is not sure {listed(unsure)}"] if unsure else []
    return ", ".join(texts) + between(told, cells, listed_cells, only)


def between(told: Told, cells: Sequence[Cell], said: Sequence[Cell], only: int) -> str:
    """Say at which values of a setting effects lie between those that a sentence lists; nothing where it lists all.

    Of many values not all are among the cells: those that lie beyond them are not counted."""
    if len(said) == len(cells):
        return ""
    (setting, _), slab = cells[0].where[only], told.change.slab
    means = [cell.estimate.mean for cell in said]
    fixed = [each for place, each in enumerate(cells[0].where) if place != only]
    shown = {cell.where[only][1] for cell in said}
    labels = []
    for label in slab.levels[slab.names.index(setting)]:
        estimate = slab.compare(told.change.start, told.change.end, (*fixed, (setting, label)))
        if label not in shown and estimate is not None and min(means) <= estimate.mean <= max(means):
            labels.append(label)
    named = at_each(setting, labels)
    if len(labels) > MOST_CELLS:
        named = f"at {len(labels)} other values of {called(setting)}"
    these = "these" if len(said) == 2 else "the least and the largest of these"
    return f"; {named} the mean lies between {these}"


def ends(cells: Sequence[Cell]) -> list[Cell]:
    """Return the effects that a sentence lists: all of a few, or the first, the last and what lies beyond them."""
    if len(cells) <= MOST_CELLS:
        return list(cells)
    ordered = sorted(cells, key=lambda cell: cell.estimate.mean)
    wanted = [cells[0], cells[-1], ordered[0], ordered[-1]]
    return [cell for cell in cells if any(cell is each for each in wanted)]


def in_turn(told: Told, cells: Sequence[Cell]) -> str:
    """List effects at both values of one other setting, and there at those of a second."""
    texts, still, units = [], [], told.units
    for label in dict.fromkeys(cell.where[1] for cell in cells):
        row = [cell for cell in cells if cell.where[1] == label]
        if all(cell.estimate.nothing for cell in row):  # whatever the other setting is
            still.append(f"not at all {place(*label)}")
            cells = [cell for cell in cells if cell.where[1] != label]
    for label in dict.fromkeys(cell.where[0] for cell in cells):
        row = [cell for cell in cells if cell.where[0] == label]
        if all(cell.estimate.nothing for cell in row):
            still.append(f"not at all {place(*label)}")
        elif any(map(told.is_sure, row)):
            texts.append(f"{place(*label)} {in_a_row(told, row, 1, units)}")
            units = ""
        else:
            still.append(f"but that is not sure {place(*label)}")
    return "; ".join([*texts, *sorted(still, reverse=True)])


def from_to(told: Told, cells: Sequence[Cell]) -> str:
    """Say from where to where effects range over two other settings, and where there are none."""
    sure = sorted(filter(told.is_sure, cells), key=lambda cell: (told.sign or 1) * cell.estimate.mean)
    least, most = sure[0], sure[-1]
    if least is most:
        texts = [f"by {told.amount(least)}{told.units} {places(least.where)}"]
    elif abs(most.estimate.mean - least.estimate.mean) <= SLIGHT * abs(most.estimate.mean):
        vague = max(sure, key=lambda cell: cell.estimate.high - cell.estimate.low)
        texts = [f"by {told.amount(vague)}{told.units} wherever that is sure"]
    else:
        low, high = (f"{told.amount(cell)}{told.units} ({places(cell.where)})" for cell in (least, most))
        texts = [f"by {low} to {high}"]
    nothing = [cell for cell in cells if cell.estimate.nothing]
    unsure = [cell for cell in cells if not cell.estimate.nothing and not told.is_sure(cell)]
    texts += [f"not at all {everywhere(nothing, cells, ())}"] * bool(nothing)
    texts += [f"but that is not sure {everywhere(unsure, cells, nothing)}"] * bool(unsure)
    if turning := [cell for cell in cells if told.turn(cell).text]:
        texts.append(f"on the way it goes up and down {everywhere(turning, cells, nothing)}")
    return "; ".join(texts)


def everywhere(some: Sequence[Cell], cells: Sequence[Cell], besides: Sequence[Cell]) -> str:
    """Say at which values of two settings some of the effects are: at all of one but for those `besides`, of which
    something else is said; one by one; or how many."""
    texts, left = [], list(some)
    for order in (0, 1):
        labels = []
        for setting, label in dict.fromkeys(cell.where[order] for cell in cells):
            row = [cell for cell in cells if cell.where[order] == (setting, label)]
            if all(cell in some or cell in besides for cell in row) and any(cell in left for cell in row):
                labels.append(label)
                left = [cell for cell in left if cell not in row]
        texts += [at_each(cells[0].where[order][0], labels)] if labels else []
    if len(left) > MOST_PLACES:
        both = listed([called(setting) for setting, _ in cells[0].where])
        others = f"in {len(left)} other combinations of {both}"
        texts.append(others if texts else f"in {len(left)} of the {len(cells)} combinations of {both}")
    else:
        texts += [places(cell.where) for cell in left]
    return ", and ".join(texts)


def by_more(profile: Profile, change: Change, over: Dependence, family: Family) -> str:
    """Say by how much a change does something else at one value of another setting than at another.

    Only that is sure, and the direction of neither is: no verb has one.
    """
    known = [level for level, apart in enumerate(over.apart, 1) if family.sure(apart)]
    widest = max(known, key=lambda level: abs(over.apart[level - 1].mean))
    one, other = (
        f"by {signed(over.at[level].mean)} {place(over.setting, over.levels[level])}" for level in (0, widest)
    )
    apart, name = f"{size(over.apart[widest - 1])}{unit(profile.metric)}", spoken(profile.metric)
    both = f"{one} and {other}: {apart} apart, though neither of these is sure by itself"
    if profile.setting == VARIANT:
        return f"{{differs}} from {profile.levels[change.start]} in the {name}, {both}"
    return f"moves the {name} {both}"


def matters(
    profile: Profile, change: Change, others: Sequence[Dependence], family: Family, bare: Finding
) -> Iterator[Finding]:
    """Yield from which value of another setting on a change surely matters, and up to which it surely does not.

    Both must be known: where it is not sure that it matters is no border of what it does, but of what the seeds show.
    Where a third setting bears on it, all must hold at each of its values.
    """
    for each in others:
        if math.isnan(each.threshold) or profile.setting == VARIANT:
            continue
        limit, levels = each.threshold, [short(label) for label in each.levels]
        hidden = [one for one, _ in sure_beside(change, family)]
        bearing = [
            one for one in change.dependences if one.setting != each.setting and (bears(one, family) or one in hidden)
        ]
        if len(bearing) > 1:  # no value of one setting alone says where it matters
            continue
        cells = change.at(each, *bearing)
        rows = [[cell.estimate for cell in cells if cell.where[0][1] == level] for level in each.levels]
        large = [bool(row) and all(not at.nothing and at.beyond(limit) <= family.each for at in row) for row in rows]
        small = [bool(row) and all(at.nothing or at.within(limit) <= family.each for at in row) for row in rows]
        line, name = f"{limit:g}{unit(profile.metric)}", called(each.setting)
        says = f"matters for the {spoken(profile.metric)}"
        count = len(levels)
        turned = all(large[:1]) and not large[-1]
        first, last = crossing(large[::-1], small[::-1]) if turned else crossing(large, small)
        elsewhere = any((large[::-1] if turned else large)[:first])
        if not 0 < first < count or elsewhere or last < 0:
            continue
        if turned:
            first, last = count - 1 - first, count - 1 - last
        much, little = ("up to", "from") if turned else ("from", "up to")
        says = f"{says} {along(much, name, levels, first)}, by more than {line}"
        says = f"{says}; {along(little, name, levels, last)} by less"
        if between := levels[min(first, last) + 1 : max(first, last)]:
            says += f", and at {name}={listed(between)} that is not sure"
        claims = [
            replace(claim_of(profile, change, 0, Cell(((each.setting, each.levels[at]),), each.at[at])), kind=kind)
            for at, kind in ((first, "matters"), (last, "matters not"))
        ]
        yield replace(bare, says=says, claims=tuple(claims), weight=0.999 * bare.weight, aside=True)


def along(way: str, name: str, levels: Sequence[str], place: int) -> str:
    """Say that something holds up to a value or from it on; at it, where there is no other."""
    value = f"{name}={levels[place]}"
    if place == (0 if way == "up to" else len(levels) - 1):
        return f"at {value}"
    return f"up to {value}" if way == "up to" else f"from {value} on"


def crossing(large: Sequence[bool], small: Sequence[bool]) -> tuple[int, int]:
    """Return the first place from which on all are large, and the last up to which all are small, or -1."""
    first = next((place for place in range(len(large)) if all(large[place:])), len(large))
    last = next((place for place in reversed(range(len(small))) if all(small[: place + 1])), -1)
    return first, last
