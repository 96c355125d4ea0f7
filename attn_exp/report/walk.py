"""One variant stage by stage: labelled tables from x to the output, and each token's output as a sum of values.

`steps` takes a comparison and the name of a variant. It returns a `Step` for x, for each projection and for each stage
that changes something: the formula, the tables (one per head), and how to show the numbers. `format_sums` writes the
outputs as sums of values. `find_masked` says which weights a mask hides.
"""

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
from attn_exp.report.stages import Explained, changing_stages, explain, explain_mistake, name_settings
from attn_exp.report.views import Head, Panel, Views, heads_of, token_labels
from attn_exp.rules import AbsentMask
from attn_exp.rules.rules import MOST_ENTRIES, allowed_entries

SIDE = 16
"""Maximum number of rows and columns in a table; the results file has all of them."""

CELLS = 1200
"""Maximum number of cells in the tables of a stage. If the first head has more, its table is shown all the same."""

OUTWARD = ("W_o", "b_o")
"""The output projection, which only some variants have."""

BY_KEY = ("scores", "logits", "capped", "masked", "weights")
"""Stages whose columns are keys."""


class Table(NamedTuple):
    """A matrix of one head, or its upper left corner if it is too large, with labels.

    `head`: the index of the head.
    `rows`, `columns`: the labels.
    `parts`: the heads that the columns belong to, from the left, each with its number of columns.
    """

    title: str
    head: int
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    matrix: Array
    parts: tuple[tuple[str, int], ...] = ()


