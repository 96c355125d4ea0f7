"""Parse the command line, in which options and settings may appear in any order, and format the --help page.

`parse_command_line` returns a `SingleRun`, a `SweepRun`, a `Help` or an `Output`; `cli.py` acts on it.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Annotated, Any, NamedTuple, NoReturn, cast, get_args, get_origin, get_type_hints

from omegaconf import OmegaConf

from attn_exp import registry
from attn_exp.config.choices import default_settings, group_names, groups
from attn_exp.config.compose import (
    check_choices,
    check_folders,
    compose_config,
    compose_dict_config,
    register_schema,
    repeat_command,
)
from attn_exp.config.hydra_errors import check_hydra_words, reword_any_error
from attn_exp.config.kinds import OPEN, Says
from attn_exp.config.loader import guard_environment, initialize_hydra
from attn_exp.config.schema import PRESETS, Config, Figures, Report, Sweep
from attn_exp.config.spelling import Repeat
from attn_exp.errors import UserError, shown

OPTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("--help", "-h"), {"action": "store_true"}),
    (("overrides",), {"nargs": "*"}),
    (("--cfg", "-c"), {"choices": ["job"]}),
    (("--resolve",), {"action": "store_true"}),
    (("--multirun", "-m"), {"action": "store_true"}),
    (("--config-dir", "-cd"), {}),
)
"""The supported options of Hydra, declared as in its own parser."""

ONE_MAIN = "the shipped YAML is the only primary config; add your own with --config-dir FOLDER"
NOT_OURS = {
    "--config-path": ONE_MAIN,
    "--config-name": ONE_MAIN,
    "--experimental-rerun": "it would run code that a file names; use attn-exp rerun DIR to repeat a run",
    "--info": "--cfg job shows the settings, and --help the choices of each group",
    "--package": "--cfg job shows all settings",
}
"""Hydra's options that are rejected, and what to use instead."""


class SingleRun(NamedTuple):
    """One run: its settings, and the command that repeats it."""

    config: Config
    repeat: Repeat


class SweepRun(NamedTuple):
    """A sweep: its command-line arguments, and the user's own config folders."""

    words: tuple[str, ...]
    folders: tuple[str, ...]


class Help(NamedTuple):
    """The page of `--help`, with the choices in the user's own config folders."""

    folders: tuple[str, ...]


class Output(NamedTuple):
    """Text to print, such as the output of `--cfg job`."""

    text: str


Request = SingleRun | SweepRun | Help | Output


def parse_command_line(words: Sequence[str]) -> Request:
    """Parse the arguments of a command line into one run, a sweep, the help page, or text to print.

    Raises:
        UserError: an option is unknown or misplaced, arguments cannot be parsed, or settings are invalid.
    """
    check_hydra_words(words)
    if not any(word.startswith("-") for word in words):  # the common case, without a parser, whose creation takes 4 ms
        return SingleRun(compose_config(words, ()), repeat_command(words, ()))
    namespace = parse_words(words)
    folders = () if namespace.config_dir is None else (namespace.config_dir,)
    check_folders(folders)
    if namespace.help:
        return Help(folders)
    if namespace.multirun:
        check_choices(namespace.overrides, folders)
        return SweepRun(tuple(namespace.overrides), folders)
    if namespace.cfg:
        return Output(format_settings(namespace.overrides, folders, namespace.resolve))
    return SingleRun(compose_config(namespace.overrides, folders), repeat_command(namespace.overrides, folders))


def parse_words(words: Sequence[str]) -> Namespace:
    """Parse the options and settings of a command line; options may appear anywhere among the settings.

    Raises:
        UserError: an option is unknown, lacks its value, or conflicts with another.
    """

    def refuse(message: str) -> NoReturn:
        raise UserError(f"{message}; --help lists options and settings")

    parser = ArgumentParser(add_help=False)
    parser.error = refuse  # type: ignore[method-assign] # argparse prints its usage on errors and leaves no other way
    for names, options in OPTIONS:
        parser.add_argument(*names, **options)
    for word in words:
        if word.startswith("-") and word.split("=")[0] not in parser._option_string_actions:
            raise UserError(unknown_option(word))
    namespace = parser.parse_intermixed_args(list(words))
    if namespace.resolve and not namespace.cfg:
        raise UserError("--resolve needs --cfg: it resolves the interpolations that --cfg prints")
    if namespace.multirun and namespace.cfg:
        raise UserError("--multirun and --cfg cannot be combined")
    return namespace


def unknown_option(word: str) -> str:
    """Return the error message for an unknown option, which is usually a setting written with dashes."""
    name, bare = word.split("=", maxsplit=1)[0], word.lstrip("-")
    if name in NOT_OURS:
        return f"{name}: {NOT_OURS[name]}"
    if bare.partition("=")[0].split(".")[0] not in (*(field.name for field in fields(Config)), *group_names()):
        return f"unknown option {word}; --help lists options and settings"
    return f"unknown option {word}; settings take no dashes: write {bare if '=' in bare else f'{bare}=...'}"


