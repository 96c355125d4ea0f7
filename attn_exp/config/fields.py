"""The one reader of settings: what stands on the fields of a dataclass decides what each takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from attn_exp import registry
from attn_exp.config.kinds import AS_IS, FLAG, NAMES, NUMBER, TEXT, TEXTS, WHOLE, Kind, list_of, refuse
from attn_exp.errors import UserError, brief, shown, unknown

Schema = TypeVar("Schema")

PLAIN = {bool: FLAG, int: WHOLE, float: NUMBER, str: TEXT, tuple[str, ...]: TEXTS, Mapping[str, Any]: NAMES}


def read_fields(schema: type, values: Any, path: str) -> dict[str, Any]:
    """Read each value of a mapping as its field says; keys that the schema lacks are refused, as are missing ones."""
    check_keys(schema, values, path)
    hints = get_type_hints(schema, include_extras=True)
    return {key: kind_of(hints[key]).read(value, f"{path}{key}") for key, value in values.items()}


def check_keys(schema: type, values: Any, path: str) -> None:
    """Refuse what is no mapping, keys that are no fields, and fields without a default that are missing."""
    if not isinstance(values, Mapping):
        raise UserError(f"{path.rstrip('.')}={brief(shown(values))}: expected settings, got a plain value")
    names = [field.name for field in fields(schema)]
    for key in values:
        if key not in names:
            choices = [f"{path}{name}" for name in names]
            raise UserError(unknown(f"{path}{key}", choices, "setting") if names else f"{path[:-1]} has no settings")
    for field in fields(schema):
        needed = field.default is MISSING and field.default_factory is MISSING
        if needed and field.name not in values:
            raise UserError(f"{path}{field.name} is missing")


def kind_of(annotation: Any) -> Kind:
    """Return the kind of a field: the one that its annotation names, or that of its type."""
    if get_origin(annotation) is Annotated:
        named = next((extra for extra in annotation.__metadata__ if isinstance(extra, Kind)), None)
        return named or kind_of(annotation.__origin__)
    if isinstance(annotation, UnionType) or get_origin(annotation) is Union:
        return union_kind(list(get_args(annotation)))
    if is_dataclass(annotation):
        return section(annotation)  # type: ignore[arg-type] # a class: annotations are no instances
    if annotation in PLAIN:
        return PLAIN[annotation]
    return container_kind(get_origin(annotation), get_args(annotation))


def union_kind(parts: list[Any]) -> Kind:
    """Return the kind of `int | None` and its like; of several types, any value is taken as it is."""
    several = [part for part in parts if part is not NoneType]
    kind = kind_of(several[0]) if len(several) == 1 else AS_IS
    return optional(kind) if NoneType in parts else kind


def container_kind(origin: Any, inside: tuple[Any, ...]) -> Kind:
    """Return the kind of a mapping of names to sections, or of a list of them; anything else is taken as it is."""
    if origin is tuple and is_dataclass(inside[0]):
        return list_of(kind_of(inside[0]))
    if origin is Mapping and is_dataclass(inside[1]):
        return by_name(kind_of(inside[1]))
    return AS_IS


def optional(kind: Kind) -> Kind:
    """Take None as well."""
    return kind._replace(read=lambda value, key: None if value is None else kind.read(value, key))


def section(schema: type) -> Kind:
    """Take the settings of one group."""
    return Kind(lambda value, key: schema(**read_fields(schema, value, f"{key}.")))


def array_or(schema: type) -> Kind:
    """Take numbers as they are, or a mapping as one of these."""
    return Kind(lambda value, key: section(schema).read(value, key) if isinstance(value, Mapping) else value)


def by_name(kind: Kind) -> Kind:
    """Take a mapping of names to the settings of one group."""

    def read(value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            refuse(value, key, "a name and its settings")
        return {str(name): kind.read(item, f"{key}.{name}") for name, item in value.items()}

    return Kind(read)


def make(schema: type[Schema], settings: Any, key: str) -> Schema:
    """Return an object of the class with these settings, which are its dataclass fields.

    Raises:
        UserError: a setting that the class lacks or that is missing, or a value that it refuses.
    """
    values = read_fields(schema, settings, f"{key}.")
    try:
        return schema(**values)
    except (TypeError, ValueError) as error:
        raise UserError(f"{key}: {error}") from error


def own_kinds(schema: type) -> dict[str, Kind]:
    """Return what the fields of a class say of their values, where that is more than a type.

    Finding that out takes ten times as long as making an object, so classes ask once, when they are defined.
    """
    hints = get_type_hints(schema, include_extras=True)
    return {name: kind_of(hint) for name, hint in hints.items() if get_origin(hint) in (Annotated, Union)}


def read_own(made: Any, kinds: Mapping[str, Kind]) -> None:
    """Hold an object that was made in Python to what its fields say, and keep the values as they are read."""
    for field, kind in kinds.items():
        value = kind.read(getattr(made, field), f"{registry.name_of(made)} {field}")
        object.__setattr__(made, field, value)
