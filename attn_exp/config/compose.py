"""Where Hydra ends: it composes `conf/`, and plain values leave.

Hydra and OmegaConf are imported in the `hydra_*` modules and `cli.py` alone; no DictConfig gets out of here.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, field, fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

import hydra
import omegaconf
from hydra import initialize_config_dir
from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from attn_exp.config.read import read
from attn_exp.config.schema import Config
from attn_exp.errors import UserError

VERSION_BASE = "1.3"
HYDRAS_SWEEPS = ("hydra/sweeper=", "hydra/launcher=")
ONE_CHOICE = ("embeddings", "projections", "experiment", "report")
NO_WORD = re.compile(r"(null|true|false|[+-]?[\d._]+)", re.IGNORECASE)


def compose_and_run(
    task: Callable[[Config, str], None], sweep: Callable[[list[str], list[str]], None], words: list[str]
) -> None:
    """Run the task on the configuration that the words of a command line compose, or the sweep on the words of `-m`.

    A plain run composes once; whatever has a flag of Hydra's own (`--help`, `--cfg`, ...) goes through
    `hydra.main`, which composes everything twice. So does `-m` with a sweeper or launcher of Hydra's.
    """
    check_dashes(words)
    register_schema()
    given = parsed(words)
    flags = {name for name, value in vars(given).items() if value} - {"overrides", "config_dir"}
    if flags:
        check_choices(given.overrides)
    folders = [] if given.config_dir is None else [given.config_dir]
    if flags == {"multirun"} and not any(word.startswith(HYDRAS_SWEEPS) for word in given.overrides):
        sweep(given.overrides, folders)
    elif flags:
        sys.argv[1:] = [*(word for word in words if word not in given.overrides), *given.overrides]
        run_by_hydra(task)
    else:
        task(composed(given.overrides, folders), repeat_command(given.overrides, folders))


def composed(overrides: list[str], folders: list[str]) -> Config:
    """Return the configuration of these overrides, with users' own folders of YAML searched first."""
    return read(values(overrides, folders))


def values(overrides: Sequence[str], folders: Sequence[str]) -> dict[str, Any]:
    """Return the plain values of a configuration, before anything checks them."""
    check_choices(overrides)
    with initialize_config_dir(str(conf_dir()), version_base=VERSION_BASE):
        return plain(composed_once([*overrides, *search_words(folders)]))


def composed_once(words: list[str]) -> DictConfig:
    """Return what Hydra, initialized, composes of these words, its own settings included."""
    loader = GlobalHydra.instance().hydra
    assert loader is not None
    try:
        return loader.compose_config("config", words, RunMode.RUN, from_shell=True, with_log_configuration=False)
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise UserError(
            f"a YAML file in --config-dir is not UTF-8 (byte {byte:#x} at position {error.start})"
        ) from error


def search_words(folders: Sequence[str]) -> list[str]:
    """Return the override that lets Hydra search users' own folders of YAML first."""
    for folder in folders:
        if not Path(folder).is_dir():
            raise UserError(f"--config-dir {folder}: no such folder")
    found = ",".join(f"file://{Path(folder).resolve()}" for folder in folders)
    return [f"hydra.searchpath=[{found}]"] if folders else []


def run_by_hydra(task: Callable[[Config, str], None]) -> None:
    """Let `hydra.main` do what it does with its own flags, and run the task on every job it composes.

    Raises:
        Exception: the first error of the task, after the last job; Hydra never sees it and prints nothing of its own.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing and exiting
    errors: list[Exception] = []

    def job(composed: DictConfig) -> None:
        try:
            sources = HydraConfig.get().runtime.config_sources
            folders = [source.path for source in sources if source.provider == "command-line"]
            task(read(plain(composed)), repeat_command(list(HydraConfig.get().overrides.task), folders))
        except Exception as error:
            errors.append(error)

    try:
        hydra.main(config_path=str(conf_dir()), config_name="config", version_base=VERSION_BASE)(job)()
    except (HydraException, OmegaConfBaseException):
        raise
    except ValueError as error:  # a flag of Hydra's that stands alone, or names a file that is not there
        raise UserError(str(error).partition("\n")[0]) from error
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
        default = list(described.default)
        return Any, field(default_factory=lambda: list(default))
    return Any, omegaconf.MISSING if described.default is dataclasses.MISSING else described.default


def conf_dir() -> Path:
    """Return the folder of the shipped YAML: beside pyproject.toml in a checkout, inside the package once installed."""
    here = Path(__file__).resolve().parent.parent
    checkout = here.parent / "conf"
    in_checkout = (here.parent / "pyproject.toml").is_file() and (checkout / "config.yaml").is_file()
    return checkout if in_checkout else here / "conf"


def plain(composed: DictConfig) -> dict[str, Any]:
    """Return the composed values without Hydra: resolved, as dictionaries, lists and numbers."""
    ours: list[Any] = [key for key in composed if key != "hydra"]
    found = OmegaConf.to_container(OmegaConf.masked_copy(composed, ours), resolve=True)
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}


def repeat_command(overrides: Sequence[str], folders: Sequence[str]) -> str:
    """Return the command that repeats a run."""
    words = [word for folder in folders for word in ("--config-dir", folder)]
    return shlex.join(["python", "-m", "attn_exp", *words, *overrides])


def check_dashes(arguments: list[str]) -> None:
    """Refuse options that Hydra does not have; a setting with dashes is the usual cause."""
    options = get_args_parser()._option_string_actions
    for word in arguments:
        if word.startswith("-") and word.split("=")[0] not in options:
            bare = word.lstrip("-")
            example = bare if "=" in bare else f"{bare}=..."
            raise UserError(f"unknown option {word}; settings take no dashes: write {example}")


def parsed(words: list[str]) -> Namespace:
    """Return what Hydra's parser makes of the words, wherever among the settings an option stands.

    Raises:
        UserError: an option without its value, or with one that it does not take.
    """

    def refuse(message: str) -> NoReturn:
        raise UserError(f"{message}; --help shows what there is")

    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign] # argparse prints its usage on errors and leaves no other way
    return parser.parse_intermixed_args(words)


def check_choices(overrides: Sequence[str]) -> None:
    """Refuse choices of a group that Hydra fails on without naming them: no words, or several where there is one."""
    for word in overrides:
        key, _, choice = word.partition("=")
        if not key:
            raise UserError(f"cannot read {word!r}; write key=value")
        if not (conf_dir() / key).is_dir():
            continue
        if key in ONE_CHOICE and choice.startswith("["):
            raise UserError(f"{word}: {key} takes one choice; to run several, sweep with -m {key}={choice.strip('[]')}")
        if any(NO_WORD.fullmatch(each.strip()) for each in choice.strip("[]").split(",")):
            names = ", ".join(sorted(path.stem for path in (conf_dir() / key).glob("*.yaml")))
            raise UserError(f"{word}: expected the name of a choice, one of {names}; ~{key} leaves it out")
