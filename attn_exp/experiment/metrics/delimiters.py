"""How much goes to tokens that part sentences and say nothing themselves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.metric import Metric, NotFormedError, mean, weights

DELIMITERS = frozenset((".", ",", ";", ":", "!", "?", "[SEP]", "</s>", "<|endoftext|>", "<|end_of_text|>"))
"""Punctuation, and the marks that models put between texts; `_` before one is a space."""


def on_delimiters(weights: Array, tokens: Sequence[str]) -> Array:
    """Return, per head, the mean weight that queries give to keys that are delimiters.

    Source: Clark et al. 2019, "What Does BERT Look At?", section 3.2, of [SEP], full stops and commas.

    Raises:
        NotFormedError: no key is one.
    """
    chosen = np.array([token.removeprefix("_") in DELIMITERS for token in tokens])
    if not chosen.any():
        raise NotFormedError
    return np.asarray(weights[:, :, chosen].sum(axis=-1).mean(axis=-1))


METRICS = (
    partial(Metric, place=6)(
        "on_delimiters",
        lambda subject: mean(on_delimiters(weights(subject), subject.key_tokens)),
        meaning="the mean weight on full stops, commas and marks such as [SEP]",
        source='Clark et al. 2019, "What Does BERT Look At?", section 3.2',
    ),
)
