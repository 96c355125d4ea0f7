"""Whether an error is ordinary for its dtype, judged against the error of a plain implementation in that dtype."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.schema import Config
from attn_exp.errors import OwnCodeError
from attn_exp.experiment.checks.check import Check
from attn_exp.experiment.executing import TYPES, execute, find_type, rounded
from attn_exp.experiment.metrics.errors import largest_finite_error
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem

ORDINARY, SUSPICIOUS = 2.0, 10.0
"""Errors up to these multiples of a plain implementation's are ordinary rounding, or suspicious."""


@dataclass(frozen=True)
class Record:
    """One stage of one variant in one dtype.

    `error` is the largest difference from the same stage in float64 (for float64 itself: in `longdouble`) from the same
    rounded inputs; `plain_error` is that of the `matrix` form in this dtype, at least half a unit in the last place of
    the largest number; `ratio` is the former over the latter. Source: Dao-AILab/flash-attention,
    `tests/test_flash_attn.py`, which allows twice the plain error.
    """

    variant: str
    dtype: str
    stage: str
    error: float
    plain_error: float
    ratio: float
    verdict: str


def examine(config: Config, problem: Problem, variants: Sequence[Settled]) -> Iterator[Record]:
    """Judge every stage of every variant in every dtype that the run names, or in all of them.

    A form that computes in a coarser dtype than the named one is judged in its own.
    """
    asked = config.dtype or TYPES
    own = {settled.name: [settled.member.computed_in(find_type(name)).name for name in asked] for settled in variants}
    for name in dict.fromkeys(itertools.chain(asked, *own.values())):
        low = rounded(problem, find_type(name))
        exact_problem = rounded(low, np.dtype(np.longdouble if name == "float64" else np.float64))
        for settled in (variant for variant in variants if name in own[variant.name]):
            exact, plain = execute(settled.exact, exact_problem), execute(settled.plain, low)
            with suppress(OwnCodeError):  # the user's own function does not take this dtype
                yield from judge_stages(settled.name, name, execute(settled, low), plain, exact)


def judge_stages(variant: str, dtype: str, mine: Trace, plain: Trace, exact: Trace) -> Iterator[Record]:
    truths, plains = dict(exact.stages()), dict(plain.stages())
    for stage, array in mine.stages():
        if stage in truths:
            truth = truths[stage]
            error, floor = largest_finite_error(array, truth), half_unit(truth, array.dtype)
            beside = max(floor, largest_finite_error(plains[stage], truth) if stage in plains else floor)
            yield Record(variant, dtype, stage, error, beside, error / beside, verdict(error / beside))


def verdict(ratio: float) -> str:
    if ratio <= ORDINARY:
        return "ordinary rounding"
    return "suspicious" if ratio <= SUSPICIOUS else "a different function"


def half_unit(exact: Array, dtype: np.dtype[np.generic]) -> float:
    size = np.abs(exact[np.isfinite(exact)]).max(initial=0.0)
    return float(np.spacing(np.asarray(size).astype(dtype))) / 2 or float(np.finfo(np.float64).tiny)


def sentence(records: Sequence[Record]) -> str:
    first: dict[tuple[str, str], Record] = {}
    for record in records:
        if record.ratio > ORDINARY:
            first.setdefault((record.variant, record.dtype), record)
    if not first:
        return "every stage of every variant shows ordinary rounding."
    parts = (f"{each.variant} in {each.dtype} from {each.stage} on: {each.verdict}" for each in first.values())
    return f"{'; '.join(parts)}."


CHECK = Check(record=Record, examine=examine, sentence=sentence)
