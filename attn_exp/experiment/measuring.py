"""Compute the table row of each variant: its error, distance from other variants, and spread of weights.

Everything is computed for many problems at a time. The first axis of every stage and output is the problem, `[n ...]`.
A sweep stacks the problems of its seeds, and a run is a stack of one. Means and sums run over the numbers of a problem
in memory order, so each problem gets exactly the same bits as if it were computed separately. To add a column, add a
field to `Row` and a line here.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attn_exp.arrays import Array, widen
from attn_exp.config.schema import Config
from attn_exp.experiment.executing import get_answer
from attn_exp.experiment.metrics.errors import cosines, errors_in_ulp, largest_errors, row_sum_errors, ulp_distances
from attn_exp.experiment.metrics.spread import are_distributions, largest_weight, shares_by_rule
from attn_exp.experiment.row import COLUMNS, Row
from attn_exp.experiment.variant import Settled, baseline
from attn_exp.forms import coarser
from attn_exp.forms.trace import Trace, entropy, flatten_in_memory_order
from attn_exp.problem.problem import Problem
from attn_exp.reference import oracle
from attn_exp.rules.rules import Rules, queries_with_keys

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
    runnable = [variant for variant in variants if not variant.refused]
    stacks = {variant.name: traces[variant.name].as_stack() for variant in runnable}
    numbers = {
        name: {column: values[0] for column, values in columns.items()}
        for name, columns in measure(runnable, stacks, expected, baseline(config, runnable).name).items()
    }
    return tuple(
        make_row(variant, config, problem, traces[variant.name], numbers.get(variant.name, {})) for variant in variants
    )


def make_row(settled: Settled, config: Config, problem: Problem, trace: Trace, numbers: Mapping[str, Any]) -> Row:
    """Return the row of a variant; `numbers` has its measurements by column, and missing measurements become NaN.

    `flops` counts one multiplication and one addition per term of `q k^T` and of `weights v`. It leaves out scaling,
    softmax and projections. Source: FlashAttention, `benchmarks/benchmark_flash_attention.py`.
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
        queries=name_seeing_queries(trace, problem.past, settled.rules),
        note=settled.refused or oracle.why_unanswerable(settled.question) or "",
        computed_in=settled.computed_in.name,
    )


def measure(
    variants: Sequence[Settled], traces: Mapping[str, Trace], expected: Mapping[str, oracle.Answer], against: str
) -> dict[str, Columns]:
    """Return the measured columns of each variant by name, with one value per problem.

    `traces` are stacks of problems, `[n ...]`. `against` is the variant of the baseline row.
    """
    dtypes = {variant.name: variant.computed_in for variant in variants}
    letters_by_variant = assign_letters({variant.name: traces[variant.name] for variant in variants}, dtypes)
    columns = {}
    for variant in variants:
        trace = traces[variant.name]
        from_baseline = measure_distance(traces[against], trace, coarser(dtypes[variant.name], dtypes[against]))
        columns[variant.name] = {
            "same_as": letters_by_variant[variant.name],
            **measure_errors(get_answer(trace), expected.get(variant.name), dtypes[variant.name]),
            "max_diff": from_baseline.pop("difference"),
            **from_baseline,
            **measure_spread(trace, variant.rules),
        }
    return columns


def measure_errors(actual: Array, expected: oracle.Answer | None, dtype: np.dtype[Any]) -> Columns:
    if expected is None:
        return {}
    rows = list(expected.rows)
    checked = actual[:, rows] if expected.output is not None else actual[:, :, rows]
    exact = expected.weights if expected.output is None else expected.output
    return {
        "error": largest_errors(checked, exact).tolist(),
        "error_ulp": errors_in_ulp(checked, exact, dtype).tolist(),
        "checked": [len(rows)] * len(actual),
    }


def measure_distance(one: Trace, other: Trace, dtype: Any = None) -> Columns:
    """Return how much the outputs of two variants differ, and at which stage: the columns of a `Distance`.

    Difference and cosine are NaN if the shapes differ. `dtype` is the coarser of the two dtypes that the variants were
    computed in.
    """
    left, right = get_answer(one), get_answer(other)
    closeness = measure_closeness(left, right, dtype)
    difference = cosine = [math.nan] * len(left)
    if left.shape == right.shape:
        difference, cosine = largest_errors(left, right).tolist(), cosines(left, right).tolist()
    return {
        "difference": difference,
        "cosine": cosine,
        "sameness": format_closeness(closeness, left.dtype, dtype),
        "differs_at": find_first_differences(one, other, closeness, dtype),
    }


