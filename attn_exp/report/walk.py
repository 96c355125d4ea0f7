"""One variant stage by stage: labelled tables from x to the output, and each token's output as a sum of values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array, Shape
from attn_exp.experiment.executing import find_departures
from attn_exp.experiment.row import Comparison, find_settled
from attn_exp.experiment.variant import Settled
from attn_exp.own_code import is_code
from attn_exp.problem.problem import Problem
from attn_exp.report.escapes import visible
from attn_exp.report.stages import Explained, explain, explain_mistake, remark, stages_of
from attn_exp.report.views import Head, Panel, Views, heads_of, labels
from attn_exp.rules import AbsentMask
from attn_exp.rules.rules import MOST_ENTRIES
from attn_exp.rules.rules import allowed_entries as allowed_places

SIDE = 16
"""Maximum number of rows and columns in a table; the results file has all of them."""

CELLS = 1200
"""Maximum number of cells of a stage over all heads; at least one head is shown."""

OUTWARD = ("W_o", "b_o")
"""The output projection, which only some variants have."""

BY_KEY = ("scores", "logits", "capped", "masked", "weights")
"""Stages whose columns are keys."""


class Table(NamedTuple):
    """A labelled matrix, or its upper left corner if it is too large.

    `parts` lists the heads that the columns belong to, from the left, each with its number of columns.
    """

    title: str
    head: int
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    matrix: Array
    parts: tuple[tuple[str, int], ...] = ()


class Step(NamedTuple):
    """One stage of a computation: its explanation, its full shape, and its tables, one per head.

    `largest` is the number shown in full colour, `power` the exponent of the colour scale. `closed` marks masked
    weights; `whole` means that all decimals are shown. `corners` holds the numbers of all heads `[h row column]`, even
    of heads without a table. If the columns of a projection are split into heads, `owners` may give the head and the
    first column of each corner; if W_o has its rows split, `head_rows` is the number per head. `wrong` means that,
    by the definition, the stage does not follow from the earlier ones.
    """

    stage: str
    explained: Explained
    note: str
    shape: Shape
    tables: tuple[Table, ...]
    largest: float
    decimals: int
    left_out: str
    rows_are_keys: bool
    closed: Array | None = None
    power: float = 1.0
    whole: bool = False
    corners: Array = np.zeros((0, 0, 0))
    owners: tuple[tuple[str, int], ...] = ()
    head_rows: int = 0
    wrong: bool = False


def steps(comparison: Comparison, variant: str) -> tuple[Step, ...]:
    """Return the stages of one variant in order, leaving out those that change nothing."""
    settled = find_settled(comparison, variant)
    wrong: tuple[str, ...] = ()
    if settled.mistakes or is_code(settled.form):
        wrong = find_departures(settled, comparison.problem, comparison.traces[variant])
    return tuple(
        step(stage, array, comparison, settled, wrong=stage in wrong) for stage, array in every(comparison, variant)
    )


def every(comparison: Comparison, variant: str) -> Iterator[tuple[str, Array]]:
    """Yield x, the memory, the projections and the stages of one variant, each as a name and an array.

    If the variant uses the output projection, it comes just before the output.
    """
    problem, outward = comparison.problem, is_mixed(comparison, variant)
    if problem.x is not None:
        sources = {"x": problem.x, "memory": problem.memory, **problem.projections}
        yield from ((name, array) for name, array in sources.items() if array is not None and name not in OUTWARD)
    for stage, array in stages_of(comparison.traces[variant]).items():
        if stage == "output" and outward:
            yield from (named for named in problem.projections.items() if named[0] in OUTWARD)
        yield stage, array


def is_mixed(comparison: Comparison, variant: str) -> bool:
    """Return whether a variant applies W_o; its row says so, since a reopened run has no code to ask."""
    rows = (row for row in comparison.rows if row.variant == variant)
    return "W_o" in comparison.problem.projections and any(row.output_projection for row in rows)


def is_projection(step: Step) -> bool:
    return step.stage[:2] in ("W_", "b_")


def has_rows_of_keys(stage: str, problem: Problem) -> bool:
    return stage in ("k", "v", "memory") or (stage == "x" and problem.past > 0)


def by_key(step: Step) -> bool:
    return step.stage in BY_KEY


def shape(step: Step) -> str:
    """Format the shape of a stage with its axes: `[h t s] = [2 3 3]`."""
    axes = f"h {step.explained.axes}" if len(step.shape) == 3 else step.explained.axes
    return f"[{axes}] = [{' '.join(map(str, step.shape))}]"


def beside(step: Step) -> str:
    if step.stage in ("q", "k", "v"):
        return "projected"
    return "projections" if is_projection(step) else step.stage


def step(stage: str, array: Array, comparison: Comparison, settled: Settled, *, wrong: bool = False) -> Step:
    """Return one stage of a computation with its tables, formula and explanation.

    `wrong` means that, by the definition, the stage does not follow from the earlier ones.
    """
    heads = array if array.ndim == 3 else np.atleast_2d(array.T if stage == "lse" else array)[None]
    shown = max(1, min(len(heads), CELLS // max(1, min(SIDE, heads.shape[1]) * min(SIDE, heads.shape[2]))))
    rows, columns = names(stage, comparison, heads.shape[1:], vector=array.ndim == 1)
    finite = np.abs(heads[np.isfinite(heads)])
    places = decimals(finite)
    stated, note = explain(stage, comparison, settled), remark(stage, comparison, settled)
    return Step(
        stage=stage,
        explained=explain_mistake(stated, stage, settled) if wrong else stated,
        note=f"right: {note}" if wrong and stage == "logits" else note,
        shape=array.shape,
        tables=tuple(
            Table(f"head {head + 1}" if len(heads) > 1 else "", head, rows[:SIDE], columns[:SIDE], matrix[:SIDE, :SIDE])
            for head, matrix in enumerate(heads[:shown])
        ),
        largest=float(finite.max(initial=0.0)),
        decimals=places,
        left_out=left_out(heads.shape, shown),
        rows_are_keys=has_rows_of_keys(stage, comparison.problem),
        closed=closed_by_mask(settled, heads) if stage == "weights" else None,
        wrong=wrong,
        whole=is_exact(finite, places),
        corners=heads,
    )


def left_out(shape: Shape, shown: int) -> str:
    heads, rows, columns = shape
    parts = [f"{shown} of {heads} heads"] if shown < heads else []
    if max(rows, columns) > SIDE:
        parts.append(f"{min(SIDE, rows)} of {rows} rows and {min(SIDE, columns)} of {columns} columns")
    return " and ".join(parts)


def names(
    stage: str, comparison: Comparison, shape: Sequence[int], vector: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the labels of the rows and columns of a stage: tokens, heads, or numbers counted from 1."""
    numbers = tuple(str(place + 1) for place in range(max(shape)))
    if stage[:2] in ("W_", "b_"):
        return (("",) if vector else numbers[: shape[0]]), numbers[: shape[1]]
    queries, keys = labels(comparison.problem)
    if stage == "lse":
        return queries, tuple(f"head {number}" for number in numbers[: shape[1]])
    rows = keys if has_rows_of_keys(stage, comparison.problem) else queries
    columns = keys if stage in BY_KEY else numbers[: shape[1]]
    return rows, columns


