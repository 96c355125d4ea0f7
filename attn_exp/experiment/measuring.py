"""The rows of variants: how right each is, how far from one of them, and what its weights look like.

Each number is said once, for many problems at a time: those of all seeds of a sweep stand on the first axis of every
stage and answer, and a run is a stack of one. Means and sums run over the numbers of a problem in the order of its
memory, so that each gets the very bits that it gets alone. A new column is a field of `Row`, and a line here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attn_exp import forms
from attn_exp.arrays import Array, widen
from attn_exp.config.schema import Config
from attn_exp.experiment.executing import answer
from attn_exp.experiment.metrics.errors import errors_in_ulp, largest_errors, row_sum_errors
from attn_exp.experiment.metrics.first_row import cosines
from attn_exp.experiment.metrics.spread import largest_weight, rows_that_share, share_out, shares_by_rule
from attn_exp.experiment.row import COLUMNS, Row
from attn_exp.experiment.sameness import letters, nearness, partings, words
from attn_exp.experiment.variant import Settled, baseline
from attn_exp.forms.trace import Trace, as_they_lie, entropy
from attn_exp.problem.problem import Problem
from attn_exp.reference import oracle
from attn_exp.rules.rules import Rules, visible

Columns = dict[str, Sequence[Any]]
"""A value for each problem, by the name of the column."""


def make_rows(
    config: Config,
    problem: Problem,
    variants: Sequence[Settled],
    traces: Mapping[str, Trace],
    expected: Mapping[str, oracle.Answer],
) -> tuple[Row, ...]:
    """Return the rows of a run, which is a stack of one problem; nothing is measured where a form refuses."""
    chosen = [variant for variant in variants if not variant.refused]
    stacks = {variant.name: traces[variant.name].as_stack() for variant in chosen}
    answers = {name: answer.as_stack() for name, answer in expected.items()}
    columns = measure(chosen, stacks, answers, baseline(config, chosen).name)
    numbers = {
        name: {column: values[0] for column, values in of_variant.items()} for name, of_variant in columns.items()
    }
    return tuple(
        describe(variant, config, problem, traces[variant.name], numbers.get(variant.name, {})) for variant in variants
    )


def describe(
    settled: Settled, config: Config, problem: Problem, trace: Trace, numbers: Mapping[str, Any] | None = None
) -> Row:
    """Return the row of a variant with the numbers that were measured; of the others it says that they were not.

    `flops` are a multiplication and an addition for each term of `q k^T` and of `weights v`; scaling, softmax and
    projections are not counted. Source: FlashAttention, `benchmarks/benchmark_flash_attention.py`.
    """
    unmeasured = dict.fromkeys((name for name, column in COLUMNS.items() if column.summed), math.nan)
    widths = (side.shape[-1] for side in (trace.q, trace.v) if side is not None)
    unknown: dict[str, Any] = {"checked": 0, "same_as": "", "sameness": "", "differs_at": ""}
    return Row(
        variant=settled.name,
        form=settled.form,
        head=settled.head,
        scale=settled.scale,
        multiplier=settled.multiplier,
        bias=config.bias,
        output_projection=settled.output_projection,
        mistake=settled.mistake,
        **(unknown | unmeasured | dict(numbers or {})),
        flops=2 * settled.head * len(problem.tokens) * problem.keys * sum(widths),
        kv_head=settled.heads.shared,
        mask=settled.words["mask"],
        score=settled.words["score"],
        position=settled.words["position"],
        normalizer=settled.rules.normalizer.name,
        convention=settled.words["convention"],
        queries=queries(trace, problem.past, settled.rules),
        note=settled.refused or oracle.silent(settled.question) or "",
        computed_in=settled.computed_in.name,
    )


def measure(
    variants: Sequence[Settled], traces: Mapping[str, Trace], expected: Mapping[str, oracle.Answer], against: str
) -> dict[str, Columns]:
    """Return the measured columns of each variant by its name, a value for each problem of the stacks `[n ...]`.

    `against` is the variant that all are compared with.
    """
    kinds = {variant.name: variant.computed_in for variant in variants}
    classes = letters({variant.name: traces[variant.name] for variant in variants}, kinds)
    columns = {}
    for variant in variants:
        trace = traces[variant.name]
        apart = distance(traces[against], trace, forms.coarser(kinds[variant.name], kinds[against]))
        columns[variant.name] = {
            "same_as": classes[variant.name],
            **error(answer(trace), expected.get(variant.name), kinds[variant.name]),
            "shift": apart.pop("difference"),
            **apart,
            **spread(trace, variant.rules),
        }
    return columns


def error(mine: Array, expected: oracle.Answer | None, kind: np.dtype[Any]) -> Columns:
    """Return how far answers are from the reference's, over the queries that the reference answered, if it did."""
    if expected is None:
        return {}
    rows = list(expected.rows)
    checked = mine[:, rows] if expected.output is not None else mine[:, :, rows]
    truth = expected.weights if expected.output is None else expected.output
    return {
        "error": largest_errors(checked, truth).tolist(),
        "error_ulp": errors_in_ulp(checked, truth, kind).tolist(),
        "checked": [len(rows)] * len(mine),
    }


