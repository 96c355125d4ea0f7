"""What an engine is: somewhere to compute the points of a sweep. Each is one file beside this one."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from attn_exp import registry
from attn_exp.config.schema import Sweep
from attn_exp.errors import UserError, unknown
from attn_exp.sweeps import engines
from attn_exp.sweeps.plan import Job, Plan
from attn_exp.sweeps.task import Done
from attn_exp.system import usable_cores

COUNT_EVERY = 5.0
"""Seconds between two looks at how large a cluster is, which may grow and shrink."""


@dataclass(frozen=True)
class Died:
    """A job whose worker ended before it did, and how it ended."""

    job: Job
    reason: str


class Workers(Protocol):
    """Those who compute jobs. Results are the same whoever does: a point carries all that decides them."""

    capacity: int
    """How many jobs to hand over at once: more than there are workers, so that none of them waits."""

    def submit(self, job: Job) -> None:
        """Hand over a job."""

    def finished(self, seconds: float) -> list[Done | Died]:
        """Return the jobs that ended, waiting up to `seconds` for the first."""

    def close(self) -> None:
        """Stop at once and leave no worker behind."""


@dataclass(frozen=True)
class Engine:
    """An engine, by the name of its file.

    `start` gets a plan, how many workers are wanted and the address of a cluster, if one is named. `library` is what
    must be installed for it. `workers` is how many there always are; None lets the settings decide.
    """

    start: Callable[[Plan, int, str | None], Workers]
    library: str = ""
    workers: int | None = None


def chosen(sweep: Sweep) -> Engine:
    """Return the engine that the settings name.

    Raises:
        UserError: there is no such engine, or its library is not installed.
    """
    if sweep.engine not in engines.NAMES:
        raise UserError(unknown(sweep.engine, engines.NAMES, "sweep.engine"))
    engine: Engine = registry.module(engines.__name__, sweep.engine).ENGINE
    if engine.library and importlib.util.find_spec(engine.library) is None:
        raise UserError(f"sweep.engine={sweep.engine} is not installed; pip install 'attn-exp[{sweep.engine}]'")
    return engine


def workers(engine: Engine, sweep: Sweep) -> int:
    """Return how many jobs an engine of this machine computes at once."""
    return engine.workers or sweep.workers or usable_cores()


def start(plan: Plan, sweep: Sweep, jobs: int) -> Workers:
    """Start the engine that the settings name, with no more workers than there are jobs.

    Raises:
        UserError: an engine that is not installed, or a cluster that does not answer.
    """
    engine = chosen(sweep)
    return engine.start(plan, max(1, min(workers(engine, sweep), jobs)), sweep.address)
