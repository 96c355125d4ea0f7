"""Configurations for tests: the shipped YAML, composed as the command line composes it.

Hydra takes thirty times as long to compose a small run as the run itself takes. Hundreds of tests ask for the same few
YAML files with other values, so a session keeps what Hydra makes of the files, and sets the values in copies of it.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from attn_exp import registry
from attn_exp.config.choices import group_names
from attn_exp.config.compose import (
    check_choices,
    compose_config,
    compose_dict_config,
    quote_sentence,
    register_schema,
    to_plain_values,
)
from attn_exp.config.loader import initialize_hydra, sets_array_element
from attn_exp.config.schema import Config, read_config
from attn_exp.config.spelling import key_of, quote_for_hydra
from attn_exp.experiment.compare import compare
from attn_exp.experiment.row import Comparison
from attn_exp.own_code import mark_named, variants_of_code

UNUSUAL = ("hydra", "oc.env", "@")
"""Words with these in them are left to the command line's own way."""


def config(*overrides: str) -> Config:
    """Return the configuration that these words on the command line give."""
    unusual = any(mark in word for word in overrides for mark in UNUSUAL)
    if registry.OUTSIDE or unusual or variants_of_code(overrides) or sets_array_element(overrides):
        return compose_config(overrides, ())
    try:
        return with_values(overrides)
    except (HydraException, OmegaConfBaseException):
        return compose_config(overrides, ())  # which says it in a user's words


def with_values(words: Sequence[str]) -> Config:
    """Return the configuration of words about files, composed once in a session, and about values, set in a copy."""
    groups = group_names()
    files = tuple(word for word in words if key_of(word) in groups)
    with initialize_hydra(()):
        check_choices(words)
        settings = copy.deepcopy(of_files(files))
        said = OverridesParser.create().parse_overrides(
            [quote_sentence(quote_for_hydra(word)) for word in words if key_of(word) not in groups]
        )
        ConfigLoaderImpl._apply_overrides_to_config(said, settings)
        return read_config(mark_named(to_plain_values(settings), words))


@functools.cache
def of_files(words: tuple[str, ...]) -> DictConfig:
    """Return what Hydra composes of words that name files, without its own settings; it is not to be changed."""
    register_schema()
    with initialize_hydra((), keep_arrays=True):
        composition = compose_dict_config(words)
    OmegaConf.set_struct(composition, False)
    del composition["hydra"]
    OmegaConf.set_struct(composition, True)
    return composition


def comparison(*overrides: str) -> Comparison:
    """Return the comparison of a run with these words on the command line."""
    return compare(config(*overrides))
