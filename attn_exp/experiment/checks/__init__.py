"""Additional experiments on the variants of a run. Each file has one `CHECK`, found by the name of the file."""

from __future__ import annotations

from collections.abc import Sequence

from attn_exp import registry
from attn_exp.config.schema import Config
from attn_exp.errors import UserError, unknown
from attn_exp.experiment.checks.check import Check, Finding
from attn_exp.experiment.variant import Settled
from attn_exp.problem.problem import Problem

NAMES = registry.names(__path__, without=("check",))

IMPLIED_BY = {"dtype": "precision", "metrics": "measures"}
"""The check that each of these settings implies."""


def load(name: str) -> Check:
    return registry.constant(__name__, name, Check)


def names() -> tuple[str, ...]:
    return (*NAMES, *registry.outside(__name__))


def choose_checks(config: Config) -> tuple[str, ...]:
    """Return the names of the checks that the settings name or imply.

    Raises:
        UserError: there is no check of that name.
    """
    for name in config.check:
        if name not in names():
            raise UserError(unknown(name, names(), "check"))
    implied = [name for setting, name in IMPLIED_BY.items() if getattr(config, setting)]
    return tuple(dict.fromkeys([*config.check, *implied]))


def run_checks(
    names: Sequence[str], config: Config, problem: Problem, variants: Sequence[Settled]
) -> tuple[Finding, ...]:
    computed = [variant for variant in variants if not variant.refused]
    return tuple(Finding(name, load(name), tuple(load(name).examine(config, problem, computed))) for name in names)
