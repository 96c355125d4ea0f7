"""Members from outside the package: files named with `--with`, and objects passed to `register`.

Each member is found in its file, checked against the contract of its kind and against its example, and kept in
`registry`, where all packages look it up as if it were built in.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from attn_exp import machine, registry
from attn_exp.config import kinds as reader
from attn_exp.config.choices import yaml_choices
from attn_exp.errors import OwnCodeError, UserError, fault_line, is_fault, printable
from attn_exp.errors import given as value_given
from attn_exp.experiment import metrics
from attn_exp.experiment.metrics.metric import NotFormedError
from attn_exp.forms.trace import Trace
from attn_exp.own_code import error_line, fingerprint, module_of_members, unreadable
from attn_exp.registry import Origin
from attn_exp.rules.example import Example
from attn_exp.rules.from_outside import describe_difference, find_misfit, guard, guard_methods

NAME = re.compile(r"[A-Za-z_]\w*")
TABLES = ("comparison", "distances", "timings", "published")
"""Tables that every run has; a check must not have one of these names."""
Value = TypeVar("Value")


@dataclass(frozen=True)
class Kind:
    """A kind of member, such as `mask`, and how a file defines one.

    - `name`: the kind; its contract is the class of the same name, such as `Mask`.
    - `constant`: the name of the member in a file, such as `NORMALIZER`; empty if members are classes.
    - `function`: the field of that constant that contains the function; empty if members are classes.
    - `one_of`: methods; a class must define at least one of them.
    - `has_example`: whether members should have a hand-made example.
    - `group`: the folder of YAML files with the built-in choices, if it differs from `name`.
    """

    name: str
    constant: str = ""
    function: str = ""
    one_of: tuple[str, ...] = ()
    has_example: bool = False
    group: str = ""

    @property
    def package(self) -> str:
        return registry.PACKAGES[self.name]

    @property
    def contract(self) -> Any:
        """The class of all members; None if it is not imported yet, because then no file can have defined a member."""
        return getattr(sys.modules.get(f"{self.package}.{self.name}"), self.name.capitalize(), None)

    def is_kind_of(self, value: Any) -> bool:
        contract = self.contract or Kind  # if the contract is not imported yet, no value can be a member
        is_member = (
            isinstance(value, contract) if self.constant else inspect.isclass(value) and issubclass(value, contract)
        )
        return is_member and value is not contract

    def home(self, value: Any) -> tuple[str, str]:
        """Return the module that defines a member, and the qualified name of its class or function."""
        code = getattr(value, self.function) if self.constant else value
        return getattr(code, "__module__", ""), getattr(code, "__qualname__", "")


KINDS = (
    Kind("mask", one_of=("allows",), has_example=True),
    Kind("score", one_of=("bend", "bias", "extra"), has_example=True),
    Kind("position", one_of=("embed", "turn"), has_example=True),
    Kind("normalizer", "NORMALIZER", "weigh", has_example=True),
    Kind("form", "FORM", "attend", group="variant"),
    Kind("metric", "METRICS", "measure"),
    Kind("check", "CHECK", "examine"),
    Kind("source", "SOURCE", "read", group="embeddings"),
    Kind("figure", "FIGURE", "draw"),
)
# what a file of members may define, for error messages
EXPECTED = ", ".join(kind.constant or f"a subclass of {kind.name.capitalize()}" for kind in KINDS)


@contextmanager
def load_members(files: Sequence[str]) -> Iterator[None]:
    """Register the members of these files for the block, and print notes about them to stderr.

    Raises:
        UserError: a file is missing, cannot be imported or defines no member; a name is taken; or a member violates its
            contract, does not reproduce its example, or raises an error in the block.
    """
    with registry.undo_registrations():
        try:
            for note in (note for file in files for note in add_file(file)):
                print(f"attn_exp: {printable(note)}", file=sys.stderr)
            yield
        except (UserError, OSError, MemoryError):
            raise
        except Exception as error:  # raised by a user's metric, figure or check, or by what they returned
            message = fault_line(error) if is_fault(error) else error_line(error)
            raise UserError(f"{', '.join(files)}: {message}") from error


@contextmanager
def reload_members(origins: Sequence[Origin]) -> Iterator[None]:
    """Register the members of files in a worker process, checking that the files are unchanged.

    Raises:
        UserError: as for `load_members`, or a file has changed.
    """
    for origin in origins:
        if fingerprint(origin.file) != origin.sha256:
            raise UserError(f"{origin.file} has changed since the sweep started")
    with load_members([origin.file for origin in origins]):
        yield


def register(member: Value, name: str | None = None, example: Any = None) -> Value:
    """Register your own mask, score, position, normalizer, form, metric, check, source or figure, and return it.

    All runs of the Python session can then use it. A member with the same file and name as an earlier one replaces it.
    `register` is also a class decorator: `@attn_exp.register`.

    - `member`: a class or a value as in docs/extend.md, or the path of a file that defines members, as for `--with`.
    - `name`: its name in settings. By default it is the name of the class in snake case, or the member's own `name`.
    - `example`: a rule's `Example`.

    Raises:
        UserError: `member` is not a member, its name is taken, it violates its contract, or it does not reproduce its
            example.
    """
    if isinstance(member, str | Path):
        add_file(str(member))
        return member
    kind = next((kind for kind in KINDS if kind.is_kind_of(member)), None)
    if kind is None:
        raise UserError(f"got {value_given(member)}; expected {EXPECTED}, or the path of a file with members")
    value: Any = member
    own_name = getattr(value, "name", "") if kind.constant else registry.to_snake_case(value.__name__)
    if not (name := name or own_name):
        raise UserError(f'a {kind.name} needs a name: attn_exp.register({kind.constant}, name="mine")')
    value = check_member(kind, name, value._replace(name=name) if kind.name == "metric" else value, example)
    file = getattr(sys.modules.get(kind.home(value)[0]), "__file__", None)
    origin = Origin("", str(file), fingerprint(file)) if file and Path(file).is_file() else Origin()
    registry.add(kind.package, name, value, origin)
    return member


def add_file(file: str) -> list[str]:
    """Add all members of a file, or none if one is invalid, and return notes on the rules without an example.

    Raises:
        UserError: as for `load_members`.
    """
    path = Path(file)
    module = module_of_members(path)
    try:
        return add_members(module, path.stem, Origin(file, str(path.absolute()), fingerprint(path)))
    except UserError as error:
        raise UserError(f"{file}: {error}") from error


def add_members(module: ModuleType, stem: str, origin: Origin) -> list[str]:
    """Add all members of a module, or none if one is invalid, and return notes on the rules without an example."""
    members, examples = find_members(module), getattr(module, "EXAMPLE", None)
    members_to_add, notes = list[tuple[str, str, Any]](), list[str]()
    for kind, defined_name, given in members:
        # the only member of a kind is named after the file; if there are several, each is named after its class
        is_only_one = [other for other, _, _ in members].count(kind) == 1
        name = getattr(given, "name", defined_name) if kind.name == "metric" else re.sub(r"\W", "_", stem)
        if not (is_only_one or kind.constant):
            name = registry.to_snake_case(defined_name)
        example = examples.get(defined_name, examples.get(name)) if isinstance(examples, Mapping) else examples
        members_to_add.append((kind.package, name, check_member(kind, name, given, example)))
        if example is None and kind.has_example:
            notes.append(
                f"{origin.name}: {defined_name} has no EXAMPLE; the reference uses the same rule, so nothing checks it"
            )
    for package, name, wrapped in members_to_add:
        registry.add(package, name, wrapped, origin)
    return notes


def find_members(module: ModuleType) -> list[tuple[Kind, str, Any]]:
    """Return the members of a module, each with its kind and the name of its class or constant.

    Imported names, and classes whose names begin with `_`, are ignored.

    Raises:
        UserError: a constant has the wrong type, or the module defines no member.
    """
    tree = ast.parse(machine.read(Path(str(module.__file__))))
    assigned = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    constants = {kind.constant: kind for kind in KINDS if kind.constant in assigned}
    members = list[tuple[Kind, str, Any]]()
    for name, value in vars(module).items():
        if name in constants:
            kind = constants[name]
            for member in value if isinstance(value, list | tuple) and name == "METRICS" else [value]:
                if not kind.is_kind_of(member):
                    raise UserError(f"{name} is a {type(member).__name__}; expected {kind.name.capitalize()}")
                members.append((kind, name, member))
        elif inspect.isclass(value) and value.__module__ == module.__name__ and not name.startswith("_"):
            members += [(kind, name, value) for kind in KINDS if not kind.constant and kind.is_kind_of(value)]
    if not members:
        raise UserError(f"it defines no member; expected {EXPECTED}")
    return members


def is_taken(kind: Kind, name: str, value: Any = None) -> bool:
    """Return whether a name belongs to a built-in member, or to another member from outside the package."""
    if (kind.package, name) in registry.OUTSIDE:
        earlier = registry.OUTSIDE[kind.package, name].value
        return earlier is not registry.ABSENT and kind.home(earlier) != kind.home(value)
    if kind.name == "metric":
        return name in ("all", *metrics.all_metrics())
    built_in = registry.names(registry.folder(kind.package), without=(kind.name,))
    return name in built_in or name in yaml_choices(kind.group or kind.name)


def check_member(kind: Kind, name: str, value: Any, example: Any) -> Any:
    """Check a member, and return it wrapped: errors and invalid results of its calls are then reported in one line.

    Raises:
        UserError: the name is taken or invalid, or the member violates its contract or does not reproduce its example.
    """
    if not NAME.fullmatch(name):
        raise UserError(f"{kind.name} {name!r}: expected a name of letters, digits and _")
    if is_taken(kind, name, value) or (kind.name == "check" and name.lower() in TABLES):
        raise UserError(f"{kind.name}={name} is taken; choose another name")
    if not kind.constant:
        check_class(kind, value)
    elif not callable(getattr(value, kind.function)):
        raise UserError(f"{kind.name}: {kind.function} must be a function")
    if example is not None and kind.has_example:
        check_example(kind, name, value, example)
    if kind.one_of:
        guard_methods(value, name, kind.name)
        return value
    function = getattr(value, kind.function)
    misfit, error = {"normalizer": (find_misfit, UserError), "form": (describe_non_trace, OwnCodeError)}.get(
        kind.name, (None, UserError)
    )
    guards = {kind.function: guard(function, f"{kind.group or kind.name}={name}", misfit, error, NotFormedError)}
    return value._replace(**guards) if kind.name == "metric" else replace(value, **guards)


def describe_non_trace(arguments: tuple[Any, ...], result: Any) -> str:
    return "" if isinstance(result, Trace) else f"{type(result).__name__}; expected a Trace"


def check_class(kind: Kind, value: Any) -> None:
    name = value.__name__
    parameters = vars(value).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        raise UserError(f"{name} is not a frozen dataclass; write @dataclass(frozen=True) above it")
    if not any(getattr(value, method) is not getattr(kind.contract, method) for method in kind.one_of):
        methods = " or ".join(f"{method}()" for method in kind.one_of)
        raise UserError(f"{name}({kind.name.capitalize()}) must define {methods}")


def check_example(kind: Kind, name: str, value: Any, example: Any) -> None:
    if not isinstance(example, Example):
        raise UserError(f"{kind.name}={name}: its EXAMPLE is a {type(example).__name__}; expected Example")
    outside = [example.outside] if isinstance(example.outside, Example) else []
    for expected in (example, *outside):
        with unreadable(f"{kind.name}={name}: its EXAMPLE", "computed"):
            rule = value if kind.constant else reader.make(value, expected.settings, f"{kind.name}.{name}")
            mismatch = describe_difference(kind.name, rule, expected)
        if mismatch:
            raise UserError(f"{kind.name}={name} does not reproduce its EXAMPLE: {mismatch}")
