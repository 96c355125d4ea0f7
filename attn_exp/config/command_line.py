"""Parse the command line, in which options and settings may appear in any order, and format the --help page."""

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
    composed,
    composed_once,
    register_schema,
    repeat_command,
)
from attn_exp.config.hydra_errors import check_hydra_words, what_hydra_stumbles_over
from attn_exp.config.kinds import OPEN, Says
from attn_exp.config.loader import environment, opened
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


class Once(NamedTuple):
    """One run: its settings, and the command that repeats it."""

    config: Config
    repeat: Repeat


class Many(NamedTuple):
    """A sweep: its command-line arguments, and the user's own config folders."""

    words: tuple[str, ...]
    folders: tuple[str, ...]


class Help(NamedTuple):
    """The page of `--help`, with the choices in the user's own config folders."""

    folders: tuple[str, ...]


class Said(NamedTuple):
    """Text to print, such as the output of `--cfg job`."""

    text: str


Asked = Once | Many | Help | Said


def understood(words: Sequence[str]) -> Asked:
    """Parse the arguments of a command line.

    Raises:
        UserError: an option is unknown or misplaced, arguments cannot be parsed, or settings are invalid.
    """
    check_hydra_words(words)
    if not any(word.startswith("-") for word in words):  # the common case, without a parser, whose creation takes 4 ms
        return Once(composed(words, ()), repeat_command(words, ()))
    given = parse_words(words)
    folders = () if given.config_dir is None else (given.config_dir,)
    check_folders(folders)
    if given.help:
        return Help(folders)
    if given.multirun:
        check_choices(given.overrides, folders)
        return Many(tuple(given.overrides), folders)
    if given.cfg:
        return Said(format_settings(given.overrides, folders, given.resolve))
    return Once(composed(given.overrides, folders), repeat_command(given.overrides, folders))


def parse_words(words: Sequence[str]) -> Namespace:
    """Parse the options and settings of a command line; options may appear anywhere among the settings.

    Raises:
        UserError: an option is unknown, lacks its value, or conflicts with another.
    """

    def refuse(message: str) -> NoReturn:
        raise UserError(f"{message}; --help lists options and settings")

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
    """Return the error message for an unknown option, which is usually a setting written with dashes."""
    name, bare = word.split("=", maxsplit=1)[0], word.lstrip("-")
    if name in NOT_OURS:
        return f"{name}: {NOT_OURS[name]}"
    if bare.partition("=")[0].split(".")[0] not in (*(field.name for field in fields(Config)), *group_names()):
        return f"unknown option {word}; --help lists options and settings"
    return f"unknown option {word}; settings take no dashes: write {bare if '=' in bare else f'{bare}=...'}"


def format_settings(words: Sequence[str], folders: Sequence[str], resolve: bool) -> str:
    register_schema()
    with what_hydra_stumbles_over(), opened(folders, words, whole=True) as hydra, environment(words):
        check_choices(words, folders)
        settings = hydra.get_sanitized_cfg(composed_once(words), "job")
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
    """A setting in `--help`: its name, its meaning, and its default as it would be typed."""

    name: str
    meaning: str
    default: str


def page(folders: Sequence[str], members: Mapping[str, Sequence[str]], commands: Sequence[str]) -> str:
    """Return the text of `--help`; `members` maps settings that name members of a package to their choices."""
    members = {**members, "preset": tuple(PRESETS)}
    settings = [line for line in lines(Config, members) if line.name not in groups()]
    figures = [*lines(Report, members, "report."), *lines(Figures, members, "figures.")]
    return PAGE.format(
        groups="\n".join(f"{group}: {', '.join(names)}" for group, names in groups(folders).items()),
        settings=align_lines([*settings, *figures]),
        sweep=align_lines(lines(Sweep, members, "sweep.")),
        own=format_outside(),
        commands="\n  ".join(commands),
    )


def format_outside() -> str:
    several = [
        line for (package, name), member in registry.OUTSIDE.items() for line in member_lines(package, name, member)
    ]
    return f"\nFrom outside the package, loaded by --with\n{align_lines(several)}\n" if several else ""


def member_lines(package: str, name: str, member: registry.Member) -> Iterator[Line]:
    """Yield a line for a member from outside and one for each of its settings."""
    kind = next(kind for kind, home in registry.PACKAGES.items() if home == package)
    group = {"form": "variant", "source": "embeddings"}.get(kind, kind)
    line = ((member.value.__doc__ or "") if isinstance(member.value, type) else "").strip().partition("\n")[0]
    own = "" if re.fullmatch(r"\w+\(.*\)", line) else line  # generated by @dataclass
    yield Line(f"{group}={name}", own or f"from {member.origin.name}", "")
    for key, value in default_settings(member.value).items() if isinstance(member.value, type) else ():
        default = "" if value == OPEN else shown(value)
        yield Line(f"{group}.{name}.{key}", "a setting of this member" if default else "required", default)


def lines(schema: type, members: Mapping[str, Sequence[str]], path: str = "") -> list[Line]:
    hints = get_type_hints(schema, include_extras=True)
    spoken = {setting: " or ".join([", ".join(names[:-1]), names[-1]]) for setting, names in members.items()}
    found = []
    for field in fields(schema):
        hint, name = hints[field.name], path + field.name
        found += [
            Line(name, says.meaning.format(**spoken), format_default(field, says)) for says in find_meanings(hint)
        ]
        if path and is_dataclass(hint):
            found += lines(cast("type", hint), members, f"{name}.")
    return found


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


def align_lines(several: Sequence[Line]) -> str:
    width = max(len(line.name) for line in several) + 2
    return "\n".join(
        f"  {line.name:{width}}{line.meaning}{f' ({line.default})' if line.default else ''}" for line in several
    )
