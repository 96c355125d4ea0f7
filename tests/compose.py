"""Configurations for tests: the shipped YAML, composed as the command line composes it."""

from __future__ import annotations

from attn_exp.config.compose import composed
from attn_exp.config.schema import Config
from attn_exp.experiment.compare import compare
from attn_exp.experiment.comparison import Comparison


def config(*overrides: str) -> Config:
    """Return the configuration that these words on the command line give."""
    return composed(overrides, ())


def comparison(*overrides: str) -> Comparison:
    """Return the comparison of a run with these words on the command line."""
    return compare(config(*overrides))
