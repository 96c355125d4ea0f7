"""What a sweep found, in sentences: what explains most first, what changes nothing last."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace

import numpy as np

from attn_exp import registry, rules
from attn_exp.experiment.column import spoken
from attn_exp.report.sweep.plotted import FEW
from attn_exp.report.words import listed
from attn_exp.sweeps.answers.cube import OWN, Cube
from attn_exp.sweeps.answers.effects import Share, same_functions, same_levels
from attn_exp.sweeps.answers.intervals import MOST_SEEDS, Family
from attn_exp.sweeps.answers.missing import missing, where
from attn_exp.sweeps.answers.phrases import FEW_SEEDS, SLIGHT, SURE, UNSURE, Finding, called, short
from attn_exp.sweeps.answers.profiles import SPOKEN

MOST_SHARES = 4
MOST_LETTERS = 90
"""What is said of one metric is joined to what is said of others up to this length."""
LEAST_SHARE = 0.01
ONE, MORE = {"has": "has", "differs": "differs"}, {"has": "have", "differs": "differ"}
"""Verbs of one variant, and of several."""


def sentences(
    cube: Cube, found: Sequence[Finding], shares: Sequence[Share], still: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Yield what was found; `still` names, for each setting, the variants in which it changes nothing."""
    groups: dict[object, list[Finding]] = {}
    yield from wrong(cube)
    if len(cube.seeds) == 1 and found:
        yield "All of this is of one seed: where it draws anything, others may give other numbers."
    for finding in in_several([each for each in found if each.sure in (SURE, FEW_SEEDS)]):
        key = (finding.sure, finding.subject, finding.variants, finding.aside, finding.seeds)
        groups.setdefault(key, []).append(finding)
    said = []
    for group in groups.values():
        group.sort(key=lambda finding: list(cube.numbers).index(finding.metric))
        said.append((group[0].sure, said_together(cube, group)))
    yield from (text for sure, text in said if sure == SURE)
    yield from explained(cube, shares, [name for name in SPOKEN if name in OWN])
    yield from (text for sure, text in said if sure == FEW_SEEDS)
    yield from not_sure(cube, [finding for finding in found if finding.sure == UNSURE])
    yield from not_sure(cube, [finding for finding in found if finding.sure == SLIGHT])
    for group_of_variants in same_functions(cube):
        count = int((cube.resolved >= 0).any(axis=-1).sum())
        points = "the one point" if count == 1 else f"all {count:,} points"
        yield f"{listed(group_of_variants)} compute the same function in {points}."
    for setting, labels in same_levels(cube, still):
        values = [f"{called(setting)}={short(labels[0])}", *map(short, labels[1:])]
        yield f"{listed(values)} do the same in every point."
    for setting, names in still.items():
        if names:
            yield of_inert(cube, setting, names)


def in_several(found: Sequence[Finding]) -> list[Finding]:
    """Return the findings that read the same in several variants as one."""
    alike: dict[tuple[object, ...], Finding] = {}
    for finding in found:
        key = (finding.sure, finding.subject, finding.says, finding.over)
        known = alike.get(key)
        if known is None:
            alike[key] = finding
        else:
            variants, claims = (*known.variants, *finding.variants), (*known.claims, *finding.claims)
            alike[key] = replace(known, variants=variants, claims=claims)
    return list(alike.values())


def said_together(cube: Cube, group: Sequence[Finding]) -> str:
    """Say what is said of one change, of several metrics, in the variants that share it."""
    first, says = group[0], [finding.says for finding in group]
    where = whereabouts(cube, first.variants) if first.subject else ""
    if first.sure == SURE:
        one = bool(first.subject) or len(first.variants) == 1
        subject = first.subject or listed(first.variants)
        again = "It" if one else "They"
        return f"{where}{subject} {joined(says, again).format(**(ONE if one else MORE))}."
    subject = first.subject or f"{listed(first.variants)} instead of {cube.variants[0]}"
    inside = f" {where[:1].lower()}{where[1:].rstrip(', ')}" if where else ""
    over = tuple(dict.fromkeys(name for finding in group for name in finding.over))
    mean = f", each a mean over {listed([called(name) for name in over])}" if over else ""
    rest = f"what {subject} does to {' and '.join(says)}{inside}{mean}{would_tell(group)}"
    return f"{f'{first.seeds} seeds are' if first.seeds > 1 else 'One seed is'} too few to say {rest}."


