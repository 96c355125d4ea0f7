"""What a metric is, and what it looks at."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array, widen
from attn_exp.experiment.executing import answer
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.rules.rules import places


class Metric(NamedTuple):
    """One number that says something of a variant; `metrics=name` asks for it.

    `measure(subject)`: the number; it raises `NotFormedError` where the variant lacks what is measured.
    `unit`, `meaning`, `source`: what a reader is told of it.
    `place`: where it stands among the others in `metrics=all`.
    `relative`: whether it says how far a variant is from the row compared with, of which it says nothing.
    """

    name: str
    measure: Callable[[Subject], float]
    meaning: str
    unit: str = ""
    source: str = ""
    place: int = 1000
    relative: bool = False


class Subject(NamedTuple):
    """What metrics look at: a variant's trace, the first row's, and the exact one, in `longdouble`.

    `apart` says that queries and keys are tokens of different inputs; `key_tokens` names the keys.
    """

    settled: Settled
    trace: Trace
    first: Trace
    exact: Trace
    apart: bool = False
    key_tokens: tuple[str, ...] = ()

    def allowed(self) -> Array:
        """Return which places may attend, `[h t s]`."""
        q, k = stage(self.trace, "q"), stage(self.trace, "k")
        return places(self.settled.rules.masks, q.shape[1], k.shape[1], self.offset, len(q))

    @property
    def offset(self) -> int:
        """The position of the first query among the keys."""
        return int(self.settled.rules.offset)


class NotFormedError(Exception):
    """The variant lacks what a metric measures; its message says what, where a reader should know."""


def one_sequence(subject: Subject) -> Array:
    """Return the weights of a variant `[h t s]` whose queries and keys are tokens of one sequence.

    Raises:
        NotFormedError: keys are tokens of a memory, which stand nowhere beside the queries.
    """
    if subject.apart:
        raise NotFormedError("queries and keys are tokens of different inputs")
    return weights(subject)


def stage(trace: Trace, name: str) -> Array:
    """Return a stage of a trace, to measure: half precision as float32.

    Raises:
        NotFormedError: the form never had it.
    """
    array: Array | None = getattr(trace, name)
    if array is None:
        raise NotFormedError
    return widen(array)


def weights(subject: Subject) -> Array:
    """Return the weights of a variant, `[h t s]`."""
    return stage(subject.trace, "weights")


def finite_weights(subject: Subject) -> Array:
    """Return the weights of a variant `[h t s]`, all of them finite: NaN has no singular values.

    Raises:
        NotFormedError: some are NaN, as under conventions that give NaN to a query without keys.
    """
    if not np.isfinite(weights(subject)).all():
        raise NotFormedError
    return weights(subject)


def mean(numbers: Array) -> float:
    """Return the mean.

    Raises:
        NotFormedError: there is no number, as where no query sees a key.
    """
    if not numbers.size:
        raise NotFormedError
    return float(numbers.mean())


def sees(weights: Array) -> Array:
    """Say of each row `[... s] -> [...]` whether its query sees a key: some weight is not 0."""
    return np.asarray(weights.any(axis=-1))


def mean_seen(measure: Callable[[Array], Array], weights: Array) -> float:
    """Return the mean of a measure of rows `[... s] -> [...]`, over the queries that see a key.

    Raises:
        NotFormedError: no query sees one.
    """
    return mean(measure(weights)[sees(weights)])


def head_means(numbers: Array, weights: Array) -> Array:
    """Return, per head, the mean of a number per query `[h t] -> [h]`, over the queries of weights `[h t s]` that see
    a key; NaN where none does."""
    seen = sees(weights)
    sums, counts = np.where(seen, numbers, 0).sum(axis=-1), seen.sum(axis=-1)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))


def seeing_queries(trace: Trace) -> Array:
    """Say of each query `[t]` whether it sees a key in some head; all do where a form keeps nothing of its weights."""
    if trace.weights is not None:
        return np.asarray(sees(trace.weights).any(axis=0))
    if trace.summary is not None:
        return np.asarray((trace.summary.largest_weight != 0).any(axis=0))
    return np.ones(answer(trace).shape[-2], bool)


def ends(subject: Subject) -> tuple[Array, Array]:
    """Return the answer `[t m]` and the exact one, or the weights `[h t s]` where there are no values."""
    return answer(subject.trace), answer(subject.exact)


def ends_seen(subject: Subject) -> tuple[Array, Array]:
    """Return the answer and the exact one, of queries that see a key.

    Raises:
        NotFormedError: no query sees one.
    """
    seen = seeing_queries(subject.trace)
    if not seen.any():
        raise NotFormedError
    mine, exact = ends(subject)
    return mine[..., seen, :], exact[..., seen, :]


def outputs(subject: Subject) -> tuple[Array, Array]:
    """Return the output of this row and of the first, where both have one shape, of queries that see a key in both."""
    mine, first = answer(subject.trace), answer(subject.first)
    if mine.shape != first.shape or mine.ndim != 2:
        raise NotFormedError
    seen = seeing_queries(subject.trace) & seeing_queries(subject.first)
    if not seen.any():
        raise NotFormedError
    return mine[seen], first[seen]
