"""How much goes to what followed an earlier occurrence of the query's own token."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.metric import Metric, NotFormedError, mean, one_sequence


def induction(weights: Array, tokens: Sequence[str]) -> Array:
    """Return, per head, the mean weight that a query gives to the keys right after its token's earlier occurrences.

    `mean_i sum_j w_ij [token_(j-1) = token_i, j < i]`, over queries whose token came before: in `a b c a`, the last
    looks at b. Source: Olsson et al. 2022, "In-context Learning and Induction Heads", on repeated sequences.

    Raises:
        NotFormedError: queries are not the keys, or no token comes twice with another between.
    """
    if weights.shape[1:] != (len(tokens), len(tokens)):
        raise NotFormedError
    names = np.array(tokens)
    follows = np.zeros((len(names), len(names)), bool)
    follows[:, 1:] = names[:, None] == names[None, :-1]
    follows = np.tril(follows, -1)
    some = follows.any(axis=-1)
    if not some.any():
        raise NotFormedError
    return np.asarray((weights * follows).sum(axis=-1)[:, some].mean(axis=-1))


METRICS = (
    partial(Metric, place=6)(
        "induction",
        lambda subject: mean(induction(one_sequence(subject), subject.key_tokens)),
        meaning="the mean weight on what followed the query's token before, where it came before",
        source='Olsson et al. 2022, "In-context Learning and Induction Heads"',
    ),
)
