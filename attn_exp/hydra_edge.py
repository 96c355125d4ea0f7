"""Where Hydra ends: it composes `conf/`, and plain values leave.

Hydra and OmegaConf are imported in the `hydra_*` modules and `cli.py` alone; no DictConfig gets out of here.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import hydra
import omegaconf
from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from attn_exp.config import Config, UserError, read


def compose_and_run(task: Callable[[Config, str], None]) -> None:
    """Let Hydra compose the configuration of one run, or of every job of a sweep, and run the task on each.

    Raises:
        Exception: the first error of the task, after the last job; Hydra never sees it and prints nothing of its own.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing and exiting
    register_schema()
    errors: list[Exception] = []

    def job(composed: DictConfig) -> None:
        try:
            task(read(plain(composed)), repeat_command())
        except Exception as error:
            errors.append(error)

    hydra.main(config_path=str(conf_dir()), config_name="config", version_base="1.3")(job)()
    if errors:
        raise errors[0]


def register_schema() -> None:
    """Give Hydra every key with its default: it then refuses keys that do not exist, and `read` checks the values."""
    ConfigStore.instance().store(name="schema", node=untyped(Config))


def untyped(schema: Any) -> Any:
    """Return a dataclass with the keys and defaults of a schema that takes any value for them."""
    kinds = get_type_hints(schema)
    keys = [(each.name, *untyped_key(kinds[each.name], each)) for each in fields(schema)]
    return make_dataclass(schema.__name__, keys, kw_only=True)


def untyped_key(kind: Any, described: Field[Any]) -> tuple[Any, Any]:
    """Return the loose type and the default of one key: a group, a mapping of names to groups, or a plain value."""
    if is_dataclass(kind):
        group = untyped(kind)
        return group, field(default_factory=group)
    if get_origin(kind) is Mapping and is_dataclass(get_args(kind)[1]):
        names: Any = dict
        return names[str, untyped(get_args(kind)[1])], field(default_factory=dict)
    if described.default_factory is not dataclasses.MISSING:
        return Any, field(default_factory=described.default_factory)
    if isinstance(described.default, tuple):
        return Any, field(default_factory=list)
    return Any, omegaconf.MISSING if described.default is dataclasses.MISSING else described.default


def conf_dir() -> Path:
    """Return the folder of the shipped YAML: beside pyproject.toml in a checkout, inside the package once installed."""
    here = Path(__file__).resolve().parent
    checkout = here.parent / "conf"
    in_checkout = (here.parent / "pyproject.toml").is_file() and (checkout / "config.yaml").is_file()
    return checkout if in_checkout else here / "conf"


def plain(composed: DictConfig) -> dict[str, Any]:
    """Return the composed values without Hydra: resolved, as dictionaries, lists and numbers."""
    values = OmegaConf.to_container(composed, resolve=True)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def repeat_command() -> str:
    """Return the command that repeats this job."""
    settings = HydraConfig.get()
    folders = [source.path for source in settings.runtime.config_sources if source.provider == "command-line"]
    words = [word for folder in folders for word in ("--config-dir", folder)]
    return shlex.join(["python", "-m", "attn_exp", *words, *settings.overrides.task])


def check_dashes(arguments: list[str]) -> None:
    """Refuse options that Hydra does not have; a setting with dashes is the usual cause."""
    options = get_args_parser()._option_string_actions
    for word in arguments:
        if word.startswith("-") and word.split("=")[0] not in options:
            bare = word.lstrip("-")
            example = bare if "=" in bare else f"{bare}=..."
            raise UserError(f"unknown option {word}; settings take no dashes: write {example}")
