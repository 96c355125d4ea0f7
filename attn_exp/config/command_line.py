"""What a command line asks for, read once, with whatever options stand among its settings."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple, NoReturn

from omegaconf import OmegaConf

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
    (("--help", "-h"), {"action": "store_true"}),
    (("overrides",), {"nargs": "*"}),
    (("--cfg", "-c"), {"choices": ["job"]}),
    (("--resolve",), {"action": "store_true"}),
    (("--multirun", "-m"), {"action": "store_true"}),
    (("--config-dir", "-cd"), {}),
)
"""The options of Hydra's that are obeyed, as its own parser has them."""

ONE_MAIN = "the shipped YAML is the only main one; your own comes in with --config-dir FOLDER"
NOT_OURS = {
    "--config-path": ONE_MAIN,
    "--config-name": ONE_MAIN,
    "--experimental-rerun": "it would run what a file says; attn-exp rerun DIR repeats a run",
    "--info": "--cfg job shows the settings, and --help the choices of each group",
    "--package": "--cfg job shows all settings",
}
"""Options of Hydra's that are refused, and what to use instead."""


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
    given = parsed(words)
    folders = () if given.config_dir is None else (given.config_dir,)
    check_folders(folders)
    if given.help:
        return Help(folders)
    if given.multirun:
        check_choices(given.overrides, folders)
        return Many(tuple(given.overrides), folders)
    if given.cfg:
        return Said(configuration(given.overrides, folders, given.resolve))
    return Once(composed(given.overrides, folders), repeat_command(given.overrides, folders))


def parsed(words: Sequence[str]) -> Namespace:
    """Return the options and settings of a command line, wherever among the settings an option stands.

    Raises:
        UserError: an unknown option, one without its value, or one that does not go with another.
    """

    def refuse(message: str) -> NoReturn:
        raise UserError(f"{message}; --help shows what there is")

    parser = ArgumentParser(add_help=False)
    parser.error = refuse  # type: ignore[method-assign] # argparse prints its usage on errors and leaves no other way
    for names, settings in OPTIONS:
        parser.add_argument(*names, **settings)
    for word in words:
        if word.startswith("-") and word.split("=")[0] not in parser._option_string_actions:
            raise UserError(unknown_option(word))
    given = parser.parse_intermixed_args(list(words))
    if given.resolve and not given.cfg:
        raise UserError("The --resolve flag can only be used in conjunction with --cfg")
    if given.multirun and given.cfg:
        raise UserError("Only one of --multirun and --cfg can be specified")
    return given


def unknown_option(word: str) -> str:
    """Say what to write instead of an option that there is not; a setting with dashes is the usual cause."""
    name, bare = word.split("=", maxsplit=1)[0], word.lstrip("-")
    if name in NOT_OURS:
        return f"{name}: {NOT_OURS[name]}"
    if bare.partition("=")[0].split(".")[0] not in (*(field.name for field in fields(Config)), *group_names()):
        return f"unknown option {word}; --help lists options and settings"
    return f"unknown option {word}; settings take no dashes: write {bare if '=' in bare else f'{bare}=...'}"


def configuration(words: Sequence[str], folders: Sequence[str], resolve: bool) -> str:
    """Return the composed settings as YAML."""
    register_schema()
    with what_hydra_stumbles_over(), opened(folders, words, whole=True) as hydra, environment(words):
        check_choices(words, folders)
        settings = hydra.get_sanitized_cfg(composed_once(words), "job")
        if resolve:
            OmegaConf.resolve(settings)
        return OmegaConf.to_yaml(settings).removesuffix("\n")
