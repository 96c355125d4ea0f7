"""Compute the table row of each variant: its error, distance from other variants, and spread of weights.

Everything is computed for many problems at a time: the seeds of a sweep are the first axis of every stage and output,
`[n ...]`, and a run is a stack of one problem. Means and sums run over the numbers of a problem in memory order, so
that each problem gets exactly the same bits as if it were computed alone. To add a column, add a field to `Row` and a
line here.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attn_exp.arrays import Array, widen
from attn_exp.config.schema import Config
from attn_exp.experiment.executing import answer
from attn_exp.experiment.metrics.errors import cosines, errors_in_ulp, largest_errors, row_sum_errors, ulp_distances
from attn_exp.experiment.metrics.spread import largest_weight, rows_that_share, shares_by_rule
from attn_exp.experiment.row import COLUMNS, Row
from attn_exp.experiment.variant import Settled, baseline
from attn_exp.forms import coarser
from attn_exp.forms.trace import Trace, as_they_lie, entropy
from attn_exp.problem.problem import Problem
from attn_exp.reference import oracle
from attn_exp.rules.rules import Rules, visible

Columns = dict[str, Sequence[Any]]
"""One value per problem for each column name."""


def make_rows(
    config: Config,
    problem: Problem,
    variants: Sequence[Settled],
    traces: Mapping[str, Trace],
    expected: Mapping[str, oracle.Answer],
) -> tuple[Row, ...]:
    """Return the row of each variant; `expected` holds the reference answers for a stack of one problem."""
    chosen = [variant for variant in variants if not variant.refused]
    stacks = {variant.name: traces[variant.name].as_stack() for variant in chosen}
    numbers = {
        name: {column: values[0] for column, values in columns.items()}
        for name, columns in measure(chosen, stacks, expected, baseline(config, chosen).name).items()
    }
    return tuple(
        describe(variant, config, problem, traces[variant.name], numbers.get(variant.name, {})) for variant in variants
    )


def describe(settled: Settled, config: Config, problem: Problem, trace: Trace, numbers: Mapping[str, Any]) -> Row:
    """Return the row of a variant with these measurements; missing ones are NaN.

    `flops` counts one multiplication and one addition per term of `q k^T` and of `weights v`, but not scaling, softmax
    and projections. Source: FlashAttention, `benchmarks/benchmark_flash_attention.py`.
    """
    measured: dict[str, Any] = {name: math.nan for name, column in COLUMNS.items() if column.summed}
    measured |= {"checked": 0, "same_as": "", **settled.words, **numbers}
    widths = (side.shape[-1] for side in (trace.q, trace.v) if side is not None)
    return Row(
        variant=settled.name,
        form=settled.form,
        head=settled.head,
        scale=settled.scale,
        multiplier=settled.multiplier,
        bias=config.bias,
        output_projection=settled.output_projection,
        mistake=settled.mistake,
        **measured,
        flops=2 * settled.head * len(problem.tokens) * problem.keys * sum(widths),
        kv_head=settled.heads.shared,
        normalizer=settled.rules.normalizer.name,
        queries=queries(trace, problem.past, settled.rules),
        note=settled.refused or oracle.silent(settled.question) or "",
        computed_in=settled.computed_in.name,
    )


def measure(
    variants: Sequence[Settled], traces: Mapping[str, Trace], expected: Mapping[str, oracle.Answer], against: str
) -> dict[str, Columns]:
    """Return the measured columns of each variant by name, one value for each problem of the stacks `[n ...]`.

    `against` is the variant of the baseline row.
    """
    kinds = {variant.name: variant.computed_in for variant in variants}
    classes = letters({variant.name: traces[variant.name] for variant in variants}, kinds)
    columns = {}
    for variant in variants:
        trace = traces[variant.name]
        apart = distance(traces[against], trace, coarser(kinds[variant.name], kinds[against]))
        columns[variant.name] = {
            "same_as": classes[variant.name],
            **error(answer(trace), expected.get(variant.name), kinds[variant.name]),
            "max_diff": apart.pop("difference"),
            **apart,
            **spread(trace, variant.rules),
        }
    return columns


def error(mine: Array, expected: oracle.Answer | None, kind: np.dtype[Any]) -> Columns:
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


def distance(one: Trace, other: Trace, kind: Any = None) -> Columns:
    """Return how much the outputs of two variants differ, and at which stage: the columns of a `Distance`.

    Difference and cosine are NaN if the shapes differ. `kind` is the coarser of the dtypes in which they were computed.
    """
    left, right = answer(one), answer(other)
    near, difference, cosine = nearness(left, right, kind), [math.nan] * len(left), [math.nan] * len(left)
    if left.shape == right.shape:
        difference, cosine = largest_errors(left, right).tolist(), cosines(left, right).tolist()
    return {
        "difference": difference,
        "cosine": cosine,
        "sameness": words(near, left.dtype, kind),
        "differs_at": find_partings(one, other, near, kind),
    }


def spread(trace: Trace, rules: Rules) -> Columns:
    """Return the columns on the spread of weights over keys: means over heads and over the queries that see a key.

    If rows do not sum to 1, the entropy is left out or NaN.
    """
    columns, summary = dict[str, Array](), trace.summary
    even: Array | bool = not rules.normalizer.signed
    if trace.weights is not None:
        weights = widen(trace.weights)
        largest, even = largest_weight(weights), rows_that_share(weights)
        columns["row_sum_error"] = row_sum_errors(weights)
    elif summary is not None:
        largest = summary.largest_weight
    else:
        return {}
    seen = find_seeing(largest, trace, rules)
    columns["largest_weight"] = mean_over_seeing(largest, seen)
    shared = (even | ~seen).reshape(len(seen), -1).all(axis=-1)
    if shares_by_rule(rules) and shared.any():
        entropies = entropy(weights) if summary is None else summary.entropy
        columns["entropy"] = np.where(shared, mean_over_seeing(entropies, seen), np.nan)
        columns["effective_keys"] = np.where(shared, mean_over_seeing(np.exp(entropies), seen), np.nan)
    return {name: column.tolist() for name, column in columns.items()}


def find_seeing(largest: Array, trace: Trace, rules: Rules) -> Array:
    """Return whether each query sees a key, `[n h t]`: masks allow a key, and the query's largest weight is not 0."""
    if trace.q is None or trace.k is None:
        return largest > 0
    return (largest > 0) & visible(rules, largest.shape[-2], largest.shape[-1], trace.k.shape[-2])


