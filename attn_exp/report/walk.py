"""One variant stage by stage: labelled tables from x to the output, and each token's output as a sum of values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from attn_exp import registry
from attn_exp.arrays import Array
from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.splits import settled_as
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem
from attn_exp.report import words
from attn_exp.report.closed import closed
from attn_exp.report.explain import Explained, elsewhere, explained, paired
from attn_exp.report.remarks import remark
from attn_exp.report.whose import labels

SIDE = 16
"""A table shows at most this many rows and columns; the file of results has them all."""

CELLS = 1200
"""A stage shows as many heads as have this many cells together, and one at least."""

OUTWARD = ("W_o", "b_o")
"""The projection of the output, which not every variant has."""

BY_KEY = ("scores", "logits", "capped", "masked", "weights")
"""Stages whose columns are keys."""


class Table(NamedTuple):
    """A labelled matrix: its corner where it is too large to show whole.

    `parts` says which heads its columns are for: so many columns each, from the left.
    """

    title: str
    head: int
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    matrix: Array
    parts: tuple[tuple[str, int], ...] = ()


class Step(NamedTuple):
    """One stage of a computation: what it is, its whole shape, and its tables, one per head.

    `largest` is the number whose cell has the full colour, and `power` that of a share of it which is coloured;
    `closed` says which weights a mask closes, `whole` whether its numbers have no more decimals than are shown.
    """

    stage: str
    explained: Explained
    note: str
    shape: tuple[int, ...]
    tables: tuple[Table, ...]
    largest: float
    decimals: int
    left_out: str
    rows_are_keys: bool
    closed: Array | None = None
    power: float = 1.0
    whole: bool = False


def steps(comparison: Comparison, variant: str) -> tuple[Step, ...]:
    """Return the stages of one variant in order, those that change nothing left out."""
    return tuple(step(stage, array, comparison, variant) for stage, array in every(comparison, variant))


def every(comparison: Comparison, variant: str) -> Iterator[tuple[str, Array]]:
    """Yield the stages of one variant; the output projection stands where it is used, and only if it is."""
    mixes = is_mixed(comparison, variant)
    yield from before(comparison)
    for stage, array in during(comparison.traces[variant]):
        if stage == "output" and mixes:
            yield from (named for named in comparison.problem.projections.items() if named[0] in OUTWARD)
        yield stage, array


def is_mixed(comparison: Comparison, variant: str) -> bool:
    """Say whether a variant ends in W_o, as its row has it: a run that is opened again has no code to ask."""
    rows = (row for row in comparison.rows if row.variant == variant)
    return "W_o" in comparison.problem.projections and any(row.output_projection for row in rows)


def before(comparison: Comparison) -> Iterator[tuple[str, Array]]:
    """Yield x, the memory and the projections of x."""
    if comparison.problem.x is not None:
        yield "x", comparison.problem.x
        if comparison.problem.memory is not None:
            yield "memory", comparison.problem.memory
        yield from (named for named in comparison.problem.projections.items() if named[0] not in OUTWARD)


def during(trace: Trace) -> Iterator[tuple[str, Array]]:
    """Yield the stages of a trace, without those that are equal to the stage before."""
    last: Array | None = None
    for stage, array in trace.stages():
        if stage not in ("capped", "masked") or last is None or not np.array_equal(array, last):
            yield stage, array
        last = array


def is_input(step: Step) -> bool:
    """Say whether a step is the same for every variant: x, the memory, or a projection."""
    return step.stage in ("x", "memory") or is_projection(step)


def is_projection(step: Step) -> bool:
    """Say whether a step is a matrix or a bias that projects x."""
    return step.stage[:2] in ("W_", "b_")


def has_rows_of_keys(stage: str, problem: Problem) -> bool:
    """Say whether the rows of a stage are keys: x holds the past tokens too."""
    return stage in ("k", "v", "memory") or (stage == "x" and problem.past > 0)


def by_key(step: Step) -> bool:
    """Say whether the columns of a step are keys."""
    return step.stage in BY_KEY


def shape(step: Step) -> str:
    """Write the shape of a stage with its axes: `[h t s] = [2 3 3]`."""
    axes = f"h {step.explained.axes}" if len(step.shape) == 3 else step.explained.axes
    return f"[{axes}] = [{' '.join(map(str, step.shape))}]"


def beside(step: Step) -> str:
    """Return what steps that are read side by side have in common."""
    if step.stage in ("q", "k", "v"):
        return "projected"
    return "projections" if is_projection(step) else step.stage


def step(stage: str, array: Array, comparison: Comparison, variant: str) -> Step:
    settled = settled_as(comparison, variant)
    heads = array if array.ndim == 3 else np.atleast_2d(array.T if stage == "lse" else array)[None]
    shown = max(1, min(len(heads), CELLS // max(1, min(SIDE, heads.shape[1]) * min(SIDE, heads.shape[2]))))
    rows, columns = names(stage, comparison, heads.shape[1:], vector=array.ndim == 1)
    finite = np.abs(heads[np.isfinite(heads)])
    places = decimals(finite)
    return Step(
        stage=stage,
        explained=in_words(stage, comparison, settled),
        note=remark(stage, comparison, settled),
        shape=array.shape,
        tables=tuple(
            Table(
                words.HEAD.format(number=head + 1) if len(heads) > 1 else "",
                head,
                rows[:SIDE],
                columns[:SIDE],
                heads[head, :SIDE, :SIDE],
            )
            for head in range(shown)
        ),
        largest=float(finite.max(initial=0.0)),
        decimals=places,
        left_out=left_out(heads.shape, shown),
        rows_are_keys=has_rows_of_keys(stage, comparison.problem),
        closed=closed(settled, heads, SIDE) if stage == "weights" else None,
        whole=is_exact(finite, places),
    )


def in_words(stage: str, comparison: Comparison, settled: Settled) -> Explained:
    """Return the words for a stage of this variant."""
    problem = comparison.problem
    projections = problem.projections
    formed = [name for name, _ in during(comparison.traces[settled.name])]
    bias = "b_o" in projections if stage == "output" else f"b_{stage}" in projections
    stated = explained(
        stage,
        given=(stage in ("q", "k", "v") and problem.x is None) or (stage == "weights" and problem.weights is not None),
        mixed=settled.output_projection and "W_o" in projections,
        bias=bias,
        logit=logit_of(stage, formed),
        normalizer=settled.rules.normalizer,
        extra=any(rule.extra(0) is not None for rule in settled.rules.scores),
    )
    if stage == "scores" and settled.rules.pairing is not None:
        stated = paired(registry.name_of(settled.rules.pairing))
    apart = "memory" if problem.memory is not None else "past" if problem.past else ""
    return elsewhere(stated, stage, apart, bias) if apart else stated


def logit_of(stage: str, formed: Sequence[str]) -> str:
    """Return the symbol of the logits that a stage is made of."""
    if "masked" in formed and stage != "masked":
        return "M"
    return "L′" if "capped" in formed else "L"


def left_out(shape: tuple[int, ...], shown: int) -> str:
    """Say what a step does not show."""
    parts = [words.SOME_HEADS.format(heads=shown, all=shape[0])] if shown < shape[0] else []
    if max(shape[1:]) > SIDE:
        _, rows, columns = shape
        sizes = {"rows": min(SIDE, rows), "all_rows": rows, "columns": min(SIDE, columns), "all_columns": columns}
        parts.append(words.SOME_ROWS.format(**sizes))
    return f" {words.AND} ".join(parts)


def names(
    stage: str, comparison: Comparison, shape: Sequence[int], vector: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the labels of the rows and columns of a stage: tokens where they are tokens, else numbers from 1."""
    numbers = tuple(str(place + 1) for place in range(max(shape)))
    if stage[:2] in ("W_", "b_"):
        return (("",) if vector else numbers[: shape[0]]), numbers[: shape[1]]
    queries, keys = labels(comparison.problem)
    if stage == "lse":
        return queries, tuple(words.HEAD.format(number=number) for number in numbers[: shape[1]])
    rows = keys if has_rows_of_keys(stage, comparison.problem) else queries
    columns = keys if stage in BY_KEY else numbers[: shape[1]]
    return rows, columns


def decimals(magnitudes: Array) -> int:
    """Return how many decimals a stage is shown with: all that its numbers have, or four digits of the largest."""
    if not magnitudes.size or not magnitudes.any():
        return 0
    most = int(np.clip(3 - np.floor(np.log10(magnitudes.max())), 0, 8))
    few = magnitudes[:64]  # they rule most out, and a model's stage has some hundred thousand
    exact = (places for places in range(most) if is_exact(few, places) and is_exact(magnitudes, places))
    return next(exact, most)


def is_exact(magnitudes: Array, places: int) -> bool:
    """Say whether numbers have no more decimals than so many."""
    return np.array_equal(magnitudes, magnitudes.round(places))