def distance(one: Trace, other: Trace, kind: np.dtype[Any]) -> Columns:
    """Return how far the answers of two variants are apart, and where: the columns of a `Distance`.

    There is no difference and no angle where the shapes differ. `kind` is the coarser of the types they computed in.
    """
    left, right = answer(one), answer(other)
    near, nothing = nearness(left, right, kind), [math.nan] * len(left)
    return {
        "difference": largest_errors(left, right).tolist() if left.shape == right.shape else nothing,
        "cosine": cosines(left, right).tolist() if left.shape == right.shape else nothing,
        "sameness": words(near, left.dtype, kind),
        "differs_at": partings(one, other, near, kind),
    }


def spread(trace: Trace, rules: Rules) -> Columns:
    """Return how the weights are spread over the keys, as means over heads and over the queries that see a key.

    Rows that do not share out 1 have no entropy.
    """
    weights, summary = trace.weights, trace.summary
    if weights is None:
        if summary is None:
            return {}
        seen = seeing(summary.largest_weight, trace, rules)
        if not share_out(trace, rules):
            return {"largest_weight": means_seen(summary.largest_weight, seen).tolist()}
        names = ("entropy", "effective_keys", "largest_weight")
        return {name: means_seen(getattr(summary, name), seen).tolist() for name in names}
    weights = widen(weights)
    largest, sharing = largest_weight(weights), shares_by_rule(rules)
    seen = seeing(largest, trace, rules)
    columns = {
        "largest_weight": means_seen(largest, seen),
        "row_sum_error": row_sum_errors(weights),
    }
    even = (rows_that_share(weights) | ~seen).reshape(len(weights), -1).all(axis=-1)
    if sharing and even.any():
        entropies = entropy(weights)
        columns["entropy"] = np.where(even, means_seen(entropies, seen), np.nan)
        columns["effective_keys"] = np.where(even, means_seen(np.exp(entropies), seen), np.nan)
    return {name: column.tolist() for name, column in columns.items()}


def means(numbers: Array) -> Array:
    """Return the mean of the numbers of each problem `[n ...] -> [n]`."""
    return np.asarray(as_they_lie(numbers).mean(axis=-1))


def seeing(largest: Array, trace: Trace, rules: Rules) -> Array:
    """Say of each row `[n h t]` whether its query sees a key: masks allow one, and its largest weight is not 0."""
    if trace.q is None or trace.k is None:
        return np.asarray(largest > 0)
    return np.asarray((largest > 0) & visible(rules, largest.shape[-2], largest.shape[-1], trace.k.shape[-2]))


def means_seen(numbers: Array, seen: Array) -> Array:
    """Return the mean over the rows of each problem `[n ...] -> [n]` whose queries see a key; NaN where none does."""
    if seen.all():
        return means(numbers)
    each = zip(numbers, seen, strict=True)
    return np.array(
        [means((one if there.all() else one[there])[None])[0] if there.any() else math.nan for one, there in each]
    )


def queries(trace: Trace, past: int, rules: Rules) -> str:
    """Return which queries see a key: `all`, or `all but 1-2`, counted from 1; tokens of the past have no query."""
    if trace.q is None or trace.k is None:
        return "all"
    seen = visible(rules, trace.q.shape[-3], trace.q.shape[-2], trace.k.shape[-2])
    if trace.weights is not None:
        seen = seen & trace.weights.any(axis=-1)  # NaN counts as a weight
    elif trace.summary is not None:
        seen = seen & (trace.summary.largest_weight != 0)
    blind = np.flatnonzero(np.append(np.ones(past, bool), ~seen.reshape(-1, seen.shape[-1]).any(axis=0))) + 1
    runs = np.split(blind, np.flatnonzero(np.diff(blind) > 1) + 1)
    named = ",".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs if len(run))
    return f"all but {named}" if named else "all"
