"""Bind a class, object, method or factory to a `Layer` by trying a few calls that names and annotations suggest.

`bind_layer` builds a class with several sizes, until `bind_with` can call it. `list_attempts` lists the calls to try,
and `try_call` tries one. The first call of `Attention(d_model=24, num_heads=4)` passes x `[b t m]` of shape (2, 5, 24).
"""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from math import prod
from typing import Any

import numpy as np

from attn_exp.arrays import Array, Shape
from attn_exp.diagnosis.asking.libraries import collect_arrays, load_library
from attn_exp.diagnosis.asking.names import every_parameter, parameters_of
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.bind.arguments import (
    MASK_ARRAYS,
    MASKS,
    OFFSET,
    ROTARY,
    TO_EVALUATE,
    Arguments,
    Neutral,
    find_memory,
    read_arguments,
)
from attn_exp.diagnosis.bind.construct import call_text
from attn_exp.diagnosis.bind.factory import bind_factory, is_factory
from attn_exp.diagnosis.bind.layer import (
    BuildPlan,
    Layer,
    Runner,
    keep_layout,
    make_runner,
    plan_build,
    source_inside,
    widths_of_weights,
)
from attn_exp.diagnosis.bind.sizes import Sizes, fields_of, settings_of, sizes_of_layer, sizes_to_try
from attn_exp.errors import UncalledError, UserError
from attn_exp.own_code import OwnFunction, error_line, guard_process

MOST_CALLS = 16
"""Maximum number of calls of one layer that pass only required arguments."""
UNPACKED = re.compile(r"^\s*\(?((?:\*?\w+\s*,\s*)+\*?\w+)\s*\)?\s*=\s*(\w+)\.(?:shape|size\(\))\s*$", re.MULTILINE)
"""A line that unpacks the shape of an array into names: `b, t, c = x.shape`."""
HEIGHT, WIDTH = "(?:h|hh|height|rows)", "(?:w|ww|width|columns)"
BATCH = r"(?:b|bs|bsz|bn|nb|n|n?_?batch\w*)"
TOKENS = r"(?:t|l|s|tl|seq\w*|len\w*|\w*_len\w*|\w*length|tgt\w*|tokens?|time\w*|num_tokens)"
CHANNELS = r"(?:c|ch|\w*channels?|dim|d_model|embed\w*|emb\w*|hidden\w*)"
LAYOUTS = tuple((re.compile(pattern), layout) for pattern, layout in (
    (r"\w+,\w+", "tm"),
    (rf"{TOKENS},{BATCH},\w+", "tbm"),
    (rf"\w+,{CHANNELS},(?!_|{CHANNELS}$)\w+", "bct"),
    (r"\w+,\w+,\w+", "btm"),
    (rf"\w+,{HEIGHT},{WIDTH},\w+", "bhwc"),
    (rf"\w+,\w+,{HEIGHT},{WIDTH}", "bchw"),
    (r"\w+,\w+,(\w*head\w*|h|nh),\w+", "bthd"),
    (r"\w+,\w+,\w+,\w+", "bhtd"),
))  # fmt: skip
"""Patterns for the names of an unpacked shape, and the layout that each implies; the first match wins."""


def bind_layer(target: OwnFunction, request: Request, *, with_memory: bool = False, drops: bool = True) -> Layer:
    """Build or copy the target, find out how to call it, and return it as a layer.

    Args:
        target: a class, an object, a method, or a factory (a function without required parameters).
        request: the requested heads, key/value heads, head size, positions and causal mask, used to build a class.
        with_memory: also pass a cross-attention memory if it is optional.
        drops: also try to build a class with dropout, which must be off in evaluation.

    Raises:
        UncalledError: the layer cannot be built or called; the message says what is missing.
    """
    if is_factory(target.function):
        return bind_factory(target)
    owner, method = find_owner(target.function)
    errors = list[UncalledError]()
    for sizes in sizes_to_try(owner, request, drops) if inspect.isclass(owner) else [None]:
        try:
            layer = bind_with(target, plan_build(owner, method, sizes, request.seed), sizes, request, with_memory)
            first_error = str(errors[0]) if errors else ""
            return replace(layer, dropout_error=first_error if re.search("(?i)dropout|rng", first_error) else "")
        except UserError as error:
            errors.append(error if isinstance(error, UncalledError) else UncalledError(str(error)))
    raise errors[0]


