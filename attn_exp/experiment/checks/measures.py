"""Measure, for every variant, the metrics that `metrics=` names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from attn_exp.config.schema import Config
from attn_exp.errors import count_of
from attn_exp.experiment import metrics
from attn_exp.experiment.checks.check import Check
from attn_exp.experiment.executing import execute, round_inputs
from attn_exp.experiment.metrics.metric import NotFormedError, Subject
from attn_exp.experiment.variant import Settled, baseline
from attn_exp.problem.problem import Problem


@dataclass(frozen=True)
class Record:
    """One metric of one variant. If the metric is undefined, `value` is NaN, and `note` may give the reason."""

    variant: str
    metric: str
    value: float
    unit: str
    note: str


def examine(config: Config, problem: Problem, variants: Sequence[Settled]) -> Iterator[Record]:
    """Yield the chosen metrics of every variant; `check=measures` without `metrics=` computes all metrics."""
    chosen = metrics.choose_metrics(config.metrics or ("all",))
    exact_problem = round_inputs(problem, np.dtype(np.longdouble))
    baseline_trace = execute(baseline(config, variants), problem)
    for settled in variants:
        trace, exact = execute(settled, problem), execute(settled.exact, exact_problem)
        subject = Subject(settled, trace, baseline_trace, exact, problem.memory is not None, problem.key_tokens)
        for metric in chosen:
            try:
                yield Record(settled.name, metric.name, float(metric.measure(subject)), metric.unit, "")
            except NotFormedError as error:
                yield Record(settled.name, metric.name, float("nan"), metric.unit, str(error))


def sentence(records: Sequence[Record]) -> str:
    count = count_of(len({record.metric for record in records}), "metric")
    absent = [
        f"no {', '.join(dict.fromkeys(record.metric for record in records if record.note == note))}: {note}"
        for note in dict.fromkeys(record.note for record in records if record.note)
    ]
    return f"{'; '.join([count, *absent])}."


CHECK = Check(
    record=Record,
    columns=("variant", "metric", "value", "unit"),
    examine=examine,
    sentence=sentence,
)
