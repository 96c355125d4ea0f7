"""Build a user's class: choose constructor arguments by name, and make configuration objects and weight matrices.

With 4 heads of size 6, `constructor_arguments` gives `{"d_model": 24, "num_heads": 4}` for a class that requires both,
`build` creates the instance, and `call_text` shows the call to the user.
"""

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

from attn_exp.diagnosis.asking.libraries import load_library as library_by_name
from attn_exp.diagnosis.asking.names import every_parameter, is_required, is_starred, plain, side_of_name, source_of
from attn_exp.diagnosis.bind.sizes import (
    CONFIG,
    MAX_TOKENS,
    Sizes,
    fields_of,
    find_kind,
    replace_default,
    value_of,
)
from attn_exp.errors import UncalledError
from attn_exp.own_code import error_line, guard_process

UNKNOWN = "whose meaning is not known"
"""The end of error messages that name a required setting."""
RANDOM_KEYS = ("key", "rng", "rngs", "prngkey")
"""Names of parameters that take a random key of JAX."""


class Bag(dict[str, Any]):
    """A configuration that computes the value of any setting from its name, and records which settings were read."""

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

    __setattr__ = dict.__setitem__

    def __missing__(self, name: str) -> Any:
        return getattr(self, name)

    def __bool__(self) -> bool:
        return True

    def get(self, name: str, default: Any = None) -> Any:
        is_size = find_kind(name) in ("h", "g", "d", "m", "max_tokens", "dropout")
        return self[name] if name in self or is_size else default


def constructor_arguments(owner: Any, sizes: Sizes, library: str, *, of_config: bool = False) -> dict[str, Any]:
    """Choose constructor arguments of a class by the names, annotations and defaults of the parameters.

    In a configuration (`of_config`), a required field of unknown meaning gets any value of its type, because it
    probably belongs to another part of the model.

    Raises:
        UncalledError: the meaning of a required argument is not known.
    """
    parameters = [parameter for parameter in every_parameter(owner, owner.__name__) if not is_starred(parameter)]
    siblings = [parameter.name for parameter in parameters]
    # parameters whose default None the code does not accept
    asserted = re.findall(r"\bassert (\w+) is not None", source_of(owner)) if sizes.guesses else []
    chosen: dict[str, Any] = {}
    for parameter in parameters:
        is_random_key = library == "jax" and parameter.default is None and plain(parameter.name) in RANDOM_KEYS
        if is_required(parameter) or parameter.name in asserted or is_random_key:
            chosen[parameter.name] = fill_required(parameter, owner, sizes, siblings, library)
        else:
            chosen[parameter.name] = replace_default(parameter, sizes, siblings)
        if of_config and is_required(parameter) and chosen[parameter.name] is ...:
            chosen[parameter.name] = make_placeholder(str(parameter.annotation))
    missing = [
        f"`{parameter.name}`" for parameter in parameters if is_required(parameter) and chosen[parameter.name] is ...
    ]
    if missing:
        raise UncalledError(f"{owner.__name__} could not be built: needs {', '.join(missing)}, {UNKNOWN}")
    if "w_init" in chosen and "haiku" in sys.modules:
        chosen["w_init"] = sys.modules["haiku"].initializers.VarianceScaling(1.0)
    return {name: value for name, value in chosen.items() if value is not ...}


def make_placeholder(annotation: str) -> Any:
    """Return the first option of a `Literal`, or an empty value of the annotated type."""
    values = {"bool": False, "int": MAX_TOKENS, "float": 0.0, "str": "", "list": [], "tuple": (), "dict": {}}
    literal = re.search(r"Literal\[\s*(['\"]?)(\w+)\1", annotation)
    return literal[2] if literal else next((value for name, value in values.items() if name in annotation), None)


