"""Finds what lives one to a file: a rule, a position or a form by the name of its module, or what came from outside.

What comes from outside the package is kept here and nowhere else: a file that the command line names with `--with`, for
as long as that command lasts, and what `attn_exp.register` was asked to add.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

Kind = TypeVar("Kind")


class Origin(NamedTuple):
    """Where members from outside come from: the file as it was named, its whole path, and a hash of what it holds."""

    name: str = ""
    file: str = ""
    sha256: str = ""


class Member(NamedTuple):
    """One member from outside: a class or a value; `ABSENT` where a run on disk names it and its code is not at hand.

    `alias`: whether its name is a second one, which lists leave out."""

    value: Any
    origin: Origin
    alias: bool = False


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
"""Where the members live that may come from outside, by what a user calls them."""
ABSENT = object()
OUTSIDE: dict[tuple[str, str], Member] = {}
"""What came from outside, by the package that it would live in and its name there."""


def outside(package: str) -> tuple[str, ...]:
    """Return the names of what came from outside for a package."""
    return tuple(name for (home, name), member in OUTSIDE.items() if home == package and not member.alias)


def at_hand(package: str) -> dict[str, Any]:
    """Return what came from outside for a package and can be used, by name; second names are left out."""
    return {name: OUTSIDE[package, name].value for name in outside(package) if not is_absent(package, name)}


def is_known(package: str, name: str) -> bool:
    """Say whether a package has a member from outside of that name, be it a second name."""
    return (package, name) in OUTSIDE


def is_absent(package: str, name: str) -> bool:
    """Say whether a name is known, and its code is not at hand."""
    return (package, name) in OUTSIDE and OUTSIDE[package, name].value is ABSENT


def add(package: str, name: str, value: Any, origin: Origin, *, alias: bool = False) -> None:
    """Keep a member from outside; its name must be free."""
    OUTSIDE[package, name] = Member(value, origin, alias)


@contextmanager
def kept() -> Iterator[None]:
    """Forget at the end what came from outside in between."""
    before = dict(OUTSIDE)
    try:
        yield
    finally:
        OUTSIDE.clear()
        OUTSIDE.update(before)


def origins() -> dict[Origin, list[str]]:
    """Return where members from outside come from, and which come from there, as `package:name`."""
    several: dict[Origin, list[str]] = {}
    for (package, name), member in OUTSIDE.items():
        several.setdefault(member.origin, []).append(f"{package}:{name}")
    return several


def files() -> tuple[str, ...]:
    """Return the files that members from outside come from, as they were named."""
    return tuple(dict.fromkeys(origin.name for origin in origins() if origin.name))


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
    full = f"{package}.{name}"
    return sys.modules[full] if full in sys.modules else importlib.import_module(full)


def has(package: str, name: str, *, without: Sequence[str] = ()) -> bool:
    """Say whether a package has a file of that name, without listing all that it has."""
    if not name.isidentifier() or name.startswith("_") or name in without:
        return False
    return f"{package}.{name}" in sys.modules or any(Path(place, f"{name}.py").is_file() for place in folder(package))


def member_class(package: str, name: str, kind: type[Kind]) -> type[Kind]:
    """Return the one class of that kind which the module defines, or the one of that name from outside."""
    if (package, name) in OUTSIDE:
        return OUTSIDE[package, name].value  # type: ignore[no-any-return] # `add` was given a class of that kind
    source = module(package, name)
    kinds = [
        member
        for member in vars(source).values()
        if inspect.isclass(member) and issubclass(member, kind) and member.__module__ == source.__name__
    ]
    if len(kinds) != 1:
        raise TypeError(f"{source.__name__} defines {len(kinds)} classes of kind {kind.__name__}; expected one")
    return kinds[0]


def name_of(made: Any) -> str:
    """Return what settings call the class of a rule: the name that it has from outside, or that of its file.

    What stands in for a rule whose code is not at hand holds the name of that rule.
    """
    if isinstance(absent := getattr(made, "stands_for", None), str):
        return absent
    own = type(made)
    known = (name for (_, name), member in OUTSIDE.items() if member.value is own)
    home, _, file = own.__module__.rpartition(".")
    shipped = file if home.startswith("attn_exp.") else re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", own.__name__).lower()
    return next(known, shipped)


def constant(package: str, name: str, kind: type[Kind]) -> Kind:
    """Return the one value of that kind which the module holds, such as its `NORMALIZER`, or the one from outside."""
    if (package, name) in OUTSIDE:
        return OUTSIDE[package, name].value  # type: ignore[no-any-return] # as above
    source = vars(module(package, name))
    usual = source.get(kind.__name__.upper())
    if isinstance(usual, kind):  # a sweep asks this a hundred times a point
        return usual
    values = [value for value in source.values() if isinstance(value, kind)]
    if len(values) != 1:
        raise TypeError(f"{package}.{name} holds {len(values)} values of kind {kind.__name__}; expected one")
    return values[0]


def members(package: str, kind: type[Kind], *, without: Sequence[str] = ()) -> dict[str, Kind]:
    """Return every member of a package by its name, in order, where a file may hold several of them.

    A file of several holds them by their names in a dict, such as `GENERATORS`; a file of one holds it as `GENERATOR`,
    and the name of the file is its own."""
    found: dict[str, Kind] = {}
    for name in names(folder(package), without=without):
        several = getattr(module(package, name), f"{kind.__name__.upper()}S", None)
        found |= {name: constant(package, name, kind)} if several is None else several
    return dict(sorted(found.items()))
