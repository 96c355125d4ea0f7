"""The comparison of a run: every variant on one problem, each held to the reference and to each other."""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attn_exp import forms
from attn_exp.config.schema import Config
from attn_exp.errors import UserError
from attn_exp.experiment import checks, memory
from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.documents.published import Agreement, hold
from attn_exp.experiment.metrics import metrics
from attn_exp.experiment.progress import Progress
from attn_exp.experiment.row import Distance, Row
from attn_exp.experiment.sameness import answer, letters, sameness
from attn_exp.experiment.variant import Settled, keep, settle
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem, build
from attn_exp.reference import oracle

Array = NDArray[Any]


class Tabulated(NamedTuple):
    """The rows of a run and what they were made from: what a sweep needs of a comparison."""

    problem: Problem
    variants: tuple[Settled, ...]
    traces: Mapping[str, Trace]
    rows: tuple[Row, ...]
    published: tuple[Agreement, ...]
    seconds: Mapping[str, float]


def compare(config: Config) -> Comparison:
    """Compute every variant of the configuration on its problem and compare them.

    Raises:
        UserError: settings that do not fit the problem, or a problem that does not fit itself.
    """
    checks.wanted(config)
    return compared(config, tabulate(config))


def compared(config: Config, found: Tabulated) -> Comparison:
    """Compare the variants that were computed, and run the checks that the configuration asks for."""
    problem, variants, traces, rows, published, _ = found
    computed = {each.name: traces[each.name] for each in variants if not each.refused}
    distances = tuple(every_distance(computed, kinds(variants)))
    return Comparison(
        config, problem, variants, rows, distances, traces, published, checks.run(config, problem, variants)
    )


def tabulate(config: Config, progress: Progress | None = None) -> Tabulated:
    """Compute every variant of the configuration on its problem, a row of each, and hold them to printed figures.

    Raises:
        UserError: as `compare`.
    """
    if not config.variant:
        raise UserError("variant=[] compares nothing; choose at least one, such as variant=[matrix]")
    memory.check_drawn(config)
    problem = build(config)
    memory.check(config, len(problem.tokens), problem.keys)
    variants = tuple(settle(name, each, config, problem) for name, each in config.variant.items())
    traces, seconds = clocked(variants, problem, config.weights, progress)
    computed = {each.name: traces[each.name] for each in variants if not each.refused}
    if not computed:
        raise UserError("; ".join(f"{each.name}: {each.refused}" for each in variants))
    classes, expected = letters(computed, kinds(variants)), answers(variants, problem)
    first = next(each for each in variants if not each.refused)
    rows = tuple(
        row(each, config, problem, first, computed, expected.get(each.name), classes.get(each.name, ""))
        for each in variants
    )
    return Tabulated(problem, variants, traces, rows, hold(config, problem, variants, traces), seconds)


def clocked(
    variants: Sequence[Settled], problem: Problem, weights: str, progress: Progress | None
) -> tuple[dict[str, Trace], dict[str, float]]:
    """Compute every variant that its form does not refuse; return the traces, and the seconds that each took."""
    traces = {each.name: Trace() for each in variants}
    seconds = {}
    for each in variants:
        if progress:
            progress.begin(each.name)
        start = perf_counter()
        if not each.refused:
            traces[each.name] = keep(each, problem, weights, progress.tell if progress else None)
            seconds[each.name] = perf_counter() - start
        if progress:
            progress.end()
    return traces, seconds


def kinds(variants: Sequence[Settled]) -> dict[str, Any]:
    """Return the type that each variant computes in."""
    return {each.name: each.computed_in for each in variants}


def answers(variants: Sequence[Settled], problem: Problem) -> dict[str, oracle.Answer]:
    """Ask the reference for each variant, and once for all that put the very same question in different forms."""
    known: dict[bytes, oracle.Answer] = {}
    found = {}
    for each in variants:
        if not each.refused:
            key = pickle.dumps(each.question)
            found[each.name] = known[key] = known.get(key) or oracle.ask(each.question, problem)
    return found


