"""Build a user's class: choose constructor arguments by name, and make configuration objects and weight matrices."""

from __future__ import annotations

import inspect
import re
import sys
import typing
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from attn_exp.diagnosis.asking.libraries import library as library_by_name
from attn_exp.diagnosis.asking.names import every_parameter, is_required, is_starred, plain, side_of_name, source_of
from attn_exp.diagnosis.bind.sizes import (
    CONFIG,
    ROOM,
    Sizes,
    fields_of,
    instead_of_default,
    letter_of,
    value_of,
)
from attn_exp.errors import UncalledError
from attn_exp.own_code import error_line, held

UNKNOWN = "whose meaning is not known"
RANDOM_KEYS = ("key", "rng", "rngs", "prngkey")


class Bag(dict[str, Any]):
    """A generic configuration that looks up attributes and keys in the table of sizes and records which were read."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        vars(self)["sizes"] = sizes

    def __getattr__(self, name: str) -> Any:
        sizes = vars(self)["sizes"]
        value = ... if name.startswith("__") else value_of(name, sizes)
        if value is ...:
            if name.startswith("__") or not sizes.guesses:
                raise AttributeError(f"the configuration needs `{name}`, {UNKNOWN}")
            value = False
        return dict.setdefault(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __missing__(self, name: str) -> Any:
        return getattr(self, name)

    def __bool__(self) -> bool:
        return True

    def get(self, name: str, default: Any = None) -> Any:
        is_size = letter_of(name) in ("h", "g", "d", "m", "room", "dropout")
        return self[name] if name in self or is_size else default


def constructor_arguments(kind: Any, sizes: Sizes, library: str, *, of_config: bool = False) -> dict[str, Any]:
    """Choose constructor arguments by the names, annotations and defaults of the parameters.

    In a configuration, a required field of unknown meaning gets some value of its type: it probably belongs to another
    part of the model.

    Raises:
        UncalledError: the meaning of a required argument is not known.
    """
    parameters = [one for one in every_parameter(kind, kind.__name__) if not is_starred(one)]
    siblings = [one.name for one in parameters]
    asserted = re.findall(r"\bassert (\w+) is not None", source_of(kind)) if sizes.guesses else []
    chosen = {one.name: fill_required(one, kind, sizes, siblings, library)
              if one.default is one.empty or one.name in asserted else instead_of_default(one, sizes, siblings)
              for one in parameters}  # fmt: skip
    if of_config:
        chosen = {one.name: value_of_type(str(one.annotation)) if one.default is one.empty and chosen[one.name] is ...
                  else chosen[one.name] for one in parameters}  # fmt: skip
    missing = [f"`{one.name}`" for one in parameters if one.default is one.empty and chosen[one.name] is ...]
    if missing:
        raise UncalledError(f"{kind.__name__} could not be built: needs {', '.join(missing)}, {UNKNOWN}")
    if library == "jax":
        keys = (one for one in parameters if one.default is None and plain(one.name) in RANDOM_KEYS)
        chosen |= {one.name: fill_required(one, kind, sizes, siblings, library) for one in keys}
    if "w_init" in chosen and "haiku" in sys.modules:
        chosen["w_init"] = sys.modules["haiku"].initializers.VarianceScaling(1.0)
    return {name: value for name, value in chosen.items() if value is not ...}


def value_of_type(annotation: str) -> Any:
    values = {"bool": False, "int": ROOM, "float": 0.0, "str": "", "list": [], "tuple": (), "dict": {}}
    literal = re.search(r"Literal\[\s*(['\"]?)(\w+)\1", annotation)
    return literal[2] if literal else next((value for kind, value in values.items() if kind in annotation), None)


def fill_required(given: inspect.Parameter, kind: Any, sizes: Sizes, siblings: Sequence[str], library: str) -> Any:
    """Return the value for a required parameter, or `...` if none is known."""
    word, note, written = plain(given.name), annotation_of(given, kind), str(given.annotation).lower()
    value = value_of(given.name, sizes, siblings)
    if re.search(rf"(?m)\b{given.name}\[[01]\]|^\s*\w+, \w+ = {given.name}$", source_of(kind)):  # height and width
        return 2, 3
    if CONFIG.match(word) or CONFIG.match(plain(getattr(note, "__name__", ""))) or is_dataclass(note):
        return build_configuration(note, given.name, kind, sizes)
    if library == "jax" and (word in RANDOM_KEYS or "key" in written):
        return sys.modules["flax.nnx"].Rngs(0) if word == "rngs" else sys.modules["jax"].random.PRNGKey(0)
    if library == "torch" and "module" in written and letter_of(given.name) == "dropout":
        value = sys.modules["torch"].nn.Dropout(sizes.dropout)
    if value is ...:
        value = guess_value(given, kind, sizes, library)
    is_switch = value is ... and ("bool" in written or word.endswith("mask"))
    if value is ... and sizes.guesses:
        options = re.search(rf"\b{given.name}\s+(?:not )?(?:in\s*\W|==)\s*(['\"])(\w+)\1", source_of(kind))
        is_open = given.annotation is given.empty or re.search(r"\bint\b", written)
        value = options[2] if options else sizes.m if is_open else ...
    value = ROOM if value is None and written == "int" else value
    return sizes.causal if is_switch else np.random.default_rng(0) if word in ("rng", "generator") else value


def guess_value(given: inspect.Parameter, kind: Any, sizes: Sizes, library_name: str) -> Any:
    """Guess an argument: a weight matrix, an instance of an attention class from the same file, or None if allowed.

    Returns `...` if nothing fits.
    """
    side = side_of_name(given.name)
    if side.startswith(("W_", "b_")):
        shape = (sizes.m,) * (2 if side[0] == "W" else 1)
        rows = np.random.default_rng([*given.name.encode()]).standard_normal(shape) * sizes.m**-0.5
        forms = library_by_name(library_name)
        return forms.into(rows, forms.widest)
    for part in attentions_of_file(kind) if "att" in plain(given.name) else ():
        with suppress(UncalledError):
            return build(part, constructor_arguments(part, sizes, library_name), 0)
    return None if re.search("None|Optional", str(given.annotation)) else ...


def attentions_of_file(kind: Any) -> list[Any]:
    """Return the attention classes in a class's file whose instances it may take as an argument, likeliest first."""
    space = vars(sys.modules.get(kind.__module__, typing))
    named = [one for name, one in space.items() if "att" in plain(name) and inspect.isclass(one)
             and one.__module__ == kind.__module__ and not takes_attention(one)]  # fmt: skip
    return sorted(named, key=lambda one: not re.search("Full|Dot|Scaled", one.__name__))


