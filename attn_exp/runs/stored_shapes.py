"""Check a stored run against its own settings: the one place where stored shapes are checked.

A run whose tables and arrays fit each other and its settings can be drawn, compared and repeated; for any other, the
error names what does not fit. Axes: `h` heads, `t` queries, `s` keys, `m` the width of x.
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

Sizes = dict[str, int]
"""Size of each axis letter; a letter without a size takes that of its first axis."""


def check_problem(problem: Problem) -> None:
    """Check that the arrays of a problem fit each other.

    Raises:
        DamagedError: what does not fit.
    """
    queries, keys, past = len(problem.tokens), len(problem.key_tokens), problem.past
    if not queries or not keys or past < 0 or (past and keys != past + queries):
        raise DamagedError(f"tokens: {queries} of queries, {keys} of keys and {past} past do not go together")
    stages = {name: getattr(problem, name) for name in ("x", "memory", "q", "k", "v", "weights")}
    given = {name for name, array in stages.items() if array is not None}
    if not ({"q", "k"} <= given or "weights" in given) or ("memory" in given and "x" not in given):
        raise DamagedError(f"{', '.join(sorted(given)) or 'nothing'} is no input of attention")
    beside = "m" if problem.memory is None else "n"
    projections = {"W_q": "ma", "W_k": f"{beside}b", "W_v": f"{beside}c", "b_q": "1a", "b_k": "1b", "b_v": "1c"}
    shapes = {"x": "pm", "memory": "sn", "q": "ta", "k": "sb", "v": "sc", "weights": "ts", "W_o": "uw", "b_o": "1y"}
    check_known("results.npz", problem.projections, (*projections, "W_o", "b_o"))
    lacking = [name for name in ("W_q", "W_k", "W_v") if (name in problem.projections) != ("x" in given)]
    if lacking or (problem.projections and "x" not in given):
        raise DamagedError(f"x and {(lacking or ['projections'])[0]} are there only together")
    rows = {name: array[None] if array.ndim == 1 else array for name, array in problem.projections.items()}
    sizes = {"1": 1, "t": queries, "s": keys, "p": past + queries}
    check_shapes(stages | rows, shapes | projections, sizes)
    for name in given:
        if not np.isfinite(stages[name]).all():
            raise DamagedError(f"{name} holds numbers that are not finite")


def check_shapes(arrays: Mapping[str, Any], shapes: Mapping[str, str], sizes: Sizes, place: str = "") -> None:
    """Check that arrays hold real numbers, and that their axes have the sizes of their letters."""
    for name, letters in shapes.items():
        array = arrays.get(name)
        if array is None:
            continue
        if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
            raise DamagedError(f"{place}{name} holds no real numbers")
        fits = array.ndim == len(letters) and all(
            sizes.setdefault(letter, size) == size for letter, size in zip(letters, array.shape, strict=True)
        )
        if not fits:
            expected = ",".join(str(sizes.get(letter, "any")) for letter in letters)
            raise DamagedError(f"{place}{name} has the shape {list(array.shape)}; expected [{expected}]")


def check_comparison(comparison: Comparison, timings: Sequence[Timing]) -> None:
    """Check that tables and traces fit the settings, the problem and each other.

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
        if line.quantity not in printed:  # advances the iterator
            raise DamagedError(
                f"published.csv: {brief(line.quantity)} is not the next figure of the run, or stands twice"
            )
    check_steps(comparison, computed)


def check_steps(comparison: Comparison, computed: Sequence[str]) -> None:
    """Check that steps connect computed rows, count from 1, and have arrays of the problem's shapes."""
    file, queries, keys = "steps.csv", len(comparison.problem.tokens), comparison.problem.keys
    about = [name for step in comparison.steps for name in (step.variant, step.against, step.row) if name]
    check_known(file, about, computed)
    for variant, steps in itertools.groupby(comparison.steps, lambda step: step.variant):
        numbers = [step.step for step in steps]
        if numbers != list(range(1, len(numbers) + 1)):
            raise DamagedError(f"{file}: the steps to {variant} are not counted from 1 on")
    for (variant, number), trace in comparison.rungs.items():
        shapes = {"weights": "hts", "output": "to"}
        check_shapes(dict(trace.stages()), shapes, {"t": queries, "s": keys}, f"{variant}/step {number}/")


def check_names(file: str, found: Sequence[str], expected: Sequence[str]) -> None:
    """Check that the rows of a table are about the expected variants, in order."""
    if list(found) != list(expected):
        at = next((place for place, (one, two) in enumerate(zip(found, expected, strict=False)) if one != two), None)
        place = min(len(found), len(expected)) if at is None else at
        said = [names[place] if place < len(names) else "nothing" for names in (found, expected)]
        raise DamagedError(f"{file}: line {place + 2} is about {said[0]}; expected {said[1]}")


def check_known(file: str, found: Iterable[str], names: Sequence[str]) -> None:
    """Check that every name is one that the run has."""
    stranger = next((name for name in found if name not in names), None)
    if stranger is not None:
        raise DamagedError(f"{file} is about {stranger}, and the run has {', '.join(names)}")


def check_row(row: Row, settled: Settled) -> None:
    """Check that a row has the settings of the run."""
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
    """Check that stages have the shapes of the problem and the heads; a mistake may change widths."""
    heads, stages, place = settled.heads.query, dict(trace.stages()), f"{row.variant}/"
    sizes = {"h": heads, "t": len(problem.tokens), "s": problem.keys}
    shapes = {"q": "htd", "k": "gsd", "v": "fse", "lse": "ht", "context": "hte", "output": "to"}
    shapes |= dict.fromkeys(("scores", "logits", "capped", "masked", "weights"), "hts")
    if settled.mistakes:
        shapes |= {"k": "gsD", "context": "htE"}
    elif "context" in stages and stages["context"].ndim == 3:
        projected = settled.output_projection and problem.projections
        sizes["o"] = problem.projections["W_o"].shape[1] if projected else heads * stages["context"].shape[2]
    check_shapes(stages, shapes, sizes, place)
    for letter in "gf":
        if heads % max(1, sizes.get(letter, 1)):
            raise DamagedError(f"{place}k or v has {sizes[letter]} heads, which do not divide {heads}")
    if trace.summary is not None:
        check_summary({field.name: getattr(trace.summary, field.name) for field in fields(trace.summary)}, sizes, place)
    if row.same_as and not {"output", "weights"} & stages.keys():
        raise DamagedError(f"{row.variant} has a row, and neither an output nor weights")


def check_summary(parts: Mapping[str, Array], sizes: Sizes, place: str) -> None:
    """Check that the parts of a summary of weights fit each other."""
    shapes = dict.fromkeys(("entropy", "effective_keys", "largest_weight", "sink_mass"), "ht")
    check_shapes(parts, {**shapes, "heat": "hxy"}, sizes, f"{place}summary/")
    for axis, name in ((1, "row_edges"), (2, "key_edges")):
        edges, blocks = parts[name], parts["heat"].shape[axis]
        whole = edges.dtype.kind in "iu" and edges.ndim == 1 and len(edges) == blocks + 1
        if not whole or edges[0] < 0 or (np.diff(edges.astype(np.int64)) <= 0).any():
            raise DamagedError(f"{place}summary/{name} are no edges of {blocks} blocks")