def decimals(magnitudes: Array) -> int:
    """Return the number of decimals to show: enough for four digits of the largest number, fewer if all are exact."""
    if not magnitudes.size or not magnitudes.any():
        return 0
    most = int(np.clip(3 - np.floor(np.log10(magnitudes.max())), 0, 8))
    few = magnitudes[:64]  # a quick test, since a stage of a model has some 100,000 numbers
    exact = (places for places in range(most) if is_exact(few, places) and is_exact(magnitudes, places))
    return next(exact, most)


def is_exact(magnitudes: Array, places: int) -> bool:
    return np.array_equal(magnitudes, magnitudes.round(places))


MEANING = {
    "t": "number of queries",
    "s": "number of keys",
    "m": "size of a token's vector in X",
    "n": "size of a token's vector in the memory",
    "d": "size of queries and keys, per head (in W_q and W_k: all heads side by side)",
    "e": "size of values, per head (in W_v: all heads side by side)",
    "h": "number of heads",
}
"""The meaning of each letter in a shape, in the order in which a page explains them."""


def axes_of(steps: Iterable[Step]) -> list[tuple[str, str, str]]:
    """Return each letter in the shapes with its meaning and its sizes in words, such as `4 or 2`."""
    sizes: dict[str, dict[int, None]] = {}
    for step in steps:
        letters = step.explained.axes.split()
        for letter, size in zip(["h", *letters] if len(step.shape) == 3 else letters, step.shape, strict=False):
            sizes.setdefault(letter, {})[size] = None
    return [
        (letter, meaning, " or ".join(map(str, sizes[letter])))
        for letter, meaning in MEANING.items()
        if letter in sizes
    ]


