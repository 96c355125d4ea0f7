"""Reads a whole configuration, or one of its settings alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

from attn_exp.config.drawn import STREAMS
from attn_exp.config.fields import kind_of, read_fields
from attn_exp.config.kinds import AT_LEAST_0, refuse
from attn_exp.config.schema import Config


def read(values: Mapping[str, Any]) -> Config:
    """Return the configuration that the plain values describe.

    Raises:
        UserError: an unknown key, or a value of the wrong kind, named with what was expected.
    """
    config = Config(**read_fields(Config, values, ""))
    check_seed(config.seed, config.generator)
    return config


def check_seed(seed: int, generator: str) -> None:
    """Refuse a seed below 0 where each array has a stream of its own; what a library takes, its generator says."""
    if generator == STREAMS and seed < 0:
        refuse(seed, "seed", AT_LEAST_0)


def read_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Read some settings of a run alone, by name; what is no setting stays as it is.

    Raises:
        UserError: a value of the wrong kind.
    """
    hints = get_type_hints(Config, include_extras=True)
    return {name: kind_of(hints.get(name, Any)).read(value, name) for name, value in values.items()}
