"""What a run on disk holds, held to what its own settings say: the one place where shapes are checked.

A run whose tables and arrays fit each other and its settings can be drawn, compared and repeated; of any other it is
said here, in one line, what does not fit. Letters of axes: `h` heads, `t` queries, `s` keys, `m` the width of x.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import brief
from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.row import Row
from attn_exp.experiment.timing import Timing
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem
from attn_exp.runs.trust import DamagedError

Sizes = tuple[int | None, ...]
"""Sizes of axes; None where any will do."""

WIDTHS = (("q", "k"), ("context", "v"))
"""Stages of a variant that are as wide as each other; a mistake may make them so that they are not."""


def check_problem(problem: Problem) -> None:
    """Refuse a problem whose arrays do not fit each other.

    Raises:
        DamagedError: what does not fit.
    """
    queries, keys, past = len(problem.tokens), len(problem.key_tokens), problem.past
    if not queries or not keys or past < 0 or (past and keys != past + queries):
        raise DamagedError(f"tokens: {queries} of queries, {keys} of keys and {past} past do not go together")
    stages = {name: getattr(problem, name) for name in ("x", "memory", "q", "k", "v", "weights")}
    lengths = {"x": past + queries, "memory": keys, "q": queries, "k": keys, "v": keys, "weights": queries}
    for name, array in stages.items():
        if array is not None:
            check_array(array, name, lengths[name], keys if name == "weights" else None)
            if not np.isfinite(array).all():
                raise DamagedError(f"{name} holds numbers that are not finite")
    given = {name for name, array in stages.items() if array is not None}
    if not ({"q", "k"} <= given or "weights" in given) or ("memory" in given and "x" not in given):
        raise DamagedError(f"{', '.join(sorted(given)) or 'nothing'} is no input of attention")
    if problem.x is None and problem.projections:
        raise DamagedError("there are projections, and no x to project")
    check_projections(problem)


def check_projections(problem: Problem) -> None:
    """Refuse projections that do not lead from x to q, k and v."""
    if problem.x is None:
        return
    width = problem.x.shape[1]
    beside = width if problem.memory is None else problem.memory.shape[1]
    sides = {"q": problem.q, "k": problem.k, "v": problem.v}
    for name, given in problem.projections.items():
        letter, many = name[2:], {"W": None, "b": 1}[name[0]]
        if letter not in ("q", "k", "v", "o"):
            raise DamagedError(f"{name} is no projection")
        array = given[None] if many and given.ndim == 1 else given  # a bias is one row, or a row alone
        if letter == "o":
            check_array(array, name, many)
            continue
        side = sides[letter]
        rows = many or (width if letter == "q" else beside)
        check_array(array, name, rows, None if side is None else side.shape[1])
    lacking = [f"W_{letter}" for letter in "qkv" if f"W_{letter}" not in problem.projections]
    if lacking:
        raise DamagedError(f"there is x, and no {lacking[0]}")


def check_array(array: Any, name: str, *sizes: int | None) -> None:
    """Refuse an array that holds no real numbers, or is of another shape; a size that is not said may be any.

    Two axes are expected where fewer sizes are said.
    """
    wanted: Sizes = sizes + (None,) * (2 - len(sizes))
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        raise DamagedError(f"{name} holds no real numbers")
    if array.ndim != len(wanted) or any(
        size is not None and size != real for size, real in zip(wanted, array.shape, strict=True)
    ):
        expected = ",".join("any" if size is None else str(size) for size in wanted)
        raise DamagedError(f"{name} has the shape [{','.join(map(str, array.shape))}]; expected [{expected}]")


def check_comparison(comparison: Comparison, timings: Sequence[Timing]) -> None:
    """Refuse tables and traces that do not fit the settings, the problem or each other.

    Raises:
        DamagedError: what does not fit.
    """
    names = [variant.name for variant in comparison.variants]
    check_names("comparison.csv", [row.variant for row in comparison.rows], names)
    computed = [row.variant for row in comparison.rows if row.same_as]
    for settled, row in zip(comparison.variants, comparison.rows, strict=True):
        check_row(row, settled)
        check_trace(comparison.traces[row.variant], comparison.problem, settled, row)
    pairs = [f"{one} and {other}" for one, other in itertools.combinations(computed, 2)]
    check_names("distances.csv", [f"{line.variant} and {line.other}" for line in comparison.distances], pairs)
    check_names("timings.csv", [line.variant for line in timings], computed)
    for finding in comparison.checks:
        about = [record.variant for record in finding.records if hasattr(record, "variant")]
        check_known(f"{finding.name}.csv", about, names)
    check_known("own.json", comparison.verdicts, names)
    printed = iter(figure.quantity for figure in comparison.config.published)
    for line in comparison.published:
        if line.quantity not in printed:  # which goes on to the next of them
            raise DamagedError(
                f"published.csv: {brief(line.quantity)} is not the next figure of the run, or stands twice"
            )
    check_steps(comparison, computed)


def check_steps(comparison: Comparison, computed: Sequence[str]) -> None:
    """Refuse steps that lead between other rows than were computed, or not one after another, and rungs of other shapes
    than the problem has."""
    file, queries, keys = "steps.csv", len(comparison.problem.tokens), comparison.problem.keys
    about = [name for step in comparison.steps for name in (step.variant, step.against, step.row) if name]
    check_known(file, about, computed)
    for variant, steps in itertools.groupby(comparison.steps, lambda step: step.variant):
        numbers = [step.step for step in steps]
        if numbers != list(range(1, len(numbers) + 1)):
            raise DamagedError(f"{file}: the steps to {variant} are not counted from 1 on")
    for (variant, number), trace in comparison.rungs.items():
        for name, array in trace.stages():
            check_array(
                array, f"{variant}/step {number}/{name}", *((None, queries, keys), (queries, None))[name == "output"]
            )


def check_names(file: str, found: Sequence[str], expected: Sequence[str]) -> None:
    """Refuse a table whose lines are about other variants than they should be, or in another order."""
    if list(found) != list(expected):
        at = next((place for place, (one, two) in enumerate(zip(found, expected, strict=False)) if one != two), None)
        place = min(len(found), len(expected)) if at is None else at
        said = [names[place] if place < len(names) else "nothing" for names in (found, expected)]
        raise DamagedError(f"{file}: line {place + 2} is about {said[0]}; expected {said[1]}")


def check_known(file: str, found: Iterable[str], names: Sequence[str]) -> None:
    """Refuse what is about a variant that the run does not have."""
    stranger = next((name for name in found if name not in names), None)
    if stranger is not None:
        raise DamagedError(f"{file} is about {stranger}, and the run has {', '.join(names)}")


def check_row(row: Row, settled: Settled) -> None:
    """Refuse a row that says other settings than the run's."""
    said = {"form": row.form, "head": row.head, "mistake": row.mistake}
    run = {"form": str(settled.form), "head": settled.heads.query, "mistake": settled.mistake}
    for name, value in said.items():
        if value != run[name]:
            raise DamagedError(f"comparison.csv: {row.variant} has {name}={value}, and run.json says {run[name]}")
    try:
        np.dtype(row.computed_in)
    except TypeError as error:
        raise DamagedError(f"comparison.csv: {row.variant} is computed in {row.computed_in}") from error


