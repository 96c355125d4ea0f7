"""Whether weights share out 1 among the keys: only then have they an entropy."""

from __future__ import annotations

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms.trace import Trace
from attn_exp.rules.rules import Rules

PRINTED = 0.02
"""How far from 1 a row may be whose weights a document prints with two digits."""


def share_out(trace: Trace, rules: Rules) -> bool:
    """Say whether each row of weights shares out 1, by the rules that made it and, where it is there, by its sum."""
    ruled = shares_by_rule(rules)
    if trace.weights is None or not ruled:
        return ruled and not rules.normalizer.signed
    return bool((trace.weights >= 0).all()) and sum_to_one(trace.weights)


def shares_by_rule(rules: Rules) -> bool:
    """Say whether the rules let rows of weights sum to 1."""
    return rules.normalizer.sums_to_one and all(rule.extra(0) is None for rule in rules.scores)


def sum_to_one(weights: Array) -> bool:
    """Say whether every row that attends to anything sums to 1, as far as documents print it."""
    sums = weights.sum(axis=-1)
    return bool((np.abs(sums - 1)[sums != 0] <= PRINTED).all())
