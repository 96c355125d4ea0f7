"""What two runs or two sweeps have in common, and where they part: plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attn_exp.report import words
from attn_exp.report.escapes import plain
from attn_exp.report.numbers import brief
from attn_exp.report.papers import Table
from attn_exp.sweeps.plan import flatten

NOT_COMPARED = ("output_dir", "report", "figures", "sweep", "title")
"""Settings that no number depends on."""
FROM_A_MODEL = ("embeddings.", "projections.")
"""Settings whose arrays are read of a model, where one is asked for."""
LONGEST, SHORT = 60, 30


def settings_apart(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings in which two mappings differ, nested ones by their dotted names; arrays come last.

    What a model gives, its vectors and matrices, is left out where another model, layer or text was asked for.
    """
    one, other = flatten_compared(first), flatten_compared(second)
    both = {name: (one.get(name), other.get(name)) for name in dict.fromkeys((*one, *other))}
    apart = {name: pair for name, pair in both.items() if pair[0] != pair[1]}
    if any(name.startswith("model.") for name in apart) and first.get("model") and second.get("model"):
        apart = {name: pair for name, pair in apart.items() if not (name.startswith(FROM_A_MODEL) and is_array(pair))}
    return dict(sorted(apart.items(), key=lambda named: is_array(named[1])))


def flatten_compared(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that numbers depend on, by dotted names; a rule without settings, such as a mask, is true."""
    pairs = flatten({name: value for name, value in settings.items() if name.split(".")[0] not in NOT_COMPARED})
    return {name: True if value == {} else value for name, value in pairs if value != {} or "." in name}


def is_array(pair: tuple[Any, Any]) -> bool:
    """Return whether one of two settings is a list."""
    return any(isinstance(value, list | tuple) for value in pair)


def settings_table(apart: Mapping[str, tuple[Any, Any]]) -> Table:
    """Return the settings that differ as a table."""
    lines = tuple((name, *map(show_setting, pair)) for name, pair in apart.items())
    return Table("settings", "Settings that differ.", (words.SETTING, words.FIRST_ONE, words.SECOND_ONE), lines)


def short_names(apart: Mapping[str, tuple[Any, Any]]) -> tuple[str, str]:
    """Return a name for each side: the one setting that differs, such as `model.layer=5`, or which of the two it is."""
    plain_ones = [(name, pair) for name, pair in apart.items() if not is_array(pair)]
    if len(plain_ones) == 1 and None not in plain_ones[0][1]:
        name, pair = plain_ones[0]
        texts = (str(value).lower() if isinstance(value, bool) else str(value) for value in pair)
        one, other = (plain(f"{name}={text}", SHORT) for text in texts)
        if one != other:
            return one, other
    return words.FIRST_ONE, words.SECOND_ONE


def show_setting(value: Any) -> str:
    """Write a setting in few characters."""
    if isinstance(value, list | tuple) and value:
        return plain(f"[{', '.join(map(show_setting, value))}]", LONGEST)
    return "-" if value in (None, [], ()) else plain(brief(value), LONGEST)


def list_origins(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[str]:
    """Yield where the programs or the machines of two folders differ."""
    one, other = first.get("versions") or {}, second.get("versions") or {}
    for name in dict.fromkeys((*one, *other)):
        if one.get(name) != other.get(name):
            yield f"{name} {one.get(name, '-')} {words.AND} {other.get(name, '-')}"
    if first.get("version") != second.get("version"):
        yield "another version of this program"
    if first.get("cpu") != second.get("cpu"):
        yield f"{first.get('cpu')} {words.AND} {second.get('cpu')}"
    commits = [(about.get("git") or {}).get("commit", "")[:10] or "-" for about in (first, second)]
    if commits[0] != commits[1]:
        yield f"commits {commits[0]} and {commits[1]}"


def format_origins(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """Return a sentence on the programs or machines that made the two, if these differ."""
    lines = list(list_origins(first, second))
    return f"Made by different programs or machines: {'; '.join(lines)}." if lines else ""


def count_things(count: int, thing: str) -> str:
    """Write how many there are of a thing."""
    return f"1 {thing}" if count == 1 else f"{count:,} {thing}s"


def format_settings(table: Table) -> str:
    """Return a sentence on how many settings differ."""
    if not table.lines:
        return "All settings are the same."
    names, more = [line[0] for line in table.lines[:3]], len(table.lines) - 3
    names += [f"{more} more"] if more > 0 else []
    count = "1 setting differs" if len(table.lines) == 1 else f"{len(table.lines):,} settings differ"
    return f"{count}: {words.listed(names)}."
