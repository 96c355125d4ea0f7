"""Two runs side by side: their settings, their rows, and the stage at which each variant parts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from attn_exp.experiment.comparison import Run
from attn_exp.experiment.row import COLUMNS
from attn_exp.experiment.sameness import DIFFERENT, IDENTICAL, compared
from attn_exp.forms import coarser
from attn_exp.forms.trace import Trace
from attn_exp.report import words
from attn_exp.report.beside import explorer, why_not
from attn_exp.report.numbers import brief, minus
from attn_exp.report.papers import Table, deep_places
from attn_exp.report.sentences import spoken
from attn_exp.report.versus import Versus
from attn_exp.sweeps.versus.versus import (
    common,
    counted,
    differing,
    made_by,
    settings_apart,
    settings_table,
    short_names,
)

ROUNDED = ("error", "error_ulp", "row_sum_error")
"""Columns that hold rounding alone; a variant that is the same to rounding may differ in them."""


OTHER_SHAPES = "whose shapes are {first} and {second}"
OVER_KEYS = ("scores", "logits", "capped", "masked", "weights")
"""Stages whose columns are keys."""


@dataclass(frozen=True)
class Parting:
    """How near a variant's stages are in two runs: in a word, from which stage on they differ, and where most."""

    variant: str
    word: str
    stage: str = ""
    where: str = ""
    first: float = math.nan
    second: float = math.nan
    identical: int = 0
    stages: int = 0


def versus(names: tuple[str, str], one: Run, other: Run) -> Versus:
    """Return two runs side by side."""
    a, b = one.comparison, other.comparison
    apart = settings_apart(asdict(a.config), asdict(b.config))
    settings = settings_table(apart)
    shared = [name for name in a.traces if name in b.traces]
    partings = [parting(name, one, other) for name in shared]
    alone = [f"{name} is in the first alone." for name in a.traces if name not in b.traces]
    alone += [f"{name} is in the second alone." for name in b.traces if name not in a.traces]
    moved = bool(alone) or any(parting.word == DIFFERENT for parting in partings)
    sentences = (
        verdict(partings, bool(alone)),
        *map(parting_line, partings),
        *alone,
        differing(settings),
        made_by(one.about, other.about),
    )
    tables = (settings, rows_table(one, other, {parting.variant: parting.word for parting in partings}))
    depth = common(a.config.report.depth, b.config.report.depth)
    shown = tuple(table for table in tables if table.lines)
    sides = dict(zip(short_names(apart), (a, b), strict=True))
    why = why_not(sides) if moved else ""
    explored = explorer(sides) if moved and not why else None
    return Versus(*names, moved, tuple(filter(None, (*sentences, why))), shown, depth, explored)


def parting(name: str, one: Run, other: Run) -> Parting:
    """Return how near the stages of a variant are in two runs."""
    first, second = one.comparison.traces[name], other.comparison.traces[name]
    kind = coarser(*(np.dtype(row_type(run, name)) for run in (one, other)))
    theirs = dict(second.stages())
    near_by = {stage: compared(array, theirs[stage], kind) for stage, array in first.stages() if stage in theirs}
    same = sum(word == IDENTICAL for word in near_by.values())
    far = next((stage for stage, word in near_by.items() if word == DIFFERENT), "")
    near = next((stage for stage, word in near_by.items() if word != IDENTICAL), "")
    if not near_by:
        return Parting(name, DIFFERENT, "output", "no stage is in both")
    if not near:
        return Parting(name, IDENTICAL, identical=same, stages=len(near_by))
    if not far:
        return Parting(name, near_by[near], near, identical=same, stages=len(near_by))
    where, here, there = farthest(one, first, far, theirs[far])
    return Parting(name, DIFFERENT, far, where, here, there, same, len(near_by))


def row_type(run: Run, variant: str) -> str:
    """Return the type of numbers that a variant was computed in."""
    return next((row.computed_in for row in run.comparison.rows if row.variant == variant), "float64")


def farthest(run: Run, trace: Trace, stage: str, other: Any) -> tuple[str, float, float]:
    """Return where two arrays of a stage are farthest apart, in the words of the report, and both numbers there."""
    array = dict(trace.stages())[stage]
    if array.shape != other.shape:
        return OTHER_SHAPES.format(first=list(array.shape), second=list(other.shape)), math.nan, math.nan
    with np.errstate(invalid="ignore"):
        apart = np.abs(np.asarray(array, float) - np.asarray(other, float))
    place = np.unravel_index(int(np.argmax(np.where(np.isnan(apart), np.inf, apart))), apart.shape)
    return named(run, stage, place, array.shape), float(array[place]), float(other[place])


