"""What is found of one metric along one setting: in words, and as claims that can be judged."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attn_exp.experiment.column import spoken
from attn_exp.sweeps.answers.phrases import HIGHER, WAYS, called, short
from attn_exp.sweeps.answers.profiles import VARIANT, Cell, Change, Profile, is_number

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
