"""The result of comparing two runs or two sweeps, as plain data."""

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
"""Settings whose arrays come from a model, if one is configured."""
LONGEST, SHORT = 60, 30


def settings_apart(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ, nested ones by dotted names; arrays come last.

    Vectors and matrices from a model are left out if the model, the layer or the text differs.
    """
    one, other = flatten_compared(first), flatten_compared(second)
    both = {name: (one.get(name), other.get(name)) for name in dict.fromkeys((*one, *other))}
    apart = {name: pair for name, pair in both.items() if pair[0] != pair[1]}
    if any(name.startswith("model.") for name in apart) and first.get("model") and second.get("model"):
        apart = {name: pair for name, pair in apart.items() if not (name.startswith(FROM_A_MODEL) and is_array(pair))}
    return dict(sorted(apart.items(), key=lambda named: is_array(named[1])))


def flatten_compared(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten the settings that affect numbers to dotted names; a rule without settings becomes true."""
    pairs = flatten({name: value for name, value in settings.items() if name.split(".")[0] not in NOT_COMPARED})
    return {name: True if value == {} else value for name, value in pairs if value != {} or "." in name}


def is_array(pair: tuple[Any, Any]) -> bool:
    return any(isinstance(value, list | tuple) for value in pair)


def settings_table(apart: Mapping[str, tuple[Any, Any]]) -> Table:
    lines = tuple((name, *map(show_setting, pair)) for name, pair in apart.items())
    return Table("settings", "Settings that differ.", (words.SETTING, words.FIRST_ONE, words.SECOND_ONE), lines)


def short_names(apart: Mapping[str, tuple[Any, Any]]) -> tuple[str, str]:
    """Name each side by the only setting that differs, such as `model.layer=5`, or as the first and the second."""
    plain_ones = [(name, pair) for name, pair in apart.items() if not is_array(pair)]
    if len(plain_ones) == 1 and None not in plain_ones[0][1]:
        name, pair = plain_ones[0]
        texts = (str(value).lower() if isinstance(value, bool) else str(value) for value in pair)
        one, other = (plain(f"{name}={text}", SHORT) for text in texts)
        if one != other:
            return one, other
    return words.FIRST_ONE, words.SECOND_ONE


def show_setting(value: Any) -> str:
    """Format a setting in few characters."""
    if isinstance(value, list | tuple) and value:
        return plain(f"[{', '.join(map(show_setting, value))}]", LONGEST)
    return "-" if value in (None, [], ()) else plain(brief(value), LONGEST)


def list_origins(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[str]:
    """Yield the differences between the programs or machines of two folders."""
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
    """Return a sentence on the programs or machines that made the two, if they differ."""
    lines = list(list_origins(first, second))
    return f"Made by different programs or machines: {'; '.join(lines)}." if lines else ""


def count_things(count: int, thing: str) -> str:
    return f"1 {thing}" if count == 1 else f"{count:,} {thing}s"


def format_settings(table: Table) -> str:
    if not table.lines:
        return "All settings are the same."
    names, more = [line[0] for line in table.lines[:3]], len(table.lines) - 3
    names += [f"{more} more"] if more > 0 else []
    count = "1 setting differs" if len(table.lines) == 1 else f"{len(table.lines):,} settings differ"
    return f"{count}: {words.listed(names)}."
