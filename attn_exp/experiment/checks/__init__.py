"""Experiments on the variants of a run, beyond comparing them: one file each, found by its name.

A check is a module with `COLUMNS`, the fields of its records that a terminal shows and their heads; a frozen dataclass
`Record`; `run(config, problem, variants)`, which returns the records; and `sentence(records)`, which sums them up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attn_exp import registry
from attn_exp.config.schema import Config
from attn_exp.errors import UserError, unknown
from attn_exp.experiment.variant import Settled
from attn_exp.problem.problem import Problem

NAMES: tuple[str, ...] = registry.names(__path__)


@dataclass(frozen=True)
class Check:
    """What one check found: records of its module's `Record`, and what they mean."""

    name: str
    records: tuple[Any, ...]
    sentence: str

    @property
    def schema(self) -> type:
        """The dataclass of the records."""
        return schema(self.name)

    @property
    def columns(self) -> dict[str, str]:
        """The fields that a terminal shows, and their heads."""
        columns: dict[str, str] = registry.module(__name__, self.name).COLUMNS
        return columns


def schema(name: str) -> type:
    """Return the dataclass of a check's records."""
    found: type = registry.module(__name__, name).Record
    return found


def wanted(config: Config) -> tuple[str, ...]:
    """Return the checks that a configuration asks for; dtypes ask for `precision`, metrics for `measures`.

    Raises:
        UserError: a check that does not exist.
    """
    for name in config.check:
        if name not in NAMES:
            raise UserError(unknown(name, NAMES, "check"))
    asked = [*config.check, *(["precision"] if config.dtype else []), *(["measures"] if config.metrics else [])]
    return tuple(dict.fromkeys(asked))


def run(config: Config, problem: Problem, variants: Sequence[Settled]) -> tuple[Check, ...]:
    """Run the checks that a configuration asks for on every variant that could be computed."""
    computed = [each for each in variants if not each.refused]
    return tuple(examined(name, config, problem, computed) for name in wanted(config))


def examined(name: str, config: Config, problem: Problem, variants: Sequence[Settled]) -> Check:
    check = registry.module(__name__, name)
    records = tuple(check.run(config, problem, variants))
    return Check(name, records, check.sentence(records))


def restored(name: str, records: tuple[Any, ...]) -> Check:
    """Return a check from its records, as a run on disk holds them."""
    return Check(name, records, registry.module(__name__, name).sentence(records))