def fill_required(parameter: inspect.Parameter, owner: Any, sizes: Sizes, siblings: Sequence[str], library: str) -> Any:
    """Return the value for a required parameter, or `...` if none is known.

    The first of these that fits is chosen: a height and a width, a configuration, a random key, a size or another known
    setting, a guess (see `guess_value`), a flag, a random generator, or another guess (see `guess_option`).
    """
    name, word, annotation = parameter.name, plain(parameter.name), str(parameter.annotation).lower()
    annotated = find_annotated_class(parameter, owner)
    if re.search(rf"(?m)\b{name}\[[01]\]|^\s*\w+, \w+ = {name}$", source_of(owner)):  # the code takes it as a pair
        return 2, 3
    if CONFIG.match(word) or CONFIG.match(plain(getattr(annotated, "__name__", ""))) or is_dataclass(annotated):
        return build_configuration(annotated, name, owner, sizes)
    if library == "jax" and (word in RANDOM_KEYS or "key" in annotation):
        return sys.modules["flax.nnx"].Rngs(0) if word == "rngs" else sys.modules["jax"].random.PRNGKey(0)
    value = value_of(name, sizes, siblings)
    if library == "torch" and "module" in annotation and find_kind(name) == "dropout":
        value = sys.modules["torch"].nn.Dropout(sizes.dropout)
    value = guess_value(parameter, owner, sizes, library) if value is ... else value
    if value is ... and ("bool" in annotation or word.endswith("mask")):
        return sizes.causal
    if word in ("rng", "generator"):
        return np.random.default_rng(0)
    value = guess_option(parameter, owner, sizes) if value is ... and sizes.guesses else value
    return MAX_TOKENS if value is None and annotation == "int" else value


def guess_value(parameter: inspect.Parameter, owner: Any, sizes: Sizes, library_name: str) -> Any:
    """Guess an argument: a weight matrix, an instance of an attention class from the same file, or None if allowed.

    Returns `...` if nothing fits.
    """
    side = side_of_name(parameter.name)
    if side.startswith(("W_", "b_")):
        shape = (sizes.m,) * (2 if side[0] == "W" else 1)
        weights = np.random.default_rng([*parameter.name.encode()]).standard_normal(shape) * sizes.m**-0.5
        library = library_by_name(library_name)
        return library.into(weights, library.widest)
    for attention in list_attentions(owner) if "att" in plain(parameter.name) else ():
        with suppress(UncalledError):
            return build(attention, constructor_arguments(attention, sizes, library_name), 0)
    return None if re.search("None|Optional", str(parameter.annotation)) else ...


def guess_option(parameter: inspect.Parameter, owner: Any, sizes: Sizes) -> Any:
    """Guess an argument of unknown meaning: a string that the code compares it with, or the width if it may be a size.

    Returns `...` if neither fits.
    """
    option = re.search(rf"\b{parameter.name}\s+(?:not )?(?:in\s*\W|==)\s*(['\"])(\w+)\1", source_of(owner))
    may_be_size = parameter.annotation is parameter.empty or re.search(r"\bint\b", str(parameter.annotation).lower())
    return option[2] if option else sizes.m if may_be_size else ...


def list_attentions(owner: Any) -> list[Any]:
    """Return the attention classes in the owner's file that it may take as an argument, likeliest first.

    Classes that need another attention class as an argument are left out.
    """
    classes = [attention for name, attention in get_namespace(owner).items()
               if "att" in plain(name) and inspect.isclass(attention)
               and attention.__module__ == owner.__module__]  # fmt: skip
    complete = [attention for attention in classes
                if not any(is_required(parameter) and "att" in plain(parameter.name)
                           for parameter in every_parameter(attention, attention.__name__))]  # fmt: skip
    return sorted(complete, key=lambda attention: not re.search("Full|Dot|Scaled", attention.__name__))


def get_namespace(owner: Any) -> dict[str, Any]:
    return vars(sys.modules.get(owner.__module__, typing))  # without a module, annotations may still name types


