"""List the choices of each settings group, from YAML files and from members outside the package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any

from attn_exp import registry
from attn_exp.config.kinds import OPEN

ONE_CHOICE = ("embeddings", "projections", "model", "experiment", "report")
"""Groups that accept a single choice; all other groups accept several."""
RULES = ("mask", "score", "position")
OUTSIDE_GROUPS = (*RULES, "variant", "embeddings")
"""Groups that accept choices from outside the package."""


def conf_dir() -> Path:
    """Return the shipped YAML folder: next to pyproject.toml in a checkout, else inside the package."""
    here = Path(__file__).resolve().parent.parent
    checkout = here.parent / "conf"
    in_checkout = (here.parent / "pyproject.toml").is_file() and (checkout / "config.yaml").is_file()
    return checkout if in_checkout else here / "conf"


def choices(group: str, folders: Sequence[str] = ()) -> list[str]:
    """Return the names of a group's choices, including those in users' own folders and from outside the package."""
    return sorted({*yaml_choices(group, folders), *outside_choices(group)})


def yaml_choices(group: str, folders: Sequence[str] = ()) -> list[str]:
    return sorted(
        {path.stem for folder in (conf_dir(), *map(Path, folders)) for path in (folder / group).glob("*.yaml")}
    )


def groups(folders: Sequence[str] = ()) -> dict[str, list[str]]:
    all_choices = {name: choices(name, folders) for name in sorted(group_names(folders))}
    return {name: names for name, names in all_choices.items() if names}


def group_names(folders: Sequence[str] = ()) -> set[str]:
    names = {path.name for folder in (conf_dir(), *map(Path, folders)) for path in folder.iterdir() if path.is_dir()}
    return names - {"hydra"}


def outside_choices(group: str) -> dict[str, dict[str, Any]]:
    """Return a group's members from outside the package: for each name, its settings as in YAML.

    Members whose code is not available are left out.
    """
    kind = {"variant": "form", "embeddings": "source"}.get(group, group)
    package = registry.PACKAGES[kind] if group in OUTSIDE_GROUPS else ""
    choices = dict[str, dict[str, Any]]()
    for name, value in registry.available_members(package).items():
        if kind == "form":
            choices[name] = {name: {"form": name}}
        elif kind == "source":
            choices[name] = {"source": {name: default_settings(value.settings)}}
        else:
            choices[name] = {name: default_settings(value)}
    return choices


def default_settings(schema: Any) -> dict[str, Any]:
    """Return the settings of a class with their defaults as plain values; mandatory ones are `OPEN`."""
    return {field.name: read_default(field) for field in fields(schema)} if is_dataclass(schema) else {}


def read_default(field: Field[Any]) -> Any:
    if field.default is not MISSING:
        return as_yaml_value(field.default)
    return OPEN if field.default_factory is MISSING else as_yaml_value(field.default_factory())


def as_yaml_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): as_yaml_value(item) for key, item in value.items()}
    return [as_yaml_value(item) for item in value] if isinstance(value, list | tuple) else value
