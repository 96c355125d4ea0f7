"""Bind a function by its argument names: find its arrays, the arguments that cases set, and values for the rest."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from attn_exp.diagnosis.asking.libraries import beside, join, library_of
from attn_exp.diagnosis.asking.names import (
    CORE,
    SAYS_BIAS,
    SAYS_WEIGHT,
    biases_of,
    is_required,
    is_starred,
    parameters_of,
    roles_taken,
    side_of_name,
    source_with_helpers,
)
from attn_exp.diagnosis.asking.offer import KEYS, WINDOWS, Offer, WindowCount, plain_default
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.bind.arguments import ROTARY, Neutral, role_of_argument
from attn_exp.diagnosis.bind.binding import convert_value
from attn_exp.diagnosis.bind.sizes import Sizes, letter_of, value_of
from attn_exp.diagnosis.calling.call import Bound, holds_size
from attn_exp.errors import UncalledError
from attn_exp.forms.pipeline import At
from attn_exp.rules.rules import Rules

SIZES = "sizes"
"""The role under which an adapter receives the sizes of a call."""
MATRICES = ("W_q", "W_k", "W_v", "W_o", "b_q", "b_k", "b_v", "b_o")
PASSED = ("mask", "padding", "query_padding", "causal", "scale", "window", "softcap", "shared", "lengths", "alibi",
          "sinks", "heads", "kv_heads", "dropout", "added")  # fmt: skip
"""Roles of the arguments that a case sets."""
NEEDED = ("mask", "padding", "query_padding", "causal", "scale", "window", "lengths", "heads", "kv_heads")
"""Roles for which a case has a value even if it requests nothing of the kind, so the argument may be required."""
SMALLEST_SIZE = 8
"""Smallest default that counts as a size; a smaller one may be the index of an axis."""
Values = Mapping[str, Any]
Path = tuple[str, ...]
"""A parameter, followed by the keys with which the code reads one of its entries."""


@dataclass(frozen=True)
class Arrays:
    """What to pass as each array argument: the array of one role, or a function of all arrays; `said` describes it."""

    sources: Mapping[str, str | Callable[[Values, At], Any]]
    roles: tuple[str, ...]
    said: str = ""
    only_if_right: bool = False


@dataclass(frozen=True)
class Adapter:
    """A function, the arguments that take its arrays, and the roles of the arguments that only get neutral values.

    `level` selects the layout of rotary tables. `places` gives the container and keys of each unpacked argument.
    """

    function: Callable[..., Any]
    arrays: Arrays
    neutral: Mapping[str, str]
    positional: Sequence[str]
    request: Request = field(compare=False)
    level: int = 0
    places: Mapping[str, Path] = field(default_factory=dict)

    @property
    def holds_size(self) -> bool:
        return holds_size(self.function)

    def __call__(self, **given: Any) -> Any:
        values = fill_containers(self.arguments(**given), self.places)
        first = [values.pop(name) for name in self.positional if name in values]
        return self.function(*first, **values)

    def arguments(self, **given: Any) -> dict[str, Any]:
        at, positions = given.pop(hidden_name(SIZES))
        given.pop(hidden_name("heads"), None)
        known = {
            role: given.pop(hidden_name(role))
            for role in (*CORE, "x", "memory", *MATRICES)
            if hidden_name(role) in given
        }
        values = {name: known[source] if isinstance(source, str) else source(known, at)
                  for name, source in self.arrays.sources.items()}  # fmt: skip
        first_array = next(iter(known.values()))
        neutral = self.neutral_values(at, positions, library_of(first_array))
        convert = partial(beside, x=first_array)
        return values | {name: convert_value(value, convert) for name, value in neutral.items()} | given

    def neutral_values(self, at: At, positions: tuple[Any, ...] = (), library: str = "") -> dict[str, Any]:
        """Return the neutral values for one call, with `...` for an argument of unknown meaning."""
        sizes = Sizes(at.heads, at.size, at.heads * at.size, at.groups)
        lengths = {"b": at.batch, "t": at.rows}
        letters = {"h": at.heads, "g": at.groups, "d": at.size, "m": sizes.m}
        request = replace(self.request, positions=positions)
        table = Neutral({**lengths, "s": at.keys}, letters, "", request, self.level)
        found = {name: table.value(role, name) for name, role in self.neutral.items()}
        found |= {name: None for name, role in self.neutral.items() if role == "random" and library != "jax"}
        return {name: neutral_setting(name, sizes, at) if value is ... else value for name, value in found.items()}


def neutral_setting(name: str, sizes: Sizes, at: At) -> Any:
    if re.search("block|chunk|tile|bucket", name.lower()):
        return FEW
    return at.rows if letter_of(name) == "room" else value_of(name, sizes)


FEW = 4


def hidden_name(role: str) -> str:
    """Return the adapter's keyword for a role without a parameter; no parameter starts with a space."""
    return f" {role}"


