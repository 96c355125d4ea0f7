"""What a comparison says, in sentences made from its numbers and settings.

They say which variants compute the same function, whose tokens a run shows, why rows share a letter, where two
computations first differ, and how right each of them is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from attn_exp.config.schema import Variant
from attn_exp.config.spelling import spelled
from attn_exp.errors import count_of
from attn_exp.experiment.comparison import Comparison, settled_as
from attn_exp.experiment.ladder import choices, differing
from attn_exp.experiment.metrics.errors import largest_error
from attn_exp.experiment.row import Agreement, Row, Step
from attn_exp.experiment.sameness import SAME_FUNCTION
from attn_exp.experiment.settling import pinned_or_run
from attn_exp.experiment.variant import baseline
from attn_exp.problem.problem import Problem
from attn_exp.report import words
from attn_exp.report.differences import departure, nothing_else
from attn_exp.report.words import listed


def who_agrees(rows: Sequence[Row], steps: Sequence[Step] | None = None, against: str | None = None) -> str:
    """Say which variants compute the same function, how far the others are from the one compared with, and why.

    `steps` take the differences apart, where they are known; `against` is the row compared with, else it is the first.
    """
    groups: dict[str, list[Row]] = {}
    computed = [row for row in rows if row.same_as]
    for row in computed:
        groups.setdefault(row.same_as, []).append(row)
    parts = [agreement(members, steps) for members in groups.values() if len(members) > 1]
    first = next((row for row in computed if row.variant == against), computed[0])
    parts += [departure(members, first, steps) for members in groups.values() if members[0].same_as != first.same_as]
    parts = parts or [f"{first.variant} is the only variant of this run"]
    lacking = [row for row in rows if row.note and not row.same_as]
    parts += [f"{row.variant} was not computed: {row.note}" for row in lacking]
    parts += [f"{row.variant}: {row.note}" for row in rows if row.note and row.same_as]
    return f"{'; '.join(parts)}."


def agreement(members: Sequence[Row], steps: Sequence[Step] | None) -> str:
    """Say that several variants compute one function, which of them in another type than the first, and whether nothing
    else tells them apart."""
    others: dict[str, list[str]] = {}
    for row in members:
        if row.computed_in != members[0].computed_in:
            others.setdefault(row.computed_in, []).append(row.variant)
    types = (f"{listed(names)} in {kind}" for kind, names in others.items())
    variants = listed([row.variant for row in members])
    said = ", ".join([f"{variants} compute the same function ({members[0].same_as})", *types])
    return said + nothing_else(members, steps)


def agreed(agreements: Sequence[Agreement]) -> str:
    """Say how many published results a run agrees with, and which could not be compared."""
    tally = f"{sum(result.agrees for result in agreements)} of {len(agreements)}"
    sentence = words.PUBLISHED_AGREE.format(tally=tally)
    others = [
        f"{result.quantity} has {result.computed}" for result in agreements if math.isnan(result.largest_difference)
    ]
    if not others:
        return sentence
    return f"{sentence} {'; '.join(others)}; row: and first: in its entry say which part to compare."


SPOKEN = {
    "x": "input",
    "q": "queries",
    "k": "keys",
    "v": "values",
    "capped": "bent logits",
    "masked": "masked logits",
    "lse": "log-sum-exp",
}
"""Stages whose names are not words, as a sentence or a heading says them."""


def spoken(stage: str) -> str:
    """Return a stage in a reader's words; none for the projections, whose symbols are their names."""
    return "" if stage[:2] in ("W_", "b_") else SPOKEN.get(stage, stage)


