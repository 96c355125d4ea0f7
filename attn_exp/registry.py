"""Find the members of a package by name; a member is a rule, a form, a metric or the like.

A built-in member is a module of the package. External members are registered here: those of `--with` files until the
command ends, and those of `attn_exp.register` until Python exits.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

Kind = TypeVar("Kind")


class Origin(NamedTuple):
    """Where external members come from.

    - `name`: the file as the user named it after `--with`; empty for objects passed to `register`.
    - `file`: its full path. `sha256`: its fingerprint, see `own_code.fingerprint`.
    """

    name: str = ""
    file: str = ""
    sha256: str = ""


class Member(NamedTuple):
    """An external member: a class or a value, or `ABSENT` if a stored run names it but its code is not available."""

    value: Any
    origin: Origin


PACKAGES = {
    "mask": "attn_exp.rules.masks",
    "score": "attn_exp.rules.scores",
    "position": "attn_exp.rules.positions",
    "normalizer": "attn_exp.rules.normalizers",
    "form": "attn_exp.forms",
    "metric": "attn_exp.experiment.metrics",
    "check": "attn_exp.experiment.checks",
    "source": "attn_exp.problem.sources",
    "figure": "attn_exp.report.figures",
}
"""The packages that accept external members, by the kind of member as users name it."""
ABSENT = object()  # the value of a member whose code is not available
OUTSIDE: dict[tuple[str, str], Member] = {}
"""External members, by the package that they extend and their name in it."""


def outside(package: str) -> tuple[str, ...]:
    """Return the names of a package's external members."""
    return tuple(name for home, name in OUTSIDE if home == package)


def available_members(package: str) -> dict[str, Any]:
    """Return the external members that extend a package and whose code is available, by name."""
    return {name: OUTSIDE[package, name].value for name in outside(package) if not is_absent(package, name)}


def is_absent(package: str, name: str) -> bool:
    return (package, name) in OUTSIDE and OUTSIDE[package, name].value is ABSENT


def add(package: str, name: str, value: Any, origin: Origin) -> None:
    OUTSIDE[package, name] = Member(value, origin)


@contextmanager
def undo_registrations() -> Iterator[None]:
    """Undo every registration made in the block when it ends."""
    saved = dict(OUTSIDE)
    try:
        yield
    finally:
        OUTSIDE.clear()
        OUTSIDE.update(saved)


def origins() -> dict[Origin, list[str]]:
    """Return the origins of external members, each with its members as `package:name`."""
    members_of: dict[Origin, list[str]] = {}
    for (package, name), member in OUTSIDE.items():
        members_of.setdefault(member.origin, []).append(f"{package}:{name}")
    return members_of


def files() -> tuple[str, ...]:
    return tuple(dict.fromkeys(origin.name for origin in origins() if origin.name))


def names(path: Sequence[str], *, without: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names of a package's members, sorted, `without` the modules that define the contract.

    Subpackages, and modules whose names begin with `_`, are not members.
    """
    return tuple(
        module.name
        for module in pkgutil.iter_modules(path)  # sorted
        if not (module.ispkg or module.name.startswith("_") or module.name in without)
    )


def folder(package: str) -> Sequence[str]:
    return importlib.import_module(package).__path__


def module(package: str, name: str) -> ModuleType:
    return importlib.import_module(f"{package}.{name}")


def member_class(package: str, name: str, kind: type[Kind]) -> type[Kind]:
    """Return the class registered from outside under a name, or else the only subclass of `kind` in its module."""
    if (package, name) in OUTSIDE:
        return OUTSIDE[package, name].value  # type: ignore[no-any-return] # `add` was given a class of that kind
    source = module(package, name)
    (found,) = [
        member
        for member in vars(source).values()
        if inspect.isclass(member) and issubclass(member, kind) and member.__module__ == source.__name__
    ]
    return found


def name_of(instance: Any) -> str:
    """Return the name of a rule in settings: the name under which it was registered, or that of its module.

    A placeholder has the name of the rule that it stands for.
    """
    if isinstance(replaced := getattr(instance, "stands_for", None), str):
        return replaced
    own_class = type(instance)
    registered = (name for (_, name), member in OUTSIDE.items() if member.value is own_class)
    package, _, file = own_class.__module__.rpartition(".")
    return next(registered, file if package.startswith("attn_exp.") else to_snake_case(own_class.__name__))


def to_snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def constant(package: str, name: str, kind: type[Kind]) -> Kind:
    """Return the value registered from outside under a name, or else its module's constant, such as `NORMALIZER`."""
    if (package, name) in OUTSIDE:
        return OUTSIDE[package, name].value  # type: ignore[no-any-return] # as above
    return getattr(module(package, name), kind.__name__.upper())  # type: ignore[no-any-return] # its contract
