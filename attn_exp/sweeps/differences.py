"""What comparing two runs and comparing two sweeps share: the settings and the programs that differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attn_exp.config.spelling import spelled
from attn_exp.report import words
from attn_exp.report.escapes import brief, plain
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
    names = [name for name, pair in apart.items() if not is_array(pair)]
    if len(names) == 1 and None not in apart[names[0]]:
        one, other = (plain(f"{names[0]}={spelled(value)}", SHORT) for value in apart[names[0]])
        if one != other:
            return one, other
    return words.FIRST_ONE, words.SECOND_ONE


def show_setting(value: Any) -> str:
    """Format a setting in few characters."""
    if isinstance(value, list | tuple) and value:
        return plain(f"[{', '.join(map(show_setting, value))}]", LONGEST)
    return "-" if value in (None, [], ()) else plain(brief(value), LONGEST)


def format_origins(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """Return a sentence on the programs or machines that made the two, if they differ."""
    one, other = map(find_origin, (first, second))
    names = (name for name in dict.fromkeys((*one, *other)) if one.get(name) != other.get(name))
    apart = [f"{name} {one.get(name, '-')} {words.AND} {other.get(name, '-')}" for name in names]
    return f"Made by different programs or machines: {'; '.join(apart)}." if apart else ""


def find_origin(about: Mapping[str, Any]) -> dict[str, str]:
    """Return what made a run or a sweep: versions of libraries and of this program, the processor and the commit."""
    program = {"this program": about.get("version"), "commit": (about.get("git") or {}).get("commit")}
    made = {**(about.get("versions") or {}), "processor": about.get("cpu")}
    return {name: str(value)[: 10 if name in program else LONGEST] for name, value in (made | program).items() if value}


def count_things(count: int, thing: str) -> str:
    return f"1 {thing}" if count == 1 else f"{count:,} {thing}s"


def format_settings(table: Table) -> str:
    if not table.lines:
        return "All settings are the same."
    names, more = [line[0] for line in table.lines[:3]], len(table.lines) - 3
    names += [f"{more} more"] if more > 0 else []
    count = "1 setting differs" if len(table.lines) == 1 else f"{len(table.lines):,} settings differ"
    return f"{count}: {words.listed(names)}."