def whose_tokens(problem: Problem) -> str:
    """Say whose tokens ask and whose are looked at; nothing where they are the same."""
    queries, keys = len(problem.tokens), problem.keys
    if problem.memory is not None:
        asking, asked = count_of(queries, words.TOKEN), count_of(keys, words.TOKEN)
        return f"Queries come from x ({asking}), keys and values from the memory ({asked})."
    if problem.past:
        last = ("the last has a query" if queries == 1 else "the last {queries} have queries").format(queries=queries)
        text = (
            "The first of {keys} tokens is past: it has a key and a value, and only {last}."
            if problem.past == 1
            else "The first {past} of {keys} tokens are past: they have keys and values, and only {last}."
        )
        return text.format(past=problem.past, keys=keys, last=last)
    return ""


def usual_title(problem: Problem) -> str:
    """Return the heading of a report without one of its own."""
    tokens = count_of(len(problem.tokens), words.TOKEN)
    if problem.memory is not None:
        return f"Attention of {tokens} over a memory of {problem.keys}"
    return ("Attention of {tokens} after {past} past" if problem.past else "Attention over {tokens}").format(
        tokens=tokens, past=problem.past
    )


def name_of_columns(problem: Problem) -> str:
    """Return what the columns of a map are."""
    if problem.memory is not None:
        return "key (memory)"
    if problem.past == 1:
        return "key (the first is past)"
    return ("key (the first {past} are past)" if problem.past else words.KEY).format(past=problem.past)


NOT_A_PIN = ("form", "output_projection")
"""Settings of a variant that a run has no value of its own for."""


def why_letters_are_shared(comparison: Comparison) -> list[str]:
    """Return why variants share their letter with one before them where more differs than their forms, in a sentence
    each."""
    config, problem = comparison.config, comparison.problem
    leaders: dict[str, str] = {}
    said = list[str]()
    for row in comparison.rows:
        leader = leaders.setdefault(row.same_as, row.variant)
        if not row.same_as or leader == row.variant:
            continue
        mine, first = (choices(settled_as(comparison, name), config, problem) for name in (row.variant, leader))
        idle = [name for name in differing(first, mine) if name != "form"]
        if pinned := pinned_alike(comparison, row.variant, leader, idle):
            said.append(f"{row.variant} {pinned}.")
    return said


def pinned_alike(comparison: Comparison, name: str, leader: str, idle: Sequence[str]) -> str:
    """Return what a variant pins that the run has already, and in which settings it differs from its letter's first.

    What two variants of one function differ in changes nothing: each by itself where it is one, all together else.
    """
    config = comparison.config
    known, pinned = pins(config.variant[leader]), pins(config.variant[name])
    said = {side: settings_in_words(comparison, side) for side in (name, leader)}
    mine = pinned_or_run(config.variant[name], config)
    already = [
        said[name][key] for key in pinned if key not in known and key not in idle and mine[key] == getattr(config, key)
    ]
    own = [said[name][key] for key in idle if key in pinned and key not in known]
    rest = [f"{said[name][key]} where {leader} has {said[leader][key]}" for key in idle if said[name][key] not in own]
    nothing = "which changes nothing here" if len(idle) == 1 else "which together change nothing here"
    parts = [f"sets {listed(already)}, as this run does anyway"] if already else []
    if own or rest:
        both = [*([f"sets {listed(own)}"] if own else []), *([f"has {listed(rest)}"] if rest else [])]
        parts.append(f"{listed(both)}, {nothing}")
    return f"; {words.AND} ".join(parts)


def settings_in_words(comparison: Comparison, name: str) -> dict[str, str]:
    """Return every setting of a variant as a command line says it."""
    config, settled = comparison.config, settled_as(comparison, name)
    values = pinned_or_run(config.variant[name], config) | {"kv_head": settled.heads.shared}
    return {key: f"{key}={settled.words.get(key, spelled(value))}" for key, value in values.items()}


def pins(variant: Variant) -> list[str]:
    """Return the settings that a variant has of its own."""
    names = (field.name for field in fields(variant) if field.name not in NOT_A_PIN)
    return [name for name in names if getattr(variant, name) is not None]


