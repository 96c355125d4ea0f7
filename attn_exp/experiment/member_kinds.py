"""Which kinds of members can come from outside the package, what each must be, and the example that rules draw."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from attn_exp import registry
from attn_exp.config import fields as reader
from attn_exp.config.choices import yaml_choices
from attn_exp.errors import UserError, first_line
from attn_exp.rules.drawn import difference
from attn_exp.rules.example import Example


@dataclass(frozen=True)
class Kind:
    """A kind of member: what a user calls it, its contract, where members live, and what a file holds it as.

    `constant`: the name of the value in a file; empty where it is a class. `one_of`: methods of which a class has one.
    """

    name: str
    contract: str
    package: str
    constant: str = ""
    one_of: tuple[str, ...] = ()

    def is_kind_of(self, value: Any) -> bool:
        """Say whether a value is of this kind; its contract is loaded where there is such a value."""
        contract = self.contract_class()
        if contract is None or value is contract:
            return False
        return isinstance(value, contract) if self.constant else inspect.isclass(value) and issubclass(value, contract)

    def contract_class(self) -> Any:
        """Return the contract, or None where nobody has loaded it: there is no member of it then."""
        home, _, name = self.contract.rpartition(".")
        return getattr(sys.modules.get(f"attn_exp.{home}"), name, None)


KINDS = (
    Kind("mask", "rules.masks.mask.Mask", "attn_exp.rules.masks", one_of=("allows",)),
    Kind("score", "rules.scores.score.Score", "attn_exp.rules.scores", one_of=("bend", "bias", "extra")),
    Kind("position", "rules.positions.position.Position", "attn_exp.rules.positions", one_of=("embed", "turn")),
    Kind("normalizer", "rules.normalizers.normalizer.Normalizer", "attn_exp.rules.normalizers", "NORMALIZER"),
    Kind("form", "forms.form.Form", "attn_exp.forms", "FORM"),
    Kind("metric", "experiment.metrics.metric.Metric", "attn_exp.experiment.metrics", "METRICS"),
    Kind("check", "experiment.checks.check.Check", "attn_exp.experiment.checks", "CHECK"),
    Kind("source", "problem.sources.source.Source", "attn_exp.problem.sources", "SOURCE"),
    Kind("figure", "report.figures.figure.Figure", "attn_exp.report.figures", "FIGURE"),
)
FUNCTIONS = {
    "normalizer": "weigh", "form": "attend", "metric": "measure", "check": "examine", "source": "read",
    "figure": "draw",
}  # fmt: skip
"""The function that each value holds."""
DRAWN = ("mask", "score", "position", "normalizer")
"""Kinds whose members draw an example by hand."""
SAID = ", ".join(kind.constant or f"a subclass of {kind.contract.rpartition('.')[2]}" for kind in KINDS)


def kind_of(value: Any) -> Kind | None:
    """Return the kind of a class or a value; None where it is no member."""
    return next((kind for kind in KINDS if kind.is_kind_of(value)), None)


def in_module(module: ModuleType) -> Iterator[tuple[Kind, str, Any]]:
    """Yield each member of a module, its kind, and the name that it has there: a class, or the constant of its kind.

    What the module imports is none of its members.

    Raises:
        UserError: a constant that is something else.
    """
    own = assigned(module)
    constants = {kind.constant: kind for kind in KINDS if kind.constant in own}
    for name, value in vars(module).items():
        kind = constants.get(name) or kind_of(value)
        if kind is None or name.startswith("_"):
            continue
        if name in constants:
            for item in value if isinstance(value, list | tuple) and name == "METRICS" else [value]:
                if not kind.is_kind_of(item):
                    raise UserError(f"{name} is a {type(item).__name__}; expected {kind.contract.rpartition('.')[2]}")
                yield kind, name, item
        elif not kind.constant and value.__module__ == module.__name__:
            yield kind, name, value


def assigned(module: ModuleType) -> set[str]:
    """Return the names that the file of a module gives values to, and not those that it imports."""
    tree = ast.parse(Path(str(module.__file__)).read_bytes())
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def check_contract(kind: Kind, value: Any) -> None:
    """Refuse a member that does not meet its contract.

    Raises:
        UserError: what is missing, in one sentence.
    """
    if not kind.constant:
        check_class(kind, value)
    elif kind.name == "metric" and not str(value.name).isidentifier():
        raise UserError(f"metric {value.name!r}: its name must be a word")
    elif kind.name == "check" and not is_dataclass(value.record):
        raise UserError("CHECK: its record must be a frozen dataclass")
    if kind.constant and not callable(getattr(value, FUNCTIONS[kind.name])):
        raise UserError(f"{kind.name}: {FUNCTIONS[kind.name]} must be a function")


def check_class(kind: Kind, value: Any) -> None:
    """Refuse a class that is no frozen dataclass, that says nothing, or whose settings cannot be read."""
    name, contract = value.__name__, kind.contract.rpartition(".")[2]
    parameters = vars(value).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        raise UserError(f"{name} is no frozen dataclass; write @dataclass(frozen=True) above it")
    if not any(getattr(value, method) is not getattr(kind.contract_class(), method) for method in kind.one_of):
        methods = " or ".join(f"{method}()" for method in kind.one_of)
        raise UserError(f"{name}({contract}) says nothing: it has no {methods}")
    try:
        hints = get_type_hints(value, include_extras=True)
        for field in fields(value):
            reader.kind_of(hints[field.name])
    except Exception as error:
        raise UserError(f"{name}: its settings cannot be read: {first_line(error)}") from error


def check_example(kind: Kind, name: str, value: Any, example: Any) -> None:
    """Refuse a rule that does not give the outcome that was drawn by hand.

    Raises:
        UserError: how it differs.
    """
    if not isinstance(example, Example):
        raise UserError(f"{kind.name}={name}: its EXAMPLE is a {type(example).__name__}; expected Example")
    outside = [example.outside] if isinstance(example.outside, Example) else []
    for wanted in (example, *outside):
        try:
            settings = wanted.settings
            rule = value if kind.constant else reader.make(value, settings, f"{kind.name}.{name}")
            said = difference(kind.name, rule, wanted)
        except UserError:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {first_line(error)}"
        if said:
            raise UserError(f"{kind.name}={name} does not give its EXAMPLE: {said}")


def example_of(name: str, examples: Any) -> Any:
    """Return the example of one member of a file: the only one, or the one under its name; None where none is."""
    return examples.get(name) if isinstance(examples, Mapping) else examples


def is_taken(kind: Kind, name: str, value: Any = None) -> bool:
    """Say whether a name belongs to the package, or to another member from outside."""
    if (kind.package, name) in registry.OUTSIDE:
        earlier = registry.OUTSIDE[kind.package, name].value
        return earlier is not registry.ABSENT and home(kind, earlier) != home(kind, value)
    if kind.name == "metric":
        from attn_exp.experiment import metrics  # noqa: PLC0415 - few bring any

        return name in ("all", *metrics.known())
    group = {"form": "variant", "source": "embeddings"}.get(kind.name, kind.name)
    contract = kind.contract.split(".")[-2]
    return name in registry.names(registry.folder(kind.package), without=(contract,)) or name in yaml_choices(group)


def home(kind: Kind, value: Any) -> tuple[str, str]:
    """Return where a member was written: the module and the name of its class, or of its function."""
    code = getattr(value, FUNCTIONS[kind.name]) if kind.constant else value
    return getattr(code, "__module__", ""), getattr(code, "__qualname__", "")


def file_of(kind: Kind, value: Any) -> str:
    """Return the file that a class or the function of a value was written in; nothing where it has none."""
    file = getattr(sys.modules.get(home(kind, value)[0]), "__file__", None)
    return str(file) if file and Path(file).is_file() else ""


def spoken(value: Any) -> str:
    """Return what a user gave, in a word or two."""
    return value.__name__ if inspect.isclass(value) or inspect.isfunction(value) else f"a {type(value).__name__}"