def not_sure(cube: Cube, found: Sequence[Finding]) -> Iterator[str]:
    """Say what is not sure, or surely too little to matter, a sentence for each change."""
    groups: dict[str, list[Finding]] = {}
    for finding in found:
        subject = finding.subject or f"{listed(finding.variants)} instead of {cube.variants[0]}"
        groups.setdefault(subject, []).append(finding)
    for subject, group in groups.items():
        group.sort(key=lambda finding: list(cube.numbers).index(finding.metric))
        yield from (not_sure_of(cube, subject, alike) for alike in by_variants(group))


def by_variants(group: Sequence[Finding]) -> Iterator[list[Finding]]:
    """Yield findings of one change apart by the variants in which they are so: what is so in both is said of both."""
    of_metric: dict[str, tuple[str, ...]] = {}
    for finding in group:
        of_metric[finding.metric] = (*of_metric.get(finding.metric, ()), *finding.variants)
    for variants in dict.fromkeys(of_metric.values()):
        yield [finding for finding in group if of_metric[finding.metric] == variants]


def not_sure_of(cube: Cube, subject: str, group: Sequence[Finding]) -> str:
    """Say what a change does not surely do, or hardly does, in the same variants for every metric."""
    variants = tuple(dict.fromkeys(name for finding in group for name in finding.variants))
    where = whereabouts(cube, variants) if group[0].subject else ""
    inside = f" {where[:1].lower()}{where[1:].rstrip(', ')}" if where else ""
    says = [finding.says for finding in group]
    if len(variants) > 1:
        inside, says = "", []
        for metric in dict.fromkeys(finding.metric for finding in group):
            each = [f"{one.shown} in {listed(one.variants)}" for one in group if one.metric == metric]
            says.append(f"the {spoken(metric)} ({', '.join(each)})")
    if group[0].sure == SLIGHT:
        return f"{where}{subject} hardly moves {listed(says)}: too little to matter."
    return f"It is not sure what {subject} does to {listed(says)}{inside}{would_tell(group)}."


def would_tell(group: Sequence[Finding]) -> str:
    """Say how many seeds would tell, if what they saw is what there is: of each metric, where that is not alike."""
    needed: dict[str, int] = {}
    for finding in group:
        needed[finding.metric] = max(needed.get(finding.metric, 0), finding.needed or MOST_SEEDS)
    known = sorted({count for count in needed.values() if count < MOST_SEEDS})
    if not known or known[0] <= group[0].seeds:
        return ""
    if len(needed) == 1 or (known[-1] <= 2 * known[0] and len(known) == len(set(needed.values()))):
        told = f"about {known[-1]:,} seeds would tell"
    else:
        each = [f"{count:,} of the {spoken(metric)}" for metric, count in needed.items() if count < MOST_SEEDS]
        told = f"about {each[0].replace(' of ', ' seeds would tell of ', 1)}" + "".join(
            f", {text}" for text in each[1:]
        )
    return f"; {told}, if effect and spread are as they look"


def whereabouts(cube: Cube, variants: Sequence[str]) -> str:
    """Say in which variants, where there are others."""
    if len(cube.variants) == 1:
        return ""
    if len(variants) == len(cube.variants):
        return "In both, " if len(variants) == 2 else "In all variants, "
    return f"In {listed(variants)}, "


def joined(parts: Sequence[str], again: str) -> str:
    """Join what is said of several metrics; what is long has a sentence each, which begin with `again`."""
    if len(parts) > 1 and any("; " in part or len(part) > MOST_LETTERS for part in parts):
        return f". {again} ".join(parts)
    if len(parts) > 2:
        return "; ".join(parts)
    return (", and " if any(", " in part for part in parts) else " and ").join(parts)


def of_inert(cube: Cube, setting: str, names: Sequence[str]) -> str:
    """Say that a setting changes nothing, in which variants, and which value they always have where that is why."""
    pins = {cube.pinned(setting, name) for name in names}
    value = pins.pop() if len(pins) == 1 else ""
    if len(names) == len(cube.variants):
        everywhere = f" in any variant: it is always {value} there" if value else ""
        return f"{setting} changes nothing{everywhere}."
    always = f", which always {'has' if len(names) == 1 else 'have'} {setting}={value}" if value else ""
    return f"{setting} changes nothing in {listed(names)}{always}."


