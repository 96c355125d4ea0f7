"""Describe a comparison in sentences, from its numbers and settings, and format it for a terminal.

The sentences say which variants compute the same function, which tokens are queries, why rows share a letter, where two
computations first differ, how accurate each variant is, and what each step of a ladder changes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from attn_exp.config.schema import Variant
from attn_exp.config.spelling import spelled
from attn_exp.errors import count_of
from attn_exp.experiment.checks.check import Finding
from attn_exp.experiment.ladder import TOO_LARGE, list_differing, settings_of
from attn_exp.experiment.measuring import DIFFERENT, SAME_FUNCTION
from attn_exp.experiment.metrics.errors import largest_error
from attn_exp.experiment.row import COLUMNS, Agreement, Comparison, Row, Step, find_settled
from attn_exp.experiment.variant import baseline, merge_settings
from attn_exp.problem.problem import Problem
from attn_exp.problem.projections import MATRICES
from attn_exp.report.escapes import brief, plain, visible
from attn_exp.report.stages import is_random


def listed(names: Sequence[str]) -> str:
    """Join names for a sentence: a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def lead(comparison: Comparison) -> str:
    """Say what was computed on which tokens, and whether every variant agrees with the reference."""
    rows, title = [row for row in comparison.rows if row.same_as], describe_tokens(comparison.problem).title
    who = listed([row.variant for row in rows]) if len(rows) < 4 else f"{len(rows)} variants"
    drawn = [stage for stage in ("x", *MATRICES) if is_random(stage, comparison)]
    numbers = f", with random {listed(drawn)}" if drawn else ""
    return f"{who} computed {title.lower()}{numbers}. {accuracy(rows, len(comparison.problem.tokens))}"


def opening(comparison: Comparison) -> str:
    """Say what was computed, whether it is right, and which variants give the same result."""
    groups = who_agrees(comparison.rows, comparison.steps, comparison.config.against)
    return " ".join(filter(None, [lead(comparison), groups, describe_tokens(comparison.problem).queries]))


def who_agrees(rows: Sequence[Row], steps: Sequence[Step] | None = None, against: str | None = None) -> str:
    """Say which variants compute the same function, how much the others differ from the baseline row, and why.

    `steps`, if known, break the differences down; `against` names the baseline row, by default the first.
    """
    groups = rows_by_letter(rows)
    parts = [agreement(members) for members in groups if len(members) > 1]
    first = next((row for row in rows if row.variant == against), groups[0][0])
    parts += [departure(members, first, steps) for members in groups if members[0].same_as != first.same_as]
    lacking = [row for row in rows if row.note and not row.same_as]
    parts += [f"{row.variant} was not computed: {row.note}" for row in lacking]
    parts += [f"{row.variant}: {row.note}" for row in rows if row.note and row.same_as]
    return " ".join(f"{part}." for part in parts)


