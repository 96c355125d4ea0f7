"""What two runs or two sweeps have in common, and where they part: plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attn_exp.report import words
from attn_exp.report.escapes import plain
from attn_exp.report.numbers import brief
from attn_exp.report.papers import Table

NOT_COMPARED = ("output_dir", "report", "figures", "sweep", "title")
"""Settings that no number depends on."""
FROM_A_MODEL = ("embeddings.", "projections.")
"""Settings whose arrays are read of a model, where one is asked for."""
LONGEST, SHORT = 60, 30


def common(first: str, second: str) -> str:
    """Return the depth that two reports share; all where they differ."""
    return first if first == second else "all"


def settings_apart(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings in which two mappings differ, nested ones by their dotted names; arrays come last.

    What a model gives, its vectors and matrices, is left out where another model, layer or text was asked for.
    """
    one, other = dict(flat(first)), dict(flat(second))
    both = {name: (one.get(name), other.get(name)) for name in dict.fromkeys((*one, *other))}
    apart = {name: pair for name, pair in both.items() if name.split(".")[0] not in NOT_COMPARED and pair[0] != pair[1]}
    if any(name.startswith("model.") for name in apart) and first.get("model") and second.get("model"):
        apart = {name: pair for name, pair in apart.items() if not (name.startswith(FROM_A_MODEL) and is_array(pair))}
    return dict(sorted(apart.items(), key=lambda named: is_array(named[1])))


def is_array(pair: tuple[Any, Any]) -> bool:
    """Say whether one of two settings is a list."""
    return any(isinstance(value, list | tuple) for value in pair)


def settings_table(apart: Mapping[str, tuple[Any, Any]]) -> Table:
    """Return the settings that differ as a table."""
    lines = tuple((name, *map(shown, pair)) for name, pair in apart.items())
    return Table("settings", "Settings that differ.", (words.SETTING, words.FIRST_ONE, words.SECOND_ONE), lines)


def short_names(apart: Mapping[str, tuple[Any, Any]]) -> tuple[str, str]:
    """Return a name for each side: the one setting that differs, such as `model.layer=5`, or which of the two it is."""
    plain_ones = [(name, pair) for name, pair in apart.items() if not is_array(pair)]
    if len(plain_ones) == 1 and None not in plain_ones[0][1]:
        name, (first, second) = plain_ones[0]
        one, other = (plain(f"{name}={yaml_of(value)}", SHORT) for value in (first, second))
        if one != other:
            return one, other
    return words.FIRST_ONE, words.SECOND_ONE


def yaml_of(value: Any) -> str:
    """Write a plain setting as the command line takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def flat(settings: Mapping[str, Any], start: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings of nested mappings by their dotted names; what is chosen and has no settings is true."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{start}{name}.")
            if start and not value:
                yield f"{start}{name}", True
        else:
            yield f"{start}{name}", value


def shown(value: Any) -> str:
    """Write a setting in few characters."""
    if isinstance(value, list | tuple):
        return plain(f"[{', '.join(map(shown, value))}]", LONGEST) if value else "-"
    return "-" if value is None else plain(brief(value) if isinstance(value, float | bool) else str(value), LONGEST)


def origins(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[str]:
    """Say where the programs or the machines of two folders differ."""
    one, other = first.get("versions") or {}, second.get("versions") or {}
    for name in dict.fromkeys((*one, *other)):
        if one.get(name) != other.get(name):
            yield f"{name} {one.get(name, '-')} {words.AND} {other.get(name, '-')}"
    for name in ("version", "cpu"):
        if first.get(name) != second.get(name):
            both = f"{first.get(name)} {words.AND} {second.get(name)}"
            yield "another version of this program" if name == "version" else both
    one, other = ((about.get("git") or {}).get("commit", "") for about in (first, second))
    if one != other:
        yield f"commits {one[:10] or '-'} and {other[:10] or '-'}"


def made_by(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """Say in a sentence what made the two otherwise, if anything did."""
    lines = list(origins(first, second))
    return f"Made by different programs or machines: {'; '.join(lines)}." if lines else ""


def counted(count: int, thing: str) -> str:
    """Write how many there are of a thing."""
    return f"1 {thing}" if count == 1 else f"{count:,} {thing}s"


def differing(table: Table) -> str:
    """Say how many settings differ."""
    if not table.lines:
        return "All settings are the same."
    names, more = [line[0] for line in table.lines[:3]], len(table.lines) - 3
    names += [f"{more} more"] if more > 0 else []
    count = "1 setting differs" if len(table.lines) == 1 else f"{len(table.lines):,} settings differ"
    return f"{count}: {words.listed(names)}."
