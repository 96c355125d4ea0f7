"""What a metric is, and what it measures."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array, widen
from attn_exp.experiment.executing import answer
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.rules.rules import places, visible


class Metric(NamedTuple):
    """One number that describes a variant; `metrics=name` asks for it.

    `measure(subject)`: the number; it raises `NotFormedError` if the variant lacks what is measured.
    `unit`, `meaning`, `source`: what tables and docs say about it.
    `place`: its position among the others in `metrics=all`.
    `relative`: whether it compares a variant with the baseline row, for which it is then meaningless.
    """

    name: str
    measure: Callable[[Subject], float]
    meaning: str
    unit: str = ""
    source: str = ""
    place: int = 1000
    relative: bool = False


class Subject(NamedTuple):
    """What metrics measure: a variant's trace, the baseline row's, and the exact one, in `longdouble`.

    `apart`: queries and keys are tokens of different inputs; `key_tokens` names the keys.
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

    def visible(self) -> Array:
        """Return whether the masks let each query see a key, `[h t]`; `[1 t]` for forms that keep no queries."""
        q, k = self.trace.q, self.trace.k
        if q is None or k is None:
            return np.ones((1, answer(self.trace).shape[-2]), bool)
        return visible(self.settled.rules, len(q), q.shape[1], k.shape[1])

    @property
    def offset(self) -> int:
        """The position of the first query among the keys."""
        return int(self.settled.rules.offset)


class NotFormedError(Exception):
    """The variant lacks what a metric measures; the message says what, if a reader should know."""


def require_formed(is_formed: bool, *reason: str) -> None:
    """Raise NotFormedError unless the variant has what a metric measures."""
    if not is_formed:
        raise NotFormedError(*reason)


def one_sequence(subject: Subject) -> Array:
    """Return the weights `[h t s]` of a variant whose queries and keys are tokens of one sequence.

    Raises:
        NotFormedError: the keys come from a memory, so they have no position relative to the queries.
    """
    require_formed(not subject.apart, "queries and keys are tokens of different inputs")
    return weights(subject)


def stage(trace: Trace, name: str) -> Array:
    """Return a stage of a trace for measuring, half precision as float32.

    Raises:
        NotFormedError: the form does not compute it.
    """
    array: Array | None = getattr(trace, name)
    if array is None:
        raise NotFormedError
    return widen(array)


def weights(subject: Subject) -> Array:
    """Return the weights of a variant, `[h t s]`: 0 for queries that see no key, whatever the convention."""
    made, seen = stage(subject.trace, "weights"), subject.visible()
    return made if seen.all() else np.where(seen[..., None], made, 0.0).astype(made.dtype)


def finite_weights(subject: Subject) -> Array:
    """Return the weights of a variant `[h t s]`, all of them finite: NaN has no singular values.

    Raises:
        NotFormedError: some are NaN, as under conventions that give NaN to a query without keys.
    """
    made = weights(subject)
    require_formed(bool(np.isfinite(made).all()))
    return made


def mean(numbers: Array) -> float:
    require_formed(numbers.size > 0)
    return float(numbers.mean())


def sees(weights: Array) -> Array:
    """Return for each row `[... s] -> [...]` whether its query sees a key: some weight is not 0."""
    return np.asarray(weights.any(axis=-1))


def mean_seen(measure: Callable[[Array], Array], formed: Callable[[Subject], Array], subject: Subject) -> float:
    """Return the mean of a measure of rows `[... s] -> [...]` of these weights, over the queries that see a key.

    Raises:
        NotFormedError: no query sees one.
    """
    made = formed(subject)
    return mean(measure(made)[sees(made)])


def head_means(numbers: Array, weights: Array) -> Array:
    """Return, per head, the mean of a number per query `[h t] -> [h]`, over the queries that see a key.

    Those are the rows of the weights `[h t s]` that are not all 0; NaN if there are none.
    """
    seen = sees(weights)
    sums, counts = np.where(seen, numbers, 0).sum(axis=-1), seen.sum(axis=-1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def seeing_queries(subject: Subject) -> Array:
    """Return for each query `[t]` whether it sees a key in some head.

    Raises:
        NotFormedError: none does.
    """
    seen = subject.visible().any(axis=0)
    if subject.trace.weights is not None:
        seen = seen & sees(weights(subject)).any(axis=0)
    require_formed(bool(seen.any()))
    return np.asarray(seen)


def ends(subject: Subject) -> tuple[Array, Array]:
    """Return the output `[t m]` and the exact one, or the weights `[h t s]` if there are no values."""
    return answer(subject.trace), answer(subject.exact)


def ends_seen(subject: Subject) -> tuple[Array, Array]:
    mine, exact = ends(subject)
    seen = seeing_queries(subject)
    return mine[..., seen, :], exact[..., seen, :]


def outputs(subject: Subject) -> tuple[Array, Array]:
    """Return the output of this row and of the baseline, for queries that see a key in both."""
    mine, first = answer(subject.trace), answer(subject.first)
    require_formed(mine.shape == first.shape and mine.ndim == 2)
    seen = seeing_queries(subject) & seeing_queries(subject._replace(trace=subject.first))
    require_formed(bool(seen.any()))
    return mine[seen], first[seen]