def rows_by_letter(rows: Sequence[Row]) -> list[list[Row]]:
    """Group the rows of the variants by the function that they compute, leaving out variants that were not computed."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.same_as:
            groups.setdefault(row.same_as, []).append(row)
    return list(groups.values())


def agreement(members: Sequence[Row]) -> str:
    return f"{listed([row.variant for row in members])} give the same result (group {members[0].same_as})"


def format_agreement(agreements: Sequence[Agreement]) -> str:
    sentence = f"{sum(result.agrees for result in agreements)} of {len(agreements)} published results agree."
    others = [
        f"{result.quantity} has {result.computed}" for result in agreements if math.isnan(result.largest_difference)
    ]
    if not others:
        return sentence
    return f"{sentence} {'; '.join(others)}; set row: and first: in its entry to choose the part to compare."


SPOKEN = {
    "x": "input",
    "q": "queries",
    "k": "keys",
    "v": "values",
    "capped": "capped logits",
    "masked": "masked logits",
    "lse": "log-sum-exp",
}
"""Words for stages whose names are abbreviations."""


def spoken(stage: str) -> str:
    """Return a stage in words; empty for projections, which are known by their symbols."""
    return "" if stage[:2] in ("W_", "b_") else SPOKEN.get(stage, stage)


class Tokens(NamedTuple):
    """The tokens of a run in words: the run's default title, the meaning of a map's columns, and which are queries."""

    title: str
    columns: str
    queries: str


def describe_tokens(problem: Problem) -> Tokens:
    """Describe the tokens of a run; `queries` is empty if queries and keys are the same tokens."""
    queries, past = len(problem.tokens), problem.past
    tokens = count_of(queries, "token")
    if problem.memory is not None:
        said = f"Queries come from x ({tokens}), keys and values from the memory ({count_of(problem.keys, 'token')})."
        return Tokens(f"Attention of {tokens} over a memory of {problem.keys}", "key (memory)", said)
    if not past:
        return Tokens(f"Attention over {tokens}", "key", "")
    cached = "the first is cached" if past == 1 else f"the first {past} are cached"
    said = f"Queries come from the last {tokens} of {problem.keys}; {cached} (keys and values only)."
    return Tokens(f"Attention of {tokens} after {count_of(past, 'past token')}", f"key ({cached})", said)


NOT_A_PIN = ("form", "output_projection")
"""Settings of a variant that are not also settings of the run."""


def why_letters_are_shared(comparison: Comparison) -> list[str]:
    """Explain which settings of a variant have no effect on its letter.

    These are settings equal to the run's own, and those in which it differs from the first variant with its letter.
    """
    config, leaders, sentences = comparison.config, dict[str, str](), list[str]()
    for row in comparison.rows:
        name, leader = row.variant, leaders.setdefault(row.same_as, row.variant)
        if not row.same_as or leader == name:
            continue
        chosen, first = (
            settings_of(find_settled(comparison, each), config, comparison.problem) for each in (name, leader)
        )
        words = settings_in_words(comparison, name)
        in_effect = merge_settings(config.variant[name], config)
        without_effect = [key for key in list_differing(first, chosen) if key != "form"]
        pinned = [
            key
            for key in pinned_settings(config.variant[name])
            if key not in (*without_effect, *pinned_settings(config.variant[leader]))
        ]
        defaults = [words[key] for key in pinned if in_effect[key] == getattr(config, key)]
        parts = [f"sets {listed(defaults)}, which is already the default here"] if defaults else []
        verb = "changes" if len(without_effect) == 1 else "together change"
        if without_effect:
            parts.append(f"has {listed([words[key] for key in without_effect])}, which {verb} nothing here")
        sentences += [f"{name} {' and '.join(parts)}."] if parts else []
    return sentences


def settings_in_words(comparison: Comparison, name: str) -> dict[str, str]:
    config, settled = comparison.config, find_settled(comparison, name)
    values = merge_settings(config.variant[name], config) | {"kv_head": settled.heads.shared}
    return {key: f"{key}={settled.words.get(key, spelled(value))}" for key, value in values.items()}


def pinned_settings(variant: Variant) -> list[str]:
    names = (field.name for field in fields(variant) if field.name not in NOT_A_PIN)
    return [name for name in names if getattr(variant, name) is not None]


def where_functions_part(comparison: Comparison) -> list[str]:
    """Name the stage at which each function other than that of the baseline row first differs from it.

    If two variants split heads differently, their stages cannot be compared; the ladder's steps show the effect.
    """
    rows = {row.variant: row for row in comparison.rows if row.same_as}
    first = rows[baseline(comparison.config, comparison.variants).name]
    leaders = {row.same_as: row for row in reversed(rows.values()) if row.same_as != first.same_as}
    others = [
        row
        for row in rows.values()
        if row in leaders.values() and row.head == first.head and row.differs_at != "output"
    ]  # the summary says so already
    return [parting_sentence(comparison, first, row) for row in others[:3]]


def parting_sentence(comparison: Comparison, first: Row, row: Row) -> str:
    mine, theirs = (getattr(comparison.traces[side.variant], row.differs_at) for side in (row, first))
    said = f"{row.variant} first differs from {first.variant} in the {spoken(row.differs_at)}"
    if mine.shape != theirs.shape:
        return f"{said}."
    # a logit masked in only one of them counts as 0 there
    far = largest_error(*(np.where(np.isneginf(array), 0.0, array) for array in (mine, theirs)))
    return f"{said}, by up to {brief(far)}."


def accuracy(rows: list[Row], queries: int = 0) -> str:
    """Say which variants agree with the reference, by dtype, and how many of the `queries` were checked."""
    wrong = [row for row in rows if row.checked and row.error_ulp > SAME_FUNCTION]
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        if row.checked and row not in wrong:
            kinds.setdefault(row.computed_in, []).append(row)
    parts = list[str]()
    for kind, group in kinds.items():
        error, checked = max(row.error for row in group), min(row.checked for row in group)
        named = group[0].variant if len(group) == 1 else "Every other variant" if wrong else "Every variant"
        named += f" in {kind}" if len(kinds) > 1 else ""
        near = f"up to rounding ({brief(error)})" if error else "in every digit"
        few = f"; {checked:,} of {queries:,} queries were checked" if checked < queries else ""
        parts.append(f"{named} is right: its output equals the scalar reference {near}{few}")
    for row in wrong:
        mistake = "" if row.mistake == "none" else f" (mistake={row.mistake})"
        parts.append(f"{row.variant} is wrong by up to {brief(row.error)}{mistake}")
    return f"{'; '.join(parts) or 'No variant was checked'}."


def origin(about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "started", str(about.get("started", ""))
    yield "seed", str(about.get("seed", ""))
    yield "versions", ", ".join(f"{name} {version}" for name, version in about.get("versions", {}).items())
    git = about.get("git")
    if git:
        yield "commit", f"{git.get('commit', '')}{' with changes' if git.get('dirty') else ''}"
    yield "processor", str(about.get("cpu", ""))
    for pool in about.get("blas", ()):
        name = " ".join(str(pool[key]) for key in ("internal_api", "version", "architecture") if pool.get(key))
        yield "BLAS", f"{name}, {count_of(pool.get('num_threads'), 'thread')}"


MATTERS = 0.1
"""The range of a step's effect over orders is reported if it exceeds this share of the largest effect."""

