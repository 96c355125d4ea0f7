"""How large logits are, and how large they were bound to be."""

from __future__ import annotations

from functools import partial

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.metric import Metric, NotFormedError, Subject, stage


def finite_logits(subject: Subject) -> Array:
    """Return the logits that no mask has hidden.

    Raises:
        NotFormedError: the masks hide all.
    """
    masked = stage(subject.trace, "masked")
    finite = masked[np.isfinite(masked)]
    if not finite.size:
        raise NotFormedError
    return finite


def expected_variance(q: Array, k: Array) -> float:
    """Return `d mean(q^2) mean(k^2)`: the variance of `q . k` if all their numbers were independent with mean zero.

    `q` `[h t d]`, `k` `[g s d]`. It grows with d, which dividing the logits by sqrt(d) undoes. Source: Vaswani et al.
    2017, "Attention Is All You Need", section 3.2.1, footnote 4.
    """
    return float(q.shape[-1] * np.mean(q**2) * np.mean(k**2))


metric = partial(Metric, place=9)

METRICS = (
    metric(
        "logit_min",
        lambda subject: finite_logits(subject).min(),
        meaning="the least logit that no mask hides",
    ),
    metric(
        "logit_max",
        lambda subject: finite_logits(subject).max(),
        meaning="the largest logit",
    ),
    metric(
        "logit_std",
        lambda subject: finite_logits(subject).std(),
        meaning="their standard deviation",
    ),
    metric(
        "score_variance",
        lambda subject: stage(subject.trace, "scores").var(),
        meaning="the variance of the scores, before scaling",
    ),
    metric(
        "expected_variance",
        lambda subject: expected_variance(stage(subject.trace, "q"), stage(subject.trace, "k")),
        meaning="the variance that the scores would have were all numbers independent",
        source="Vaswani et al. 2017, section 3.2.1, footnote 4",
    ),
)