def measure_spread(trace: Trace, rules: Rules) -> Columns:
    """Return the columns on the spread of weights over keys: means over heads and over the queries that see a key.

    The entropy of a problem is NaN unless its rows of weights sum to 1. If every problem has NaN, the columns that need
    the entropy are left out.
    """
    columns, summary = dict[str, Array](), trace.summary
    is_distribution: Array | bool = not rules.normalizer.signed
    if trace.weights is not None:
        weights = widen(trace.weights)
        largest, is_distribution = largest_weight(weights), are_distributions(weights)
        columns["row_sum_error"] = row_sum_errors(weights)
    elif summary is not None:
        largest = summary.largest_weight
    else:
        return {}
    sees_key = find_queries_with_keys(largest, trace, rules)
    columns["largest_weight"] = mean_over_seeing(largest, sees_key)
    all_are_distributions = (is_distribution | ~sees_key).reshape(len(sees_key), -1).all(axis=-1)
    if shares_by_rule(rules) and all_are_distributions.any():
        entropies = entropy(weights) if summary is None else summary.entropy
        columns["entropy"] = np.where(all_are_distributions, mean_over_seeing(entropies, sees_key), np.nan)
        columns["effective_keys"] = np.where(
            all_are_distributions, mean_over_seeing(np.exp(entropies), sees_key), np.nan
        )
    return {name: column.tolist() for name, column in columns.items()}


def find_queries_with_keys(largest: Array, trace: Trace, rules: Rules) -> Array:
    """Return whether each query sees a key, `[n h t]`: a mask allows one, and the query's largest weight is not 0."""
    if trace.q is None or trace.k is None:
        return largest > 0
    return (largest > 0) & queries_with_keys(rules, largest.shape[-2], largest.shape[-1], trace.k.shape[-2])


def mean_over_seeing(numbers: Array, sees_key: Array) -> Array:
    """Return each problem's mean over the queries that see a key, `[n ...] -> [n]`; NaN if no query sees a key."""
    if sees_key.all():
        return np.asarray(flatten_in_memory_order(numbers).mean(axis=-1))
    numbers_by_problem = [
        flatten_in_memory_order(problem_numbers[None]) if problem_sees_key.all() else problem_numbers[problem_sees_key]
        for problem_numbers, problem_sees_key in zip(numbers, sees_key, strict=True)
    ]
    return np.array([rows.mean() if rows.size else math.nan for rows in numbers_by_problem])


def name_seeing_queries(trace: Trace, past: int, rules: Rules) -> str:
    """Name the queries that see a key, counted from 1: `all`, or `all but 1-2`.

    Past tokens are counted too. They have no queries, so they are among the exceptions.
    """
    if trace.q is None or trace.k is None:
        return "all"
    sees_key = queries_with_keys(rules, trace.q.shape[-3], trace.q.shape[-2], trace.k.shape[-2])
    if trace.weights is not None:
        sees_key = sees_key & trace.weights.any(axis=-1)  # NaN counts as a weight
    elif trace.summary is not None:
        sees_key = sees_key & (trace.summary.largest_weight != 0)
    sees_in_a_head = sees_key.reshape(-1, sees_key.shape[-1]).any(axis=0)
    without_key = np.flatnonzero(np.append(np.ones(past, bool), ~sees_in_a_head)) + 1
    runs = np.split(without_key, np.flatnonzero(np.diff(without_key) > 1) + 1)  # consecutive queries
    ranges = ",".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs if len(run))
    return f"all but {ranges}" if ranges else "all"


# How closely two computations agree: bit for bit, to a few ulp, to rounding, or not at all

SAME_FUNCTION = 256
"""Two outputs that differ by up to this many ulp of their largest number count as the same function."""

FEW_ULP = 16
"""If all numbers differ by at most this many ulp, the distance is reported in ulp."""

IDENTICAL, ROUNDING, DIFFERENT = "bit-identical", "within rounding", "different"

SAME_BITS, ROUNDED, BEYOND_ROUNDING = -1, FEW_ULP + 1, FEW_ULP + 2
"""Special values of closeness; any number between `SAME_BITS` and `ROUNDED` is the distance of two arrays in ulp."""


def describe_closeness(one: Array, other: Array, dtype: Any = None) -> str:
    """Return how close two arrays are, in words: bit-identical, within k ulp, within rounding, or different.

    `dtype` is the coarser of the two dtypes that the arrays were computed in. If they are stored in a finer dtype, ulp
    and rounding refer to `dtype`, and the result says so: `within 2 ulp of float32`.
    """
    return format_closeness(measure_closeness(one[None], other[None], dtype), one.dtype, dtype)[0]


