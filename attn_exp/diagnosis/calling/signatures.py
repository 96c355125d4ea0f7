"""Bind a function by its argument names: find its arrays, the arguments that cases set, and values for the rest.

For `def attend(query, key, value, n_heads, attn_mask=None, eps=1e-5)`, the arrays are q, k and v. A case sets `n_heads`
and `attn_mask`, and `eps` keeps its default. If a function also requires rotary tables or parameters in a dictionary,
it is wrapped in an `Adapter`, which computes these in each call.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from attn_exp.diagnosis.asking.libraries import convert_like, join, library_of
from attn_exp.diagnosis.asking.names import (
    BIAS_WORDS,
    CORE,
    WEIGHT_WORDS,
    biases_of,
    find_roles,
    is_required,
    is_starred,
    parameters_of,
    side_of_name,
    source_with_helpers,
)
from attn_exp.diagnosis.asking.offer import KEYS_WITH_OWN, WINDOWS, Offer, WindowCount, plain_default
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.bind.arguments import ROTARY, Neutral, role_of_argument
from attn_exp.diagnosis.bind.binding import convert_value
from attn_exp.diagnosis.bind.sizes import Sizes, find_kind, value_of
from attn_exp.diagnosis.calling.call import Bound, is_object
from attn_exp.errors import UncalledError
from attn_exp.forms.pipeline import Setup
from attn_exp.rules.rules import Rules

SIZES = "sizes"
"""The role under which an adapter receives the sizes of a call."""
MATRICES = ("W_q", "W_k", "W_v", "W_o", "b_q", "b_k", "b_v", "b_o")
PASSED = ("mask", "padding", "query_padding", "causal", "scale", "window", "softcap", "shared", "lengths", "alibi",
          "sinks", "heads", "kv_heads", "dropout", "added")  # fmt: skip
"""Roles of the arguments that a case sets."""
NEEDED = ("mask", "padding", "query_padding", "causal", "scale", "window", "lengths", "heads", "kv_heads")
"""Roles of arguments that may be required, because every case has a value for them, such as a mask of only True."""
SMALLEST_SIZE = 8
"""Smallest default that counts as a size; a smaller one may be the index of an axis."""
BLOCK = 4
"""Value of a required block or chunk size."""
ONE_TOKEN = Setup(Rules(), 1, 1, 1, 1, 1, 1, 1)
"""The sizes of a call with one token, to find out whether every required argument has a neutral value."""
Values = Mapping[str, Any]
Path = tuple[str, ...]
"""A parameter and the keys of one of its entries: `("params", "attn", "W_q")` for `params["attn"]["W_q"]`."""


@dataclass(frozen=True)
class Arrays:
    """What to pass as each array argument.

    - `sources`: for each argument, the role of its array, or a function that computes it from the arrays by role.
    - `roles`: the roles of all arrays that the arguments need.
    - `description`: describes an unusual way to pass them.
    - `only_if_right`: as in `Offer`.
    """

    sources: Mapping[str, str | Callable[[Values, Setup], Any]]
    roles: tuple[str, ...]
    description: str = ""
    only_if_right: bool = False


@dataclass(frozen=True)
class Adapter:
    """Calls a function with arguments that it computes from the inputs of each case.

    - `arrays`: what to pass as each array argument.
    - `neutral`: the roles of the arguments that get neutral values, by name. A neutral value changes nothing, such as a
      mask that hides nothing.
    - `positional`: the names of the positional-only arguments.
    - `level`: selects the layout of rotary tables.
    - `places`: the path of each argument that is an entry of a dictionary.
    """

    function: Callable[..., Any]
    arrays: Arrays
    neutral: Mapping[str, str]
    positional: Sequence[str]
    request: Request = field(compare=False)
    level: int = 0
    places: Mapping[str, Path] = field(default_factory=dict)

    @property
    def counts_as_object(self) -> bool:
        return is_object(self.function)

    def __call__(self, **given: Any) -> Any:
        arguments = fill_containers(self.arguments(**given), self.places)
        positional = [arguments.pop(name) for name in self.positional if name in arguments]
        return self.function(*positional, **arguments)

    def arguments(self, **given: Any) -> dict[str, Any]:
        """Convert the inputs of a case, keyed by parameter name or `hidden_name`, to the arguments of the function."""
        setup, positions = given.pop(hidden_name(SIZES))
        given.pop(hidden_name("heads"), None)
        roles = [role for role in (*CORE, "x", "memory", *MATRICES) if hidden_name(role) in given]
        known = {role: given.pop(hidden_name(role)) for role in roles}
        arrays = {name: known[source] if isinstance(source, str) else source(known, setup)
                  for name, source in self.arrays.sources.items()}  # fmt: skip
        convert = partial(convert_like, x=known[roles[0]])  # to the library and dtype of the first array
        neutral = self.neutral_values(setup, positions, library_of(known[roles[0]]))
        return arrays | {name: convert_value(value, convert) for name, value in neutral.items()} | given

    def neutral_values(self, setup: Setup, positions: tuple[Any, ...] = (), library: str = "") -> dict[str, Any]:
        """Return the neutral values for one call by name, with `...` for an argument of unknown meaning."""
        sizes = Sizes(setup.heads, setup.size, setup.heads * setup.size, setup.groups)
        lengths = {"b": setup.batch, "t": setup.rows, "s": setup.keys}
        letters = {"h": setup.heads, "g": setup.groups, "d": setup.size, "m": sizes.m}
        table = Neutral(lengths, letters, "", replace(self.request, positions=positions), self.level)
        values = {name: None if role == "random" and library != "jax" else table.value(role, name)
                  for name, role in self.neutral.items()}  # fmt: skip
        return {name: neutral_setting(name, sizes, setup) if value is ... else value for name, value in values.items()}


def neutral_setting(name: str, sizes: Sizes, setup: Setup) -> Any:
    """Return the value of an argument whose name means a size, or `...` if it means none."""
    if re.search("block|chunk|tile|bucket", name.lower()):
        return BLOCK
    return setup.rows if find_kind(name) == "max_tokens" else value_of(name, sizes)


def hidden_name(role: str) -> str:
    """Return the adapter's keyword for a role without a parameter; no parameter starts with a space."""
    return f" {role}"


