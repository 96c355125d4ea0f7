"""One problem under every library's convention: which agree, and at which stage they part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from attn_exp.config import Config
from attn_exp.conventions import CONVENTIONS
from attn_exp.problem import Problem
from attn_exp.sameness import Sameness, letters, sameness
from attn_exp.stages import Trace
from attn_exp.variant import Settled, execute, settle

COLUMNS = {
    "convention": "convention",
    "variant": "variant",
    "true_means": "true means",
    "align": "align",
    "empty": "empty row",
    "softmax": "softmax",
    "same_as": "same_as",
    "sameness": "to the first",
    "parts_at": "parts at",
}


@dataclass(frozen=True)
class Record:
    """One variant under one convention; `same_as`, `sameness` and `parts_at` are among the rows of this variant."""

    convention: str
    variant: str
    true_means: str
    align: str
    empty: str
    softmax: str
    same_as: str
    sameness: str
    parts_at: str


def run(config: Config, problem: Problem, variants: Sequence[Settled]) -> Iterator[Record]:
    """Compute every variant under every convention."""
    for each in variants:
        pinned = config.variant[each.name]
        traces = {
            name: execute(settle(each.name, pinned, replace(config, convention=name), problem), problem)
            for name in CONVENTIONS
        }
        yield from described(each.name, traces)


def described(variant: str, traces: dict[str, Trace]) -> Iterator[Record]:
    """Yield a record per convention."""
    classes = letters(traces)
    first = next(iter(traces.values()))
    for name, trace in traces.items():
        means = CONVENTIONS[name]
        apart: Sameness = sameness(first, trace)
        yield Record(
            convention=name,
            variant=variant,
            true_means="blocked" if means.blocks else "may attend",
            align=means.align,
            empty=means.empty,
            softmax=means.softmax_dtype or "input's type",
            same_as=classes[name],
            sameness=apart.word,
            parts_at=apart.parts_at,
        )


def sentence(records: Sequence[Record]) -> str:
    """Say which conventions agree on each variant."""
    told = []
    for variant in dict.fromkeys(each.variant for each in records):
        classes: dict[str, list[str]] = {}
        for each in records:
            if each.variant == variant:
                classes.setdefault(each.same_as, []).append(each.convention)
        told.append(f"{variant}: " + "; ".join(" = ".join(names) for names in classes.values()))
    return ". ".join(told) + "."
