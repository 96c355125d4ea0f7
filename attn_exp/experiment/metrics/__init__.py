"""Metrics: single numbers that describe the error of an output or the distribution of the weights.

Each file defines one family of metrics in `METRICS`, a tuple of `Metric`. `metrics=name` selects a metric by its name.
"""

from __future__ import annotations

from collections.abc import Sequence

from attn_exp import registry
from attn_exp.errors import UserError, unknown
from attn_exp.experiment.metrics.metric import Metric

FAMILIES = registry.names(__path__, without=("metric",))


def all_metrics() -> dict[str, Metric]:
    """Return all metrics by name, in the order of the tables."""
    metrics = [metric for family in FAMILIES for metric in registry.module(__name__, family).METRICS]
    metrics += registry.available_members(__name__).values()
    return {metric.name: metric for metric in sorted(metrics, key=lambda metric: metric.place)}


def choose_metrics(names: Sequence[str]) -> tuple[Metric, ...]:
    metrics = all_metrics()
    for name in names:
        if name not in ("all", *metrics):
            raise UserError(unknown(name, ("all", *metrics), "metrics"))
    return tuple(metrics.values()) if "all" in names else tuple(metrics[name] for name in dict.fromkeys(names))