def read_signature(function: Any, name: str, request: Request) -> Iterator[Bound]:
    """Yield the ways to call a function that its argument names suggest: with q, k and v, or with x and matrices.

    Raises:
        UserError: the parameters of the function are not known.
        UncalledError: the names do not tell which arguments are the arrays, or what a required argument means.
    """
    parameters, places = open_containers(function, parameters_of(function, name))
    roles = find_roles(parameters)
    for arrays in arrays_by_names(parameters, name):
        others = [parameter for parameter in parameters
                  if parameter.name not in arrays.sources and not is_starred(parameter)]  # fmt: skip
        settable = [parameter for parameter in others
                    if roles[parameter.name] in (NEEDED if is_required(parameter) else PASSED)]  # fmt: skip
        passed = {roles[parameter.name]: parameter for parameter in reversed(settable)}  # the first of a role wins
        neutral = {parameter.name: role_of_argument(parameter.name) for parameter in others
                   if parameter not in passed.values() and (is_required(parameter) or is_size(parameter))}  # fmt: skip
        positional = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_ONLY]
        adapter = Adapter(function, arrays, neutral, positional, request, places=places)
        missing = [f"`{argument}`" for argument, value in adapter.neutral_values(ONE_TOKEN).items() if value is ...]
        if missing:
            raise UncalledError(f"{name} needs {', '.join(missing)}, whose meaning is not known")
        levels = 8 if "rotary" in neutral.values() else 4  # the number of table layouts
        window_counts = WINDOWS if "window" in passed and is_required(passed["window"]) else (None,)
        for level in range(levels) if set(neutral.values()) & set(ROTARY) else (0,):
            yield from (bind(replace(adapter, level=level), passed, window_count) for window_count in window_counts)


