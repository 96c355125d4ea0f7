"""The contract of a metric, and the arrays that metrics measure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array, widen
from attn_exp.experiment.executing import get_answer
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.rules.rules import allowed_entries, queries_with_keys


class Metric(NamedTuple):
    """A number that describes a variant; `metrics=name` selects it.

    `measure(subject)`: computes the number; raises `NotFormedError` if the metric is undefined for the variant.
    `unit`, `meaning`, `source`: shown in tables and documentation.
    `place`: the position among all metrics in `metrics=all`.
    `relative`: whether it compares a variant with the baseline row, so that it says nothing about that row.
    """

    name: str
    measure: Callable[[Subject], float]
    meaning: str
    unit: str = ""
    source: str = ""
    place: int = 1000
    relative: bool = False


class Subject(NamedTuple):
    """What a metric measures.

    `settled`, `trace`: the variant, and its stages.
    `baseline`: the stages of the baseline row.
    `exact`: the stages of the variant computed in `longdouble`.
    `is_cross_attention`: whether queries and keys are tokens of different inputs.
    `key_tokens`: the names of the keys.
    """

    settled: Settled
    trace: Trace
    baseline: Trace
    exact: Trace
    is_cross_attention: bool = False
    key_tokens: tuple[str, ...] = ()

    def allowed(self) -> Array:
        """Return which keys the masks allow for each query, `[h t s]`."""
        q, k = get_stage(self.trace, "q"), get_stage(self.trace, "k")
        return allowed_entries(self.settled.rules.masks, q.shape[1], k.shape[1], self.offset, len(q))

    def visible(self) -> Array:
        """Return whether the masks allow any key for each query, `[h t]`; if the trace has no q, all True, `[1 t]`."""
        q, k = self.trace.q, self.trace.k
        if q is None or k is None:
            return np.ones((1, get_answer(self.trace).shape[-2]), bool)
        return queries_with_keys(self.settled.rules, len(q), q.shape[1], k.shape[1])

    @property
    def offset(self) -> int:
        return int(self.settled.rules.offset)


class NotFormedError(Exception):
    """A metric is undefined for a variant; a message gives the reason if the user should know it."""


def require_formed(is_formed: bool, *reason: str) -> None:
    """Raise NotFormedError, with the reason as its message, if `is_formed` is false: the metric is undefined."""
    if not is_formed:
        raise NotFormedError(*reason)


def get_sequence_weights(subject: Subject) -> Array:
    """Return the weights `[h t s]` of a variant whose queries and keys are tokens of one sequence.

    Raises:
        NotFormedError: the keys come from a memory, so they have no position relative to the queries.
    """
    require_formed(not subject.is_cross_attention, "queries and keys are tokens of different inputs")
    return weights(subject)


def get_stage(trace: Trace, name: str) -> Array:
    """Return a stage of a trace, converted to float32 if it is in half precision.

    Raises:
        NotFormedError: the form does not compute that stage.
    """
    array = getattr(trace, name)
    if array is None:
        raise NotFormedError
    return widen(array)


def weights(subject: Subject) -> Array:
    """Return the weights of a variant, `[h t s]`; under every convention, a query that sees no key has weights of 0."""
    stored, sees_key = get_stage(subject.trace, "weights"), subject.visible()
    return stored if sees_key.all() else np.where(sees_key[..., None], stored, 0.0).astype(stored.dtype)


def finite_weights(subject: Subject) -> Array:
    """Return the weights of a variant, `[h t s]`, if all are finite; singular values need that.

    Raises:
        NotFormedError: some weights are not finite.
    """
    variant_weights = weights(subject)
    require_formed(bool(np.isfinite(variant_weights).all()))
    return variant_weights


def mean(numbers: Array) -> float:
    require_formed(numbers.size > 0)
    return float(numbers.mean())


def sees(weights: Array) -> Array:
    """Return whether the query of each row of weights sees a key, `[... s] -> [...]`: whether some weight is not 0."""
    return np.asarray(weights.any(axis=-1))


def mean_seen(measure: Callable[[Array], Array], get_weights: Callable[[Subject], Array], subject: Subject) -> float:
    """Return the mean of a number over the queries that see a key.

    `measure` computes the number of each row of weights, `[... s] -> [...]`. `get_weights` returns these weights.

    Raises:
        NotFormedError: no query sees a key.
    """
    rows = get_weights(subject)
    return mean(measure(rows)[sees(rows)])


def head_means(numbers: Array, weights: Array) -> Array:
    """Return, for each head, the mean of a number over the queries that see a key, `[h t] -> [h]`.

    A query sees a key if some weight in its row of `weights` `[h t s]` is not 0. If no query of a head sees a key, the
    mean is NaN.
    """
    sees_key = sees(weights)
    sums, counts = np.where(sees_key, numbers, 0).sum(axis=-1), sees_key.sum(axis=-1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def find_seeing_queries(subject: Subject) -> Array:
    """Return whether each query sees a key in at least one head, `[t]`.

    Raises:
        NotFormedError: no query sees a key.
    """
    sees_key = subject.visible().any(axis=0)
    if subject.trace.weights is not None:
        sees_key = sees_key & sees(weights(subject)).any(axis=0)
    require_formed(bool(sees_key.any()))
    return np.asarray(sees_key)


def get_both_answers(subject: Subject) -> tuple[Array, Array]:
    """Return the output `[t m]` and the exact output; if the problem has no values, both weights `[h t s]`."""
    return get_answer(subject.trace), get_answer(subject.exact)


def get_answers_seen(subject: Subject) -> tuple[Array, Array]:
    """Return the same arrays as `get_both_answers`, but only for queries that see a key."""
    actual, exact = get_both_answers(subject)
    sees_key = find_seeing_queries(subject)
    return actual[..., sees_key, :], exact[..., sees_key, :]


def get_both_outputs(subject: Subject) -> tuple[Array, Array]:
    """Return the outputs of this row and of the baseline row, for queries that see a key in both."""
    actual, baseline = get_answer(subject.trace), get_answer(subject.baseline)
    require_formed(actual.shape == baseline.shape and actual.ndim == 2)
    sees_key = find_seeing_queries(subject) & find_seeing_queries(subject._replace(trace=subject.baseline))
    require_formed(bool(sees_key.any()))
    return actual[sees_key], baseline[sees_key]
