"""The comparison of a run: every variant on one problem, each held to the reference and to each other."""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from attn_exp import metrics, oracle
from attn_exp.config import Config, UserError
from attn_exp.problem import Problem, build
from attn_exp.published import Agreement, hold
from attn_exp.stages import Trace
from attn_exp.variant import Settled, execute, settle

Array = NDArray[Any]

SAME_FUNCTION = 256
"""Two answers this many units in the last place of their largest number apart still count as one function."""


@dataclass(frozen=True)
class Row:
    """One variant in plain numbers.

    `error` and `error_ulp` are against its own reference, over `checked` queries; `shift` and `cosine` against the
    first row; `entropy` in nats, `effective_keys` and `largest_weight` are means over heads and queries. Where the form
    refuses the rules, `note` says why, `same_as` is empty and the numbers are NaN; so are those of stages never formed.
    """

    variant: str
    form: str
    head: int
    scale: bool | float
    multiplier: float
    bias: bool
    output_projection: bool
    mistake: str
    same_as: str
    error: float
    error_ulp: float
    checked: int
    shift: float
    cosine: float
    entropy: float
    effective_keys: float
    largest_weight: float
    row_sum_error: float
    flops: int
    kv_head: int = 0
    mask: str = "none"
    score: str = "none"
    position: str = "none"
    normalizer: str = "softmax"
    note: str = ""


@dataclass(frozen=True)
class Distance:
    """How far two variants' answers are apart: the largest absolute difference, and the cosine."""

    variant: str
    other: str
    difference: float
    cosine: float


@dataclass(frozen=True)
class Comparison:
    """All that one run found: plain data that renderers read and never compute."""

    config: Config
    problem: Problem
    variants: tuple[Settled, ...]
    rows: tuple[Row, ...]
    distances: tuple[Distance, ...]
    traces: Mapping[str, Trace]
    published: tuple[Agreement, ...]


def compare(config: Config) -> Comparison:
    """Compute every variant of the configuration on its problem and compare them.

    Raises:
        UserError: settings that do not fit the problem, or a problem that does not fit itself.
    """
    if not config.variant:
        raise UserError("variant=[] compares nothing; choose at least one, such as variant=[matrix]")
    problem = build(config)
    variants = tuple(settle(name, each, config, problem) for name, each in config.variant.items())
    traces = {each.name: Trace() if each.refused else execute(each, problem) for each in variants}
    answers = {each.name: answer(traces[each.name]) for each in variants if not each.refused}
    if not answers:
        raise UserError("; ".join(f"{each.name}: {each.refused}" for each in variants))
    distances = tuple(every_distance(answers))
    letters = same_as(answers)
    rows = tuple(
        row(each, problem, config, traces[each.name], answers, letters.get(each.name, "")) for each in variants
    )
    return Comparison(config, problem, variants, rows, distances, traces, hold(config, problem, variants, traces))


def answer(trace: Trace) -> Array:
    """Return what a trace ends in: the output, or the weights where the problem has no values."""
    last = trace.weights if trace.output is None else trace.output
    assert last is not None
    return last


def row(
    settled: Settled,
    problem: Problem,
    config: Config,
    trace: Trace,
    answers: Mapping[str, Array],
    letter: str,
) -> Row:
    """Return the row of one variant."""
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
        **(unmeasured() if settled.refused else measured(settled, problem, trace, answers)),
        flops=metrics.flops(len(problem.tokens), problem.keys, settled.head, size(trace.q), size(trace.v)),
        kv_head=settled.heads.shared,
        mask=settled.words["mask"],
        score=settled.words["score"],
        position=settled.words["position"],
        normalizer=settled.rules.normalizer,
        note=settled.refused or "",
    )


def unmeasured() -> dict[str, Any]:
    """Return the numbers of a variant that was not computed."""
    names = "error", "error_ulp", "shift", "cosine", "entropy", "effective_keys", "largest_weight", "row_sum_error"
    return {"checked": 0} | dict.fromkeys(names, math.nan)


def measured(settled: Settled, problem: Problem, trace: Trace, answers: Mapping[str, Array]) -> dict[str, Any]:
    """Return how right a variant is, how far from the first row, and what its weights look like."""
    expected = oracle.ask(settled, problem)
    mine, first = answers[settled.name], next(iter(answers.values()))
    checked = mine[list(expected.rows)] if expected.output is not None else mine[:, list(expected.rows)]
    truth = expected.weights if expected.output is None else expected.output
    return {
        "error": metrics.largest_error(checked, truth),
        "error_ulp": metrics.error_in_ulp(checked, truth),
        "checked": len(expected.rows),
        "shift": difference(mine, first),
        "cosine": metrics.cosine(mine, first) if mine.shape == first.shape else math.nan,
        **spread(trace.weights),
    }


def spread(weights: Array | None) -> dict[str, float]:
    """Return how the weights are spread over the keys, as means over heads and queries; NaN where there are none."""
    if weights is None:
        return dict.fromkeys(("entropy", "effective_keys", "largest_weight", "row_sum_error"), math.nan)
    return {
        "entropy": float(metrics.entropy(weights).mean()),
        "effective_keys": float(metrics.effective_keys(weights).mean()),
        "largest_weight": float(metrics.largest_weight(weights).mean()),
        "row_sum_error": metrics.row_sum_error(weights),
    }


def size(heads: Array | None) -> int:
    return 0 if heads is None else heads.shape[-1]


def difference(left: Array, right: Array) -> float:
    """Return the largest absolute difference; NaN where the shapes differ and there is none."""
    return metrics.largest_error(left, right) if left.shape == right.shape else float("nan")


def every_distance(answers: Mapping[str, Array]) -> Iterator[Distance]:
    """Yield the distance of every pair of variants, each pair once, in order."""
    names = list(answers)
    for place, name in enumerate(names):
        for other in names[place + 1 :]:
            left, right = answers[name], answers[other]
            same_shape = left.shape == right.shape
            cosine = metrics.cosine(left, right) if same_shape else float("nan")
            yield Distance(name, other, difference(left, right), cosine)


def same_as(answers: Mapping[str, Array]) -> dict[str, str]:
    """Give the variants that compute the same function, to rounding, the same letter."""
    leaders: list[str] = []
    letters = {}
    for name, mine in answers.items():
        leader = next((each for each in leaders if same_function(mine, answers[each])), name)
        if leader == name:
            leaders.append(name)
        letters[name] = letter(leaders.index(leader))
    return letters


def same_function(left: Array, right: Array) -> bool:
    """Say whether two answers differ by no more than rounding."""
    return left.shape == right.shape and metrics.error_in_ulp(left, right) <= SAME_FUNCTION


def letter(place: int) -> str:
    """Return A, B, ... Z, AA, AB, ..."""
    alphabet = string.ascii_uppercase
    return (letter(place // 26 - 1) if place >= 26 else "") + alphabet[place % 26]
