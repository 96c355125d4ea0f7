"""Configurations for tests: the shipped YAML, composed as the command line composes it."""

from __future__ import annotations

from hydra import compose, initialize_config_dir

from attn_exp.config.compose import conf_dir, plain, register_schema
from attn_exp.config.read import read
from attn_exp.config.schema import Config
from attn_exp.experiment.compare import compare
from attn_exp.experiment.comparison import Comparison


def config(*overrides: str) -> Config:
    """Return the configuration that these words on the command line give."""
    register_schema()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return read(plain(compose("config", list(overrides))))


def comparison(*overrides: str) -> Comparison:
    """Return the comparison of a run with these words on the command line."""
    return compare(config(*overrides))