def format_settings(words: Sequence[str], folders: Sequence[str], resolve: bool) -> str:
    register_schema()
    with reword_any_error(), initialize_hydra(folders, words, keep_arrays=True) as hydra, guard_environment(words):
        check_choices(words, folders)
        settings = hydra.get_sanitized_cfg(compose_dict_config(words), "job")
        if resolve:
            OmegaConf.resolve(settings)
        return OmegaConf.to_yaml(settings).removesuffix("\n")


# The page of --help

PAGE = """attn_exp: Run several variants of attention on one input, check each against a reference, and compare them.

Examples
  python -m attn_exp
  python -m attn_exp head=2 scale=false
  python -m attn_exp -m head=1,2,4 scale=true,false seed=0,1,2

Groups: choose with group=choice; several variants with variant=[one,another]
{groups}

Settings: change with key=value
{settings}

Settings of a sweep (-m); they do not change its results
{sweep}
{own}
Other commands
  {commands}

Settings without a run: --cfg job. Your own YAML: --config-dir FOLDER. Several values: -m. Version: --version."""


class Line(NamedTuple):
    """A setting in `--help`: its name, its meaning, and its default as a user would type it."""

    name: str
    meaning: str
    default: str


def format_help(folders: Sequence[str], members: Mapping[str, Sequence[str]], commands: Sequence[str]) -> str:
    """Return the text of `--help`; `members` holds the choices of settings such as `normalizer`, by setting."""
    members = {**members, "preset": tuple(PRESETS)}
    settings = [line for line in list_settings(Config, members) if line.name not in groups()]
    figures = [*list_settings(Report, members, "report."), *list_settings(Figures, members, "figures.")]
    return PAGE.format(
        groups="\n".join(f"{group}: {', '.join(names)}" for group, names in groups(folders).items()),
        settings=align_lines([*settings, *figures]),
        sweep=align_lines(list_settings(Sweep, members, "sweep.")),
        own=format_outside(),
        commands="\n  ".join(commands),
    )


def format_outside() -> str:
    lines = [
        line
        for (package, name), member in registry.OUTSIDE.items()
        for line in list_member_settings(package, name, member)
    ]
    return f"\nFrom outside the package, loaded by --with\n{align_lines(lines)}\n" if lines else ""


def list_member_settings(package: str, name: str, member: registry.Member) -> Iterator[Line]:
    """Yield a line for a member from outside the package, then one for each of its settings."""
    kind = next(kind for kind, home in registry.PACKAGES.items() if home == package)
    group = {"form": "variant", "source": "embeddings"}.get(kind, kind)
    first_line = ((member.value.__doc__ or "") if isinstance(member.value, type) else "").strip().partition("\n")[0]
    meaning = "" if re.fullmatch(r"\w+\(.*\)", first_line) else first_line  # as @dataclass generates it
    yield Line(f"{group}={name}", meaning or f"from {member.origin.name}", "")
    for key, value in default_settings(member.value).items() if isinstance(member.value, type) else ():
        default = "" if value == OPEN else shown(value)
        yield Line(f"{group}.{name}.{key}", "a setting of this member" if default else "required", default)


def list_settings(schema: type, members: Mapping[str, Sequence[str]], path: str = "") -> list[Line]:
    hints = get_type_hints(schema, include_extras=True)
    choices_of = {setting: " or ".join([", ".join(names[:-1]), names[-1]]) for setting, names in members.items()}
    listed = []
    for field in fields(schema):
        hint, name = hints[field.name], path + field.name
        listed += [
            Line(name, says.meaning.format(**choices_of), format_default(field, says)) for says in find_meanings(hint)
        ]
        if path and is_dataclass(hint):
            listed += list_settings(cast("type", hint), members, f"{name}.")
    return listed


def find_meanings(annotation: Any) -> Iterator[Says]:
    if get_origin(annotation) is Annotated:
        yield from (extra for extra in annotation.__metadata__ if isinstance(extra, Says))
    else:
        for part in get_args(annotation):
            yield from find_meanings(part)


def format_default(field: Field[Any], says: Says) -> str:
    if says.unset or field.default is MISSING or is_dataclass(field.default):
        return says.unset
    return shown(field.default) if field.default not in (None, "", ()) else ""


def align_lines(lines: Sequence[Line]) -> str:
    width = max(len(line.name) for line in lines) + 2
    return "\n".join(
        f"  {line.name:{width}}{line.meaning}{f' ({line.default})' if line.default else ''}" for line in lines
    )