class Step(NamedTuple):
    """One stage of a computation: its explanation, its full shape, and its tables.

    `note`: the settings that act on the stage.
    `shape`: the full shape.
    `tables`: one per head, for the first heads only.
    `left_out`: what the tables do not show, such as `2 of 4 heads`.
    `largest`, `power`: the number shown in full colour, and the exponent of the colour scale.
    `decimals`: the number of decimals to show.
    `is_exact`: whether no number has more decimals.
    `rows_are_keys`: whether the tokens along the rows are keys, not queries.
    `is_masked`: for weights, which of them are masked.
    `heads`: the numbers of all heads `[h row column]`, even of those without a table.
    `owners`: on a page, a wide projection is cut into one matrix for each head that uses its columns, and `heads` has
        these matrices; this is the label and the first column of each.
    `head_rows`: on a page, W_o is cut in the same way along its rows; this is the number of rows of each head.
    `wrong`: whether the stage is not what the definition computes from the earlier ones.
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
    is_masked: Array | None = None
    power: float = 1.0
    is_exact: bool = False
    heads: Array = np.zeros((0, 0, 0))
    owners: tuple[tuple[str, int], ...] = ()
    head_rows: int = 0
    wrong: bool = False


def steps(comparison: Comparison, variant: str) -> tuple[Step, ...]:
    """Return the stages of one variant in order, without those that change nothing."""
    settled = find_settled(comparison, variant)
    departing: tuple[str, ...] = ()
    if settled.mistakes or is_code(settled.form):
        departing = find_departures(settled, comparison.problem, comparison.traces[variant])
    return tuple(
        make_step(stage, array, comparison, settled, wrong=stage in departing)
        for stage, array in iterate_arrays(comparison, variant)
    )


def iterate_arrays(comparison: Comparison, variant: str) -> Iterator[tuple[str, Array]]:
    """Yield x, the memory, the projections and the stages of one variant, each as a name and an array.

    The output projection comes just before the output, and only if the variant uses it.
    """
    problem, applies_w_o = comparison.problem, is_mixed(comparison, variant)
    if problem.x is not None:
        sources = {"x": problem.x, "memory": problem.memory, **problem.projections}
        yield from ((name, array) for name, array in sources.items() if array is not None and name not in OUTWARD)
    for stage, array in changing_stages(comparison.traces[variant]).items():
        if stage == "output" and applies_w_o:
            yield from (named for named in problem.projections.items() if named[0] in OUTWARD)
        yield stage, array


def is_mixed(comparison: Comparison, variant: str) -> bool:
    """Return whether a variant applies W_o, according to its row: a reopened run has no user code to ask."""
    return "W_o" in comparison.problem.projections and any(
        row.output_projection for row in comparison.rows if row.variant == variant
    )


def is_projection(step: Step) -> bool:
    return step.stage[:2] in ("W_", "b_")


def has_rows_of_keys(stage: str, problem: Problem) -> bool:
    return stage in ("k", "v", "memory") or (stage == "x" and problem.past > 0)


def has_columns_of_keys(step: Step) -> bool:
    return step.stage in BY_KEY


def format_shape(step: Step) -> str:
    """Return the axes of a stage and their sizes: `[h t s] = [2 3 3]`."""
    axes = f"h {step.explained.axes}" if len(step.shape) == 3 else step.explained.axes
    return f"[{axes}] = [{' '.join(map(str, step.shape))}]"


def group_name(step: Step) -> str:
    """Return the same name for steps that a page shows side by side: q, k and v, and the projections."""
    if step.stage in ("q", "k", "v"):
        return "projected"
    return "projections" if is_projection(step) else step.stage


def make_step(stage: str, array: Array, comparison: Comparison, settled: Settled, *, wrong: bool = False) -> Step:
    # make an array `[h row column]`; the log-sum-exps `[h t]` become one matrix with a column per head
    heads = array if array.ndim == 3 else np.atleast_2d(array.T if stage == "lse" else array)[None]
    shown_heads = max(1, min(len(heads), CELLS // max(1, min(SIDE, heads.shape[1]) * min(SIDE, heads.shape[2]))))
    rows, columns = label_rows_and_columns(stage, comparison, heads.shape[1:], is_vector=array.ndim == 1)
    finite = np.abs(heads[np.isfinite(heads)])
    decimal_places = choose_decimals(finite)
    explained, note = explain(stage, comparison, settled), name_settings(stage, comparison, settled)
    return Step(
        stage=stage,
        explained=explain_mistake(explained, stage, settled) if wrong else explained,
        note=f"right: {note}" if wrong and stage == "logits" else note,
        shape=array.shape,
        tables=tuple(
            Table(f"head {head + 1}" if len(heads) > 1 else "", head, rows[:SIDE], columns[:SIDE], matrix[:SIDE, :SIDE])
            for head, matrix in enumerate(heads[:shown_heads])
        ),
        largest=float(finite.max(initial=0.0)),
        decimals=decimal_places,
        left_out=format_left_out(heads.shape, shown_heads),
        rows_are_keys=has_rows_of_keys(stage, comparison.problem),
        is_masked=find_masked(settled, heads) if stage == "weights" else None,
        wrong=wrong,
        is_exact=is_exact(finite, decimal_places),
        heads=heads,
    )


def format_left_out(shape: Shape, shown_heads: int) -> str:
    heads, rows, columns = shape
    parts = [f"{shown_heads} of {heads} heads"] if shown_heads < heads else []
    if max(rows, columns) > SIDE:
        parts.append(f"{min(SIDE, rows)} of {rows} rows and {min(SIDE, columns)} of {columns} columns")
    return " and ".join(parts)


def label_rows_and_columns(
    stage: str, comparison: Comparison, shape: Sequence[int], is_vector: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the labels of the rows and of the columns of a stage: tokens, heads, or numbers counted from 1."""
    ordinals = tuple(str(index + 1) for index in range(max(shape)))
    if stage[:2] in ("W_", "b_"):
        return (("",) if is_vector else ordinals[: shape[0]]), ordinals[: shape[1]]
    queries, keys = token_labels(comparison.problem)
    if stage == "lse":
        return queries, tuple(f"head {number}" for number in ordinals[: shape[1]])
    rows = keys if has_rows_of_keys(stage, comparison.problem) else queries
    columns = keys if stage in BY_KEY else ordinals[: shape[1]]
    return rows, columns


