"""Compare all variants of a run with the reference and with each other.

`compare` does this in three parts. `prepare` builds the problem, and settles the variants: it fills in all their
settings. `tabulate` computes and measures the variants. `complete` adds what a sweep does not need. `tabulate_seeds`
does the work of `tabulate` for many seeds at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from attn_exp import forms, registry
from attn_exp.config.schema import Config
from attn_exp.errors import OwnCodeError, UserError, shown
from attn_exp.experiment import checks, ladder, long_runs
from attn_exp.experiment.executing import (
    compute_trace,
    embed_positions,
    execute,
    find_type,
    merge_and_project,
    prepare_heads,
    round_inputs,
)
from attn_exp.experiment.long_runs import Progress
from attn_exp.experiment.measuring import make_row, make_rows, measure, measure_distance
from attn_exp.experiment.row import Comparison, Distance, Row
from attn_exp.experiment.variant import Bind, Settled, baseline, settle
from attn_exp.forms.trace import CannotStackError, Trace, stack_traces
from attn_exp.problem.problem import Pass, Problem, build, build_each, fill_in_from_model, stack_problems
from attn_exp.reference import oracle


def compare(config: Config, bind: Bind | None = None) -> Comparison:
    """Compute every variant of the configuration on its problem and compare them.

    `bind` imports the user's own functions that the command line names; without it, such names are refused.

    Raises:
        UserError: the settings do not fit the problem, or the problem is inconsistent.
    """
    check_names = checks.choose_checks(config)
    return complete(tabulate(config, bind=bind), check_names)


def complete(comparison: Comparison, check_names: Sequence[str]) -> Comparison:
    """Return a comparison with everything that only a single run has.

    This adds the distances between variants, the ladder steps that explain them, the findings of checks, and verdicts.
    """
    config, variants = comparison.config, comparison.variants
    steps, rungs = ladder.build_ladders(comparison)
    return replace(
        comparison,
        distances=tuple(measure_distances(variants, comparison.traces)),
        checks=checks.run_checks(check_names, config, comparison.problem, variants),
        verdicts={variant.name: variant.own.judge(variant.heads) for variant in variants if variant.own is not None},
        steps=steps,
        rungs=rungs,
    )


def tabulate(
    config: Config,
    progress: Progress | None = None,
    under_way: Pass | None = None,
    bind: Bind | None = None,
    dtype: str = "float64",
) -> Comparison:
    """Compute a row for every variant of the configuration, and compare the variants with printed results.

    This is all that a sweep needs; `complete` adds the rest. `under_way` is a forward pass of the run's model that the
    points of a sweep share. If `dtype` is coarser than float64, the inputs are first rounded to it. The expected
    outputs are then computed in float64 from the rounded inputs, for all queries.

    Raises:
        UserError: as for `compare`.
    """
    config, problem, variants = prepare(config, under_way, bind)
    if dtype != "float64":
        input_dtype = find_type(dtype)
        problem = round_inputs(problem, input_dtype)
        variants = tuple(replace(variant, given_in=input_dtype) for variant in variants)
    traces, seconds, variants = compute_all(variants, problem, config.weights, progress)
    refuse_if_none_runs(variants)
    runnable = [variant for variant in variants if not variant.refused]
    if dtype == "float64":
        expected = oracle.answer_all(
            {variant.name: variant.question for variant in runnable}, stack_problems([problem])
        )
    else:
        exact = round_inputs(problem, np.dtype(np.float64))
        expected = {variant.name: compute_exact_answer(variant, exact) for variant in runnable}
        traces = {  # converted to float64, so that measuring them causes no rounding
            name: trace.replace(**{stage: array.astype(np.float64) for stage, array in trace.stages()})
            for name, trace in traces.items()
        }
    rows = make_rows(config, problem, variants, traces, expected)
    published = (  # most runs have no printed results
        registry.module(__package__, "published").compare_with_document(config, problem, variants, traces)
        if config.published
        else ()
    )
    return Comparison(config, problem, variants, rows, (), traces, published, seconds=seconds)


def compute_exact_answer(variant: Settled, problem: Problem) -> oracle.Answer:
    """Return the answer that a variant would give without its mistakes, from a float64 problem."""
    trace = execute(replace(variant.exact, mistakes=()), problem)
    weights = np.empty(0) if trace.weights is None else trace.weights
    stacked_output = None if trace.output is None else trace.output[None]
    return oracle.Answer(tuple(range(len(problem.tokens))), weights[None], stacked_output)


def prepare(
    config: Config, under_way: Pass | None = None, bind: Bind | None = None
) -> tuple[Config, Problem, tuple[Settled, ...]]:
    """Return the settings of the run, the problem, and the settled variants.

    If settings come from a model, they are filled in.

    Raises:
        UserError: as for `compare`.
    """
    config = fill_in_from_model(config, under_way)
    if not config.variant:
        raise UserError("variant=[] leaves nothing to compare; choose at least one, such as variant=[matrix]")
    long_runs.refuse_too_large_inputs(config)
    problem = build(config)
    long_runs.refuse_too_large([long_runs.estimate_matrices(config, len(problem.tokens), problem.keys)])
    variants = tuple(settle(name, variant, config, problem, bind) for name, variant in config.variant.items())
    for variant in variants:
        if forms.is_own(variant.form) and variant.own is None:
            setting = f"variant.{variant.name}.form={variant.form}"
            raise UserError(
                f"{setting} is code, which runs only if the command line names it; type {setting} to run it"
            )
    refuse_if_none_runs(variants)
    if config.against not in (None, *config.variant):
        rows = ", ".join(config.variant)
        raise UserError(f"against={shown(config.against)}: there is no such row; choose one of {rows}")
    refused = next((variant.refused for variant in variants if variant.name == config.against), None)
    if refused:
        raise UserError(f"against={config.against} cannot be computed, so nothing can be compared with it: {refused}")
    return config, problem, variants


def refuse_if_none_runs(variants: Sequence[Settled]) -> None:
    if all(variant.refused for variant in variants):
        raise UserError("; ".join(f"{variant.name}: {variant.refused}" for variant in variants))


def compute_all(
    variants: Sequence[Settled], problem: Problem, weights: str, progress: Progress | None
) -> tuple[dict[str, Trace], dict[str, float], tuple[Settled, ...]]:
    """Compute every variant that is not refused; return the traces, the seconds for each, and the variants.

    If the user's own code returned no result, the field `failed` of its variant gives the reason.
    """
    traces = {variant.name: Trace() for variant in variants}
    seconds, failed = {}, dict[str, str]()
    for done, variant in enumerate(variants):
        problem = embed_positions(variant, problem)  # variants with the same positions share one projection of x
        tell = partial(progress.tell, variant.name, len(variants), done) if progress else None
        start = perf_counter()
        try:
            if not variant.refused:
                traces[variant.name] = compute_trace(variant, problem, weights, tell)
                seconds[variant.name] = perf_counter() - start
        except OwnCodeError as error:
            failed[variant.name] = str(error)
    if progress:
        progress.clear()
    return traces, seconds, tuple(replace(variant, failed=failed.get(variant.name, "")) for variant in variants)


def measure_distances(variants: Sequence[Settled], traces: Mapping[str, Trace]) -> Iterator[Distance]:
    stacks = [(variant, traces[variant.name].as_stack()) for variant in variants if not variant.refused]
    for (one, left), (other, right) in itertools.combinations(stacks, 2):
        columns = measure_distance(left, right, forms.coarser(one.computed_in, other.computed_in))
        yield Distance(one.name, other.name, **{column: values[0] for column, values in columns.items()})


# Compute all points of a sweep that differ only in their seed at once; their rows equal those of `tabulate`

MOST_ENTRIES, MOST_POINTS = 2**19, 256
"""Limits of a stack: the number of entries of its largest arrays (4 MiB each), and the number of points."""


class Rows(NamedTuple):
    """The rows of one variant, one for each of several seeds.

    `points`: the number of rows.
    `shared`: a row whose settings hold for all seeds; its measured columns are placeholders.
    `columns`: the measured columns by name, with one value per seed.
    """

    points: int
    shared: Row
    columns: Mapping[str, Sequence[Any]]


def tabulate_seeds(config: Config, seeds: Sequence[int]) -> list[list[Rows]]:
    """Return the rows of each variant, in batches of seeds; `config` is the configuration of the first seed.

    Every array gets a first axis for the seeds, so that a column is measured for all seeds at once. If `can_stack`
    allows it, a variant is also computed for all seeds at once, otherwise for one seed after another.

    Raises:
        CannotStackError: the points cannot be stacked; compute each of them separately.
        Exception: whatever `tabulate` raises for one of the points.
    """
    if config.dtype or config.published or config.model.family is not None:  # these need more than rows
        raise CannotStackError
    _, first_problem, variants = prepare(config)
    count = count_points_per_stack(first_problem, variants)
    if count < 2 or any(variant.computed_in != np.float64 for variant in variants):
        raise CannotStackError
    batches = (seeds[start : start + count] for start in range(0, len(seeds), count))
    return [tabulate_stack(config, first_problem, variants, batch) for batch in batches]


def count_points_per_stack(problem: Problem, variants: Sequence[Settled]) -> int:
    """Return how many points a stack may have; fewer than 2 if the arrays are so large that stacking saves no time."""
    width = max((side.shape[1] for side in (problem.q, problem.k, problem.v) if side is not None), default=1)
    pairs = len(problem.tokens) * problem.keys
    largest = max(pairs * max(width, *(5 * variant.head for variant in variants)), problem.keys * width * width)
    return min(MOST_POINTS, MOST_ENTRIES // largest)


def tabulate_stack(
    config: Config, first_problem: Problem, variants: Sequence[Settled], seeds: Sequence[int]
) -> list[Rows]:
    problems = build_each(config, seeds)
    problem = stack_problems(problems)
    runnable = [variant for variant in variants if not variant.refused]
    traces = {
        variant.name: trace_stack(variant, problem)
        if can_stack(variant, problem, config.weights)
        else stack_traces([compute_trace(variant, single, config.weights) for single in problems])
        for variant in runnable
    }
    expected = oracle.answer_all({variant.name: variant.question for variant in runnable}, problem)
    numbers = measure(runnable, traces, expected, baseline(config, runnable).name)
    return [
        Rows(
            points=len(seeds),
            shared=make_row(variant, config, first_problem, traces.get(variant.name, Trace()), {}),
            columns=numbers.get(variant.name, {}),
        )
        for variant in variants
    ]


def can_stack(variant: Settled, problem: Problem, weights: str) -> bool:
    has_inputs = problem.weights is None and problem.q is not None and problem.v is not None
    # a position rule from a plugin may be able to encode only one problem
    is_plain = variant.empty == "zeros" and variant.rules.plain and not (variant.mistakes or variant.positions)
    member = variant.member
    keeps_all = weights != "blocks" and member.keeping(weights) is member.attend
    return has_inputs and is_plain and not variant.tiled and keeps_all and member.stacked is not None


def trace_stack(variant: Settled, problem: Problem) -> Trace:
    assert variant.member.stacked is not None
    stages = variant.member.stacked(*(side[:, None] for side in prepare_heads(variant, problem)), variant.rules)  # type: ignore[index] # it has all three
    trace = Trace().replace(**{name: array[:, 0] for name, array in stages.stages()})
    assert trace.context is not None
    return trace.replace(output=merge_and_project(trace.context, variant, problem))
