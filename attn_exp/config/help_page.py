"""The page of `--help`: every group with its choices, and every setting with what its field says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Annotated, Any, NamedTuple, cast, get_args, get_origin, get_type_hints

from attn_exp import registry
from attn_exp.config.choices import OPEN, default_settings, groups
from attn_exp.config.kinds import Says
from attn_exp.config.schema import PRESETS, Config, Figures, Report, Sweep
from attn_exp.errors import shown

PAGE = """attn_exp: attention, computed in several forms, each checked against a reference, and told apart.

Examples
  python -m attn_exp
  python -m attn_exp head=2 scale=false
  python -m attn_exp -m head=1,2,4 scale=true,false seed=0,1,2

Groups: choose with group=choice; several variants with variant=[one,another]
{groups}

Settings: change with key=value
{settings}

Settings of -m, the sweep: none of them changes a result
{sweep}
{own}
Other commands
  {commands}

Look before you run: --cfg job. Your own YAML: --config-dir FOLDER. Several values: -m. --version says which this is."""


class Line(NamedTuple):
    """A setting as a reader sees it: its name, what it means, and its default as it would be typed."""

    name: str
    meaning: str
    default: str


def page(folders: Sequence[str], members: Mapping[str, Sequence[str]], commands: Sequence[str]) -> str:
    """Return the whole page; `members` are the names that a setting may have, where they are files of the project."""
    members = {**members, "preset": tuple(PRESETS)}
    settings = [line for line in lines(Config, members) if line.name not in groups()]
    figures = [*lines(Report, members, "report."), *lines(Figures, members, "figures.")]
    return PAGE.format(
        groups="\n".join(f"{group}: {', '.join(names)}" for group, names in groups(folders).items()),
        settings=listed([*settings, *figures]),
        sweep=listed(lines(Sweep, members, "sweep.")),
        own=own(),
        commands="\n  ".join(commands),
    )


def own() -> str:
    """Return the members from outside the package, each with what it says of itself, and their settings; or nothing."""
    several = [
        line for (package, name), member in registry.OUTSIDE.items() for line in member_lines(package, name, member)
    ]
    return f"\nFrom outside: what --with brings\n{listed(several)}\n" if several else ""


def member_lines(package: str, name: str, member: registry.Member) -> Iterator[Line]:
    """Yield a line for a member from outside, and one for each of its settings; none for its second name."""
    kind = next(kind for kind, home in registry.PACKAGES.items() if home == package)
    group = "variant" if kind == "form" else kind
    if not member.alias:
        line = ((member.value.__doc__ or "") if isinstance(member.value, type) else "").strip().partition("\n")[0]
        own = "" if re.fullmatch(r"\w+\(.*\)", line) else line  # a dataclass makes that one of its fields
        yield Line(f"{group}={name}", own or f"from {member.origin.name}", "")
        for key, value in default_settings(member.value).items() if isinstance(member.value, type) else ():
            default = "" if value == OPEN else shown(value)
            yield Line(f"{group}.{name}.{key}", "a setting of it" if default else "must be given", default)


def lines(schema: type, members: Mapping[str, Sequence[str]], path: str = "") -> list[Line]:
    """Return a line for each field of a schema that says what it means, and of those below it in a section."""
    hints = get_type_hints(schema, include_extras=True)
    spoken = {setting: " or ".join([", ".join(names[:-1]), names[-1]]) for setting, names in members.items()}
    found: list[Line] = []
    for field in fields(schema):
        hint, name = hints[field.name], path + field.name
        found += [Line(name, says.meaning.format(**spoken), default(field, says)) for says in meanings(hint)]
        if path and is_dataclass(hint):
            found += lines(cast("type", hint), members, f"{name}.")
    return found


def meanings(annotation: Any) -> Iterator[Says]:
    """Yield what a field says of itself, wherever in its annotation."""
    if get_origin(annotation) is Annotated:
        yield from (extra for extra in annotation.__metadata__ if isinstance(extra, Says))
    else:
        for part in get_args(annotation):
            yield from meanings(part)


def default(field: Field[Any], says: Says) -> str:
    """Return the default as it is typed, or in words where it is nothing; empty where there is none to name."""
    if says.unset or field.default is MISSING or is_dataclass(field.default):
        return says.unset
    return shown(field.default) if field.default not in (None, "", ()) else ""


def listed(several: Sequence[Line]) -> str:
    """Return the lines below each other, their names in one column."""
    width = max(len(line.name) for line in several) + 2
    return "\n".join(
        f"  {line.name:{width}}{line.meaning}{f' ({line.default})' if line.default else ''}" for line in several
    )
