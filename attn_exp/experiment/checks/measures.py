"""The metrics that `metrics=` asks for, of every variant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from attn_exp.config.schema import Config
from attn_exp.experiment import metrics
from attn_exp.experiment.checks.check import Check
from attn_exp.experiment.checks.precision import as_exact
from attn_exp.experiment.executing import execute
from attn_exp.experiment.metrics.metric import Metric, NotFormedError, Subject
from attn_exp.experiment.number_types import rounded
from attn_exp.experiment.variant import Settled
from attn_exp.problem.problem import Problem


@dataclass(frozen=True)
class Record:
    """One metric of one variant: NaN where the variant lacks the stage that it measures."""

    variant: str
    metric: str
    value: float
    unit: str


def examine(config: Config, problem: Problem, variants: Sequence[Settled]) -> Iterator[Record]:
    """Measure every variant; `check=measures` alone takes every metric."""
    chosen = metrics.chosen(config.metrics or ("all",))
    exact_problem = rounded(problem, np.dtype(np.longdouble))
    first = execute(variants[0], problem)
    for settled in variants:
        subject = Subject(settled, execute(settled, problem), first, execute(as_exact(settled), exact_problem))
        for metric in chosen:
            yield Record(settled.name, metric.name, value(metric, subject), metric.unit)


def value(metric: Metric, subject: Subject) -> float:
    """Return what a metric says, or NaN where the variant lacks the stage."""
    try:
        return float(metric.measure(subject))
    except NotFormedError:
        return float("nan")


def sentence(records: Sequence[Record]) -> str:
    """Say how many metrics are shown."""
    count = len({record.metric for record in records})
    return f"{count} metric{'s' if count != 1 else ''}; what each means: attn_exp/experiment/metrics/."


CHECK = Check(
    record=Record,
    columns={"variant": "variant", "metric": "metric", "value": "value", "unit": "unit"},
    examine=examine,
    sentence=sentence,
)
