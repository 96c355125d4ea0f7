"""Describe a comparison in sentences, from its numbers and settings, and format it for a terminal.

The sentences say which variants compute the same function, which tokens are queries, why rows share a letter, where two
computations first differ, how accurate each variant is, and what each step of a ladder changes. For example: "looped
and matrix give the same result (group A). scaled differs from looped by up to 0.3 in the output, and scale=true alone
causes this." Rows with the same letter (`same_as`) have the same output, up to rounding. The letter of a variant that
was not computed is empty.
"""

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
from attn_exp.experiment.ladder import TOO_LARGE, collect_settings, list_differing
from attn_exp.experiment.measuring import DIFFERENT, SAME_FUNCTION
from attn_exp.experiment.metrics.errors import largest_error
from attn_exp.experiment.row import COLUMNS, Agreement, Comparison, Row, Step, find_settled
from attn_exp.experiment.variant import baseline, merge_settings
from attn_exp.problem.problem import Problem
from attn_exp.problem.projections import MATRICES
from attn_exp.report.escapes import brief, plain, visible
from attn_exp.report.stages import is_random


def listed(names: Sequence[str]) -> str:
    """Return names joined for a sentence: a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def lead(comparison: Comparison) -> str:
    """Return sentences on what was computed on which tokens, and whether every variant agrees with the reference."""
    rows = [row for row in comparison.rows if row.same_as]
    names = listed([row.variant for row in rows]) if len(rows) < 4 else f"{len(rows)} variants"
    matrices = MATRICES if any(variant.output_projection for variant in comparison.variants) else MATRICES[:-1]
    random_stages = [stage for stage in ("x", *matrices) if is_random(stage, comparison)]
    inputs = f", with random {listed(random_stages)}" if random_stages else ""
    accuracy = describe_accuracy(rows, len(comparison.problem.tokens))
    return f"{names} computed {describe_tokens(comparison.problem).title.lower()}{inputs}. {accuracy}"


def opening(comparison: Comparison) -> str:
    """Return sentences on what was computed, whether it is right, and which variants give the same result."""
    groups = describe_groups(comparison.rows, comparison.steps, comparison.config.against)
    return " ".join(filter(None, [lead(comparison), groups, describe_tokens(comparison.problem).queries]))


def describe_groups(rows: Sequence[Row], steps: Sequence[Step] | None = None, against: str | None = None) -> str:
    """Return sentences on which variants give the same result, and how and why others differ from the baseline row.

    The reasons come from `steps`; without them, no reasons are given. `against` names the baseline row, by default the
    first.
    """
    groups = rows_by_letter(rows)
    parts = [format_group(members) for members in groups if len(members) > 1]
    baseline_row = next((row for row in rows if row.variant == against), groups[0][0])
    parts += [
        describe_difference(members, baseline_row, steps)
        for members in groups
        if members[0].same_as != baseline_row.same_as
    ]
    parts += [f"{row.variant} was not computed: {row.note}" for row in rows if row.note and not row.same_as]
    parts += [f"{row.variant}: {row.note}" for row in rows if row.note and row.same_as]
    return " ".join(f"{part}." for part in parts)


def rows_by_letter(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows in groups with the same letter; variants that were not computed are left out."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.same_as:
            groups.setdefault(row.same_as, []).append(row)
    return list(groups.values())


def format_group(members: Sequence[Row]) -> str:
    return f"{listed([row.variant for row in members])} give the same result (group {members[0].same_as})"


def format_agreement(agreements: Sequence[Agreement]) -> str:
    sentence = f"{sum(result.agrees for result in agreements)} of {len(agreements)} published results agree."
    unmatched = [
        f"{result.quantity} has {result.computed}" for result in agreements if math.isnan(result.largest_difference)
    ]
    if not unmatched:
        return sentence
    return f"{sentence} {'; '.join(unmatched)}; set row: and first: in its entry to choose the part to compare."


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
    """Return a stage in words, such as `queries`; empty for a projection, for which a page shows only the symbol."""
    return "" if stage[:2] in ("W_", "b_") else SPOKEN.get(stage, stage)


class Tokens(NamedTuple):
    """What a report says about the tokens of a run.

    `title`: the title of a report if the settings have none.
    `columns`: what a column of a map of weights is, such as `key (memory)`.
    `queries`: a sentence on where queries and keys come from; empty if they are the same tokens.
    """

    title: str
    columns: str
    queries: str


def describe_tokens(problem: Problem) -> Tokens:
    tokens, past = count_of(len(problem.tokens), "token"), problem.past
    if problem.memory is not None:
        queries = (
            f"Queries come from x ({tokens}), keys and values from the memory ({count_of(problem.keys, 'token')})."
        )
        return Tokens(f"Attention of {tokens} over a memory of {problem.keys}", "key (memory)", queries)
    if not past:
        return Tokens(f"Attention over {tokens}", "key", "")
    cached = "the first is cached" if past == 1 else f"the first {past} are cached"
    queries = f"Queries come from the last {tokens} of {problem.keys}; {cached} (keys and values only)."
    return Tokens(f"Attention of {tokens} after {count_of(past, 'past token')}", f"key ({cached})", queries)


NOT_A_PIN = ("form", "output_projection")
"""Settings of a variant that are not also settings of the run."""


def explain_shared_letters(comparison: Comparison) -> list[str]:
    """Return a sentence for each variant with the letter of an earlier one: which of its settings change nothing."""
    leaders, sentences = dict[str, str](), list[str]()
    for row in comparison.rows:
        leader = leaders.setdefault(row.same_as, row.variant)
        if row.same_as and leader != row.variant:
            sentences.append(explain_shared_letter(comparison, row.variant, leader))
    return list(filter(None, sentences))


def explain_shared_letter(comparison: Comparison, variant: str, leader: str) -> str:
    # The leader is the first variant with the same letter. Name the settings that only this variant pins and that equal
    # the run's own, and the settings in which it differs from its leader. The sentence is empty if there are neither.
    config = comparison.config
    chosen, first = (
        collect_settings(find_settled(comparison, name), config, comparison.problem) for name in (variant, leader)
    )
    without_effect = [key for key in list_differing(first, chosen) if key != "form"]
    explained = (*without_effect, *pinned_settings(config.variant[leader]))
    pinned = [key for key in pinned_settings(config.variant[variant]) if key not in explained]
    values, words = merge_settings(config.variant[variant], config), settings_in_words(comparison, variant)
    defaults = [words[key] for key in pinned if values[key] == getattr(config, key)]
    parts = [f"sets {listed(defaults)}, which is already the default here"] if defaults else []
    verb = "changes" if len(without_effect) == 1 else "together change"
    if without_effect:
        parts.append(f"has {listed([words[key] for key in without_effect])}, which {verb} nothing here")
    return f"{variant} {' and '.join(parts)}." if parts else ""


def settings_in_words(comparison: Comparison, name: str) -> dict[str, str]:
    config, settled = comparison.config, find_settled(comparison, name)
    values = merge_settings(config.variant[name], config) | {"kv_head": settled.heads.shared}
    return {key: f"{key}={settled.words.get(key, spelled(value))}" for key, value in values.items()}


def pinned_settings(variant: Variant) -> list[str]:
    values = {field.name: getattr(variant, field.name) for field in fields(variant)}
    return [name for name, value in values.items() if name not in NOT_A_PIN and value is not None]


def describe_first_differences(comparison: Comparison) -> list[str]:
    """Return sentences on the stages at which variants first differ from the baseline row, one for each other letter.

    A variant that splits heads differently gets none, since its stages cannot be compared; the steps of the ladder show
    the effect.
    """
    rows = {row.variant: row for row in comparison.rows if row.same_as}
    baseline_row = rows[baseline(comparison.config, comparison.variants).name]
    leaders = {row.same_as: row for row in reversed(rows.values()) if row.same_as != baseline_row.same_as}
    differing_rows = [
        row
        for row in rows.values()
        if row in leaders.values() and row.head == baseline_row.head and row.differs_at != "output"
    ]  # `describe_groups` already says how much outputs differ
    return [describe_first_difference(comparison, baseline_row, row) for row in differing_rows[:3]]


def describe_first_difference(comparison: Comparison, baseline_row: Row, row: Row) -> str:
    actual, expected = (getattr(comparison.traces[side.variant], row.differs_at) for side in (row, baseline_row))
    sentence = f"{row.variant} first differs from {baseline_row.variant} in the {spoken(row.differs_at)}"
    if actual.shape != expected.shape:
        return f"{sentence}."
    # a logit masked in only one of them counts as 0 there
    difference = largest_error(*(np.where(np.isneginf(array), 0.0, array) for array in (actual, expected)))
    return f"{sentence}, by up to {brief(difference)}."


def describe_accuracy(rows: list[Row], queries: int = 0) -> str:
    """Return a sentence on which variants agree with the reference, and how many of the `queries` were checked."""
    wrong = [row for row in rows if row.checked and row.error_ulp > SAME_FUNCTION]
    rows_by_dtype: dict[str, list[Row]] = {}
    for row in rows:
        if row.checked and row not in wrong:
            rows_by_dtype.setdefault(row.computed_in, []).append(row)
    parts = list[str]()
    for row in wrong:
        mistake = "" if row.mistake == "none" else f" (mistake={row.mistake})"
        parts.append(f"{row.variant} is wrong by up to {brief(row.error)}{mistake}")
    for dtype, members in rows_by_dtype.items():
        largest, checked = max(row.error for row in members), min(row.checked for row in members)
        subject = members[0].variant if len(members) == 1 else "every other variant" if wrong else "Every variant"
        subject += f" in {dtype}" if len(rows_by_dtype) > 1 else ""
        closeness = f"up to rounding ({brief(largest)})" if largest else "in every digit"
        coverage = f"; {checked:,} of {queries:,} queries were checked" if checked < queries else ""
        parts.append(f"{subject} is right: its output equals the scalar reference {closeness}{coverage}")
    return f"{'; '.join(parts) or 'No variant was checked'}."


def origin(about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "started", str(about.get("started", ""))
    yield "seed", str(about.get("seed", ""))
    yield "versions", ", ".join(f"{name} {version}" for name, version in about.get("versions", {}).items())
    if git := about.get("git"):
        yield "commit", f"{git.get('commit', '')}{' with changes' if git.get('dirty') else ''}"
    yield "processor", str(about.get("cpu", ""))
    for pool in about.get("blas", ()):
        name = " ".join(str(pool[key]) for key in ("internal_api", "version", "architecture") if pool.get(key))
        yield "BLAS", f"{name}, {count_of(pool.get('num_threads'), 'thread')}"


MATTERS = 0.1
"""The effect of a step depends on the order of steps. Its range is reported if it exceeds this share of the maximum."""

NOTHING = 1e-9
"""A step is left out if its effect, in every order, is below this share of the largest effect of all steps."""


def describe_difference(members: Sequence[Row], baseline_row: Row, steps: Sequence[Step] | None) -> str:
    """Return a clause on how much some variants with the same letter differ from the baseline row, and why."""
    names, max_diff = listed([row.variant for row in members]), max(row.max_diff for row in members)
    verb = "differs" if len(members) == 1 else "differ"
    # outputs of different shapes have no difference, only NaN
    where = "in the shape of the output" if math.isnan(max_diff) else f"by up to {brief(max_diff)} in the output"
    return f"{names} {verb} from {baseline_row.variant} {where}{format_causes(members, steps or ())}"


def format_causes(members: Sequence[Row], steps: Sequence[Step]) -> str:
    causes: dict[tuple[str, str], list[str]] = {}
    for row in members:
        row_steps = [step for step in steps if step.variant == row.variant]
        if row_steps:
            causes.setdefault(format_cause(row_steps), []).append(row.variant)
    if len(causes) < 2:
        return "".join(next(iter(causes), ()))
    return ": " + "; ".join(f"in {listed(names)} {clause}" for (_, clause), names in causes.items())


def format_cause(steps: Sequence[Step]) -> tuple[str, str]:
    """Return the end of a sentence on why a row differs, in two pieces.

    The second piece describes the steps to the row: `2 heads change the output by up to 0.031, then W_o by up to 0.67`.
    The first joins it to the sentence, such as `: ` or `, and `.
    """
    telling = [step for step in steps if changes_output(step, steps)]
    if len(telling) == 1 and telling[0].note == TOO_LARGE:
        return ": ", f"{telling[0].change}; the run is too large to tell them apart"
    settings = {name for step in steps for name in step.setting.split(" + ")} - {"form"}
    if len(telling) == 1 and len(settings) < 2:
        only = telling[0]
        return ", and ", f"{only.change} alone {'cause' if is_plural(only) else 'causes'} this"
    return ": ", ", then ".join(format_steps(telling))


def format_steps(steps: Sequence[Step]) -> Iterator[str]:
    has_verb = False  # "A changes the output by up to 1, then B by up to 2": the verb comes only once
    for step in steps:
        verb = "change" if is_plural(step) else "changes"
        if math.isnan(step.moved):
            yield f"{step.change} {verb} its shape"
            continue
        elsewhere = "" if step.sameness == DIFFERENT else f" ({brief(step.most)} in another order)"
        yield f"{step.change}{'' if has_verb else f' {verb} the output'} by up to {brief(step.moved)}{elsewhere}"
        has_verb = True


def changes_output(step: Step, steps: Sequence[Step]) -> bool:
    """Return whether a step changes the output by more than rounding, in this order or in another.

    `steps` are all steps to the same row.
    """
    return step.sameness == DIFFERENT or step.most > NOTHING * max(
        (other.moved for other in steps if not math.isnan(other.moved)), default=0.0
    )


def format_range(step: Step) -> str:
    """Return the range of a step's effect over all orders in words; empty if the order hardly matters."""
    if not step.orders or step.most - step.least <= MATTERS * step.most:
        return ""
    return f"{brief(step.least)} to {brief(step.most)}, depending on the order"


def is_plural(step: Step) -> bool:
    return " + " in step.setting or (step.setting in ("head", "kv_head") and step.after != "1")


NAMES = {name: column for name, column in COLUMNS.items() if "terminal" in column.shown}
"""The columns of the table in the terminal; the dtype is left out if it is float64 in all rows."""


def summary(comparison: Comparison) -> str:
    is_all_float64 = all(row.computed_in == "float64" for row in comparison.rows)
    shows_all = comparison.config.report.depth == "all"
    names = [
        name
        for name, column in NAMES.items()
        if (shows_all or not column.deep) and (name != "computed_in" or not is_all_float64)
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


def format_verdict(agreement: Agreement) -> tuple[str, str, str]:
    return brief(agreement.largest_difference), brief(agreement.tolerance), brief(agreement.agrees)


def published(agreements: Sequence[Agreement]) -> str:
    cells = [[result.quantity, *format_verdict(result)] for result in agreements]
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
