"""How much heads differ."""

from __future__ import annotations

from functools import partial

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.first_row import js
from attn_exp.experiment.metrics.metric import Metric
from attn_exp.experiment.metrics.spread import shares


def head_divergence(weights: Array) -> float:
    """Return the mean Jensen-Shannon divergence between every two heads: 0 where all heads do the same.

    Source: Clark et al. 2019, "What Does BERT Look At?", section 6; NaN for a single head.
    """
    pairs = [(one, other) for place, one in enumerate(weights) for other in weights[place + 1 :]]
    return float(np.mean([js(*pair).mean() for pair in pairs])) if pairs else float("nan")


metric = partial(Metric, place=7)

METRICS = (
    metric(
        "head_divergence",
        lambda subject: head_divergence(shares(subject)),
        meaning="Jensen-Shannon divergence between two heads: 0 where all do the same",
        unit="nats",
        source="Clark et al. 2019, section 6",
    ),
)