def mean_over_seeing(numbers: Array, seen: Array) -> Array:
    """Return each problem's mean over the queries that see a key, `[n ...] -> [n]`; NaN if no query does."""
    if seen.all():
        return np.asarray(as_they_lie(numbers).mean(axis=-1))
    each = [as_they_lie(one[None]) if there.all() else one[there] for one, there in zip(numbers, seen, strict=True)]
    return np.array([rows.mean() if rows.size else math.nan for rows in each])


def queries(trace: Trace, past: int, rules: Rules) -> str:
    """Name the queries that see a key: `all`, or `all but 1-2`, counted from 1; tokens of the past have no queries."""
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


# How closely two computations agree: bit for bit, to a few ulp, to rounding, or not at all

SAME_FUNCTION = 256
"""Two outputs that differ by up to this many ulp of their largest number count as the same function."""

FEW_ULP = 16
"""Up to this many ulp of each number, the distance is reported in ulp."""

IDENTICAL, ROUNDING, DIFFERENT = "bit-identical", "within rounding", "different"

SAME_BITS, ROUNDED, APART = -1, FEW_ULP + 1, FEW_ULP + 2
"""How close two arrays are, as a number; numbers between `SAME_BITS` and `ROUNDED` count ulp."""


def compared(one: Array, other: Array, kind: Any = None) -> str:
    """Describe how close two arrays are: bit-identical, within k ulp, within rounding, or different.

    `kind` is the coarser of the dtypes that they were computed in. If the arrays have a finer dtype, ulp and rounding
    are those of `kind`, and the result says so: within 2 ulp of float32.
    """
    return words(nearness(one[None], other[None], kind), one.dtype, kind)[0]