def where_functions_part(comparison: Comparison) -> list[str]:
    """Say of each other function where it first differs from the row compared with, and of answers how right they are.

    Where the heads of two are cut otherwise no stage is left to compare; what that does, the steps say.
    """
    rows = [row for row in comparison.rows if row.same_as]
    first = row_of(comparison, baseline(comparison.config, comparison.variants).name)
    leaders = {row.same_as: row for row in reversed(rows)}
    others = [row for row in rows if leaders[row.same_as] is row and row.same_as != first.same_as]
    partings = [parting_sentence(comparison, first, row) for row in others if row.head == first.head]
    checked = [row for row in rows if row.checked]
    last = accuracy(checked, len(comparison.problem.tokens)) if checked else "No variant was checked."
    return [*partings[:3], last]


def row_of(comparison: Comparison, name: str) -> Row:
    """Return the row of a variant by its name."""
    return next(row for row in comparison.rows if row.variant == name)


def parting_sentence(comparison: Comparison, first: Row, row: Row) -> str:
    """Say at which stage one variant first differs from another, and by how much there."""
    mine, theirs = (getattr(comparison.traces[side.variant], row.differs_at) for side in (row, first))
    said = f"{row.variant} first differs from {first.variant} in the {spoken(row.differs_at)}"
    if mine.shape != theirs.shape:
        return f"{said}."
    # a masked place, -inf in one alone, counts as far as the number in the other
    far = largest_error(*(np.where(np.isneginf(array), 0.0, array) for array in (mine, theirs)))
    return f"{said}, by up to {far:.2g}."


def accuracy(rows: list[Row], queries: int = 0) -> str:
    """Say how right the variants are, apart by the types that they compute in, and at how many of so many queries."""
    wrong = [row for row in rows if row.error_ulp > SAME_FUNCTION]
    right = [row for row in rows if row not in wrong]
    kinds = list(dict.fromkeys(row.computed_in for row in right))
    groups = [[row for row in right if row.computed_in == kind] for kind in kinds]
    parts = [
        near_reference(group, whom(group, bool(wrong), kind if kinds[1:] else ""), queries)
        for kind, group in zip(kinds, groups, strict=True)
    ]
    for row in wrong:
        text = (
            "{variant} is wrong by up to {error:.2g}"
            if row.mistake == "none"
            else "{variant} is wrong by up to {error:.2g} (mistake={mistake})"
        )
        parts.append(text.format(variant=row.variant, error=row.error, mistake=row.mistake))
    return f"{'; '.join(parts)}."


def near_reference(rows: list[Row], named: str, queries: int) -> str:
    """Say how near the reference rows are, which to equal is no distance, and where it was asked if not everywhere."""
    error, checked = max(row.error for row in rows), min(row.checked for row in rows)
    sentence = (
        "{whom} is within {error:.1g} of the scalar reference"
        if error
        else "{whom} equals the scalar reference in every digit"
    ).format(whom=named, error=error)
    if checked >= queries:
        return sentence
    return f"{sentence} ({checked:,} of {queries:,} queries were checked)"


def whom(right: list[Row], others: bool, kind: str) -> str:
    """Name the rows of one type that are right; `others` are wrong."""
    alone = len(right) == 1
    named = right[0].variant if alone else "Every other variant" if others else "Every variant"
    return f"{named} in {kind}" if kind else named


def origin(about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield where a run comes from, in words."""
    yield "started", str(about.get("started", ""))
    yield "seed", str(about.get("seed", ""))
    yield "versions", ", ".join(f"{name} {version}" for name, version in about.get("versions", {}).items())
    git = about.get("git")
    if git:
        commit = str(git.get("commit", ""))
        yield "commit", f"{commit} with changes" if git.get("dirty") else commit
    yield "processor", str(about.get("cpu", ""))
    for pool in about.get("blas", ()):
        name = " ".join(str(pool[key]) for key in ("internal_api", "version", "architecture") if pool.get(key))
        count = pool.get("num_threads")
        yield "BLAS", ("{name}, 1 thread" if count == 1 else "{name}, {count} threads").format(name=name, count=count)