def wrong(cube: Cube) -> Iterator[str]:
    """Yield where the output is not what it should be, as a mistake makes it: at which values, and how far off."""
    errors, far = cube.numbers.get("error"), cube.numbers.get("error_ulp")
    if errors is None or far is None or not (bad := far > WRONG).any():
        return
    yield f"The output is wrong {where(cube, bad, 'everywhere')}: by up to {float(np.nanmax(errors[bad])):.2g}."


WRONG = 1e6
"""Units in the last place beyond which no rounding explains an error."""


def explained(cube: Cube, shares: Sequence[Share], metrics: Sequence[str]) -> Iterator[str]:
    """Yield what explains most of how the first of these metrics varies; that of one function alone is rounding."""
    first = next((share.metric for metric in metrics for share in shares if share.metric == metric), None)
    large = [share for share in shares if share.metric == first and share.share >= LEAST_SHARE][:MOST_SHARES]
    if first and any(share.settings != ("seed",) for share in large):
        parts = ", ".join(f"{' with '.join(share.settings)} {share.share:.0%}" for share in large)
        few = f"In {'this one seed' if len(cube.seeds) == 1 else f'these {len(cube.seeds)} seeds'}, of"
        yield f"{few if len(cube.seeds) < FEW else 'Of'} all that varies in the {spoken(first)}: {parts}."


def note(cube: Cube, family: Family, found: Sequence[Finding]) -> str:
    """Say how many comparisons the sentences rest on, how they are held, and what was left out."""
    parts = []
    if len(cube.seeds) >= FEW and family.count:
        comparisons = (
            "one comparison" if family.count == 1 else f"{family.count:,} comparisons, held together by Holm's rule"
        )
        both = "" if cube.complete else ", as far as both sides have results"
        parts.append(
            f"These sentences rest on {comparisons}: of 100 such sweeps at most 5 say anything false. ± is half of "
            "the 95% interval of that comparison alone, wider for few seeds than in the table. Where no other setting "
            f"is named, the number is a mean over all of them{both}."
        )
    parts += [
        DRAWN_ONCE.format(value=f"{name}={label}", seed=f"{name}.{label}.seed") for name, label in drawn_once(cube)
    ]
    parts += [*cautions(cube, found), *missing(cube)]
    if cube.left_out:
        seeds = len(cube.seeds)
        parts.append(f"These sentences compare the first {seeds:,} of {seeds + cube.left_out:,} seeds.")
    return " ".join(parts)


CAUTIONS = (
    (
        {"mask", "past", "tokens"},
        (
            "How many keys a query sees depends on {settings}, and that alone changes the entropy, the largest weight, "
            "the sink, the distance and the attention to itself, even of uniform weights; "
            "metrics=[normalized_entropy] allows for it."
        ),
    ),
    ({"head"}, "At a fixed d_model, d_head = d_model / head changes too: what is said of {settings} may be due to it."),
)
"""What else settings change that may explain their effects."""
UNAFFECTED = {"normalized_entropy", "error", "error_ulp", "shift", "cosine"}
"""Metrics that need no caution."""


def cautions(cube: Cube, found: Sequence[Finding]) -> Iterator[str]:
    """Yield the cautions about settings of which something is said."""
    subjects = {re.split("[ =]", each.subject)[0] for each in found if each.metric not in UNAFFECTED}
    for settings, caution in CAUTIONS:
        if some := [
            called(name)
            for name in cube.names
            if called(name) in subjects and {called(name), name.split(".")[0]} & settings
        ]:
            yield caution.format(settings=listed(some))


DRAWN_ONCE = (
    "{value} draws numbers of its own once, by {seed}: all seeds share them, and what is said of it holds for that "
    "draw alone."
)


def drawn_once(cube: Cube) -> Iterator[tuple[str, str]]:
    """Yield the values of a setting that are rules with a seed of their own, which those of a sweep do not change."""
    for setting, labels in zip(cube.names, cube.levels, strict=True):
        for label in labels if setting in rules.KINDS else ():
            if not rules.has(setting, label) or registry.is_absent(rules.package(setting), label):
                continue
            has_seed = any(each.name == "seed" for each in fields(rules.kind(setting, label)))
            if has_seed and f"{setting}.{label}.seed" not in cube.names:
                yield setting, label