def find_annotated_class(parameter: inspect.Parameter, owner: Any) -> Any:
    """Return the class in a parameter's annotation, which may be a string; None if the annotation is not a class."""
    written = parameter.annotation
    annotation = get_namespace(owner).get(written.strip("'\" ")) if isinstance(written, str) else written
    return annotation if inspect.isclass(annotation) and annotation not in (parameter.empty, Any) else None


def build_configuration(annotated: Any, name: str, owner: Any, sizes: Sizes) -> Any:
    """Build the configuration object for a class; fields that its code reads as `name.field` are added if missing."""
    config_class = annotated or find_configuration_class(owner)
    if config_class in (None, dict, object, Mapping):
        return Bag(sizes)
    config = build(config_class, constructor_arguments(config_class, sizes, "", of_config=True), 0)
    if getattr(config, "_attn_implementation", "") is None:  # transformers would choose a fused kernel
        config._attn_implementation = "eager"
    for field in re.findall(rf"\b{name}\.(\w+)", source_of(owner)):
        if not hasattr(config, field) and value_of(field, sizes) is not ...:
            with suppress(AttributeError, TypeError):  # it has slots
                object.__setattr__(config, field, value_of(field, sizes))
    return config


def find_configuration_class(owner: Any) -> Any:
    """Return `BertConfig` for `BertSelfAttention`, or else the first configuration class defined in the same module."""
    classes = [candidate for name, candidate in get_namespace(owner).items() if inspect.isclass(candidate)
               and CONFIG.match(plain(name)) and name != owner.__name__]  # fmt: skip
    namesakes = [
        candidate for candidate in classes if owner.__name__.startswith(re.split("Config|Args", candidate.__name__)[0])
    ]
    in_module = (candidate for candidate in classes if candidate.__module__ == owner.__module__)
    return max(namesakes, key=lambda candidate: len(candidate.__name__), default=None) or next(in_module, None)


def build(owner: Any, arguments: Mapping[str, Any], seed: int) -> Any:
    """Create an instance of a class after seeding the global random generators.

    Raises:
        UncalledError: the constructor raised an error.
    """
    positional = [parameter.name for parameter in every_parameter(owner, owner.__name__)
                  if parameter.kind is parameter.POSITIONAL_ONLY and parameter.name in arguments]  # fmt: skip
    keywords = {name: value for name, value in arguments.items() if name not in positional}
    with fix_seed(seed):
        return run_foreign(
            lambda: owner(*map(arguments.get, positional), **keywords), f"{owner.__name__} could not be built"
        )


def run_foreign(make: Callable[[], Any], failure: str) -> Any:
    """Run user code; convert any exception to a one-line error that begins with `failure`.

    Raises:
        UncalledError: the code raised an error.
    """
    try:
        with guard_process(), warnings.catch_warnings(action="ignore"):
            return make()
    except Exception as error:
        raise UncalledError(f"{failure}: {error_line(error)}") from error


@contextmanager
def fix_seed(seed: int) -> Iterator[None]:
    """Seed the global generators of NumPy and PyTorch, and restore their states afterwards."""
    torch = sys.modules.get("torch")
    with ExitStack() as stack:
        stack.callback(np.random.set_state, np.random.get_state())
        np.random.seed(seed)
        if torch is not None:
            stack.enter_context(torch.random.fork_rng(devices=[]))
            torch.random.default_generator.manual_seed(seed)
        yield


def call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call as Python code, such as `Attention(d_model=24, num_heads=4)`."""
    return f"{name}({', '.join(f'{key}={format_value(value)}' for key, value in arguments.items())})"


def format_value(value: Any) -> str:
    """Return a value as Python code.

    A configuration object is shown with its sizes only, and a `Bag` with the settings that were read.
    """
    fields = {name: field for name, field in fields_of(value).items()
              if isinstance(value, Bag) or find_kind(name) in ("h", "g", "d", "m")}  # fmt: skip
    if fields or isinstance(value, Bag):
        return call_text(type(value).__name__.replace("Bag", "SimpleNamespace"), fields)
    return repr(value) if isinstance(value, int | float | str | list | tuple | None) else f"{type(value).__name__}(...)"
