"""The contract of a check: an additional experiment on the variants of a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from attn_exp.config.schema import Config
from attn_exp.experiment.variant import Settled
from attn_exp.problem.problem import Problem


@dataclass(frozen=True)
class Check:
    """An additional experiment on the variants of a run.

    `examine(config, problem, variants)`: yields the results as instances of `record`, a frozen dataclass.
    `sentence(records)`: summarizes the results for a reader.
    `columns`: the fields of a record that tables show, if not all; a page replaces `_` in their names with spaces.
    """

    record: type
    examine: Callable[[Config, Problem, Sequence[Settled]], Iterable[Any]]
    sentence: Callable[[Sequence[Any]], str]
    columns: Collection[str] = ()


@dataclass(frozen=True)
class Finding:
    """The result of one check on one run: its records, and a sentence that summarizes them.

    The `Finding` of `experiment/verdict.py` is something else: a question about a user's function.
    """

    name: str
    check: Check
    records: tuple[Any, ...]

    @property
    def columns(self) -> Collection[str]:
        return self.check.columns or [field.name for field in fields(self.check.record)]

    @property
    def sentence(self) -> str:
        return self.check.sentence(self.records)