def find_owner(function: Any) -> tuple[Any, str]:
    """Return the owner of a method (an object or a class) and the method's name; for anything else, itself and ""."""
    if inspect.ismethod(function):
        return function.__self__, function.__name__
    path = function.__qualname__.split(".")[:-1] if inspect.isfunction(function) else []
    module: Any = sys.modules.get(function.__module__) if path else None
    owner = reduce(lambda namespace, name: getattr(namespace, name, None), path, module)
    return (owner, function.__name__) if inspect.isclass(owner) else (function, "")


@dataclass(frozen=True)
class Attempt:
    """One way to call a layer.

    - `layout`: the layout of the inputs.
    - `square`: pass as many keys as queries.
    - `level`: which mask shape and rotary layout to pass, as in `Neutral`.
    - `wide`: convert arrays to the widest float type, not to float32.
    - `more`: the roles of optional arguments to pass.
    - `tokens`: the number of tokens, if a layer of images needs a square or a cube; else 0.
    """

    layout: str
    square: bool
    level: int
    wide: bool = True
    more: tuple[str, ...] = ()
    tokens: int = 0


def bind_with(
    target: OwnFunction, plan: BuildPlan, sizes: Sizes | None, request: Request, with_memory: bool = False
) -> Layer:  # fmt: skip
    """Build a layer with `plan` and call it until an attempt succeeds.

    Raises:
        UncalledError: no attempt succeeded, or the meaning of a required argument is not known.
    """
    runner = make_runner(plan)
    arguments = read_call_arguments(runner, target.name, with_memory)
    takes_heads = runner.is_parameter_free and "x" not in arguments.arrays  # an x of packed heads does not show them
    layer_sizes = find_sizes(runner, plan, sizes, request, takes_heads=takes_heads)
    first_error, attempts = "", list_attempts(runner, plan, arguments)
    for attempt in attempts:
        if with_memory and "memory" not in attempt.more:
            continue
        try:
            return try_call(target, plan, arguments, attempt, layer_sizes, request)
        except UncalledError:
            raise
        except Exception as error:
            first_error = first_error or error_line(error)
    # a mask may have a fixed size, which the error names; larger sizes would take too much memory
    for count in dict.fromkeys(re.findall(r"\b(?:[2-9]|[1-9]\d\d?)\b", first_error)):
        with suppress(Exception):
            usual = replace(attempts[0], square=True, tokens=int(count))
            return try_call(target, plan, arguments, usual, layer_sizes, request)
    raise UncalledError(f"{target.name} could not be called: {first_error}")


def read_call_arguments(runner: Runner, name: str, with_memory: bool) -> Arguments:
    """Return the arguments of a layer's call by role.

    Raises:
        UncalledError: the meaning of a required argument is not known, or none is an array.
    """
    arguments = find_memory(read_arguments(parameters_of(runner.forward, name)), source_inside(runner))
    if arguments.missing:
        raise UncalledError(f"{name} needs `{'`, `'.join(arguments.missing)}`, whose meaning is not known")
    if not arguments.arrays:
        raise UncalledError(f"{name} takes no array that could be the input")
    keywords = arguments.keywords
    is_cross_attention = with_memory or "memory" in arguments.arrays
    if not is_cross_attention or "memory_mask" not in keywords or keywords.get("mask") == "attn_mask":
        return arguments
    others = {role: name for role, name in keywords.items() if role not in ("mask", "padding")}  # masks of the queries
    return replace(arguments, keywords={**others, "mask": keywords["memory_mask"]})