def format_closeness(closeness: Array, array_dtype: np.dtype[Any], dtype: Any = None) -> list[str]:
    """Return each result of `measure_closeness` in words; `array_dtype` is the dtype that the arrays are stored in."""
    unit = "" if dtype is None or np.dtype(dtype) == array_dtype else f" of {np.dtype(dtype).name}"
    descriptions = {SAME_BITS: IDENTICAL, ROUNDED: f"{ROUNDING}{unit}", BEYOND_ROUNDING: DIFFERENT}
    return [descriptions.get(number, f"within {number} ulp{unit}") for number in closeness.tolist()]


def measure_closeness(one: Array, other: Array, dtype: Any = None) -> Array:
    """Return how close each of n arrays is to its counterpart, `[n ...] -> [n]`.

    The result is `SAME_BITS` for bit-identical arrays, the distance in ulp of `dtype` if it is at most `FEW_ULP`,
    `ROUNDED` for a larger distance within rounding, and `BEYOND_ROUNDING` for all others. Arrays with NaN or infinity
    in different places are beyond rounding.
    """
    closeness = np.full(len(one), BEYOND_ROUNDING)
    if one.shape != other.shape:
        return closeness
    is_same_type, dtype = one.dtype == other.dtype, np.dtype(dtype or one.dtype)
    one, other = one.reshape(len(one), -1), other.reshape(len(other), -1)
    is_equal = one == other
    if not is_equal.all():
        is_equal |= np.isnan(one) & np.isnan(other)
    if is_same_type:
        closeness[is_equal.all(axis=-1)] = SAME_BITS
    finite = np.isfinite(one) & np.isfinite(other)
    differing = np.flatnonzero((closeness != SAME_BITS) & (is_equal | finite).all(axis=-1))
    if len(differing):
        left, right = (np.where(finite[differing], side[differing], side.dtype.type(0)) for side in (one, other))
        ulps = ulp_distances(left.astype(dtype), right)
        rounded_or_different = np.where(errors_in_ulp(left, right, dtype) > SAME_FUNCTION, BEYOND_ROUNDING, ROUNDED)
        closeness[differing] = np.where(ulps <= FEW_ULP, ulps.astype(np.int64), rounded_or_different)
    return closeness


def find_first_differences(one: Trace, other: Trace, output_closeness: Array, dtype: Any = None) -> list[str]:
    """Return, for each problem, the stage at which its two traces diverge; `output_closeness` compares their outputs.

    If the outputs differ beyond rounding, return the first common stage that also does. Otherwise return the first
    common stage that is not bit-identical.
    """
    first_differing = np.where(output_closeness == SAME_BITS, "", "output").astype(object)
    other_stages, undecided = dict(other.stages()), np.flatnonzero(output_closeness != SAME_BITS)
    for name, array in one.stages():
        if name in other_stages and len(undecided):
            closeness = measure_closeness(array[undecided], other_stages[name][undecided], dtype)
            differs = np.where(
                output_closeness[undecided] == BEYOND_ROUNDING, closeness == BEYOND_ROUNDING, closeness != SAME_BITS
            )
            first_differing[undecided[differs]] = name
            undecided = undecided[~differs]
    return [str(stage) for stage in first_differing]


def assign_letters(traces: Mapping[str, Trace], dtypes: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the letters of each variant, one per problem; variants with equal outputs have the same letter.

    Outputs are equal if they differ only by rounding, in the coarser of the dtypes of the two variants.
    """
    indices: dict[str, Array] = {}  # the letter of each variant, as a number
    is_first: dict[str, Array] = {}  # whether the variant is the first with its letter
    letter_count: Any = 0
    for name, trace in traces.items():
        index = np.full(len(get_answer(trace)), -1)
        for other, other_is_first in is_first.items():
            if (candidates := other_is_first & (index < 0)).any():
                closeness = measure_closeness(
                    get_answer(trace), get_answer(traces[other]), coarser(dtypes[name], dtypes[other])
                )
                index = np.where(candidates & (closeness != BEYOND_ROUNDING), indices[other], index)
        is_first[name] = index < 0
        indices[name] = np.where(index < 0, letter_count, index)
        letter_count = letter_count + is_first[name]
    return {name: [format_letter(index) for index in numbers.tolist()] for name, numbers in indices.items()}


def format_letter(index: int) -> str:
    """Return the letter at an index from 0: A, B, ..., Z, AA, AB, ..."""
    return (format_letter(index // 26 - 1) if index >= 26 else "") + string.ascii_uppercase[index % 26]