def named(run: Run, stage: str, place: tuple[Any, ...], shape: tuple[int, ...]) -> str:
    """Name a place of a stage `[h t s]`, `[h t d]` or `[t m]`: head, token, and key or column, counted from 1."""
    problem = run.comparison.problem
    *head, row, column = (int(index) for index in place)
    tokens = problem.key_tokens if stage in ("k", "v") else problem.tokens
    keys = problem.key_tokens if stage in OVER_KEYS else ()
    parts = [words.HEAD.format(number=head[-1] + 1)] if head else []
    parts.append(tokens[row] if row < len(tokens) else f"row {row + 1}")
    return ", ".join([*parts, keys[column] if column < len(keys) else f"column {column + 1}"])


def verdict(partings: list[Parting], alone: bool) -> str:
    """Say whether any number moved."""
    different = sum(parting.word == DIFFERENT for parting in partings)
    variants = counted(len(partings), "variant")
    if different or alone:
        return f"Numbers differ in {different} of {variants} that both have."
    if all(parting.word == IDENTICAL for parting in partings):
        arrays = counted(sum(parting.stages for parting in partings), "array")
        return f"No number moved: {arrays} of {variants} are the same to the bit."
    return words.ONLY_ROUNDING.format(where=variants)


def parting_line(parting: Parting) -> str:
    """Say how near a variant's stages are."""
    if parting.word == IDENTICAL:
        return f"{parting.variant}: the same to the bit."
    stage = spoken(parting.stage) or parting.stage
    if parting.word != DIFFERENT:
        return f"{parting.variant}: {parting.word}, from the {stage} on; before that the same to the bit."
    where = parting.where if parting.where.startswith("whose shapes") else f"most at {parting.where}"
    text = f"{parting.variant} first differs in the {stage}, {where}"
    if math.isnan(parting.first) and math.isnan(parting.second):
        return f"{text}."
    first, second = (minus(f"{number:.6g}") for number in (parting.first, parting.second))
    return f"{text}: {first} and {second}."


def rows_table(one: Run, other: Run, near_by: dict[str, str]) -> Table:
    """Return the cells of the comparison table that differ; rounding is left out where a variant is the same."""
    first, second = ({row.variant: row for row in run.comparison.rows} for run in (one, other))
    head = (words.VARIANT_HEAD, "column", words.FIRST_ONE, words.SECOND_ONE)
    both = [(row, second[name]) for name, row in first.items() if name in second]
    absent = dict(columns_of_one(both))
    lines = tuple((words.EVERY_VARIANT, name, *where) for name, where in absent.items()) + tuple(
        (row.variant, *moved)
        for row, other in both
        for moved in cells(row, other, near_by.get(row.variant, DIFFERENT) == DIFFERENT)
        if moved[0] not in absent
    )
    return Table("rows", "Cells of the comparison that differ.", head, lines, deep_places(line[1] for line in lines))


def columns_of_one(both: Sequence[tuple[Any, Any]]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the columns that one run has no value of in any row and the other has in each, and a word for both runs.

    So it is with a run that is older than the column.
    """
    for name in COLUMNS:
        first, second = ({is_none(getattr(pair[side], name)) for pair in both} for side in (0, 1))
        if (first, second) == ({True}, {False}):
            yield name, (words.NO_COLUMN, words.HAS_COLUMN)
        elif (first, second) == ({False}, {True}):
            yield name, (words.HAS_COLUMN, words.NO_COLUMN)


def is_none(value: Any) -> bool:
    """Say whether a cell holds nothing: no text, or NaN."""
    return value in ("", None) or bool(value != value)  # noqa: PLR0124 - NaN differs from itself


def cells(row: Any, other: Any, different: bool) -> Iterator[tuple[str, str, str]]:
    """Yield the columns in which two rows differ, and both values."""
    for name in COLUMNS:
        here, there = getattr(row, name), getattr(other, name)
        rounding = isinstance(here, float) and isinstance(there, float) and math.isclose(here, there, rel_tol=1e-12)
        both_missing = here != here and there != there  # noqa: PLR0124 - NaN differs from itself
        if here == there or both_missing or (not different and (rounding or name in ROUNDED)):
            continue
        yield name, brief(here), brief(there)