def choose_decimals(magnitudes: Array) -> int:
    """Return the number of decimals to show: enough for four digits of the largest number, fewer if that is exact."""
    if not magnitudes.size or not magnitudes.any():
        return 0
    enough = int(np.clip(3 - np.floor(np.log10(magnitudes.max())), 0, 8))
    sample = magnitudes[:64]  # a quick test, since a stage of a model has some 100,000 numbers
    exact_places = (places for places in range(enough) if is_exact(sample, places) and is_exact(magnitudes, places))
    return next(exact_places, enough)


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
    """Return each letter in the shapes of some steps, with its meaning and its sizes in words, such as `4 or 2`."""
    sizes_by_letter: dict[str, dict[int, None]] = {}
    for step in steps:
        letters = step.explained.axes.split()
        for letter, size in zip(["h", *letters] if len(step.shape) == 3 else letters, step.shape, strict=False):
            sizes_by_letter.setdefault(letter, {})[size] = None
    return [
        (letter, meaning, " or ".join(map(str, sizes_by_letter[letter])))
        for letter, meaning in MEANING.items()
        if letter in sizes_by_letter
    ]


TERMS = 8
"""Maximum number of terms in a sum that is written out; the largest terms are kept."""


def format_sums(comparison: Comparison, settled: Settled) -> list[str]:
    """Return the output of each query in each head as a sum, such as `output(she) = 0.34 v(she) + 0.66 v(likes)`.

    The list is empty if the variant has mistakes, or did not compute its weights and context.
    """
    trace = comparison.traces[settled.name]
    if trace.weights is None or trace.context is None or settled.mistake != "none":
        return []
    queries, keys = token_labels(comparison.problem)
    stage = "context" if settled.output_projection else "output"
    shown_heads = max(1, CELLS // max(1, TERMS * len(queries)))
    return [
        f"{stage if len(trace.weights) == 1 else f'context {head + 1}'}({token}) = {format_sum(row, keys)}"
        for head, matrix in enumerate(trace.weights[:shown_heads])
        for token, row in zip(queries[:SIDE], matrix[:SIDE], strict=True)
    ]


def format_sum(row: Array, keys: Sequence[str]) -> str:
    if np.isnan(row).any():
        return "NaN, like its weights"
    kept = sorted(key for key in np.argsort(-row, kind="stable")[:TERMS].tolist() if row[key] != 0)
    terms = " + ".join(f"{row[key]:.2f} v({keys[key]})" for key in kept) or "0"
    rest = row.sum() - row[kept].sum()
    return f"{terms} + {rest:.2f} of other values" if len(kept) < np.count_nonzero(row) else terms


def find_masked(settled: Settled, weights: Array) -> Array | None:
    """Return which of the weights `[h t s]` are masked; None if there are no masks.

    A weight that a mask hides but that is not 0 (a leak) does not count. If there are too many weights, or the code of
    a mask is unavailable, every weight of exactly 0 counts as masked.
    """
    masks, offset = settled.rules.masks, settled.rules.offset
    if not masks or np.ndim(offset):
        return None
    if weights.size > MOST_ENTRIES or any(isinstance(mask, AbsentMask) for mask in masks):
        return np.asarray(weights == 0)
    heads, rows, keys = weights.shape
    return np.asarray(~allowed_entries(masks, rows, keys, int(offset), heads) & (weights == 0))


def iterate_heads(views: Views, panels: Iterable[Panel]) -> Iterator[Head]:
    for panel in panels:
        panel_masked = find_masked_in_panel(views, panel)
        for index, head in enumerate(heads_of(panel)):
            is_masked = None if panel_masked is None else panel_masked[index]
            yield head._replace(variants=visible(head.variants), is_masked=is_masked)


def find_masked_in_panel(views: Views, panel: Panel) -> Array | None:
    """Return which weights `[h t s]` of a panel are masked; None if there are no masks or these are block means."""
    problem = views.comparison.problem
    if panel.weights.shape[1:] != (len(problem.tokens), problem.keys):
        return None
    return find_masked(find_settled(views.comparison, panel.variants[0]), panel.weights)
