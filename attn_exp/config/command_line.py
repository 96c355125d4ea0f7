"""What a command line asks for, read once, with whatever options stand among its settings."""

from __future__ import annotations

import contextlib
import io
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple, NoReturn

from hydra import __version__ as version
from hydra._internal.utils import _get_completion_help
from hydra.core.hydra_config import HydraConfig
from omegaconf import Container, DictConfig, OmegaConf

from attn_exp.config.choices import group_names
from attn_exp.config.compose import (
    check_choices,
    check_folders,
    composed,
    composed_once,
    register_schema,
    repeat_command,
)
from attn_exp.config.hydra_errors import check_hydra_words, what_hydra_stumbles_over
from attn_exp.config.loader import environment, opened
from attn_exp.config.schema import Config
from attn_exp.config.spelling import Repeat
from attn_exp.errors import UserError

OPTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("--help", "-h"), {"action": "store_true", "help": "Application's help"}),
    (("--hydra-help",), {"action": "store_true", "help": "Hydra's help"}),
    (("--version",), {"action": "version", "help": "Show Hydra's version and exit", "version": f"Hydra {version}"}),
    (
        ("overrides",),
        {"nargs": "*", "help": "Any key=value arguments to override config values (use dots for.nested=overrides)"},
    ),
    (
        ("--cfg", "-c"),
        {"choices": ["job", "hydra", "all"], "help": "Show config instead of running [job|hydra|all]"},
    ),
    (
        ("--resolve",),
        {
            "action": "store_true",
            "help": "Used in conjunction with --cfg, resolve config interpolations before printing.",
        },
    ),
    (("--package", "-p"), {"help": "Config package to show"}),
    (("--run", "-r"), {"action": "store_true", "help": "Run a job"}),
    (
        ("--multirun", "-m"),
        {"action": "store_true", "help": "Run multiple jobs with the configured launcher and sweeper"},
    ),
    (("--shell-completion", "-sc"), {"action": "store_true", "help": "Install or Uninstall shell completion:\n{}"}),
    (
        ("--config-path", "-cp"),
        {
            "help": "Overrides the config_path specified in hydra.main(). The config_path is absolute or relative "
            "to the Python file declaring @hydra.main()"
        },
    ),
    (("--config-name", "-cn"), {"help": "Overrides the config_name specified in hydra.main()"}),
    (("--config-dir", "-cd"), {"help": "Adds an additional config dir to the config search path"}),
    (("--experimental-rerun",), {"help": "Rerun a job from a previous config pickle"}),
    (
        ("--info", "-i"),
        {
            "const": "all",
            "nargs": "?",
            "choices": ["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"],
            "help": "Print Hydra information [all|config|defaults|defaults-tree|plugins|searchpath]",
        },
    ),
)
"""Hydra's options, as its own parser has them. That one cannot be made in Python 3.14: one of its help texts is no text
(Hydra issue 3121)."""

MODES = ("run", "multirun", "cfg", "info", "shell_completion")
NOT_OURS = {
    "config_path": "--config-path: the shipped YAML is the only main one; your own comes in with --config-dir FOLDER",
    "config_name": "--config-name: the shipped YAML is the only main one; your own comes in with --config-dir FOLDER",
    "experimental_rerun": "--experimental-rerun: it would run what a file says; attn-exp rerun DIR repeats a run",
}


class Once(NamedTuple):
    """One run: its settings, and the command that repeats it."""

    config: Config
    repeat: Repeat


class Many(NamedTuple):
    """A sweep: the words that describe it, and users' own folders of YAML."""

    words: tuple[str, ...]
    folders: tuple[str, ...]


class Help(NamedTuple):
    """The page of `--help`, with the choices of users' own folders of YAML."""

    folders: tuple[str, ...]


class Said(NamedTuple):
    """A text to print, such as that of `--cfg job`."""

    text: str


Asked = Once | Many | Help | Said


