"""How much the first key takes."""

from __future__ import annotations

from functools import partial

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.metric import Metric, weights


def sink(weights: Array, key: int = 0) -> Array:
    """Return, per head, the mean weight that queries from `key` on give to it: `1 / (T - k) sum_(i >= k) w_ik`.

    Source: Gu et al. 2024, "When Attention Sink Emerges in Language Models", section 3.1.
    """
    return np.asarray(weights[:, key:, key].mean(axis=-1))


def sink_rate(weights: Array, threshold: float = 0.3) -> float:
    """Return the share of heads whose first key is a sink: `sink > threshold`. Source: as `sink`, with its 0.3."""
    return float((sink(weights) > threshold).mean())


metric = partial(Metric, place=4)

METRICS = (
    metric(
        "sink",
        lambda subject: sink(weights(subject)).mean(),
        meaning="the mean weight of the first key",
        unit="weight of key 1",
        source='Gu et al. 2024, "When Attention Sink Emerges in Language Models", section 3.1',
    ),
    metric(
        "sink_rate",
        lambda subject: sink_rate(weights(subject)),
        meaning="heads whose first key takes over 0.3",
        unit="of heads",
        source="Gu et al. 2024, section 3.1",
    ),
)
