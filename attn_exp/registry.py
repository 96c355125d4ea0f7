"""Finds what lives one to a file: a rule, a position or a form by the name of its module."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from math import isfinite
from types import ModuleType, NoneType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from attn_exp.errors import UserError, shown, unknown

Kind = TypeVar("Kind")


def names(path: Sequence[str], *, without: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names of a package's members, in order, `without` those that define the contract.

    A name with `_` in front is no member, and neither is a folder."""
    return tuple(
        sorted(
            module.name
            for module in pkgutil.iter_modules(path)
            if not (module.ispkg or module.name.startswith("_") or module.name in without)
        )
    )


def folder(package: str) -> Sequence[str]:
    """Return where the files of a package are."""
    return importlib.import_module(package).__path__


def module(package: str, name: str) -> ModuleType:
    """Import one module of a package; what is not used costs nothing."""
    return importlib.import_module(f"{package}.{name}")


def found(package: str, name: str, kind: type[Kind]) -> type[Kind]:
    """Return the one class of that kind which the module defines."""
    source = module(package, name)
    kinds = [
        each
        for each in vars(source).values()
        if inspect.isclass(each) and issubclass(each, kind) and each.__module__ == source.__name__
    ]
    if len(kinds) != 1:
        raise TypeError(f"{source.__name__} defines {len(kinds)} classes of kind {kind.__name__}; expected one")
    return kinds[0]


def check_kind(value: Any, kind: Any, key: str) -> None:
    """Refuse a value that is not of the kind of its field, where that is a plain one.

    Raises:
        UserError: the value, and what was expected.
    """
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if not set(kinds) <= set(PLAIN) or (value is None and NoneType in kinds):
        return
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = {bool: isinstance(value, bool), int: number and isinstance(value, int), float: number and isfinite(value)}
    if not any(fits.get(each, False) for each in kinds):
        raise UserError(f"{key}={shown(value)}: expected {' or '.join(PLAIN[each] for each in kinds if PLAIN[each])}")


PLAIN = {bool: "true or false", int: "a whole number", float: "a finite number", NoneType: ""}


def make(schema: type[Kind], settings: Any, key: str) -> Kind:
    """Return an object of the class with these settings, which are its dataclass fields.

    Raises:
        UserError: a setting that the class lacks or that is missing, or a value that it refuses.
    """
    if not isinstance(settings, Mapping):
        raise UserError(f"{key}={settings}: expected settings, got a plain value")
    known = {each.name: each for each in fields(schema)}  # type: ignore[arg-type] # every kind is a dataclass
    for name in settings:
        if name not in known:
            choices = [f"{key}.{each}" for each in known]
            raise UserError(unknown(f"{key}.{name}", choices, "setting") if choices else f"{key} has no settings")
    for name, each in known.items():
        if each.default is MISSING and each.default_factory is MISSING and name not in settings:
            raise UserError(f"{key}.{name} is missing")
    for name, kind in get_type_hints(schema).items():
        if name in settings:
            check_kind(settings[name], kind, f"{key}.{name}")
    try:
        return schema(**settings)
    except (TypeError, ValueError) as error:
        raise UserError(f"{key}: {error}") from error
