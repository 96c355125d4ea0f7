"""Members from outside the package: files that the command line names with `--with`, and what `register` is given."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from attn_exp import registry
from attn_exp.errors import UserError
from attn_exp.experiment import member_kinds as kinds
from attn_exp.experiment.member_kinds import Kind
from attn_exp.own_code import MEMBERS, fingerprint, module_of_members
from attn_exp.registry import Origin
from attn_exp.rules.drawn import turns_keys

OPTION = "--with"
Value = TypeVar("Value")


def apart(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the files that the words of a command line name with `--with`, each once, and all other words.

    Raises:
        UserError: `--with` and no file.
    """
    files, others, waiting = list[str](), list[str](), iter(words)
    for word in waiting:
        if word == OPTION or word.startswith(f"{OPTION}="):
            file = word.partition("=")[2] if "=" in word else next(waiting, "")
            if not file or file.startswith("-"):
                raise UserError(f"{OPTION} names a file of your own masks, scores, forms or metrics: {OPTION} mine.py")
            files.append(file)
        else:
            others.append(word)
    return list(dict.fromkeys(files)), others


@contextmanager
def named(files: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Let the members of these files be known, as long as the context lasts; yield what is to be said of them.

    Raises:
        UserError: a file that is not there, cannot be imported or brings no member, a name that is taken, or a member
            that does not meet its contract or give its example.
    """
    modules, path = set(sys.modules), list(sys.path)
    with registry.kept():
        try:
            yield tuple(note for file in files for note in add_file(file))
        finally:
            sys.path[:] = path
            for name in set(sys.modules) - modules:
                if name.startswith(MEMBERS):
                    del sys.modules[name]


NAME = re.compile(r"[A-Za-z_]\w*")


@contextmanager
def again(origins: Sequence[Origin]) -> Iterator[None]:
    """Let the members of files be known in another process than the one that named them.

    Raises:
        UserError: as `named`, or a file that is not what it was there.
    """
    for origin in origins:
        if fingerprint(origin.file) != origin.sha256:
            raise UserError(f"{origin.file} is not the file that the sweep began with")
    with named([origin.file for origin in origins]):
        yield


def add_file(file: str) -> list[str]:
    """Add every member of a file, and return what is to be said of it: rules of which no outcome is drawn.

    Raises:
        UserError: as `named`.
    """
    place = Path(file)
    try:
        module = module_of_members(place)
        return add_module(module, place.stem, Origin(file, str(place.absolute()), fingerprint(place)))
    except UserError as error:
        raise UserError(f"{file}: {error}") from error


def add_module(module: ModuleType, stem: str, origin: Origin) -> list[str]:
    """Add every member of a module, all or none, and return the rules of which no outcome is drawn, in a sentence.

    Raises:
        UserError: as `named`.
    """
    members, examples = several(module), getattr(module, "EXAMPLE", None)
    drawn = [kind.name for kind, _, _ in members if kind.name in kinds.DRAWN]
    if len(drawn) > 1 and examples is not None and not isinstance(examples, Mapping):
        raise UserError(f"EXAMPLE is of one rule and there are {len(drawn)}; write EXAMPLE = {{name: Example(...)}}")
    checked, notes = list[tuple[Kind, list[str], Any]](), list[str]()
    for kind, own, value in members:
        names = called(kind, stem, own, value, alone=[other.name for other, _, _ in members].count(kind.name) == 1)
        example = next((known for name in (own, *names) if (known := kinds.example_of(name, examples))), None)
        check(kind, names[0], value, example)
        if example is None and kind.name in kinds.DRAWN:
            notes.append(f"{origin.name}: {own} has no EXAMPLE; the reference asks the same rule, so nothing checks it")
        if example is not None and kind.name == "position" and turns_keys(value) and not example.keys:
            notes.append(
                f"{origin.name}: {own} has a turn_key, and its EXAMPLE no keys; a wrong sign would not be seen"
            )
        checked.append((kind, names, value))
    for kind, names, value in checked:
        keep(kind, names, value, origin)
    return notes


def several(module: ModuleType) -> list[tuple[Kind, str, Any]]:
    """Return the members of a module, its kind and its name there; of classes that build on others, the last ones.

    Raises:
        UserError: there is none.
    """
    members = list(kinds.in_module(module))
    bases = {base for _, _, value in members if inspect.isclass(value) for base in value.__mro__[1:]}
    kept = [member for member in members if not (inspect.isclass(member[2]) and member[2] in bases)]
    if not kept:
        raise UserError(f"it brings no member; expected {kinds.SAID}")
    return kept


def called(kind: Kind, stem: str, own: str, value: Any, *, alone: bool) -> list[str]:
    """Return the names of a member: that of its file, where it is the only one of its kind, and its own."""
    if kind.name == "metric":
        return [value.name]
    names = [re.sub(r"\W", "_", stem)] if alone else []
    if kind.name == "normalizer":
        names.append(value.name)
    elif not kind.constant:
        names.append(snake(own))
    return list(dict.fromkeys(name for name in names if NAME.fullmatch(name))) or names[:1]


def check(kind: Kind, name: str, value: Any, example: Any) -> None:
    """Refuse a member whose name is taken, or that does not meet its contract or give its example.

    Raises:
        UserError: what is in the way.
    """
    if not NAME.fullmatch(name):
        raise UserError(f"{kind.name} {name!r}: expected a name of letters, digits and _")
    if kinds.is_taken(kind, name, value):
        raise UserError(f"{kind.name}={name} is taken; give yours another name")
    kinds.check_contract(kind, value)
    if example is not None and kind.name in kinds.DRAWN:
        kinds.check_example(kind, name, value, example)


def keep(kind: Kind, names: Sequence[str], value: Any, origin: Origin) -> None:
    """Keep a member under its name, and under its second one where that is free."""
    for place, name in enumerate(names):
        if place == 0 or not kinds.is_taken(kind, name, value):
            registry.add(kind.package, name, value, origin, alias=place > 0)


def snake(name: str) -> str:
    """Return the name of a class as settings are written: in small letters, its words joined by `_`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def register(member: Value, name: str | None = None, example: Any = None) -> Value:
    """Let runs of this Python session know a mask, score, position, normalizer, form, metric, check, source or figure
    of your own, and return it.

    `member`: a class or a value as docs/extend.md has them, or a file of them, as `--with` takes it. `name`: what
    settings call it; a class, a metric and a normalizer have names of their own. `example`: a rule's `Example`.
    It can stand above a class: `@attn_exp.register`. What is registered again from the same place is replaced.

    Raises:
        UserError: it is no member, its name is taken, it does not meet its contract, or gives another outcome than the
            example draws.
    """
    if isinstance(member, str | Path):
        add_file(str(member))
        return member
    kind = kinds.kind_of(member)
    if kind is None:
        raise UserError(f"{kinds.spoken(member)} is no member; expected {kinds.SAID}, or a file of them")
    value: Any = replace(member, name=name) if kind.name == "metric" and name else member  # type: ignore[type-var]
    own = {"metric": lambda: value.name, "normalizer": lambda: value.name}
    names = [name] if name else [own[kind.name]()] if kind.name in own else []
    if not names and kind.constant:
        raise UserError(f'a {kind.name} has no name of its own: attn_exp.register({kind.constant}, name="mine")')
    names = names or [snake(value.__name__)]
    check(kind, names[0], value, example)
    file = kinds.file_of(kind, value)
    keep(kind, names, value, Origin("", file, fingerprint(file) if file else ""))
    return member