def check_trace(trace: Trace, problem: Problem, settled: Settled, row: Row) -> None:
    """Refuse stages of other shapes than the problem and the heads have."""
    heads, queries, keys = settled.heads.query, len(problem.tokens), problem.keys
    pairs: Sizes = (heads, queries, keys)
    shapes: Mapping[str, Sizes] = {
        "q": (heads, queries, None), "k": (None, keys, None), "v": (None, keys, None),
        **dict.fromkeys(("scores", "logits", "capped", "masked", "weights"), pairs),
        "lse": (heads, queries), "context": (heads, queries, None), "output": (queries, None),
    }  # fmt: skip
    stages = dict(trace.stages())
    for name, array in stages.items():
        check_array(array, f"{row.variant}/{name}", *shapes[name])
    for name in ("k", "v"):
        if name in stages and heads % max(1, len(stages[name])):
            raise DamagedError(f"{row.variant}/{name} has {len(stages[name])} heads, which do not divide {heads}")
    for one, other in () if settled.mistakes else WIDTHS:
        if one in stages and other in stages and stages[one].shape[2] != stages[other].shape[2]:
            raise DamagedError(f"{row.variant}/{one} and {row.variant}/{other} are of different widths")
    if "context" in stages and "output" in stages and not settled.mistakes:
        width = heads * stages["context"].shape[2]
        if settled.output_projection and problem.projections:
            width = problem.projections["W_o"].shape[1]
        check_array(stages["output"], f"{row.variant}/output", queries, width)
    if trace.summary is not None:
        check_summary({field.name: getattr(trace.summary, field.name) for field in fields(trace.summary)}, pairs, row)
    if row.same_as and not {"output", "weights"} & stages.keys():
        raise DamagedError(f"{row.variant} has a row, and neither an output nor weights")


def check_summary(parts: Mapping[str, Array], pairs: Sizes, row: Row) -> None:
    """Refuse a summary of weights whose parts do not fit."""
    heads, queries, _ = pairs
    for name in ("entropy", "effective_keys", "largest_weight", "sink_mass"):
        check_array(parts[name], f"{row.variant}/summary/{name}", heads, queries)
    check_array(parts["heat"], f"{row.variant}/summary/heat", heads, None, None)
    for axis, name in ((1, "row_edges"), (2, "key_edges")):
        edges, blocks = parts[name], parts["heat"].shape[axis]
        whole = edges.dtype.kind in "iu" and edges.ndim == 1 and len(edges) == blocks + 1
        if not whole or edges[0] < 0 or (np.diff(edges.astype(np.int64)) <= 0).any():
            raise DamagedError(f"{row.variant}/summary/{name} are no edges of {blocks} blocks")