def find_sizes(
    runner: Runner, plan: BuildPlan, planned: Sizes | None, request: Request, *, takes_heads: bool
) -> dict[str, int]:  # fmt: skip
    """Return the sizes of a layer by letter, from those planned for its construction and those in its attributes.

    The number of heads is left out if neither its constructor nor its attributes mention it.
    """
    found = sizes_of_layer(runner.target, fill_arguments(plan))
    widths = widths_of_weights(runner.target)
    # a PyTorch class may choose its own width; its weights then have another width than planned
    is_as_planned = planned is not None and (plan.kind != "torch" or not widths or planned.m in widths)
    if planned is None:  # an object that the user built
        found = {"h": 4, "d": 8, **found} if takes_heads else found
    elif "h" in found or "h" in planned.fixed or takes_heads:
        found = {"d": planned.d, "g": planned.g, **found, "h": planned.h}
    found |= {"h": request.head} if request.head else {}
    width = planned.m if is_as_planned and planned is not None else next(iter(widths), None) or found.get("m")
    found["m"] = width or found.get("h", 4) * found.get("d", 6)
    if "h" in found:
        found = {"d": max(1, found["m"] // found["h"]), "g": found["h"], **found}
    return {letter: found[letter] for letter in ("mhgdr" if "h" in found else "mdr") if letter in found}


def fill_arguments(plan: BuildPlan) -> dict[str, Any]:
    """Return the constructor's defaults together with the planned arguments; for an object, an empty dict."""
    parameters = every_parameter(plan.owner, "") if plan.is_class else []
    return {**{parameter.name: parameter.default for parameter in parameters}, **plan.arguments}


def list_attempts(runner: Runner, plan: BuildPlan, arguments: Arguments) -> list[Attempt]:
    """Return the calls to try, in this order.

    1. Each layout without optional arguments, first with different numbers of queries and keys, then with equal ones.
    2. Each layout with an optional memory, mask or bias.
    3. The first layout in float32, for PyTorch layers that create float32 arrays.
    4. The first layout with 64 tokens.

    If a mask is required, or there are rotary tables, these calls are tried at several levels (see `Neutral`).
    """
    keywords, required = arguments.keywords, arguments.required
    levels = list(range(8)) if {*MASKS} & {*required} or {*ROTARY} & {*keywords} else [0]
    squares = [False, True] if len(arguments.arrays) > 1 else [True]
    layouts = list_layouts(runner, plan, arguments)
    usual = [Attempt(*choice) for choice in product(layouts, squares, levels)]
    optional = [("memory", level) for level in levels if find_memory_roles(arguments)]
    optional += [(role, level) for role in ("mask", "added") if role in keywords for level in (1, 2, 3)]
    with_more = [Attempt(layout, role != "memory", level, more=(role,))
                 for layout, (role, level) in product(layouts, optional) if role not in required]  # fmt: skip
    narrow = [Attempt(layouts[0], True, level, wide=False) for level in levels if plan.library == "torch"]
    return [*usual[: MOST_CALLS - len(narrow)], *with_more, *narrow, Attempt(layouts[0], True, 0, tokens=2**6)]


def find_memory_roles(arguments: Arguments) -> list[str]:
    """Return the roles of the optional arguments that take the memory of cross-attention, next to x."""
    if "x" not in arguments.arrays:
        return []
    takes_both = {"k", "v"} <= arguments.keywords.keys()
    return ["k", "v"] if takes_both else [role for role in ("memory",) if role in arguments.keywords]


TOKENS_FIRST = re.compile(
    r"\[\s*(seq\w*|length|tgt_len)\s*,\s*(batch\w*|bsz)\s*,|(?i:\b(t|l|seq\w*|time)\s+x\s+(b|n|batch)\s+x\s+\w)"
)
"""Matches a comment or docstring with the layout [seq_len, batch, ...] or T x B x C."""


def list_layouts(runner: Runner, plan: BuildPlan, arguments: Arguments) -> list[str]:
    """Return the layouts to try: first those that the code or the library suggests, then the usual ones."""
    source = source_inside(runner)
    unpacked = UNPACKED.findall(re.sub(r"\s*#.*", "", source))
    shapes = [re.sub(r"\s", "", axes).lower() for axes, name in unpacked if name in arguments.arrays.values()]
    matches = [next((layout for pattern, layout in LAYOUTS if pattern.fullmatch(shape)), "") for shape in shapes]
    likely = [layout for layout in matches if layout]
    if runner.is_parameter_free and "q" in arguments.arrays:
        return list(dict.fromkeys([*(layout for layout in likely if "d" in layout), "bhtd", "btd", "bthd", "td"]))
    # a layer with parameters takes tokens; if its code unpacks shapes with heads, they belong to later arrays
    likely = [layout for layout in likely if "d" not in layout or runner.is_parameter_free]
    if getattr(runner.target, "batch_first", True) is False:
        likely = ["tbm", *likely]
    elif plan.kind == "equinox":
        likely = ["tm", *likely]
    elif not likely and TOKENS_FIRST.search(source):
        likely = ["tbm"]
    modules = {type(module).__name__ for module in runner.target.modules()} if plan.kind == "torch" else set()
    likely += [layout for name, layout in (("Conv2d", "bchw"), ("Conv1d", "bct")) if name in modules]
    return list(dict.fromkeys([*likely, "btm", "tm", "bct", "bchw", "bhwc", "tbm", "ct"]))


def try_call(
    target: OwnFunction, plan: BuildPlan, arguments: Arguments, attempt: Attempt, sizes: Mapping[str, int],
    request: Request,
) -> Layer:  # fmt: skip
    """Build the layer, call it once with random inputs, and return it.

    Raises:
        Exception: anything that the layer raises; the next attempt may succeed.
    """
    runner, backend = make_runner(plan, wide=attempt.wide), load_library(plan.library)
    if "memory" in attempt.more:
        roles = {role: arguments.keywords[role] for role in find_memory_roles(arguments)}
        arguments = replace(arguments, arrays={**arguments.arrays, **roles})
    axes = {role: attempt.layout if role in "qx" or attempt.square else attempt.layout.replace("t", "s")
            for role in arguments.arrays}  # fmt: skip

    def convert(array: Array) -> Any:
        return backend.into(array, backend.widest if attempt.wide else "float32")

    call = Call(runner, arguments, attempt, axes, sizes, request, convert)
    # a layer of image windows is built with a height and a width, which fix the number of tokens
    tokens = next((prod(value) for value in plan.arguments.values() if isinstance(value, tuple)), attempt.tokens)
    fixed_sizes = {**sizes, "t": tokens} if tokens else sizes
    rng = np.random.default_rng(request.seed)
    example = {role: rng.standard_normal(shape_of(letters, fixed_sizes, role)) for role, letters in axes.items()}
    with guard_process(), warnings.catch_warnings(action="ignore"):
        output = call({role: convert(array) for role, array in example.items()}, {})
        if set(arguments.required) & set(MASKS) and all(map(is_nan, collect_arrays(output).values())):
            raise ValueError("the answer is NaN")  # every key is hidden
        runner.finish()
    return Layer(
        target.name, plan.library, runner.target, axes, dict(sizes),
        keep_layout(call, output, attempt.layout, next(iter(example.values())).shape), convert,
        dict(arguments.keywords), arguments.defaults, call.describe_extras(example), unknown=arguments.unknown,
        constructor_call=call_text(plan.owner.__name__, plan.arguments) if plan.is_class else "",
        lengths=find_lengths(example, axes), settings=settings_of(fill_arguments(plan) or fields_of(runner.target)),
    )  # fmt: skip


def is_nan(array: Any) -> bool:
    return bool(np.isnan(np.asarray(array.detach().cpu() if hasattr(array, "detach") else array, float)).all())


def shape_of(letters: str, sizes: Mapping[str, int], role: str) -> Shape:
    """Return the shape of an example input.

    The letter `c` is the width. `h` is the number of heads, or of key/value heads if the role is k or v.
    """
    lengths = Sizes(sizes.get("h", 1), sizes.get("d", 1), sizes["m"], sizes.get("g", 1)).lengths()
    heads = lengths["y"] if "w" in letters else sizes.get("g" if role in ("k", "v") else "h", 1)  # [b h w c]: rows
    by_letter = {**lengths, **sizes, "h": heads, "c": sizes["m"], "w": lengths["x"]}
    return tuple(by_letter[letter] for letter in letters)


def find_lengths(inputs: Mapping[str, Any], axes: Mapping[str, str]) -> dict[str, int]:
    """Return the batch size and the numbers of queries and keys; for images, also the numbers of rows and columns."""
    lengths = {"b": 1}
    for role, array in inputs.items():
        found = dict(zip(axes.get(role, ""), map(int, array.shape), strict=False))
        found |= {"t": found["h"] * found["w"]} if "w" in found else {}
        found |= {"s": found.pop("t")} if "t" in found and role not in "qx" else {}  # the tokens of keys
        lengths |= {letter: size for letter, size in found.items() if letter in ("bhtsw" if "w" in found else "bts")}
    return {"t": 1, "s": lengths.get("t", 1), **lengths}


@dataclass(frozen=True)
class Call:
    """Calls a layer with arrays by role; required arguments that are not passed get neutral values."""

    runner: Runner
    arguments: Arguments
    attempt: Attempt
    axes: Mapping[str, str]
    sizes: Mapping[str, int]
    request: Request
    convert: Callable[[Array], Any]

    def __call__(self, inputs: Mapping[str, Any], keywords: Mapping[str, Any]) -> Any:
        neutral = {
            role: convert_value(value, self.convert)
            for role, value in self.neutral_values(inputs, keywords.get(OFFSET, 0)).items()
        }
        names = {**self.arguments.keywords, **self.arguments.arrays}
        parameters = self.arguments.parameters
        narrowed = {role: self.convert(np.asarray(value)) if hasattr(value, "dtype") else value
                    for role, value in keywords.items() if not self.attempt.wide}  # fmt: skip
        by_role = {**self.arguments.fixed, **neutral, **keywords, **narrowed, **inputs}
        by_name = {names.get(role, role): value for role, value in by_role.items()}
        positional = [name for name in parameters if name in by_name
                      and parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY]  # fmt: skip
        named = {name: by_name[name] for name in parameters if name in by_name and name not in positional}
        return self.runner.run(*(by_name[name] for name in positional), **named)

    def neutral_values(self, inputs: Mapping[str, Any], offset: int = 0) -> dict[str, Any]:
        """Return the values of the arguments that every call passes in addition to the inputs, by role.

        Rotary tables start at position `offset`.

        Raises:
            UncalledError: an argument has no neutral value.
        """
        lengths, source, level = find_lengths(inputs, self.axes), source_inside(self.runner), self.attempt.level
        neutral = Neutral({**lengths, OFFSET: offset}, self.sizes, source, self.request, level)
        rotary = ROTARY if level or self.request.positions else ()
        roles = {*self.arguments.required, *self.attempt.more, *rotary, *self.list_switches()}
        names = {role: name for role, name in self.arguments.keywords.items() if role in roles and role != "memory"}
        values = {role: neutral.value(role, name) for role, name in names.items()}
        unknown = next((names[role] for role, value in values.items() if value is ...), "")
        if unknown:
            raise UncalledError(f"the call needs `{unknown}`, for which no neutral value is known")
        return values

    def list_switches(self) -> list[str]:
        """Return the roles of the switches that must be passed for evaluation.

        A switch that the constructor has set is not passed: Flax raises an error if it is set in both places.
        """
        defaults = self.arguments.defaults
        evaluating = {**TO_EVALUATE, **({"dropout": 0.0} if type(defaults.get("dropout")) is float else {})}
        changed = {role: value for role, value in evaluating.items() if defaults.get(role, value) is not value}
        return [role for role, value in changed.items()
                if getattr(self.runner.target, self.arguments.keywords[role], None) is not value]  # fmt: skip

    def describe_extras(self, inputs: Mapping[str, Any]) -> str:
        """Return text about the arguments that every call passes in addition to the inputs."""
        texts = {"position_ids": "0, 1, 2, ..."} | dict.fromkeys(MASK_ARRAYS, "hides nothing")
        texts |= dict.fromkeys(ROTARY, "the angles of RoPE" if self.request.positions else "angles of 0")
        names, values = self.arguments.keywords, self.neutral_values(inputs)
        return ", ".join(
            f"{names[role]}: {texts.get(role)}" if isinstance(value, np.ndarray | tuple) else f"{names[role]}={value!r}"
            for role, value in values.items()
        )


def convert_value(value: Any, convert: Callable[[Array], Any]) -> Any:
    """Convert an array, a complex array, or a tuple of arrays; return any other value unchanged."""
    if isinstance(value, tuple):
        return tuple(convert_value(part, convert) for part in value)
    if np.iscomplexobj(value):
        return convert(value.real) + 1j * convert(value.imag)
    return convert(value) if isinstance(value, np.ndarray) else value