NOTHING = 1e-9
"""A step is left out if its effect, in every order, is below this share of the largest effect of any step."""


def departure(members: Sequence[Row], first: Row, steps: Sequence[Step] | None) -> str:
    """Say how much a group of variants that compute one function differs from the baseline row, and why."""
    names, far = listed([row.variant for row in members]), max(row.max_diff for row in members)
    differ = "differs" if len(members) == 1 else "differ"
    shape = math.isnan(far)
    said = f"{names} {differ} from {first.variant} " + (
        "in the shape of the output" if shape else f"by up to {brief(far)} in the output"
    )
    return said + format_causes(members, steps or ())


def format_causes(members: Sequence[Row], steps: Sequence[Step]) -> str:
    causes: dict[str, list[str]] = {}
    for row in members:
        mine = [step for step in steps if step.variant == row.variant]
        if mine:
            causes.setdefault(format_cause(mine), []).append(row.variant)
    if len(causes) < 2:
        return next(iter(causes), "")
    return ": " + "; ".join(
        f"in {listed(names)} {said.removeprefix(', and ').removeprefix(': ')}" for said, names in causes.items()
    )


def format_cause(steps: Sequence[Step]) -> str:
    """Describe the steps that lead to a row: `: 2 heads change the output by up to 0.031, then W_o by up to 0.67`."""
    telling = [step for step in steps if tells(step, steps)]
    if len(telling) == 1 and telling[0].note == TOO_LARGE:
        return f": {telling[0].change}; the run is too large to tell them apart"
    settings = {name for step in steps for name in step.setting.split(" + ")} - {"form"}
    if len(telling) == 1 and len(settings) < 2:
        alone = telling[0]
        return f", and {alone.change} alone {'cause' if is_plural(alone) else 'causes'} this"
    return ": " + ", then ".join(format_steps(telling))


def format_steps(steps: Sequence[Step]) -> Iterator[str]:
    verb = {True: " change the output", False: " changes the output"}
    for step in steps:
        if math.isnan(step.moved):
            yield f"{step.change} {'change' if is_plural(step) else 'changes'} its shape"
            continue
        elsewhere = "" if step.sameness == DIFFERENT else f" ({brief(step.most)} in another order)"
        yield f"{step.change}{verb.get(is_plural(step), '')} by up to {brief(step.moved)}{elsewhere}"
        verb = {}


def tells(step: Step, steps: Sequence[Step]) -> bool:
    """Return whether a step changes the output by more than rounding, in this order or another."""
    return step.sameness == DIFFERENT or step.most > NOTHING * max(
        (other.moved for other in steps if not math.isnan(other.moved)), default=0.0
    )


def format_range(step: Step) -> str:
    """Format the range of a step's effect on the output over all orders; empty if the order hardly matters."""
    if not step.orders or step.most - step.least <= MATTERS * step.most:
        return ""
    return f"{brief(step.least)} to {brief(step.most)}, depending on the order"


def is_plural(step: Step) -> bool:
    return " + " in step.setting or (step.setting in ("head", "kv_head") and step.after != "1")


NAMES = {name: column for name, column in COLUMNS.items() if "terminal" in column.shown}
"""Fields of a row in the terminal's table; the dtype is left out if it is float64 in all rows."""


def summary(comparison: Comparison) -> str:
    ordinary = all(row.computed_in == "float64" for row in comparison.rows)
    everything = comparison.config.report.depth == "all"
    names = [
        name
        for name, column in NAMES.items()
        if (everything or not column.deep) and (name != "computed_in" or not ordinary)
    ]
    cells = [[brief(getattr(row, name)) for name in names] for row in comparison.rows]
    parts = [table(names, cells), visible(opening(comparison))]
    if comparison.published:
        parts += [published(comparison.published)]
    for finding in comparison.checks:
        cells = finding_cells(finding)
        parts += [*([table(finding.columns, cells)] if cells else []), visible(finding.sentence)]
    return "\n\n".join(parts)


def finding_cells(finding: Finding) -> list[list[str]]:
    return [[brief(getattr(record, name)) for name in finding.columns] for record in finding.records]


def judgement(agreement: Agreement) -> tuple[str, str, str]:
    return brief(agreement.largest_difference), brief(agreement.tolerance), brief(agreement.agrees)


def published(agreements: Sequence[Agreement]) -> str:
    cells = [[result.quantity, *judgement(result)] for result in agreements]
    head = ["published", "difference", "tolerance", "agrees"]
    return f"{table(head, cells)}\n\n{format_agreement(agreements)}"


def table(head: Iterable[str], cells: Sequence[Sequence[str]]) -> str:
    lines = [list(head), *([plain(cell) for cell in line] for line in cells)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
