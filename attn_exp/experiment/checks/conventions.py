"""Compare the conventions of all libraries on one problem: which conventions agree, and where the others diverge."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from attn_exp.config.schema import Config
from attn_exp.experiment.checks.check import Check
from attn_exp.experiment.executing import execute
from attn_exp.experiment.library_conventions import CONVENTIONS, convention
from attn_exp.experiment.measuring import measure
from attn_exp.experiment.variant import Settled, find_alignment, settle
from attn_exp.problem.problem import Problem


@dataclass(frozen=True)
class Record:
    """One variant under one convention.

    `true_means` to `groups`: what the convention does, in words.
    `same_as`, `sameness`, `differs_at`: as in `Row`, with the first convention as the baseline row.
    """

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
    """Yield a record for every variant under the convention of each library.

    If a variant pins a convention, all of its records are computed under that convention.
    """
    for variant in variants:
        bind = None if variant.own is None else variant.own.bind
        chosen = config.variant[variant.name]
        settled_under = {
            name: replace(settle(variant.name, chosen, replace(config, convention=name), problem, bind), name=name)
            for name in CONVENTIONS
        }
        computed = [settled for settled in settled_under.values() if not settled.refused]
        traces = {settled.name: execute(settled, problem).as_stack() for settled in computed}
        measured = measure(computed, traces, {}, computed[0].name)
        for name, settled in settled_under.items():
            library = convention(settled.words["convention"])
            columns = measured.get(name, {"same_as": [""], "sameness": [settled.refused], "differs_at": [""]})
            yield Record(
                convention=name,
                variant=variant.name,
                true_means="blocked" if library.blocks else "may attend",
                align=find_alignment(chosen.align or config.align, library, settled.rules.masks, problem),
                empty=library.empty,
                softmax=library.softmax_dtype or "input dtype",
                caps="after mask" if library.caps_last else "before mask",
                groups="i mod g" if library.tiled else "i // (h/g)",
                **{column: columns[column][0] for column in ("same_as", "sameness", "differs_at")},
            )


def sentence(records: Sequence[Record]) -> str:
    variants_by_text: dict[str, list[str]] = {}
    for variant, variant_records in itertools.groupby(records, attrgetter("variant")):
        classes: dict[str, list[str]] = {}
        for record in variant_records:
            classes.setdefault(record.same_as, []).append(record.convention)
        groups = "; ".join(" = ".join(conventions) for same_as, conventions in classes.items() if same_as)
        text = groups if len(classes) > 1 else "every convention gives the same numbers"
        variants_by_text.setdefault(text, []).append(variant)
    return ". ".join(f"{', '.join(variants)}: {text}" for text, variants in variants_by_text.items()) + "."


CHECK = Check(record=Record, examine=examine, sentence=sentence)
