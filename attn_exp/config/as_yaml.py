"""Words of a command line as a file of YAML that says the same."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from attn_exp.config.choices import group_names
from attn_exp.config.compose import overrides
from attn_exp.config.spelling import PLAIN

NOT_TEXT = ("true", "false", "null", "nan", "inf", "yes", "no", "on", "off")
"""Words that YAML reads as something else than a text."""

Tree = dict[str, Any]
"""Settings within settings; its leaves are texts of YAML."""


def as_yaml(words: Sequence[str], folders: Sequence[str] = ()) -> tuple[list[str], Tree] | None:
    """Return the lines of a list of defaults, and the settings below them; None where YAML cannot say the words."""
    groups = group_names(folders)
    defaults, tree = list[str](), Tree()
    for override in overrides(words):
        key = override.key_or_group
        if not sayable(override, group=key in groups):
            return None
        if key not in groups:
            put(tree, key.split("."), override.value())
        elif key == "experiment":
            defaults = [f"- {name}" for name in listed(override.value())] + defaults
        else:
            defaults.append(f"- override /{key}: {leaf(override.value())}")
    return defaults, tree


def sayable(override: Any, group: bool) -> bool:
    """Say whether a word gives one plain value: takes nothing away, adds no group, sweeps no list, changes no part."""
    plain = override.type.name in (("CHANGE",) if group else ("CHANGE", "ADD", "FORCE_ADD"))
    parts = override.key_or_group.replace("[", ".").split(".")
    whole = not any(part.rstrip("]").isdigit() for part in parts)
    return bool(plain and whole and override.package is None and not override.is_sweep_override())


def listed(value: Any) -> list[Any]:
    """Return the names in a choice of files: several, one, or none."""
    return value if isinstance(value, list) else [] if value is None else [value]


def put(tree: Tree, path: Sequence[str], value: Any) -> None:
    """Give a setting its value, as YAML."""
    *above, last = path
    for name in above:
        if not isinstance(tree.get(name), dict):
            tree[name] = {}
        tree = tree[name]
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            put(tree, [last, str(name)], item)
    else:
        tree[last] = leaf(value)


def leaf(value: Any) -> str:
    """Write a value as YAML in one line."""
    if isinstance(value, list):
        return f"[{', '.join(map(leaf, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{leaf(name)}: {leaf(item)}' for name, item in value.items())}}}"
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{'-' * (value < 0)}.inf"
    if isinstance(value, str) and PLAIN.fullmatch(value) and value.lower() not in NOT_TEXT:
        return value
    return json.dumps(value, ensure_ascii=False)
