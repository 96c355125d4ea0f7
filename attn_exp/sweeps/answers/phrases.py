"""Words and numbers of a sweep's sentences: an effect with its interval, where it holds, which way a metric moves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from attn_exp.experiment.column import spoken
from attn_exp.experiment.row import COLUMNS
from attn_exp.report.words import listed
from attn_exp.sweeps.answers.intervals import Estimate, Family
from attn_exp.sweeps.answers.profiles import NOISE, VARIANT, Cell, Change, Dependence, Profile, is_number

FLAGS = {"scale": "scaling", "bias": "biases", "output_projection": "W_o"}
"""What settings that are true or false are called where they stand beside another."""
GROUPS = ("embeddings.", "model.", "projections.", "mask.", "score.", "position.")
"""Groups of settings whose names say enough without them."""
WAYS = {1: "raises", -1: "lowers", 0: "changes"}
HIGHER = {1: "a higher", -1: "a lower", 0: "another"}


def called(setting: str) -> str:
    """Return what a setting is called in a sentence."""
    return next((setting.removeprefix(group) for group in GROUPS if setting.startswith(group)), setting)


def place(setting: str, label: str) -> str:
    """Say where another setting has a value."""
    if setting in FLAGS and label in ("true", "false"):
        return f"{'with' if label == 'true' else 'without'} {FLAGS[setting]}"
    return f"{'at' if is_number(label) else 'with'} {called(setting)}={short(label)}"


def places(where: Sequence[tuple[str, str]]) -> str:
    """Say where several other settings have values: `at head=4 and d=8 with mask=causal and without scaling`."""
    texts = [place(*each) for each in where if each[0] not in FLAGS]
    numbers = [text.removeprefix("at ") for text in texts if text.startswith("at ")]
    named = [text.removeprefix("with ") for text in texts if text.startswith("with ")]
    flags = [place(*each) for each in where if each[0] in FLAGS]
    others = [f"with {listed(named)}", *flags] if named else flags
    return " ".join([*([f"at {listed(numbers)}"] if numbers else []), *([listed(others)] if others else [])])


def at_each(setting: str, labels: Sequence[str]) -> str:
    """Say where another setting has one of some values: `at head=1 and 2`."""
    if setting in FLAGS and set(labels) <= {"true", "false"}:
        return listed([place(setting, label) for label in labels])
    return listed([place(setting, labels[0]), *map(short, labels[1:])])


def places_again(where: Sequence[tuple[str, str]]) -> str:
    """Say where other settings have values beside others of them: of one setting without its name."""
    (setting, label), *others = where
    if others:
        return places(where)
    if setting in FLAGS and label in ("true", "false"):
        return f"{'with' if label == 'true' else 'without'} it"
    return f"{'at' if is_number(label) else 'with'} {short(label)}"


def settings(others: Sequence[Dependence]) -> str:
    """Name other settings."""
    return listed([called(each.setting) for each in others])


def unit(metric: str) -> str:
    """Return the unit of a metric, with a space before it."""
    return f" {COLUMNS[metric].small}" if metric in COLUMNS and COLUMNS[metric].small else ""


def size(estimate: Estimate) -> str:
    """Write how large an effect is, with half of its interval."""
    low, high = sorted((abs(estimate.low), abs(estimate.high)))
    return with_interval(abs(estimate.mean), low, high)


def both_ways(estimate: Estimate) -> str:
    """Write an effect with its sign, and half of its interval."""
    text = with_interval(estimate.mean, estimate.low, estimate.high).replace("-", "−")
    shown = text.split(" ")[0]
    if float(shown.replace("−", "-")) == 0:  # of too few digits for a sign
        return text.removeprefix("−")
    return text if text.startswith("−") else f"+{text}"


def not_enough(estimate: Estimate, family: Family, units: str = "") -> str:
    """Write an effect that is not sure; where its own interval leaves out 0, with the reason."""
    alone = not family.sure(estimate) and estimate.low * estimate.high > 0
    return f"{both_ways(estimate)}{units}{f', not enough among {family.count} comparisons' if alone else ''}"


def with_interval(mean: float, low: float, high: float) -> str:
    """Write a number with the digits that its uncertainty allows: `2.2 ± 0.4`, or `2.2 (2.0 to 3.1)`."""
    half = max(mean - low, high - mean)
    if not half > NOISE * abs(mean):
        return f"{mean:.2g}"
    decimals = -math.floor(math.log10(half)) + f"{half:.1e}".startswith("1")
    for more in range(4):
        shown, around = (fixed(number, decimals + more, 1 + more) for number in (mean, half))
        if low * high <= 0 or abs(float(shown)) > float(around):  # what leaves out 0 must be seen to
            break
    return f"{shown} ± {around}"


def from_to(mean: float, least: float, most: float) -> str:
    """Write a number and the range that it comes from, all with digits enough to part the ends: `2.89 (2.85..2.93)`."""
    decimals, digits = parting(least, most)
    shown, low, high = (fixed(number, decimals, digits) for number in (mean, least, most))
    return f"{shown} ({low}..{high})"


def parted(least: float, most: float) -> tuple[str, str]:
    """Write two numbers with digits enough to part them."""
    decimals, digits = parting(least, most)
    return fixed(least, decimals, digits), fixed(most, decimals, digits)


def ranged(low: float, high: float) -> str:
    """Write from where to where an interval goes, with signs and digits enough to part its ends."""
    if low == high:
        return signed(low)
    ends = (text if text.startswith("-") or float(text) == 0 else f"+{text}" for text in parted(low, high))
    return " to ".join(ends).replace("-", "−")


def parting(least: float, most: float) -> tuple[int, int]:
    """Return how many decimals part two numbers, and how many digits where they are written with a power of ten."""
    apart = most - least or abs(most) or 1.0
    decimals = -math.floor(math.log10(apart)) + f"{apart:.1e}".startswith("1")
    ends = [abs(number) for number in (least, most) if number]
    if ends and 2 * min(ends) < 10.0**-decimals:  # it would be written as 0
        decimals += 1
    largest = max(abs(least), abs(most))
    return decimals, max(1, min(16, decimals + math.floor(math.log10(largest)))) if largest else 1


def fixed(number: float, decimals: int, digits: int = 1) -> str:
    """Write a number with so many decimals; one that is very small or very large by them, with a power of ten and so
    many `digits`."""
    if abs(decimals) > 5:
        return f"{number:.{digits}e}" if number else "0"
    rounded = round(number, decimals) + 0.0
    return f"{rounded:.{max(0, decimals)}f}"


def two_up(number: float) -> str:
    """Write a bound in two digits, rounded away from 0."""
    digits = 1 - math.floor(math.log10(number)) if number else 0
    return f"{math.ceil(number * 10**digits) / 10**digits:.2g}"


def signed(number: float) -> str:
    """Write a number in two digits with its sign."""
    return "0" if number == 0 else f"{number:+.2g}".replace("-", "−")


def short(label: str) -> str:
    """Write the value of a setting; a number of very many digits in six."""
    return f"{float(label):g}" if len(label) > 8 and is_number(label) else label


SURE, UNSURE, FEW_SEEDS, SLIGHT = 0, 1, 2, 3
"""How sure a finding is: surely something, not surely anything, too few seeds to tell, surely too little to matter."""


@dataclass(frozen=True)
class Claim:
    """One thing that a sentence says, as data: a metric is higher or lower (`sign`) at the second level than at the
    first, where other settings have these values; `depends` names settings on which that depends, `averaged` those over
    which it is said to be the mean."""

    setting: str
    variant: str
    metric: str
    start: str
    end: str
    sign: int
    where: tuple[tuple[str, str], ...] = ()
    depends: tuple[str, ...] = ()
    averaged: tuple[str, ...] = ()
    kind: str = "differs"


@dataclass(frozen=True)
class Finding:
    """What is said of one metric along one setting: who did it, what it does, in which variants, how sure that is.

    `subject` is what changes; between variants there is none, and `says` has a place for them. `sure` is `SURE`,
    `UNSURE`, `FEW_SEEDS` or `SLIGHT`; `weight` is the share of all that varies. `needed` seeds would decide it. What is
    `aside` has a sentence of its own. Numbers that it shows are means `over` other settings; what is not sure has them
    in `shown`.
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
    over: tuple[str, ...] = ()
    shown: str = ""


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