def understood(words: Sequence[str]) -> Asked:
    """Return what the words of a command line ask for.

    Raises:
        UserError: an option that does not exist or stands wrong, words that cannot be read, or wrong settings.
    """
    check_hydra_words(words)
    if not any(word.startswith("-") for word in words):  # settings alone, as mostly: making a parser costs 4 ms
        return Once(composed(words, ()), repeat_command(words, ()))
    parser = option_parser()
    check_dashes(words, parser)
    given = parsed(words, parser)
    folders = () if given.config_dir is None else (given.config_dir,)
    check_folders(folders)
    if given.help:
        return Help(folders)
    if given.multirun:
        check_choices(given.overrides, folders)
        return Many(tuple(given.overrides), folders)
    if given.cfg or given.info or given.hydra_help or given.shell_completion:
        return Said(shown_by_hydra(given, folders))
    return Once(composed(given.overrides, folders), repeat_command(given.overrides, folders))


def option_parser(completion: str = "") -> ArgumentParser:
    """Return a parser of Hydra's options; `completion` is what its help says of shells."""
    parser = ArgumentParser(add_help=False, description="Hydra")
    for names, settings in OPTIONS:
        parser.add_argument(*names, **settings | {"help": settings["help"].format(completion.replace("%", "%%"))})
    return parser


def check_dashes(words: Sequence[str], parser: ArgumentParser) -> None:
    """Refuse options that there are not; a setting with dashes is the usual cause."""
    options = parser._option_string_actions
    for word in words:
        if word.startswith("-") and word.split("=")[0] not in options:
            bare = word.lstrip("-")
            key = bare.partition("=")[0].split(".")[0]
            if key not in (*(field.name for field in fields(Config)), *group_names()):
                raise UserError(f"unknown option {word}; --help lists options and settings")
            example = bare if "=" in bare else f"{bare}=..."
            raise UserError(f"unknown option {word}; settings take no dashes: write {example}")


def parsed(words: Sequence[str], parser: ArgumentParser) -> Namespace:
    """Return what Hydra's parser makes of the words, wherever among the settings an option stands.

    Raises:
        UserError: an option without its value, with one that it does not take, or beside one that it does not go with.
    """

    def refuse(message: str) -> NoReturn:
        raise UserError(f"{message}; --help shows what there is")

    parser.error = refuse  # type: ignore[method-assign] # argparse prints its usage on errors and leaves no other way
    given = parser.parse_intermixed_args(list(words))
    for name, message in NOT_OURS.items():
        if getattr(given, name) is not None:
            raise UserError(message)
    if given.resolve and not (given.cfg or given.help):
        raise UserError("The --resolve flag can only be used in conjunction with --cfg or --help")
    if sum(bool(getattr(given, name)) for name in MODES) > 1:
        raise UserError("Only one of --run, --multirun, --cfg, --info and --shell_completion can be specified")
    return given


def shown_by_hydra(given: Namespace, folders: Sequence[str]) -> str:
    """Return what an option of Hydra's own prints."""
    words = given.overrides
    register_schema()
    with what_hydra_stumbles_over(), opened(folders, words, whole=True) as hydra, environment(words):
        if given.shell_completion:
            return printed(lambda: hydra.shell_completion("config", words))
        check_choices(words, folders)
        composed = composed_once(words)
        if given.cfg:
            HydraConfig.instance().set_config(composed)  # whose interpolations may ask for Hydra's own settings
            OmegaConf.set_readonly(composed.hydra, None)
            return configuration(hydra.get_sanitized_cfg(composed, given.cfg), given.package, given.resolve)
        if given.info:
            return printed(lambda: hydra.show_info(given.info, "config", words))
        return printed(lambda: hydra.hydra_help("config", option_parser(_get_completion_help()), given))


def printed(print_it: Callable[[], None]) -> str:
    """Return what a function prints."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        try:
            print_it()
        except ValueError as error:
            raise UserError(str(error)) from error
    return output.getvalue().removesuffix("\n")


def configuration(composed: DictConfig, package: str | None, resolve: bool) -> str:
    """Return a configuration as YAML, or the part of it that stands in one package."""
    part: Any = composed if package in (None, "_global_") else OmegaConf.select(composed, str(package))
    if part is None:
        raise UserError(f"package {package!r} not found in config")
    if not isinstance(part, Container):
        return str(part)
    if resolve:
        OmegaConf.resolve(part)
    head = "" if part is composed else f"# @package {package}\n"
    return head + OmegaConf.to_yaml(part).removesuffix("\n")
