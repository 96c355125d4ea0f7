"""One problem under every library's convention: which agree, and at which stage they part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from attn_exp.config.schema import Config
from attn_exp.experiment.checks.check import Check
from attn_exp.experiment.executing import execute
from attn_exp.experiment.library_conventions import CONVENTIONS, convention
from attn_exp.experiment.sameness import Sameness, letters, sameness
from attn_exp.experiment.settling import settle
from attn_exp.experiment.variant import Settled
from attn_exp.forms import coarser
from attn_exp.problem.problem import Problem
from attn_exp.rules.masks.mask import AllOf


@dataclass(frozen=True)
class Record:
    """One variant under one convention; `same_as`, `sameness` and `differs_at` are among the rows of this variant."""

    convention: str
    variant: str
    true_means: str
    align: str
    empty: str
    softmax: str
    caps: str
    groups: str
    same_as: str
    sameness: str
    differs_at: str


def examine(config: Config, problem: Problem, variants: Sequence[Settled]) -> Iterator[Record]:
    """Compute every variant under every convention."""
    for variant in variants:
        under = {name: under_convention(name, variant, config, problem) for name in CONVENTIONS}
        traces = {name: execute(settled, problem) for name, settled in under.items() if not settled.refused}
        kinds = {name: settled.computed_in for name, settled in under.items()}
        classes = letters({name: trace.as_stack() for name, trace in traces.items()}, kinds)
        first = next(iter(traces), "")
        for name, settled in under.items():
            apart = Sameness(settled.refused or "", "")
            if name in traces:
                apart = sameness(traces[first], traces[name], coarser(kinds[first], kinds[name]))
            yield described(name, settled, aligned(settled, config, problem), classes.get(name, [""])[0], apart)


def under_convention(name: str, variant: Settled, config: Config, problem: Problem) -> Settled:
    """Return a variant as that library reads it, unless the variant pins a convention of its own."""
    bind = None if variant.own is None else variant.own.bind
    return settle(variant.name, config.variant[variant.name], replace(config, convention=name), problem, bind)


def aligned(settled: Settled, config: Config, problem: Problem) -> str:
    """Return in a word where the first query stands: `after_past`, where masks count the tokens of a cache."""
    pinned = config.variant[settled.name].align
    asked = config.align if pinned is None else pinned
    means = convention(settled.words["convention"])
    if asked is not None:
        return asked
    if means.cached and problem.past:
        return "after_past"
    filler = means.knows_filler and AllOf(settled.rules.masks).unpadded(problem.keys) < problem.keys
    return "before_filler" if filler else means.align


def described(name: str, settled: Settled, align: str, letter: str, apart: Sameness) -> Record:
    """Return the record of one variant under one convention, or under that which the variant pins."""
    means = convention(settled.words["convention"])
    return Record(
        convention=name,
        variant=settled.name,
        true_means="blocked" if means.blocks else "may attend",
        align=align,
        empty=means.empty,
        softmax=means.softmax_dtype or "input's type",
        caps="after mask" if means.caps_last else "before mask",
        groups="i mod g" if means.tiled else "i // (h/g)",
        same_as=letter,
        sameness=apart.word,
        differs_at=apart.differs_at,
    )


def sentence(records: Sequence[Record]) -> str:
    """Say which conventions agree, once for all variants of which the same is true."""
    said: dict[str, list[str]] = {}
    for variant in dict.fromkeys(record.variant for record in records):
        said.setdefault(agreement([record for record in records if record.variant == variant]), []).append(variant)
    return ". ".join(f"{', '.join(variants)}: {agree}" for agree, variants in said.items()) + "."


def agreement(records: Sequence[Record]) -> str:
    """Say which conventions give the same numbers of one variant."""
    classes: dict[str, list[str]] = {}
    for record in records:
        if record.same_as:
            classes.setdefault(record.same_as, []).append(record.convention)
    names = list(classes.values())
    if len(names) == 1 and len(names[0]) == len(CONVENTIONS):
        return "every convention gives the same numbers"
    return "; ".join(" = ".join(alike) for alike in names) or "no convention can be computed"


CHECK = Check(
    record=Record,
    columns=(
        "convention",
        "variant",
        "true_means",
        "align",
        "empty",
        "softmax",
        "caps",
        "groups",
        "same_as",
        "sameness",
        "differs_at",
    ),
    examine=examine,
    sentence=sentence,
)