def read_signature(function: Any, name: str, request: Request) -> Iterator[Bound]:
    """Yield the function bound in each way that its names suggest: as one of q, k and v, or of x and matrices.

    Raises:
        UserError: the parameters of the function are not known.
        UncalledError: the names do not tell which arguments are the arrays, or what a required argument means.
    """
    parameters, places = open_containers(function, parameters_of(function, name))
    roles = roles_taken(parameters)
    for arrays in arrays_by_names(parameters, name):
        others = [one for one in parameters if one.name not in arrays.sources and not is_starred(one)]
        passed = {roles[one.name]: one for one in reversed(others) if roles[one.name] in PASSED
                  and (not is_required(one) or roles[one.name] in NEEDED)}  # fmt: skip
        rest = [one for one in others if one not in passed.values() and (is_required(one) or is_size(one))]
        neutral = {one.name: role_of_argument(one.name) for one in rest}
        positional = [one.name for one in parameters if one.kind is one.POSITIONAL_ONLY]
        adapter = Adapter(function, arrays, neutral, positional, request, places=places)
        missing = [f"`{one}`" for one, value in adapter.neutral_values(ONE_TOKEN).items() if value is ...]
        if missing:
            raise UncalledError(f"{name} needs {', '.join(missing)}, whose meaning is not known")
        levels = 8 if "rotary" in neutral.values() else 4  # the number of table layouts
        windows = WINDOWS if "window" in passed and is_required(passed["window"]) else (None,)
        for level in range(levels) if set(neutral.values()) & set(ROTARY) else (0,):
            yield from (bind(replace(adapter, level=level), passed, one) for one in windows)


ONE_TOKEN = At(Rules(), 1, 1, 1, 1, 1, 1, 1)


def bind(
    adapter: Adapter, passed: Mapping[str, inspect.Parameter], counted: WindowCount | None = None
) -> Bound:  # fmt: skip
    arrays, function = adapter.arrays, adapter.function
    words = {role: one.name for role, one in passed.items()}
    defaults = {role: plain_default(one.default) for role, one in passed.items() if not is_required(one)}
    core = set(CORE) <= set(arrays.roles)
    said = ", ".join(filter(None, (arrays.said, *(f"{name}=..." for name in adapter.neutral))))
    counted = counted or (KEYS if "window" in passed and is_number(passed["window"]) else None)
    offer = Offer(core, {}, (), defaults, said, only_if_right=arrays.only_if_right, counted=counted)
    own_names = {source: name for name, source in arrays.sources.items() if isinstance(source, str)}
    if not adapter.neutral and not adapter.places and len(own_names) == len(arrays.sources):
        names = own_names | words
        roles = {name: role for role, name in names.items()}
        places = tuple(roles[name] for name in adapter.positional if name in roles)
        return Bound(function, function, replace(offer, parameters=names, positional=places))
    names = {role: hidden_name(role) for role in (*arrays.roles, SIZES)}
    if any(letter_of(name) == "h" for name in adapter.neutral):
        names["heads"] = hidden_name("heads")
    return Bound(adapter, function, replace(offer, parameters=names | words))


def is_number(given: inspect.Parameter) -> bool:
    """Return whether an argument is an integer, not a pair; assume so if it has no default and no annotation."""
    said = str(given.annotation)
    is_open = is_required(given) and given.annotation is given.empty
    return is_open or type(given.default) is int or (bool(re.search(r"\bint\b", said)) and "tuple" not in said.lower())


def is_size(given: inspect.Parameter) -> bool:
    """Return whether a default is a head size or width, as in `d_k=64`, which must fit the arrays."""
    is_large = type(given.default) is int and given.default >= SMALLEST_SIZE
    return is_large and letter_of(given.name) in ("d", "m")


def arrays_by_names(parameters: Sequence[inspect.Parameter], name: str) -> Iterator[Arrays]:
    """Yield the ways to assign the arrays to arguments, the likeliest first.

    Raises:
        UncalledError: the names do not identify the arrays, and there are not exactly three required arguments.
    """
    usable = [one for one in parameters if not is_starred(one)]
    biases = biases_of([one.name for one in usable])
    sides: dict[str, str] = {}
    for one in sorted(usable, key=lambda one: not is_required(one)):
        is_list = one.name.endswith("s") and not one.name.endswith(("weights", "bias"))
        side = "" if one.name in biases else side_of_name(one.name)
        side = "" if is_list and side.startswith("W") else side  # one matrix per head
        if side and (side not in sides or (side == "k" and len(one.name) == len(sides.get("q", "")) == 1)):
            sides[side] = one.name  # next to q, k and v, `key` is a random key
    if {"W", "W_o"} <= sides.keys() and "W_q" not in sides:
        sides.setdefault("W_qkv", sides.pop("W"))
    inputs = [sides[side] for side in ("x", "q", "k", "v", "kv") if side in sides]
    if inputs and ({"W_q", "W_k", "W_v"} <= set(sides) or "W_qkv" in sides):
        yield from arrays_of_layer(inputs, sides, biases)
    elif set(CORE) <= set(sides):
        yield Arrays({sides[side]: side for side in CORE}, CORE)
    else:
        first = [one.name for one in usable if is_required(one)]
        if len(first) != len(CORE) or {"x", "W_q", "qkv", "kv"} & set(sides):
            taken = ", ".join(one.name for one in parameters) or "nothing"
            expected = "q, k, v, or x, W_q, W_k, W_v"
            raise UncalledError(f"{name} takes {taken}; expected {expected}")
        yield Arrays(dict(zip(first, CORE, strict=True)), CORE, only_if_right=True)


