"""What a metric is, and what it looks at."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array
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
    """Return a stage of a trace.

    Raises:
        NotFormedError: the form never had it.
    """
    array: Array | None = getattr(trace, name)
    if array is None:
        raise NotFormedError
    return array


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


def ends(subject: Subject) -> tuple[Array, Array]:
    """Return the answer and the exact one."""
    return answer(subject.trace), answer(subject.exact)


def outputs(subject: Subject) -> tuple[Array, Array]:
    """Return the output of this row and of the first, where both have one shape."""
    mine, first = answer(subject.trace), answer(subject.first)
    if mine.shape != first.shape or mine.ndim != 2:
        raise NotFormedError
    return mine, first
