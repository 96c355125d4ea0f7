"""Check that the tables and arrays of a stored run fit its settings and each other.

A run that passes can be drawn, compared and repeated; for any other, the error names what does not fit. Axes: `h`
heads, `g` and `f` key/value heads, `t` queries, `s` keys, `m` the width of x.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.row import Row, Timing
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem
from attn_exp.runs.trust import DamagedError

PROBLEM = {"x": "pm", "memory": "sn", "q": "ta", "k": "sb", "v": "sc", "weights": "ts"}
PROJECTIONS = {"W_q": "ma", "W_k": "nb", "W_v": "nc", "W_o": "uw", "b_q": "a", "b_k": "b", "b_v": "c", "b_o": "w"}
STAGES = {
    "q": "htd", "k": "gsd", "v": "fse", "context": "hte", "output": "to", "lse": "ht",
    **dict.fromkeys(("scores", "logits", "capped", "masked", "weights"), "hts"),
}  # fmt: skip
SUMMARY = {"heat": "hxy", **dict.fromkeys(("entropy", "effective_keys", "largest_weight", "sink_mass"), "ht")}
"""Axes of each array; a letter has one size everywhere."""


def check_problem(problem: Problem) -> None:
    """Check that the arrays of a problem fit each other.

    Raises:
        DamagedError: what does not fit.
    """
    queries, keys, past = len(problem.tokens), len(problem.key_tokens), problem.past
    arrays = {name: getattr(problem, name) for name in PROBLEM} | dict(problem.projections)
    given = {name for name, array in arrays.items() if array is not None}
    is_input = {"q", "k"} <= given or "weights" in given
    is_projected = ("x" in given) == ({"W_q", "W_k", "W_v"} <= given) and ("x" in given or not problem.projections)
    if not queries or not keys or past < 0 or (past and keys != past + queries) or not (is_input and is_projected):
        raise DamagedError(f"{', '.join(sorted(given)) or 'nothing'} is no input of {queries} queries and {keys} keys")
    sizes = {"t": queries, "s": keys, "p": past + queries}
    if problem.memory is None and problem.x is not None and problem.x.ndim == 2:
        sizes["n"] = problem.x.shape[1]
    check_shapes(arrays, PROBLEM | PROJECTIONS, sizes)
    for name in given & PROBLEM.keys():
        if not np.isfinite(arrays[name]).all():
            raise DamagedError(f"{name} holds numbers that are not finite")


def check_shapes(arrays: Mapping[str, Any], shapes: Mapping[str, str], sizes: dict[str, int], place: str = "") -> None:
    """Check that arrays hold real numbers, and that their axes have the sizes of their letters."""
    for name, array in arrays.items():
        letters = shapes.get(name, "")
        if array is not None and (
            array.dtype.kind != "f"
            or array.ndim != len(letters)
            or any(sizes.setdefault(letter, size) != size for letter, size in zip(letters, array.shape, strict=True))
        ):
            expected = ",".join(str(sizes.get(letter, "any")) for letter in letters)
            raise DamagedError(f"{place}{name} is {array.dtype} {list(array.shape)}; expected floats [{expected}]")


def check_comparison(comparison: Comparison, timings: Sequence[Timing]) -> None:
    """Check that tables and traces fit the settings, the problem and each other.

    Raises:
        DamagedError: what does not fit.
    """
    names = [variant.name for variant in comparison.variants]
    computed = [row.variant for row in comparison.rows if row.same_as]
    lines = {
        "comparison.csv": ([row.variant for row in comparison.rows], names),
        "distances.csv": (
            [(line.variant, line.other) for line in comparison.distances],
            [*itertools.combinations(computed, 2)],
        ),
        "timings.csv": ([line.variant for line in timings], computed),
    }
    for file, (found, expected) in lines.items():
        if found != expected:
            raise DamagedError(f"{file} is about {found}; expected {expected}")
    subjects = {name for step in comparison.steps for name in (step.variant, step.against, step.row)}
    subjects |= {getattr(record, "variant", "") for finding in comparison.checks for record in finding.records}
    if strangers := (subjects | comparison.verdicts.keys()) - {*names, ""}:
        raise DamagedError(f"a table is about {min(strangers)}, and the run has {', '.join(names)}")
    printed = [figure.quantity for figure in comparison.config.published]
    if any(line.quantity not in printed for line in comparison.published):
        raise DamagedError("published.csv is about another document")
    for settled, row in zip(comparison.variants, comparison.rows, strict=True):
        check_trace(comparison.traces[row.variant], comparison.problem, settled, row)
    sizes = {"t": len(comparison.problem.tokens), "s": comparison.problem.keys}
    for (variant, step), trace in comparison.rungs.items():
        check_shapes(dict(trace.stages()), STAGES, dict(sizes), f"{variant}/step {step}/")


def check_trace(trace: Trace, problem: Problem, settled: Settled, row: Row) -> None:
    """Check a row against its settings, and the shapes of its stages; a mistake may change widths."""
    if (row.form, row.head) != (str(settled.form), settled.heads.query) or row.mistake != settled.mistake:
        raise DamagedError(f"comparison.csv: {row.variant} has other settings than run.json says")
    np.dtype(row.computed_in)  # a TypeError if it is none
    stages, shapes = dict(trace.stages()), STAGES | ({"k": "gsD", "context": "htE"} if settled.mistakes else {})
    sizes = {"h": settled.heads.query, "t": len(problem.tokens), "s": problem.keys}
    if not settled.mistakes and "context" in stages and stages["context"].ndim == 3:
        is_projected = settled.output_projection and problem.projections
        sizes["o"] = problem.projections["W_o"].shape[1] if is_projected else sizes["h"] * stages["context"].shape[2]
    check_shapes(stages, shapes, sizes, f"{row.variant}/")
    if trace.summary is not None:
        summary = {name: array for name, array in vars(trace.summary).items() if name in SUMMARY}
        check_shapes(summary, SUMMARY, sizes, f"{row.variant}/summary/")
    if any(sizes["h"] % max(1, sizes.get(letter, 1)) for letter in "gf"):
        raise DamagedError(f"{row.variant}: its key/value heads do not divide {sizes['h']}")
    if row.same_as and not {"output", "weights"} & stages.keys():
        raise DamagedError(f"{row.variant} has a row, and neither an output nor weights")
