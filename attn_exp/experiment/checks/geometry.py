"""Find mistakes that this run would not show, or could not tell apart, with its sizes, settings and numbers.

The check makes the mistakes of the catalogue on purpose, one at a time, and compares the outputs.
"""

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
from attn_exp.experiment.executing import follows_steps, list_features, make_input, make_recipe, try_stages
from attn_exp.experiment.variant import Settled
from attn_exp.forms.pipeline import Recipe
from attn_exp.problem.problem import Problem

MOST_WEIGHTS = 250_000
"""With more weights than this, trying all mistakes would take minutes, so none is tried."""
SHOWS, HIDDEN, ALIKE, NOT_USED, UNKNOWN = "yes", "no", "alike", "not asked for", "-"


@dataclass(frozen=True)
class Record:
    """One mistake in one variant.

    `shows`: "yes" if the mistake gives a wrong output here; "no" if the output is right; "alike" if other mistakes give
        the same wrong output; "not asked for" if the run lacks a setting that the mistake needs; "-" if no mistake can
        be tried in the variant.
    `like`: the names of other mistakes that give the same wrong output.
    `reason`: the missing setting, or why the mistake cannot be tried.
    """

    variant: str
    mistake: str
    shows: str
    like: str
    reason: str


def examine(config: Config, problem: Problem, variants: Sequence[Settled]) -> Iterator[Record]:
    for settled in variants:
        if settled.head * len(problem.tokens) * problem.keys > MOST_WEIGHTS:
            yield Record(settled.name, "-", UNKNOWN, "", f"more than {MOST_WEIGHTS:,} weights")
        elif settled.mistakes or not follows_steps(settled, problem):
            yield Record(settled.name, "-", UNKNOWN, "", "not computed in steps that a mistake can change")
        else:
            yield from try_every_mistake(settled, problem)


def try_every_mistake(settled: Settled, problem: Problem) -> Iterator[Record]:
    recipe, variant, answers_by_mistake = make_recipe(settled), settled.name, dict[str, list[Array | None]]()
    used = list_features([(recipe, make_input(settled, problem))])
    for name in mistakes.names():
        mistake = mistakes.mistake(name)
        missing = [need for need in mistake.needs if need not in used]
        if not mistake.changes or mistake.remark or mistake.group == "precision" or mistake.of_code:
            continue
        if missing:
            yield Record(variant, name, NOT_USED, "", f"the run has no {' or '.join(missing)}")
        else:
            answers_by_mistake[name] = [compute_answer(change(recipe), settled, problem) for change in mistake.changes]
    correct = compute_answer(recipe, settled, problem)
    for name, answers in answers_by_mistake.items():
        computed = [answer for answer in answers if answer is not None]
        # a mistake that cannot be computed at all here would be noticed, so it counts as shown
        wrong_answers = [answer for answer in computed or answers if differ(answer, correct)]
        wrong = wrong_answers[0] if wrong_answers else None
        # other mistakes that give the same wrong answer in at least one of their versions
        alike = [
            other
            for other, other_answers in answers_by_mistake.items()
            if other != name and wrong is not None and not all(differ(answer, wrong) for answer in other_answers)
        ]
        shows = ALIKE if alike else SHOWS if wrong_answers else HIDDEN
        yield Record(variant, name, shows, ", ".join(alike), "" if computed else "it cannot be applied to these shapes")


def sentence(records: Sequence[Record]) -> str:
    groups: dict[str, list[str]] = {}
    for name, variant_records in itertools.groupby(records, attrgetter("variant")):
        groups.setdefault(summarize(list(variant_records)), []).append(name)
    return " ".join(f"{', '.join(names)}: {text}." for text, names in groups.items())


def summarize(records: Sequence[Record]) -> str:
    if records[0].shows == UNKNOWN:
        return records[0].reason
    tried = [record for record in records if record.shows != NOT_USED]
    shown = sum(record.shows == SHOWS for record in tried)
    return f"{shown} of {len(tried)} mistakes would show"


def compute_answer(recipe: Recipe, settled: Settled, problem: Problem) -> Array | None:
    return (try_stages(recipe, settled, problem) or {}).get("output")


def differ(one: Array | None, other: Array | None) -> bool:
    if one is None or other is None:
        return one is not other
    return one.shape != other.shape or not np.allclose(one, other, rtol=1e-9, atol=1e-9, equal_nan=True)


CHECK = Check(record=Record, examine=examine, sentence=sentence)