def arrays_of_layer(inputs: Sequence[str], sides: Mapping[str, str], biases: Mapping[str, str]) -> Iterator[Arrays]:
    """Yield the ways to pass x and matrices: `[in out]`, or `[out in]` as `nn.Linear` stores them, including W_o.

    The columns of a single matrix for q, k and v are in this order, or head by head.
    """
    held: dict[str, tuple[str, ...]] = {sides[role]: (role,) for role in MATRICES if role in sides}
    if "W_qkv" in sides:
        held[sides["W_qkv"]] = ("W_q", "W_k", "W_v")
    if "W" in sides and "W_o" not in sides:
        held[sides["W"]] = ("W_o",)
    held |= {bias: tuple(role.replace("W", "b") for role in held[matrix]) for bias, matrix in biases.items()
             if matrix in held}  # fmt: skip
    more = ("memory",) if inputs[1:] else ()
    roles = ("x", *more, *(role for several in held.values() for role in several))
    rows = {inputs[0]: "x"} | dict.fromkeys(inputs[1:], memory_or_x)
    plain_way = {name: several[0] if len(several) == 1 else side_by_side(several) for name, several in held.items()}
    yield Arrays({**rows, **plain_way}, roles)
    if "W_qkv" in sides:
        ways = {name: side_by_side(several, by_head=len(several) > 1) for name, several in held.items()}
        yield Arrays({**rows, **ways}, roles, "q, k and v of each head side by side", only_if_right=True)
    if "W_o" in roles:
        ways = {name: side_by_side(several, turned=True) for name, several in held.items()}
        yield Arrays({**rows, **ways}, roles, "matrices [out in]")


def memory_or_x(known: Values, at: At) -> Any:
    return known.get("memory", known["x"])


def side_by_side(
    roles: Sequence[str], *, by_head: bool = False, turned: bool = False
) -> Callable[[Values, At], Any]:  # fmt: skip
    def make(known: Values, at: At) -> Any:
        several = [known[role] for role in roles]
        if by_head:
            size = several[0].shape[-1] // at.heads
            several = [one[..., head * size : (head + 1) * size] for head in range(at.heads) for one in several]
        whole = several[0] if len(several) == 1 else join(several, -1)
        return whole.T if turned and whole.ndim == 2 else whole

    return make


# Parameters in dictionaries, such as `params["attn"]["W_q"]`


def open_containers(
    function: Any, parameters: Sequence[inspect.Parameter]
) -> tuple[list[inspect.Parameter], dict[str, Path]]:  # fmt: skip
    """Replace each required parameter that the code reads by key with one parameter per key.

    Also return the path of each new parameter.
    """
    opened, places = list[inspect.Parameter](), dict[str, Path]()
    for one in parameters:
        paths = keys_read(inspect.unwrap(function), one.name) if is_required(one) else []
        found = {name_of_entry((one.name, *path)): (one.name, *path) for path in paths}
        opened += [one.replace(name=name, annotation=one.empty) for name in found] or [one]
        places |= found
    return opened, places


def keys_read(function: Any, name: str) -> list[Path]:
    """Return the keys by which a function and its helpers read an argument, even if it is passed on as `**name`."""
    source, space = source_with_helpers(function), getattr(function, "__globals__", {})
    paths = [tuple(re.findall(r"\w+", keys)) for keys in re.findall(rf"\b{name}((?:\[['\"]\w+['\"]\])+)", source)]
    with suppress(SyntaxError):  # the source of a method is indented
        for call in (one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.Call)):
            callee = space.get(getattr(call.func, "id", ""))
            if inspect.isfunction(callee) and any(ast.unparse(one) == f"**{name}" for one in call.keywords):
                paths += [(key,) for key in list(inspect.signature(callee).parameters)[len(call.args) :]]
    return paths


def name_of_entry(path: Path) -> str:
    return "_".join(path[-2:]) if path[-1].lower() in (*SAYS_WEIGHT, *SAYS_BIAS) else path[-1]


def fill_containers(values: Values, places: Mapping[str, Path]) -> dict[str, Any]:
    made = {name: value for name, value in values.items() if name not in places}
    for name in filter(values.__contains__, places):
        inner = made
        for word in places[name][:-1]:
            inner = inner.setdefault(word, {})
        inner[places[name][-1]] = values[name]
    return made
