"""Compare two runs: their settings, their rows, and the stage at which each variant diverges."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.comparison import Run
from attn_exp.experiment.measuring import DIFFERENT, IDENTICAL, compared
from attn_exp.experiment.row import COLUMNS, Row
from attn_exp.forms import coarser
from attn_exp.report import words
from attn_exp.report.escapes import brief, minus
from attn_exp.report.papers import Table, deep_places
from attn_exp.report.sentences import spoken
from attn_exp.report.versus import Versus, explorer, why_not
from attn_exp.sweeps.differences import (
    count_things,
    format_origins,
    format_settings,
    settings_apart,
    settings_table,
    short_names,
)

ROUNDED = ("error", "error_ulp", "row_sum_error")
"""Columns of rounding error; a variant that is the same to rounding may differ in them."""
OVER_KEYS = ("scores", "logits", "capped", "masked", "weights")
"""Stages whose columns are keys."""


class Parting(NamedTuple):
    """How far a variant agrees in two runs: as a word, as a sentence, and the number of stages compared."""

    word: str
    sentence: str
    stages: int


def versus(names: tuple[str, str], one: Run, other: Run) -> Versus:
    """Compare two runs."""
    a, b = one.comparison, other.comparison
    apart = settings_apart(asdict(a.config), asdict(b.config))
    settings = settings_table(apart)
    partings = {name: find_parting(name, one, other) for name in a.traces if name in b.traces}
    alone = [f"{name} is in the first alone." for name in a.traces if name not in b.traces]
    alone += [f"{name} is in the second alone." for name in b.traces if name not in a.traces]
    moved = bool(alone) or any(parting.word == DIFFERENT for parting in partings.values())
    sides = dict(zip(short_names(apart), (a, b), strict=True))
    why = why_not(sides) if moved else ""
    sentences = (
        format_verdict(list(partings.values()), bool(alone)),
        *(parting.sentence for parting in partings.values()),
        *alone,
        format_settings(settings),
        format_origins(one.about, other.about),
        why,
    )
    depths = {comparison.config.report.depth for comparison in (a, b)}
    tables = (settings, rows_table(a.rows, b.rows, {name: parting.word for name, parting in partings.items()}))
    shown = tuple(table for table in tables if table.lines)
    explored = explorer(sides) if moved and not why else None
    depth = depths.pop() if len(depths) == 1 else "all"
    return Versus(*names, moved, tuple(filter(None, sentences)), shown, depth, explored)


def find_parting(name: str, one: Run, other: Run) -> Parting:
    """Compare the stages of a variant in two runs."""
    first, second = (dict(run.comparison.traces[name].stages()) for run in (one, other))
    types = (row.computed_in for run in (one, other) for row in run.comparison.rows if row.variant == name)
    kind = coarser(*map(np.dtype, types))
    near = {stage: compared(array, second[stage], kind) for stage, array in first.items() if stage in second}
    verdict, text = IDENTICAL, f"{name}: the same to the bit."
    for stage, word in near.items():
        label = spoken(stage) or stage
        if word == DIFFERENT:
            text = f"{name} first differs in the {label}, {where(one, stage, first, second)}."
            return Parting(DIFFERENT, text, len(near))
        if verdict == IDENTICAL != word:
            verdict, text = word, f"{name}: {word}, from the {label} on; before that the same to the bit."
    return Parting(verdict, text, len(near)) if near else Parting(DIFFERENT, f"{name}: no stage is in both.", 0)


def where(run: Run, stage: str, first: Mapping[str, Array], second: Mapping[str, Array]) -> str:
    """Describe where two arrays of a stage differ most, with both numbers there."""
    one, other = first[stage], second[stage]
    if one.shape != other.shape:
        return f"whose shapes are {list(one.shape)} and {list(other.shape)}"
    with np.errstate(invalid="ignore"):
        apart = np.abs(np.asarray(one, float) - np.asarray(other, float))
    place = np.unravel_index(int(np.argmax(np.where(np.isnan(apart), np.inf, apart))), apart.shape)
    numbers = " and ".join(minus(f"{float(array[place]):.6g}") for array in (one, other))
    return f"most at {name_place(run, stage, place)}: {numbers}"


def name_place(run: Run, stage: str, place: Sequence[Any]) -> str:
    """Name a cell of a stage `[h t s]`, `[h t d]` or `[t m]`: head, token, and key or column, counted from 1."""
    problem = run.comparison.problem
    *head, row, column = map(int, place)
    tokens = problem.key_tokens if stage in ("k", "v") else problem.tokens
    keys = problem.key_tokens if stage in OVER_KEYS else ()
    parts = [words.HEAD.format(number=head[-1] + 1)] if head else []
    parts.append(tokens[row] if row < len(tokens) else f"row {row + 1}")
    return ", ".join([*parts, keys[column] if column < len(keys) else f"column {column + 1}"])


def format_verdict(partings: Sequence[Parting], has_alone: bool) -> str:
    """Return a sentence on whether any number differs."""
    different = sum(parting.word == DIFFERENT for parting in partings)
    variants = count_things(len(partings), "variant")
    if different or has_alone:
        return f"Numbers differ in {different} of {variants} that both have."
    if all(parting.word == IDENTICAL for parting in partings):
        arrays = count_things(sum(parting.stages for parting in partings), "array")
        return f"No number moved: {arrays} of {variants} are the same to the bit."
    return words.ONLY_ROUNDING.format(where=variants)


def rows_table(first: Sequence[Row], second: Sequence[Row], near: Mapping[str, str]) -> Table:
    """Return the cells of the comparison table that differ, leaving out rounding if a variant is the same."""
    others = {row.variant: row for row in second}
    lines = tuple(
        (row.variant, *cells)
        for row in first
        if row.variant in others
        for cells in find_cells(row, others[row.variant], near.get(row.variant, DIFFERENT) == DIFFERENT)
    )
    head = (words.VARIANT_HEAD, "column", words.FIRST_ONE, words.SECOND_ONE)
    return Table("rows", "Cells of the comparison that differ.", head, lines, deep_places(line[1] for line in lines))


def find_cells(row: Row, other: Row, is_different: bool) -> Iterator[tuple[str, str, str]]:
    for name in COLUMNS:
        here, there = getattr(row, name), getattr(other, name)
        rounding = isinstance(here, float) and isinstance(there, float) and math.isclose(here, there, rel_tol=1e-12)
        if repr(here) != repr(there) and (is_different or not (rounding or name in ROUNDED)):
            yield name, brief(here), brief(there)