def takes_attention(kind: Any) -> bool:
    return any("att" in plain(one.name) for one in every_parameter(kind, kind.__name__) if is_required(one))


def annotation_of(given: inspect.Parameter, kind: Any) -> Any:
    space, note = vars(sys.modules.get(kind.__module__, typing)), given.annotation
    note = space.get(note.strip("'\" ")) if isinstance(note, str) else note
    return note if inspect.isclass(note) and note not in (given.empty, Any) else None


def build_configuration(note: Any, name: str, kind: Any, sizes: Sizes) -> Any:
    """Build the configuration of a class, with every field that its code reads as `name.field`."""
    space = vars(sys.modules.get(kind.__module__, typing))
    beside = [one for name, one in space.items() if inspect.isclass(one) and CONFIG.match(plain(name))
              and name != kind.__name__]  # fmt: skip
    of_name = [one for one in beside if re.match(re.split("Config|Args", one.__name__)[0], kind.__name__)]
    own = [one for one in beside if one.__module__ == kind.__module__]
    found = note or max(of_name, key=lambda one: len(one.__name__), default=[*own, None][0])
    if found in (None, dict, object, Mapping):
        return Bag(sizes)
    made = build(found, constructor_arguments(found, sizes, "", of_config=True), 0)
    if getattr(made, "_attn_implementation", "") is None:
        made._attn_implementation = "eager"
    for word in re.findall(rf"\b{name}\.(\w+)", source_of(kind)):
        if not hasattr(made, word) and value_of(word, sizes) is not ...:
            with suppress(AttributeError, TypeError):  # it has slots
                object.__setattr__(made, word, value_of(word, sizes))
    return made


def build(kind: Any, arguments: Mapping[str, Any], seed: int) -> Any:
    """Create an instance of a class after seeding the global random generators.

    Raises:
        UncalledError: the constructor raised an error.
    """
    parameters = {one.name: one for one in every_parameter(kind, kind.__name__) if one.name in arguments}
    by_place = [name for name, one in parameters.items() if one.kind is one.POSITIONAL_ONLY]
    places = map(arguments.get, by_place)
    named = {key: arguments[key] for key in arguments if key not in by_place}
    with fix_seed(seed):
        return run_foreign(lambda: kind(*places, **named), f"{kind.__name__} could not be built")


def run_foreign(make: Callable[[], Any], failure: str) -> Any:
    """Run user code; turn any exception into a one-line error that begins with `failure`.

    Raises:
        UncalledError: the code raised an error.
    """
    try:
        with held(), warnings.catch_warnings(action="ignore"):
            return make()
    except Exception as error:
        raise UncalledError(f"{failure}: {error_line(error)}") from error


@contextmanager
def fix_seed(seed: int) -> Iterator[None]:
    torch = sys.modules.get("torch")
    with ExitStack() as stack:
        stack.callback(np.random.set_state, np.random.get_state())
        np.random.seed(seed)
        if torch is not None:
            stack.enter_context(torch.random.fork_rng(devices=[]))
            torch.random.default_generator.manual_seed(seed)
        yield


def call_text(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={format_value(value)}' for key, value in arguments.items())})"


def format_value(value: Any) -> str:
    name, held_fields = type(value).__name__, fields_of(value).items()
    fields = {key: one for key, one in held_fields if isinstance(value, Bag) or letter_of(key) in tuple("hgdm")}
    if fields or isinstance(value, Bag):
        return call_text(name.replace("Bag", "SimpleNamespace"), fields)
    is_plain = isinstance(value, int | float | str | list | tuple | None)
    return repr(value) if is_plain else f"{name}(...)"
