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
from attn_exp.experiment.metrics.errors import largest_error
from attn_exp.experiment.row import Agreement, Row
from attn_exp.experiment.sameness import SAME_FUNCTION
from attn_exp.experiment.settling import pinned_or_run
from attn_exp.problem.problem import Problem
from attn_exp.report import words


def who_agrees(rows: Sequence[Row]) -> str:
    """Say which variants compute the same function, and how far the others are from the first."""
    groups: dict[str, list[Row]] = {}
    computed = [row for row in rows if row.same_as]
    for row in computed:
        groups.setdefault(row.same_as, []).append(row)
    parts = [agreement(members) for members in groups.values() if len(members) > 1]
    first = computed[0]
    parts += [departure(members, first) for members in groups.values() if members[0].same_as != first.same_as]
    parts = parts or [f"Only {first.variant} was computed"]
    lacking = [row for row in rows if row.note and not row.same_as]
    parts += [f"{row.variant} was not computed: {row.note}" for row in lacking]
    parts += [f"{row.variant}: {row.note}" for row in rows if row.note and row.same_as]
    return f"{'; '.join(parts)}."


def agreement(members: Sequence[Row]) -> str:
    """Say that several variants compute one function, and which of them in another type than the first."""
    others: dict[str, list[str]] = {}
    for row in members:
        if row.computed_in != members[0].computed_in:
            others.setdefault(row.computed_in, []).append(row.variant)
    types = (f"{listed(names)} in {kind}" for kind, names in others.items())
    variants = listed([row.variant for row in members])
    return ", ".join([f"{variants} compute the same function ({members[0].same_as})", *types])


def departure(members: Sequence[Row], first: Row) -> str:
    """Say how far a group of variants is from the first row."""
    far = max(row.shift for row in members)
    if math.isnan(far):
        text = (
            "{variants} differs from {first} in the shape of the output"
            if len(members) == 1
            else "{variants} differ from {first} in the shape of the output"
        )
    else:
        text = (
            "{variants} differs from {first} by up to {far:.2g} in the output"
            if len(members) == 1
            else "{variants} differ from {first} by up to {far:.2g} in the output"
        )
    return text.format(variants=listed([row.variant for row in members]), first=first.variant, far=far)


def listed(names: Sequence[str]) -> str:
    """Write a list as a sentence does: a, b and c."""
    return f" {words.AND} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


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
    """Return why variants share their letter with one before them, in a sentence each; other forms in one together."""
    leaders: dict[str, str] = {}
    forms: dict[str, list[str]] = {}
    said = list[str]()
    for row in comparison.rows:
        leader = leaders.setdefault(row.same_as, row.variant)
        if not row.same_as or leader == row.variant:
            continue
        pinned = pinned_alike(comparison, row.variant, leader)
        if pinned:
            said.append(f"{row.variant} pins {pinned}.")
        else:
            forms.setdefault(leader, []).append(row.variant)
    others = [
        (
            "{variants} computes what {leader} does, in another form."
            if len(names) == 1
            else "{variants} compute what {leader} does, in another form."
        ).format(variants=listed(names), leader=leader)
        for leader, names in forms.items()
        if any(comparison.config.variant[name].form != comparison.config.variant[leader].form for name in names)
    ]
    return others + said


def pinned_alike(comparison: Comparison, name: str, leader: str) -> str:
    """Return what a variant pins and its letter's first does not: what the run has already, what changes nothing."""
    config, spelling = comparison.config, settled_as(comparison, name).words
    mine, known = pinned_or_run(config.variant[name], config), pins(config.variant[leader])
    own_words = {
        key: f"{key}={spelling.get(key, spelled(mine[key]))}" for key in pins(config.variant[name]) if key not in known
    }
    already = [word for key, word in own_words.items() if mine[key] == getattr(config, key)]
    idle = [word for word in own_words.values() if word not in already]
    parts = [f"{listed(already)}, which this run has already"] if already else []
    parts += [f"{listed(idle)}, which changes nothing here"] if idle else []
    return f"; {words.AND} ".join(parts)


def pins(variant: Variant) -> list[str]:
    """Return the settings that a variant has of its own."""
    names = (field.name for field in fields(variant) if field.name not in NOT_A_PIN)
    return [name for name in names if getattr(variant, name) is not None]


def where_functions_part(comparison: Comparison) -> list[str]:
    """Say of each other function where it first differs from the first row's, and of wrong answers how wrong."""
    rows = [row for row in comparison.rows if row.same_as]
    leaders = {row.same_as: row for row in reversed(rows)}
    others = [row for row in rows if leaders[row.same_as] is row and row.same_as != rows[0].same_as]
    checked = [row for row in rows if row.checked]
    last = accuracy(checked, len(comparison.problem.tokens)) if checked else "No variant was checked."
    return [*(parting_sentence(comparison, rows[0], row) for row in others[:3]), last]


def parting_sentence(comparison: Comparison, first: Row, row: Row) -> str:
    """Say at which stage one variant first differs from the first, and by how much there."""
    mine, theirs = (getattr(comparison.traces[side.variant], row.differs_at) for side in (row, first))
    filled = {"variant": row.variant, "first": first.variant, "stage": spoken(row.differs_at)}
    if mine.shape == theirs.shape:  # a masked place, -inf in one alone, counts as far as the number in the other
        far = largest_error(*(np.where(np.isneginf(array), 0.0, array) for array in (mine, theirs)))
        return "{variant} first differs from {first} in the {stage}, by up to {far:.2g}.".format(far=far, **filled)
    if row.head == first.head:
        return "{variant} first differs from {first} in the {stage}.".format(**filled)
    return (
        "{variant} first differs from {first} in the {stage}, which it splits into {heads} head."
        if row.head == 1
        else "{variant} first differs from {first} in the {stage}, which it splits into {heads} heads."
    ).format(heads=row.head, **filled)


def accuracy(rows: list[Row], queries: int = 0) -> str:
    """Say how right the variants are, apart by the types that they compute in, and at how many of so many queries."""
    wrong = [row for row in rows if row.error_ulp > SAME_FUNCTION]
    right = [row for row in rows if row not in wrong]
    kinds = list(dict.fromkeys(row.computed_in for row in right))
    groups = [[row for row in right if row.computed_in == kind] for kind in kinds]
    parts = [
        near_reference(group, whom(group, len(rows), bool(wrong), kind if kinds[1:] else ""), queries)
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
    return f"{sentence} at the {checked:,} of {queries:,} queries that it checked"


def whom(right: list[Row], count: int, others: bool, kind: str) -> str:
    """Name the rows of one type that are right, of all the run's; `others` of them are wrong."""
    alone = count > 1 == len(right)
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
    for pin in about.get("pins", ()):
        yield "held back", pin
