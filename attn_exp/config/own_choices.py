"""Members from outside the package as choices of Hydra's groups, with the settings that their fields say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from attn_exp import registry

RULES = {name: f"attn_exp.rules.{name}s" for name in ("mask", "score", "position")}
GROUPS = (*RULES, "variant", "embeddings")
"""Groups whose choices may come from outside."""
OPEN = "???"
"""What Hydra writes for a value that must be given."""
FORMS, SOURCES = "attn_exp.forms", "attn_exp.problem.sources"


def nodes(group: str) -> dict[str, dict[str, Any]]:
    """Return what the YAML of each member from outside would hold, for the members of one group."""
    if group in RULES:
        return {name: {name: defaults(value)} for name, value in members(RULES[group])}
    if group == "variant":
        return {name: {name: {"form": name}} for name, _ in members(FORMS)}
    if group == "embeddings":
        return {name: {"source": {name: defaults(value.settings)}} for name, value in members(SOURCES)}
    return {}


def members(package: str) -> list[tuple[str, Any]]:
    """Return the members from outside of a package, and their names; those whose code is not at hand are left out."""
    return [
        (name, member.value)
        for (home, name), member in registry.OUTSIDE.items()
        if home == package and not registry.is_absent(package, name)
    ]


def defaults(schema: Any) -> dict[str, Any]:
    """Return the settings of a class with their defaults, as plain values; those that must be given are left open."""
    return {field.name: default(field) for field in fields(schema)} if is_dataclass(schema) else {}


def default(field: Field[Any]) -> Any:
    """Return the default of a setting as YAML would hold it."""
    if field.default is not MISSING:
        return plain(field.default)
    return OPEN if field.default_factory is MISSING else plain(field.default_factory())


def plain(value: Any) -> Any:
    """Return a default as plain lists and mappings, which Hydra holds."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def closed(settings: dict[str, Any]) -> dict[str, Any]:
    """Return composed settings without what was left open and not given: the reader then says that it is missing."""
    rules = {group: without_open(settings[group]) for group in RULES if isinstance(settings.get(group), Mapping)}
    return settings | rules


def without_open(values: Any) -> Any:
    """Return mappings, at any depth, without what was left open."""
    if not isinstance(values, Mapping):
        return values
    return {key: without_open(value) for key, value in values.items() if value != OPEN or not isinstance(value, str)}
