"""Points that differ only in their seed, computed at once: the same rows as `compare.tabulate` for each.

Every array gets a leading axis for the seeds. A variant whose form can be `stacked`, under plain rules, is computed
once for all seeds, any other one seed after the other; either way its rows are measured by columns. Points that cannot
be stacked raise `ApartError`, and an error in one point is raised as it is: then each is to be computed alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from attn_exp import forms
from attn_exp.config.schema import Config
from attn_exp.experiment.compare import prepared
from attn_exp.experiment.executing import joined, keep, placed
from attn_exp.experiment.measuring import describe, measure
from attn_exp.experiment.row import Row
from attn_exp.experiment.settling import check_range
from attn_exp.experiment.variant import Settled, baseline
from attn_exp.forms.trace import ApartError, Trace, pile, pile_traces
from attn_exp.problem.problem import Problem, extreme, one, stacked
from attn_exp.reference.oracle import answers

MOST_NUMBERS, MOST_POINTS = 2**19, 256
"""Limits of a stack: entries of its largest arrays, 4 MiB each, and points."""


class Rows(NamedTuple):
    """The rows of one variant: how many, a row without numbers that all share, and the columns that differ."""

    points: int
    shared: Row
    columns: Mapping[str, Sequence[Any]]


def tabulated(config: Config, seeds: Sequence[int]) -> list[list[Rows]]:
    """Return the rows of each variant, in batches of seeds; `config` is that of the first seed.

    Raises:
        ApartError: the points cannot be stacked.
        Exception: what `tabulate` raises for one of them.
    """
    own = any(forms.is_own(variant.form) for variant in config.variant.values())
    if own or config.dtype or config.published or config.model.family is not None:  # these need more than rows
        raise ApartError
    _, first, variants = prepared(config)
    count = most_points(first, variants)
    if count < 2 or any(variant.computed_in != np.float64 for variant in variants):
        raise ApartError
    return [stack(config, first, variants, seeds[start : start + count]) for start in range(0, len(seeds), count)]


def most_points(problem: Problem, variants: Sequence[Settled]) -> int:
    """Return how many points a stack may hold; below two if the arrays are so large that stacking saves nothing."""
    width = max((side.shape[1] for side in (problem.q, problem.k, problem.v) if side is not None), default=1)
    pairs = len(problem.tokens) * problem.keys
    largest = max(pairs * max(width, *(5 * variant.head for variant in variants)), problem.keys * width * width)
    return min(MOST_POINTS, MOST_NUMBERS // largest)


def stack(config: Config, first: Problem, variants: Sequence[Settled], seeds: Sequence[int]) -> list[Rows]:
    problem = stacked(config, seeds)
    limits = extreme(problem)
    for variant in variants:
        check_range(variant.rules, limits, variant.words["convention"])
    chosen = [variant for variant in variants if not variant.refused]
    traces = {variant.name: trace_all(variant, problem, config, len(seeds)) for variant in chosen}
    problems = [one(problem, place) for place in range(len(seeds))]
    expected = answers({variant.name: variant.question for variant in chosen}, problems)
    numbers = measure(chosen, traces, expected, baseline(config, chosen).name)
    rows = {variant.name: describe(variant, config, first, traces.get(variant.name, Trace())) for variant in variants}
    return [Rows(len(seeds), row, numbers.get(name, {})) for name, row in rows.items()]


def trace_all(variant: Settled, problem: Problem, config: Config, count: int) -> Trace:
    if can_stack(variant, problem, config.weights):
        return trace_stacked(variant, problem, count)
    return pile_traces([keep(variant, one(problem, place), config.weights) for place in range(count)])


def can_stack(variant: Settled, problem: Problem, weights: str) -> bool:
    is_whole = problem.weights is None and problem.q is not None and problem.v is not None
    is_plain = variant.empty == "zeros" and not variant.mistakes and variant.rules.plain
    member = variant.member
    keeps_all = weights != "blocks" and member.keeping(weights) is member.attend
    return is_whole and is_plain and keeps_all and member.stacked is not None


def trace_stacked(variant: Settled, problem: Problem, count: int) -> Trace:
    attend = variant.member.stacked
    assert attend is not None
    if variant.positions or variant.tiled:  # a rule from a plugin may encode one problem only
        one_by_one = [placed(variant, one(problem, place)) for place in range(count)]
        sides = [pile(arrays) for arrays in zip(*one_by_one, strict=True)]
    else:
        sides = list(placed(variant, problem))
    stages = attend(*(side[:, None] for side in sides), variant.rules)
    trace = Trace().replace(**{name: array[:, 0] for name, array in stages.stages()})
    assert trace.context is not None
    return trace.replace(output=joined(trace.context, variant, problem))
