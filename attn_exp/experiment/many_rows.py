"""The numbers of rows by columns: what `measuring.measured` and `sameness.letters` say of each of many points.

Traces and answers have the points on their first axis, and hold finite numbers alone, logits aside. Each number is
rounded where the functions of one point round it: means and sums run over the same numbers in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.executing import answer
from attn_exp.experiment.many_sameness import errors_in_ulp, largest_errors, letters, nearness, partings, word
from attn_exp.experiment.metrics.first_row import cosine
from attn_exp.experiment.metrics.spread import entropy, largest_weight
from attn_exp.experiment.shares import PRINTED, share_out, shares_by_rule
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.problem.many import ApartError, lying
from attn_exp.reference.oracle import Answer
from attn_exp.rules.rules import Rules


def columns(
    variants: Sequence[Settled], traces: Mapping[str, Trace], expected: Mapping[str, Answer]
) -> dict[str, dict[str, Sequence[Any]]]:
    """Return the columns of each variant by their names, a value for each point."""
    first = traces[variants[0].name]
    near = {name: nearness(answer(first), answer(trace)) for name, trace in traces.items()}
    classes = letters(traces, near)
    return {
        variant.name: {
            "same_as": classes[variant.name],
            "sameness": [word(number) for number in near[variant.name].tolist()],
            "differs_at": partings(first, traces[variant.name], near[variant.name]),
            **held(answer(traces[variant.name]), expected.get(variant.name)),
            **moved(answer(traces[variant.name]), answer(first)),
            **spread(traces[variant.name], variant.rules),
        }
        for variant in variants
    }


def held(mine: Array, expected: Answer | None) -> dict[str, Sequence[Any]]:
    """Return how far answers are from the reference's, over the queries that it answered, as `measuring.held`."""
    if expected is None:
        return {}
    rows, truth = list(expected.rows), expected.weights if expected.output is None else expected.output
    checked = mine[:, rows] if expected.output is not None else mine[:, :, rows]
    if not np.isfinite(truth).all():
        raise ApartError
    return {
        "error": largest_errors(checked, truth).tolist(),
        "error_ulp": errors_in_ulp(checked, truth).tolist(),
        "checked": [len(rows)] * len(mine),
    }


def moved(mine: Array, first: Array) -> dict[str, Sequence[Any]]:
    """Return how far answers are from the first variant's; nothing where the shapes differ and there is no distance."""
    if mine.shape != first.shape:
        return {}
    return {"shift": largest_errors(mine, first).tolist(), "cosine": cosines(mine, first).tolist()}


def cosines(left: Array, right: Array) -> Array:
    """Return the cosine of each of many arrays to its counterpart, as `metrics.first_row.cosine`."""
    one, other = as_they_lie(left), as_they_lie(right)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        lengths = np.sqrt(np.vecdot(one, one)) * np.sqrt(np.vecdot(other, other))
        angles = np.vecdot(left.reshape(one.shape), right.reshape(one.shape)) / lengths
    for place in np.flatnonzero(~((lengths > 0) & (lengths < np.inf))):
        angles[place] = cosine(left[place], right[place])
    return np.asarray(angles)


def spread(trace: Trace, rules: Rules) -> dict[str, Sequence[Any]]:
    """Return how the weights of each point are spread over the keys, as `measuring.spread`; nothing without weights."""
    weights, summary = trace.weights, trace.summary
    if weights is None:
        even = share_out(trace, rules)
        names = ("entropy", "effective_keys", "largest_weight") if even else ("largest_weight",)
        return {} if summary is None else {name: means(getattr(summary, name)).tolist() for name in names}
    off = np.abs(weights.sum(axis=-1) - 1)
    seen = weights.sum(axis=-1) != 0
    numbers = {
        "largest_weight": means(largest_weight(weights)),
        "row_sum_error": np.where(seen, off, 0.0).reshape(len(weights), -1).max(axis=-1),
    }
    if shares_by_rule(rules):
        spreads = entropy(weights)
        even = ((weights >= 0).all(axis=-1) & (~seen | (off <= PRINTED))).reshape(len(weights), -1).all(axis=-1)
        for name, numbers_of in (("entropy", spreads), ("effective_keys", np.exp(spreads))):
            numbers[name] = np.where(even, means(numbers_of), np.nan)
    return {name: column.tolist() for name, column in numbers.items()}


def means(numbers: Array) -> Array:
    """Return the mean of the numbers of each point `[n ...] -> [n]`."""
    return np.asarray(as_they_lie(numbers).mean(axis=-1))


def as_they_lie(arrays: Array) -> Array:
    """Return the numbers of each of many arrays `[n ...] -> [n k]`, in the order in which they lie in memory."""
    return arrays.transpose(0, *(1 + axis for axis in lying(arrays[0]))).reshape(len(arrays), -1)