TERMS = 8
"""Maximum number of terms in a written sum; the largest terms are kept."""


def sums(comparison: Comparison, settled: Settled) -> list[str]:
    """Write each query's output in each head as a sum: `output(she) = 0.34 v(she) + 0.30 v(likes) + 0.36 v(coffee)`.

    The list is empty if the variant departs from `context = weights v`.
    """
    trace = comparison.traces[settled.name]
    if trace.weights is None or trace.context is None or settled.mistake != "none":
        return []
    queries, keys = labels(comparison.problem)
    name = "context" if settled.output_projection else "output"
    shown = max(1, CELLS // max(1, TERMS * len(queries)))
    return [
        f"{name if len(trace.weights) == 1 else f'context {head + 1}'}({token}) = {sum_of(row, keys)}"
        for head, matrix in enumerate(trace.weights[:shown])
        for token, row in zip(queries[:SIDE], matrix[:SIDE], strict=True)
    ]


def sum_of(row: Array, keys: Sequence[str]) -> str:
    if np.isnan(row).any():
        return "NaN, like its weights"
    chosen = sorted(key for key in np.argsort(-row, kind="stable")[:TERMS].tolist() if row[key] != 0)
    terms = " + ".join(f"{row[key]:.2f} v({keys[key]})" for key in chosen) or "0"
    rest = row.sum() - row[chosen].sum()
    return f"{terms} + {rest:.2f} of other values" if len(chosen) < np.count_nonzero(row) else terms


def closed_by_mask(settled: Settled, weights: Array) -> Array | None:
    """Return which of the weights `[h t s]` are masked; None without masks.

    A hidden key that still gets weight (a leak) does not count. If there are too many weights, or the code of a mask
    is unavailable, every weight of exactly 0 counts as masked.
    """
    masks, offset = settled.rules.masks, settled.rules.offset
    if not masks or np.ndim(offset):
        return None
    if weights.size > MOST_ENTRIES or any(isinstance(mask, AbsentMask) for mask in masks):
        return np.asarray(weights == 0)
    heads, rows, keys = weights.shape
    return np.asarray(~allowed_places(masks, rows, keys, int(offset), heads) & (weights == 0))


def heads_in(views: Views, panels: Iterable[Panel]) -> Iterator[Head]:
    for panel in panels:
        shut = closed_in(views, panel)
        for place, head in enumerate(heads_of(panel)):
            closed = None if shut is None else shut[place]
            yield head._replace(variants=visible(head.variants), closed=closed)


def closed_in(views: Views, panel: Panel) -> Array | None:
    """Return which weights `[h t s]` of a panel are masked; None without masks, and for block means."""
    problem = views.comparison.problem
    if panel.weights.shape[1:] != (len(problem.tokens), problem.keys):
        return None
    return closed_by_mask(find_settled(views.comparison, panel.variants[0]), panel.weights)