def words(near: Array, own: np.dtype[Any], kind: Any = None) -> list[str]:
    """Describe how close arrays are, given the result of `nearness` in ulp of `kind`; `own` is their dtype."""
    unit = "" if kind is None or np.dtype(kind) == own else f" of {np.dtype(kind).name}"
    named = {SAME_BITS: IDENTICAL, ROUNDED: f"{ROUNDING}{unit}", APART: DIFFERENT}
    return [named.get(number, f"within {number} ulp{unit}") for number in near.tolist()]


def nearness(one: Array, other: Array, kind: Any = None) -> Array:
    """Return how close each of n arrays is to its counterpart, `[n ...] -> [n]`.

    The result is `SAME_BITS` for bit-identical arrays, the distance in ulp of `kind` up to `FEW_ULP`, `ROUNDED` if they
    agree to rounding, and otherwise `APART`, as when NaN or infinity are in different places.
    """
    near = np.full(len(one), APART)
    if one.shape != other.shape:
        return near
    is_same_type, kind = one.dtype == other.dtype, np.dtype(kind or one.dtype)
    one, other = one.reshape(len(one), -1), other.reshape(len(other), -1)
    alike = one == other
    if not alike.all():
        alike |= np.isnan(one) & np.isnan(other)
    if is_same_type:
        near[alike.all(axis=-1)] = SAME_BITS
    finite = np.isfinite(one) & np.isfinite(other)
    moved = np.flatnonzero((near != SAME_BITS) & (alike | finite).all(axis=-1))
    if len(moved):
        left, right = (np.where(finite[moved], side[moved], side.dtype.type(0)) for side in (one, other))
        units = ulp_distances(left.astype(kind), right)
        far = np.where(errors_in_ulp(left, right, kind) > SAME_FUNCTION, APART, ROUNDED)
        near[moved] = np.where(units <= FEW_ULP, units.astype(np.int64), far)
    return near


def find_partings(one: Trace, other: Trace, near: Array, kind: Any = None) -> list[str]:
    """Return the stage at which the two traces of each problem diverge, given the `nearness` of their outputs.

    That is the first common stage that is not bit-identical, or, if the outputs differ beyond rounding, the first stage
    that differs beyond rounding.
    """
    parts = np.where(near == SAME_BITS, "", "output").astype(object)
    theirs, waiting = dict(other.stages()), np.flatnonzero(near != SAME_BITS)
    for name, array in one.stages():
        if name in theirs and len(waiting):
            stage = nearness(array[waiting], theirs[name][waiting], kind)
            parted = np.where(near[waiting] == APART, stage == APART, stage != SAME_BITS)
            parts[waiting[parted]] = name
            waiting = waiting[~parted]
    return [str(part) for part in parts]


def letters(traces: Mapping[str, Trace], kinds: Mapping[str, Any]) -> dict[str, list[str]]:
    """Give the same letter to variants that compute the same function, up to rounding in the coarser of their dtypes.

    Each problem of the traces `[n ...]` has its own letters.
    """
    places: dict[str, Array] = {}  # the letter of each variant, as a number
    leads: dict[str, Array] = {}  # whether the variant is the first with its letter
    leaders: Any = 0
    for name, trace in traces.items():
        place = np.full(len(answer(trace)), -1)
        for other, leading in leads.items():
            if (open_places := leading & (place < 0)).any():
                near = nearness(answer(trace), answer(traces[other]), coarser(kinds[name], kinds[other]))
                place = np.where(open_places & (near != APART), places[other], place)
        leads[name] = place < 0
        places[name] = np.where(place < 0, leaders, place)
        leaders = leaders + leads[name]
    return {name: [format_letter(place) for place in numbers.tolist()] for name, numbers in places.items()}


def format_letter(place: int) -> str:
    """Return the letter at an index from 0: A, B, ..., Z, AA, AB, ..."""
    return (format_letter(place // 26 - 1) if place >= 26 else "") + string.ascii_uppercase[place % 26]
