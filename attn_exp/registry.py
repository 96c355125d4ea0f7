"""Finds what lives one to a file: a rule, a position or a form by the name of its module."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Sequence
from types import ModuleType
from typing import TypeVar

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


def member_class(package: str, name: str, kind: type[Kind]) -> type[Kind]:
    """Return the one class of that kind which the module defines."""
    source = module(package, name)
    kinds = [
        member
        for member in vars(source).values()
        if inspect.isclass(member) and issubclass(member, kind) and member.__module__ == source.__name__
    ]
    if len(kinds) != 1:
        raise TypeError(f"{source.__name__} defines {len(kinds)} classes of kind {kind.__name__}; expected one")
    return kinds[0]


def constant(package: str, name: str, kind: type[Kind]) -> Kind:
    """Return the one value of that kind which the module holds, such as its `NORMALIZER`."""
    values = [value for value in vars(module(package, name)).values() if isinstance(value, kind)]
    if len(values) != 1:
        raise TypeError(f"{package}.{name} holds {len(values)} values of kind {kind.__name__}; expected one")
    return values[0]
