"""One problem under every library's convention: which agree, and at which stage they part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from attn_exp.config.schema import Config
from attn_exp.experiment.checks.check import Check
from attn_exp.experiment.conventions import CONVENTIONS
from attn_exp.experiment.executing import execute
from attn_exp.experiment.sameness import Sameness, letters, sameness
from attn_exp.experiment.settling import settle
from attn_exp.experiment.variant import Settled
from attn_exp.problem.problem import Problem


@dataclass(frozen=True)
class Record:
    """One variant under one convention; `same_as`, `sameness` and `parts_at` are among the rows of this variant."""

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
    parts_at: str


def examine(config: Config, problem: Problem, variants: Sequence[Settled]) -> Iterator[Record]:
    """Compute every variant under every convention."""
    for each in variants:
        pinned = config.variant[each.name]
        settled = {name: settle(each.name, pinned, replace(config, convention=name), problem) for name in CONVENTIONS}
        traces = {name: execute(one, problem) for name, one in settled.items() if not one.refused}
        classes = letters(traces, {name: one.computed_in for name, one in settled.items()})
        first = next(iter(traces.values()))
        for name, one in settled.items():
            refused = Sameness(one.refused or "", "")
            apart = sameness(first, traces[name], one.computed_in) if name in traces else refused
            yield described(each.name, name, classes.get(name, ""), apart)


def described(variant: str, name: str, letter: str, apart: Sameness) -> Record:
    """Return the record of one convention."""
    means = CONVENTIONS[name]
    return Record(
        convention=name,
        variant=variant,
        true_means="blocked" if means.blocks else "may attend",
        align=means.align,
        empty=means.empty,
        softmax=means.softmax_dtype or "input's type",
        caps="after mask" if means.caps_last else "before mask",
        groups="i mod g" if means.tiled else "i // (h/g)",
        same_as=letter,
        sameness=apart.word,
        parts_at=apart.parts_at,
    )


def sentence(records: Sequence[Record]) -> str:
    """Say which conventions agree on each variant."""
    told = []
    for variant in dict.fromkeys(each.variant for each in records):
        classes: dict[str, list[str]] = {}
        for each in records:
            if each.variant == variant and each.same_as:
                classes.setdefault(each.same_as, []).append(each.convention)
        told.append(f"{variant}: " + "; ".join(" = ".join(names) for names in classes.values()))
    return ". ".join(told) + "."


CHECK = Check(
    record=Record,
    columns={
        "convention": "convention",
        "variant": "variant",
        "true_means": "true means",
        "align": "align",
        "empty": "empty row",
        "softmax": "softmax",
        "caps": "soft-cap",
        "groups": "groups",
        "same_as": "same_as",
        "sameness": "to the first",
        "parts_at": "parts at",
    },
    examine=examine,
    sentence=sentence,
)