def row(
    settled: Settled,
    config: Config,
    problem: Problem,
    first: Settled,
    computed: Mapping[str, Trace],
    expected: oracle.Answer | None,
    letter: str,
) -> Row:
    """Return the row of one variant; nothing is expected of one that the form refuses."""
    trace = computed.get(settled.name, Trace())
    return Row(
        variant=settled.name,
        form=settled.form,
        head=settled.head,
        scale=settled.scale,
        multiplier=settled.multiplier,
        bias=config.bias,
        output_projection=settled.output_projection,
        mistake=settled.mistake,
        same_as=letter,
        **(unmeasured() if expected is None else measured(settled, first, computed, expected)),
        flops=metrics.flops(len(problem.tokens), problem.keys, settled.head, size(trace.q), size(trace.v)),
        kv_head=settled.heads.shared,
        mask=settled.words["mask"],
        score=settled.words["score"],
        position=settled.words["position"],
        normalizer=settled.rules.normalizer,
        convention=settled.words["convention"],
        note=settled.refused or "",
        computed_in=settled.computed_in.name,
    )


def unmeasured() -> dict[str, Any]:
    """Return the numbers of a variant that was not computed."""
    names = "error", "error_ulp", "shift", "cosine", "entropy", "effective_keys", "largest_weight", "row_sum_error"
    return {"checked": 0, "sameness": "", "parts_at": ""} | dict.fromkeys(names, math.nan)


def measured(
    settled: Settled, leader: Settled, computed: Mapping[str, Trace], expected: oracle.Answer
) -> dict[str, Any]:
    """Return how right a variant is, how far from the first row, and what its weights look like."""
    trace = computed[settled.name]
    mine, first = answer(trace), answer(computed[leader.name])
    apart = sameness(computed[leader.name], trace, forms.coarser(settled.computed_in, leader.computed_in))
    checked = mine[list(expected.rows)] if expected.output is not None else mine[:, list(expected.rows)]
    truth = expected.weights if expected.output is None else expected.output
    return {
        "error": metrics.largest_error(checked, truth),
        "error_ulp": metrics.error_in_ulp(checked, truth, settled.computed_in),
        "checked": len(expected.rows),
        "shift": difference(mine, first),
        "cosine": metrics.cosine(mine, first) if mine.shape == first.shape else math.nan,
        "sameness": apart.word,
        "parts_at": apart.parts_at,
        **spread(trace),
    }


def spread(trace: Trace) -> dict[str, float]:
    """Return how the weights are spread over the keys, as means over heads and queries; NaN where nothing tells."""
    if trace.weights is not None:
        weights, sums = trace.weights, metrics.row_sum_error(trace.weights)
        rows = metrics.entropy(weights), metrics.effective_keys(weights), metrics.largest_weight(weights)
    elif trace.summary is not None:
        rows, sums = (trace.summary.entropy, trace.summary.effective_keys, trace.summary.largest_weight), math.nan
    else:
        rows, sums = (np.full(1, math.nan),) * 3, math.nan
    names = ("entropy", "effective_keys", "largest_weight")
    return {**{name: float(each.mean()) for name, each in zip(names, rows, strict=True)}, "row_sum_error": sums}


def size(heads: Array | None) -> int:
    return 0 if heads is None else heads.shape[-1]


def difference(left: Array, right: Array) -> float:
    """Return the largest absolute difference; NaN where the shapes differ and there is none."""
    return metrics.largest_error(left, right) if left.shape == right.shape else float("nan")


def every_distance(computed: Mapping[str, Trace], kinds: Mapping[str, Any]) -> Iterator[Distance]:
    """Yield the distance of every pair of variants, each pair once, in order; `kinds` are the types they compute in."""
    for (name, trace), (other, second) in itertools.combinations(computed.items(), 2):
        kind = forms.coarser(kinds[name], kinds[other])
        left, right = answer(trace), answer(second)
        cosine = metrics.cosine(left, right) if left.shape == right.shape else math.nan
        yield Distance(name, other, difference(left, right), cosine, *sameness(trace, second, kind))
