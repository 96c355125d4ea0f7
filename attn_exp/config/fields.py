"""The reader of settings: the annotations on the fields of a dataclass define what each setting accepts."""

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
    """Read each value of a mapping according to its field; refuse unknown and missing keys."""
    check_keys(schema, values, path)
    hints = get_type_hints(schema, include_extras=True)
    return {key: kind_of(hints[key]).read(value, f"{path}{key}") for key, value in values.items()}


def check_keys(schema: type, values: Any, path: str) -> None:
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
    if get_origin(annotation) is Annotated:
        named = next((extra for extra in annotation.__metadata__ if isinstance(extra, Kind)), None)
        return named or kind_of(annotation.__origin__)
    if isinstance(annotation, UnionType) or get_origin(annotation) is Union:
        return union_kind(list(get_args(annotation)))
    if is_dataclass(annotation):
        return section(annotation)  # type: ignore[arg-type] # a class: annotations are not instances
    if annotation in PLAIN:
        return PLAIN[annotation]
    return container_kind(get_origin(annotation), get_args(annotation))


def union_kind(parts: list[Any]) -> Kind:
    """Return the kind of `int | None` and the like; a union of several types accepts any value."""
    several = [part for part in parts if part is not NoneType]
    kind = kind_of(several[0]) if len(several) == 1 else AS_IS
    return optional(kind) if NoneType in parts else kind


def container_kind(origin: Any, inside: tuple[Any, ...]) -> Kind:
    """Return the kind of a list of sections or of a mapping from names to sections; others accept any value."""
    if origin is tuple and is_dataclass(inside[0]):
        return list_of(kind_of(inside[0]))
    if origin is Mapping and is_dataclass(inside[1]):
        return by_name(kind_of(inside[1]))
    return AS_IS


def optional(kind: Kind) -> Kind:
    return kind._replace(read=lambda value, key: None if value is None else kind.read(value, key))


def section(schema: type) -> Kind:
    return Kind(lambda value, key: schema(**read_fields(schema, value, f"{key}.")))


def array_or(schema: type) -> Kind:
    return Kind(lambda value, key: section(schema).read(value, key) if isinstance(value, Mapping) else value)


def by_name(kind: Kind) -> Kind:
    def read(value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            refuse(value, key, "a name and its settings")
        return {str(name): kind.read(item, f"{key}.{name}") for name, item in value.items()}

    return Kind(read)


def make(schema: type[Schema], settings: Any, key: str) -> Schema:
    """Return an instance of a dataclass with these settings.

    Raises:
        UserError: an unknown or missing setting, or an invalid value.
    """
    values = read_fields(schema, settings, f"{key}.")
    try:
        return schema(**values)
    except (TypeError, ValueError) as error:
        raise UserError(f"{key}: {error}") from error


def own_kinds(schema: type) -> dict[str, Kind]:
    """Return the kinds of the fields of a class that restrict more than the type.

    Finding them takes ten times as long as creating an object, so classes do it once, on definition.
    """
    hints = get_type_hints(schema, include_extras=True)
    return {name: kind_of(hint) for name, hint in hints.items() if get_origin(hint) in (Annotated, Union)}


def read_own(made: Any, kinds: Mapping[str, Kind]) -> None:
    """Validate an object created in Python against its fields, and store the converted values."""
    for field, kind in kinds.items():
        value = kind.read(getattr(made, field), f"{registry.name_of(made)} {field}")
        object.__setattr__(made, field, value)
