"""Detect unusual rounding: compare the error of each stage in a dtype with the error of a plain implementation."""

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
from attn_exp.experiment.executing import TYPES, execute, find_type, round_inputs
from attn_exp.experiment.metrics.errors import largest_finite_error
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem

ORDINARY, SUSPICIOUS = 2.0, 10.0
"""How to judge an error, as a multiple of the error of a plain implementation: up to `ORDINARY` it is ordinary
rounding, up to `SUSPICIOUS` it is suspicious, and above that the function is a different one."""


@dataclass(frozen=True)
class Record:
    """One stage of one variant in one dtype.

    `error`: the largest difference from the exact stage. The exact stage is computed from the same rounded inputs in
        float64, or in `longdouble` if the dtype is float64.
    `plain_error`: the error of the plainest form in this dtype, but at least half an ulp of the largest number.
    `ratio`: `error / plain_error`.
    `verdict`: the ratio in words.

    Source: Dao-AILab/flash-attention, `tests/test_flash_attn.py`, which allows twice the plain error.
    """

    variant: str
    dtype: str
    stage: str
    error: float
    plain_error: float
    ratio: float
    verdict: str


def examine(config: Config, problem: Problem, variants: Sequence[Settled]) -> Iterator[Record]:
    """Yield a record for every stage of every variant in each dtype that the run names, or in all if it names none.

    If a form computes in a coarser dtype than the named one, it is judged in its own dtype.
    """
    dtypes = config.dtype or TYPES
    computed_in = {
        settled.name: [settled.member.computed_in(find_type(name)).name for name in dtypes] for settled in variants
    }
    for name in dict.fromkeys(itertools.chain(dtypes, *computed_in.values())):
        rounded_problem = round_inputs(problem, find_type(name))
        exact_problem = round_inputs(rounded_problem, np.dtype(np.longdouble if name == "float64" else np.float64))
        for settled in (variant for variant in variants if name in computed_in[variant.name]):
            exact_trace, plain_trace = execute(settled.exact, exact_problem), execute(settled.plain, rounded_problem)
            with suppress(OwnCodeError):  # the user's own function does not accept this dtype
                yield from judge_stages(settled.name, name, execute(settled, rounded_problem), plain_trace, exact_trace)


def judge_stages(variant: str, dtype: str, trace: Trace, plain: Trace, exact: Trace) -> Iterator[Record]:
    exact_stages, plain_stages = dict(exact.stages()), dict(plain.stages())
    for stage, array in trace.stages():
        if stage in exact_stages:
            expected = exact_stages[stage]
            error, floor = largest_finite_error(array, expected), half_unit(expected, array.dtype)
            plain_error = max(
                floor, largest_finite_error(plain_stages[stage], expected) if stage in plain_stages else floor
            )
            yield Record(variant, dtype, stage, error, plain_error, error / plain_error, verdict(error / plain_error))


def verdict(ratio: float) -> str:
    if ratio <= ORDINARY:
        return "ordinary rounding"
    return "suspicious" if ratio <= SUSPICIOUS else "a different function"


def half_unit(exact: Array, dtype: np.dtype[np.generic]) -> float:
    largest = np.abs(exact[np.isfinite(exact)]).max(initial=0.0)
    return float(np.spacing(np.asarray(largest).astype(dtype))) / 2 or float(np.finfo(np.float64).tiny)


def sentence(records: Sequence[Record]) -> str:
    first_suspicious: dict[tuple[str, str], Record] = {}
    for record in records:
        if record.ratio > ORDINARY:
            first_suspicious.setdefault((record.variant, record.dtype), record)
    if not first_suspicious:
        return "every stage of every variant shows ordinary rounding."
    parts = (
        f"{record.variant} in {record.dtype}: {record.verdict}, starting at {record.stage}"
        for record in first_suspicious.values()
    )
    return f"{'; '.join(parts)}."


CHECK = Check(record=Record, examine=examine, sentence=sentence)
