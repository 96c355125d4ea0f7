"""Find the mistakes that a run with these sizes, settings and numbers would not show, or could not tell apart."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array
from attn_exp.config.schema import Config
from attn_exp.experiment.checks.check import Check
from attn_exp.experiment.executing import features, follows_steps, given_to, right, stages_of
from attn_exp.experiment.variant import Settled
from attn_exp.forms.pipeline import Recipe
from attn_exp.problem.problem import Problem

MOST_PLACES = 250_000
"""With more weights than this, trying all mistakes would take minutes."""
SHOWS, HIDDEN, ALIKE, UNASKED, UNKNOWN = "yes", "no", "alike", "not asked for", "-"


@dataclass(frozen=True)
class Record:
    """One mistake in one variant.

    `shows` is "yes" if the mistake gives a wrong output here, "no" if the output is right, "alike" if the mistakes in
    `like` give the same wrong output, "not asked for" if the run lacks a setting that the mistake needs, or "-" if the
    variant is not computed in steps. `reason` is the missing setting, or the reason why the mistake cannot be tried.
    """

    variant: str
    mistake: str
    shows: str
    like: str
    reason: str


def examine(config: Config, problem: Problem, variants: Sequence[Settled]) -> Iterator[Record]:
    for settled in variants:
        if settled.head * len(problem.tokens) * problem.keys > MOST_PLACES:
            yield Record(settled.name, "-", UNKNOWN, "", f"more than {MOST_PLACES:,} weights")
        elif settled.mistakes or not follows_steps(settled, problem):
            yield Record(settled.name, "-", UNKNOWN, "", "not computed in steps that a mistake can change")
        else:
            yield from try_every_mistake(settled, problem)


def try_every_mistake(settled: Settled, problem: Problem) -> Iterator[Record]:
    recipe, variant, made = right(settled), settled.name, dict[str, list[Array | None]]()
    present = features([(recipe, given_to(settled, problem))])
    for name in mistakes.names():
        mistake = mistakes.mistake(name)
        missing = [need for need in mistake.needs if need not in present]
        if not mistake.changes or mistake.remark or mistake.group == "precision" or mistake.of_code:
            continue
        if missing:
            yield Record(variant, name, UNASKED, "", f"the run has no {' or '.join(missing)}")
        else:
            made[name] = [compute_answer(change(recipe), settled, problem) for change in mistake.changes]
    plain = compute_answer(recipe, settled, problem)
    for name, answers in made.items():
        fitting = [answer for answer in answers if answer is not None]
        telling = [answer for answer in fitting or answers if differ(answer, plain)]
        wrong = telling[0] if telling else None
        alike = [
            other
            for other, theirs in made.items()
            if other != name and wrong is not None and not all(differ(answer, wrong) for answer in theirs)
        ]
        shows = ALIKE if alike else SHOWS if telling else HIDDEN
        yield Record(variant, name, shows, ", ".join(alike), "" if fitting else "it cannot be applied to these shapes")


def sentence(records: Sequence[Record]) -> str:
    groups: dict[str, list[str]] = {}
    for name, own in itertools.groupby(records, attrgetter("variant")):
        groups.setdefault(summarize(list(own)), []).append(name)
    return " ".join(f"{', '.join(names)}: {words}." for words, names in groups.items())


def summarize(records: Sequence[Record]) -> str:
    if records[0].shows == UNKNOWN:
        return records[0].reason
    tried = [record for record in records if record.shows != UNASKED]
    shown = sum(record.shows == SHOWS for record in tried)
    return f"{shown} of {len(tried)} mistakes would show"


def compute_answer(recipe: Recipe, settled: Settled, problem: Problem) -> Array | None:
    return (stages_of(recipe, settled, problem) or {}).get("output")


def differ(one: Array | None, other: Array | None) -> bool:
    if one is None or other is None:
        return one is not other
    return one.shape != other.shape or not np.allclose(one, other, rtol=1e-9, atol=1e-9, equal_nan=True)


CHECK = Check(record=Record, examine=examine, sentence=sentence)