def bind(
    adapter: Adapter, passed: Mapping[str, inspect.Parameter], counted: WindowCount | None = None
) -> Bound:  # fmt: skip
    """Bind a function to an `Offer`: directly if its arguments need no adapter, otherwise through the adapter."""
    arrays, function = adapter.arrays, adapter.function
    keywords = {role: parameter.name for role, parameter in passed.items()}
    defaults = {role: plain_default(parameter.default) for role, parameter in passed.items()
                if not is_required(parameter)}  # fmt: skip
    core = set(CORE) <= set(arrays.roles)
    description = ", ".join(filter(None, (arrays.description, *(f"{name}=..." for name in adapter.neutral))))
    counted = counted or (KEYS_WITH_OWN if "window" in passed and is_number(passed["window"]) else None)
    offer = Offer(core, {}, (), defaults, description, only_if_right=arrays.only_if_right, counted=counted)
    own_names = {source: name for name, source in arrays.sources.items() if isinstance(source, str)}
    if not adapter.neutral and not adapter.places and len(own_names) == len(arrays.sources):
        names = own_names | keywords
        roles = {name: role for role, name in names.items()}
        positional = tuple(roles[name] for name in adapter.positional if name in roles)
        return Bound(function, function, replace(offer, parameters=names, positional=positional))
    names = {role: hidden_name(role) for role in (*arrays.roles, SIZES)}
    if any(find_kind(name) == "h" for name in adapter.neutral):
        names["heads"] = hidden_name("heads")
    return Bound(adapter, function, replace(offer, parameters=names | keywords))


def is_number(parameter: inspect.Parameter) -> bool:
    """Return whether an argument is an integer, not a pair. Without default and annotation, it counts as an integer."""
    annotation = str(parameter.annotation)
    is_unknown = is_required(parameter) and parameter.annotation is parameter.empty
    is_annotated = bool(re.search(r"\bint\b", annotation)) and "tuple" not in annotation.lower()
    return is_unknown or type(parameter.default) is int or is_annotated


def is_size(parameter: inspect.Parameter) -> bool:
    """Return whether a default is a head size or width, as in `d_k=64`, which must fit the arrays."""
    default = parameter.default
    return type(default) is int and default >= SMALLEST_SIZE and find_kind(parameter.name) in ("d", "m")


def arrays_by_names(parameters: Sequence[inspect.Parameter], name: str) -> Iterator[Arrays]:
    """Yield the ways to assign the arrays to arguments, the likeliest first.

    Raises:
        UncalledError: the names do not identify the arrays, and there are not exactly three required arguments.
    """
    usable = [parameter for parameter in parameters if not is_starred(parameter)]
    biases = biases_of([parameter.name for parameter in usable])
    sides = names_of_sides(usable, biases)
    inputs = [sides[side] for side in ("x", "q", "k", "v", "kv") if side in sides]
    if inputs and ({"W_q", "W_k", "W_v"} <= set(sides) or "W_qkv" in sides):
        yield from arrays_of_layer(inputs, sides, biases)
    elif set(CORE) <= set(sides):
        yield Arrays({sides[side]: side for side in CORE}, CORE)
    else:
        required = [parameter.name for parameter in usable if is_required(parameter)]
        if len(required) != len(CORE) or {"x", "W_q", "qkv", "kv"} & set(sides):
            names = [parameter.name for parameter in parameters] or ["nothing"]
            raise UncalledError(f"{name} takes {', '.join(names)}; expected q, k, v, or x, W_q, W_k, W_v")
        yield Arrays(dict(zip(required, CORE, strict=True)), CORE, only_if_right=True)


def names_of_sides(parameters: Sequence[inspect.Parameter], biases: Mapping[str, str]) -> dict[str, str]:
    """Return the parameter of each array, as in {"q": "query", "W_q": "wq"}; required parameters win over others."""
    sides: dict[str, str] = {}
    for name in [parameter.name for parameter in sorted(parameters, key=lambda parameter: not is_required(parameter))]:
        side = "" if name in biases else side_of_name(name)
        is_letter = side == "k" and len(name) == len(sides.get("q", "")) == 1  # next to `q`, `key` is a random key
        is_matrix_per_head = side[:1] == "W" and name.endswith("s") and not name.endswith(("weights", "bias"))
        if side and not is_matrix_per_head and (side not in sides or is_letter):
            sides[side] = name
    if {"W", "W_o"} <= sides.keys() and "W_q" not in sides:
        sides.setdefault("W_qkv", sides.pop("W"))
    return sides


