"""What a query may not see must not reach its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from attn_exp import forms
from attn_exp.arrays import Array
from attn_exp.experiment.checks._invariants.case import Answer, Case
from attn_exp.rules.masks.mask import AllOf

MOST_POISONED = 16
"""Of more hidden keys than this, evenly spaced ones are tried, each in a computation of its own."""


def future(case: Case) -> Answer:
    """What comes after a query cannot change its output."""
    allowed = case.allowed()
    rows, keys = allowed.shape[1:]
    later = np.arange(keys) > np.arange(rows)[:, None] + int(case.rules.offset)
    if (allowed & later).any():
        return "no mask hides the future"
    cut = rows // 2
    stop = max(cut + int(case.rules.offset) + 1, 0)
    changed = replace(case, k=after(case.k, stop, 3.0), v=after(case.v, stop, 3.0))
    return changed.compute()[:, : cut + 1], case.compute()[:, : cut + 1]


def poison(held: float) -> Callable[[Case], Answer]:
    """Return the attempt in which keys and values that a query may not see hold this number."""

    def attempt(case: Case) -> Answer:
        allowed = case.allowed()
        hidden = np.flatnonzero(~allowed.all(axis=(0, 1)))
        if not len(hidden):
            return "every query sees every key"
        clean, poisoned, expected = case.compute(), [], []
        for key in hidden[np.linspace(0, len(hidden) - 1, min(len(hidden), MOST_POISONED)).astype(int)]:
            k, v = case.k.copy(), case.v.copy()
            k[:, key], v[:, key] = held, held
            blind = ~allowed[:, :, key]
            poisoned.append(replace(case, k=k, v=v).compute()[blind])
            expected.append(clean[blind])
        return np.concatenate(poisoned), np.concatenate(expected)

    return attempt


def decoding(case: Case) -> Answer:
    """All queries at once give what they give one by one, each with the keys up to its own.

    A query that has no key yet is left out: decoding starts with a key.
    """
    if refusal := forms.refuses("decode", case.rules):
        return refusal if case.settled.form != "decode" else "the form decodes already"
    rows, keys, offset = case.q.shape[1], case.k.shape[1], int(case.rules.offset)
    if any(rule.misfit(len(case.q), 1, keys - 1) for rule in (*case.rules.masks, *case.rules.scores)):
        return "a rule has numbers for the whole problem"
    if rows != keys and offset not in (keys - rows, AllOf(case.rules.masks).unpadded(keys) - rows):
        return "the last query does not stand beside the last key, as in decoding"
    steps, first = [], max(-offset, 0)
    if first >= rows:
        return "no query has a key"
    for row in range(first, rows):
        stop = min(keys, row + offset + 1)
        rules = replace(case.rules, offset=row + offset)
        step = replace(case, q=case.q[:, row : row + 1], k=case.k[:, :stop], v=case.v[:, :stop], rules=rules)
        steps.append(step.compute())
    return np.concatenate(steps, axis=1), case.compute()[:, first:]


def after(array: Array, start: int, number: float) -> Array:
    """Return the array with another number in every token from `start` on."""
    changed = array.copy()
    changed[:, start:] = number
    return changed
