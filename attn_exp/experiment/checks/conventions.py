"""One problem under every library's convention: which ones agree, and at which stage they diverge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

from attn_exp.config.schema import Config
from attn_exp.experiment.checks.check import Check
from attn_exp.experiment.executing import execute
from attn_exp.experiment.library_conventions import CONVENTIONS, convention
from attn_exp.experiment.measuring import distance, letters
from attn_exp.experiment.variant import Settled, alignment, settle
from attn_exp.forms import coarser
from attn_exp.problem.problem import Problem


@dataclass(frozen=True)
class Record:
    """One variant under one convention; `same_as`, `sameness` and `differs_at` compare the rows of this variant."""

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
    """Compute every variant under each library's convention, unless the variant pins one."""
    for variant in variants:
        bind = None if variant.own is None else variant.own.bind
        chosen = config.variant[variant.name]
        under = {
            name: settle(variant.name, chosen, replace(config, convention=name), problem, bind) for name in CONVENTIONS
        }
        traces = {name: execute(settled, problem).as_stack() for name, settled in under.items() if not settled.refused}
        kinds = {name: settled.computed_in for name, settled in under.items()}
        classes = letters(traces, kinds)
        first = next(iter(traces), "")
        asked = config.align if chosen.align is None else chosen.align
        for name, settled in under.items():
            means, word, differs_at = convention(settled.words["convention"]), settled.refused or "", ""
            if name in traces:
                apart = distance(traces[first], traces[name], coarser(kinds[first], kinds[name]))
                word, differs_at = apart["sameness"][0], apart["differs_at"][0]
            yield Record(
                convention=name,
                variant=variant.name,
                true_means="blocked" if means.blocks else "may attend",
                align=alignment(asked, means, settled.rules.masks, problem),
                empty=means.empty,
                softmax=means.softmax_dtype or "input's type",
                caps="after mask" if means.caps_last else "before mask",
                groups="i mod g" if means.tiled else "i // (h/g)",
                same_as=classes.get(name, [""])[0],
                sameness=word,
                differs_at=differs_at,
            )


def sentence(records: Sequence[Record]) -> str:
    said: dict[str, list[str]] = {}
    for variant in dict.fromkeys(record.variant for record in records):
        classes: dict[str, list[str]] = {}
        for record in records:
            if record.variant == variant and record.same_as:
                classes.setdefault(record.same_as, []).append(record.convention)
        agree = "; ".join(" = ".join(alike) for alike in classes.values()) or "no convention can be computed"
        all_agree = [*map(len, classes.values())] == [len(CONVENTIONS)]
        said.setdefault("every convention gives the same numbers" if all_agree else agree, []).append(variant)
    return ". ".join(f"{', '.join(variants)}: {agree}" for agree, variants in said.items()) + "."


CHECK = Check(
    record=Record,
    columns=tuple(field.name for field in fields(Record)),
    examine=examine,
    sentence=sentence,
)