def arrays_of_layer(inputs: Sequence[str], sides: Mapping[str, str], biases: Mapping[str, str]) -> Iterator[Arrays]:
    """Yield the ways to pass x and matrices: `[in out]`, or `[out in]` as in `nn.Linear` if W_o is an argument too.

    If one matrix contains W_q, W_k and W_v, its columns are in this order, or sorted by head.
    """
    matrices: dict[str, tuple[str, ...]] = {sides[role]: (role,) for role in MATRICES if role in sides}
    if "W_qkv" in sides:
        matrices[sides["W_qkv"]] = ("W_q", "W_k", "W_v")
    if "W" in sides and "W_o" not in sides:
        matrices[sides["W"]] = ("W_o",)
    biased = {bias: matrices[matrix] for bias, matrix in biases.items() if matrix in matrices}
    # the roles of the matrices or biases that each argument contains
    contents = matrices | {bias: tuple(role.replace("W", "b") for role in roles) for bias, roles in biased.items()}
    memory = ("memory",) if inputs[1:] else ()
    all_roles = ("x", *memory, *(role for roles in contents.values() for role in roles))
    tokens = {inputs[0]: "x"} | dict.fromkeys(inputs[1:], lambda known, setup: known.get("memory", known["x"]))
    plain = {name: roles[0] if len(roles) == 1 else partial(concatenate_columns, roles)
             for name, roles in contents.items()}  # fmt: skip
    yield Arrays({**tokens, **plain}, all_roles)
    if "W_qkv" in sides:
        by_head = {
            name: partial(concatenate_columns, roles, by_head=len(roles) > 1) for name, roles in contents.items()
        }
        yield Arrays({**tokens, **by_head}, all_roles, "q, k and v of each head side by side", only_if_right=True)
    if "W_o" in all_roles:
        transposed = {name: partial(concatenate_columns, roles, transpose=True) for name, roles in contents.items()}
        yield Arrays({**tokens, **transposed}, all_roles, "matrices [out in]")


def concatenate_columns(
    roles: Sequence[str], known: Values, setup: Setup, *, by_head: bool = False, transpose: bool = False
) -> Any:  # fmt: skip
    """Concatenate the columns of matrices or biases; with `by_head`, all columns of the first head come first."""
    parts = [known[role] for role in roles]
    if by_head:
        size = parts[0].shape[-1] // setup.heads
        parts = [part[..., head * size : (head + 1) * size] for head in range(setup.heads) for part in parts]
    joined = parts[0] if len(parts) == 1 else join(parts, -1)
    return joined.T if transpose and joined.ndim == 2 else joined


# Parameters in dictionaries, such as `params["attn"]["W_q"]`


def open_containers(
    function: Any, parameters: Sequence[inspect.Parameter]
) -> tuple[list[inspect.Parameter], dict[str, Path]]:  # fmt: skip
    """Replace each required parameter that the code reads by key with one parameter per key.

    Also return the path of each new parameter.
    """
    opened, places = list[inspect.Parameter](), dict[str, Path]()
    for parameter in parameters:
        paths = find_keys_read(inspect.unwrap(function), parameter.name) if is_required(parameter) else []
        found = {name_of_entry((parameter.name, *path)): (parameter.name, *path) for path in paths}
        opened += [parameter.replace(name=name, annotation=parameter.empty) for name in found] or [parameter]
        places |= found
    return opened, places


def find_keys_read(function: Any, name: str) -> list[Path]:
    """Return the keys by which a function and its helpers read an argument, even if it is passed on as `**name`."""
    source, namespace = source_with_helpers(function), getattr(function, "__globals__", {})
    paths = [tuple(re.findall(r"\w+", keys)) for keys in re.findall(rf"\b{name}((?:\[['\"]\w+['\"]\])+)", source)]
    with suppress(SyntaxError):  # the source of a method is indented
        for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
            callee = namespace.get(getattr(call.func, "id", ""))
            if inspect.isfunction(callee) and f"**{name}" in map(ast.unparse, call.keywords):
                paths += [(key,) for key in list(inspect.signature(callee).parameters)[len(call.args) :]]
    return paths


def name_of_entry(path: Path) -> str:
    return "_".join(path[-2:]) if path[-1].lower() in (*WEIGHT_WORDS, *BIAS_WORDS) else path[-1]


def fill_containers(values: Values, places: Mapping[str, Path]) -> dict[str, Any]:
    """Put the values of unpacked containers back into nested dictionaries, such as `{"attn": {"W_q": ...}}`."""
    filled = {name: value for name, value in values.items() if name not in places}
    for name in filter(values.__contains__, places):
        container = filled
        for key in places[name][:-1]:
            container = container.setdefault(key, {})
        container[places[name][-1]] = values[name]
    return filled
