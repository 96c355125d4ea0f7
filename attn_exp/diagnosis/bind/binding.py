"""Bind a class, object, method or factory to a `Layer` by trying a few calls that names and annotations suggest."""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from attn_exp.arrays import Array, Shape
from attn_exp.diagnosis.asking.libraries import library, parts_of
from attn_exp.diagnosis.asking.names import every_parameter, parameters_of
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.bind.arguments import (
    MADE,
    MASKS,
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
    as_laid_out,
    make_runner,
    plan_build,
    source_inside,
    widths_of_weights,
)
from attn_exp.diagnosis.bind.sizes import Sizes, fields_of, settings_of, sizes_of_layer, sizes_to_try
from attn_exp.errors import UncalledError, UserError
from attn_exp.own_code import OwnFunction, error_line, held

MOST_CALLS = 16
"""Maximum number of attempts to call one layer."""


def bind_layer(own: OwnFunction, request: Request, *, with_memory: bool = False, drops: bool = True) -> Layer:
    """Build or copy the target, find out how to call it, and return it as a layer.

    Args:
        own: a class, an object, a method, or a factory (a function without required parameters).
        request: the requested heads, key/value heads, head size, positions and causal mask, used to build a class.
        with_memory: also pass a cross-attention memory if it is optional.
        drops: also try to build a class with dropout, which must be off in evaluation.

    Raises:
        UncalledError: the layer cannot be built or called; the message says what is missing.
    """
    if is_factory(own.function):
        return bind_factory(own)
    owner, method = owner_and_method(own.function)
    errors = list[UncalledError]()
    several = (one for one in sizes_to_try(owner, request) if drops or not one.dropout)
    for sizes in several if inspect.isclass(owner) else [None]:
        try:
            layer = bind_with(own, plan_build(owner, method, sizes, request.seed), sizes, request, with_memory)
            refused = str(errors[0]) if errors and re.search("(?i)dropout|rng", str(errors[0])) else ""
            return replace(layer, dropout_error=refused)
        except UserError as error:
            errors.append(error if isinstance(error, UncalledError) else UncalledError(str(error)))
    raise errors[0]


def owner_and_method(function: Any) -> tuple[Any, str]:
    if inspect.ismethod(function):
        return function.__self__, function.__name__
    path = function.__qualname__.split(".")[:-1] if inspect.isfunction(function) else []
    module: Any = sys.modules.get(function.__module__) if path else None
    owner = reduce(lambda space, part: getattr(space, part, None), path, module)
    return (owner, function.__name__) if inspect.isclass(owner) else (function, "")


@dataclass(frozen=True)
class Attempt:
    """One way to call a layer: a layout, whether to pass as many keys as queries (`square`), and optional arguments.

    Level 0 passes no optional arguments; each higher level tries another mask shape and another rotary layout.
    `wide` converts to the widest float type. `more` lists the roles of further optional arguments to pass. `tokens` is
    the length of x, where layers of images need a square or a cube.
    """

    layout: str
    square: bool
    level: int
    wide: bool = True
    more: tuple[str, ...] = ()
    tokens: int = 0


def bind_with(
    own: OwnFunction, plan: BuildPlan, sizes: Sizes | None, request: Request, with_memory: bool = False
) -> Layer:  # fmt: skip
    """Build a layer with `plan` and call it until an attempt succeeds.

    Raises:
        UncalledError: no attempt succeeded, or the meaning of a required argument is not known.
    """
    runner = make_runner(plan)
    arguments = read_arguments(parameters_of(runner.forward, own.name))
    arguments = find_memory(arguments, source_inside(runner))
    is_of_queries = arguments.keywords.get("mask") != "attn_mask" and (with_memory or "memory" in arguments.arrays)
    if is_of_queries and "memory_mask" in arguments.keywords:  # with a memory, `mask` hides queries
        keywords = {role: name for role, name in arguments.keywords.items() if role not in ("mask", "padding")}
        arguments = replace(arguments, keywords={**keywords, "mask": keywords["memory_mask"]})
    missing = ", ".join(f"`{name}`" for name in arguments.missing)
    if missing or not arguments.arrays:
        lacks = f"needs {missing}, whose meaning is not known" if missing else "takes no array that could be the input"
        raise UncalledError(f"{own.name} {lacks}")
    takes_heads = runner.bare and "x" not in arguments.arrays  # packed q, k and v do not show the number of heads
    numbers = layer_sizes(runner, plan, sizes, request, takes_heads=takes_heads)
    first = ""
    for attempt in attempts(runner, plan, arguments):
        if with_memory and MEMORY not in attempt.more:
            continue
        try:
            return try_call(own, replace(plan, wide=attempt.wide), (arguments, attempt), numbers, request)
        except UncalledError:
            raise
        except Exception as error:
            first = first or error_line(error)
    raise UncalledError(f"{own.name} could not be called: {first}")


def layer_sizes(
    runner: Runner, plan: BuildPlan, sizes: Sizes | None, request: Request, *, takes_heads: bool
) -> dict[str, int]:  # fmt: skip
    """Return the sizes that a layer was built with, completed from its attributes.

    Heads are left out if neither its constructor nor its attributes mention them.
    """
    found = sizes_of_layer(runner.target, arguments_of(plan))
    widths = widths_of_weights(runner.target)  # the author's default may differ
    is_as_told = sizes is not None and (plan.kind != "torch" or not widths or sizes.m in widths)
    width = sizes.m if is_as_told and sizes is not None else next(iter(widths), None) or found.get("m")
    if sizes is not None and ("h" in found or "h" in sizes.told or takes_heads):
        found = {"d": sizes.d, "g": sizes.g, **found, "h": sizes.h}
    found = {"h": 4, "d": 8, **found} if takes_heads and sizes is None else found
    found |= {"h": request.head} if request.head else {}
    numbers = {**found, "m": width or found.get("h", 4) * found.get("d", 6)}
    if "h" in numbers:
        numbers = {"d": max(1, numbers["m"] // numbers["h"]), "g": numbers["h"], **numbers}
    return {letter: numbers[letter] for letter in "mhgdr" if letter in numbers and (letter != "g" or "h" in numbers)}


def arguments_of(plan: BuildPlan) -> dict[str, Any]:
    parameters = every_parameter(plan.owner, "") if plan.is_class else []
    return {**{one.name: one.default for one in parameters}, **plan.arguments}


def attempts(runner: Runner, plan: BuildPlan, arguments: Arguments) -> Iterator[Attempt]:
    keywords, required = arguments.keywords, arguments.required
    levels = [0, 1, 2, 3, 4, 5, 6, 7] if set(required) & set(MASKS) else [0]
    levels = list(range(8)) if set(keywords) & set(ROTARY) else levels
    squares = [False, True] if len(arguments.arrays) > 1 else [True]
    usual = [Attempt(layout, square, level) for layout in layouts_of(runner, plan, arguments)
             for square in squares for level in levels]  # fmt: skip
    choices = {MEMORY: levels if memory_roles(arguments) else []}
    choices |= {role: [1, 2, 3] for role in ("mask", "added") if role in keywords}
    firsts = {one.layout: one for one in reversed(usual)}
    more = [replace(one, square=role != MEMORY, level=level, more=(role,)) for one in reversed(firsts.values())
            for role in choices if role not in required for level in choices[role]]  # fmt: skip
    narrow = [replace(usual[0], square=True, level=level, wide=False) for level in levels if plan.library == "torch"]
    yield from [*usual[: MOST_CALLS - len(narrow)], *more, *narrow, replace(usual[0], square=True, tokens=2**6)]


MEMORY = "memory"


def memory_roles(arguments: Arguments) -> list[str]:
    if "x" not in arguments.arrays:
        return []
    apart = {"k", "v"} <= arguments.keywords.keys()
    return ["k", "v"] if apart else [role for role in (MEMORY,) if role in arguments.keywords]


def layouts_of(runner: Runner, plan: BuildPlan, arguments: Arguments) -> list[str]:
    source = source_inside(runner)
    unpacked = UNPACKED.finditer(re.sub(r"\s*#.*", "", source))
    shapes = [re.sub(r"\s", "", one[1]).lower() for one in unpacked if one[2] in arguments.arrays.values()]
    likely = [next((layout for pattern, layout in LAYOUTS if pattern.fullmatch(names)), "") for names in shapes]
    likely = [layout for layout in likely if layout and ("d" not in layout or runner.bare)]
    modules = {type(one).__name__ for one in runner.target.modules()} if plan.kind == "torch" else set()
    if runner.bare and "q" in arguments.arrays:
        return list(dict.fromkeys([*(layout for layout in likely if "d" in layout), "bhtd", "btd", "bthd", "td"]))
    if getattr(runner.target, "batch_first", True) is False:
        likely = ["tbm", *likely]
    elif plan.kind == "equinox":
        likely = ["tm", *likely]
    elif not likely and re.search(r"\[\s*(seq\w*|length|tgt_len)\s*,\s*(batch\w*|bsz)\s*,", source):
        likely = ["tbm"]
    convolved = ["bchw" for _ in modules & {"Conv2d"}] + ["bct" for _ in modules & {"Conv1d"}]
    return list(dict.fromkeys([*likely, *convolved, "btm", "tm", "bct", "bchw", "bhwc", "tbm", "ct"]))


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


def try_call(
    own: OwnFunction, plan: BuildPlan, way: tuple[Arguments, Attempt], sizes: Mapping[str, int], request: Request
) -> Layer:
    arguments, attempt = way
    runner, forms = make_runner(plan), library(plan.library)
    if MEMORY in attempt.more:
        roles = {role: arguments.keywords[role] for role in memory_roles(arguments)}
        arguments = replace(arguments, arrays={**arguments.arrays, **roles})
    layout = attempt.layout
    axes = {role: layout if role in "qx" or attempt.square else layout.replace("t", "s")
            for role in arguments.arrays}  # fmt: skip

    def convert(array: Array) -> Any:
        return forms.into(array, forms.widest if plan.wide else "float32")

    bound = Call(runner, arguments, attempt, axes, sizes, request, convert)
    rng = np.random.default_rng(request.seed)
    pairs = [one for one in plan.arguments.values() if isinstance(one, tuple)]  # height and width of a window
    fixed = {"t": pairs[0][0] * pairs[0][1] if pairs else attempt.tokens} if pairs or attempt.tokens else {}
    example = {role: rng.standard_normal(shape_of(letters, {**sizes, **fixed}, role)) for role, letters in axes.items()}
    with held(), warnings.catch_warnings(action="ignore"):
        answer = bound({role: convert(array) for role, array in example.items()}, {})
        said = parts_of(answer)
        if set(arguments.required) & set(MASKS) and all(is_nan(one) for one in said.values()):
            raise ValueError("the answer is NaN")  # every key is hidden
        runner.finish()
    call = as_laid_out(bound, answer, layout, next(iter(example.values())).shape)
    return Layer(
        own.name, plan.library, runner.target, axes, dict(sizes), call, convert, dict(arguments.keywords),
        arguments.defaults, bound.words(example), unknown=arguments.unknown, lengths=lengths_of(example, axes),
        made=call_text(plan.owner.__name__, plan.arguments) if plan.is_class else "",
        settings=settings_of(arguments_of(plan) or fields_of(runner.target)),
    )  # fmt: skip


def is_nan(array: Any) -> bool:
    numbers = array.detach().cpu() if hasattr(array, "detach") else array
    return bool(np.isnan(np.asarray(numbers, float)).all())


def shape_of(letters: str, sizes: Mapping[str, int], role: str) -> Shape:
    """Return the shape of an example input; `c` is the width, and for keys and values `h` counts key/value heads."""
    lengths = Sizes(sizes.get("h", 1), sizes.get("d", 1), sizes["m"], sizes.get("g", 1)).lengths()
    heads = lengths["y"] if "w" in letters else sizes.get("g" if role in ("k", "v") else "h", 1)
    named = {**lengths, **sizes, "h": heads, "c": sizes["m"], "w": lengths["x"]}
    return tuple(named[letter] for letter in letters)


def lengths_of(inputs: Mapping[str, Any], axes: Mapping[str, str]) -> dict[str, int]:
    """Return the batch size and the numbers of queries and keys; for images, also the numbers of rows and columns."""
    lengths = {"b": 1}
    for role, array in inputs.items():
        found = dict(zip(axes.get(role, ""), map(int, array.shape), strict=False))
        found |= {"t": found["h"] * found["w"]} if "w" in found else {}
        kept = {"s" if one == "t" and role not in "qx" else one: found[one] for one in found if one in "btsw"}
        lengths |= kept | ({"h": found["h"]} if "w" in found else {})
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
        neutral = {role: convert_value(value, self.convert) for role, value in self.neutral(inputs).items()}
        names = {**self.arguments.keywords, **self.arguments.arrays}
        said = {**self.arguments.fixed, **neutral, **keywords, **inputs}
        by_name = {names.get(role, role): value for role, value in said.items()}
        ordered = OrderedDict((name, by_name[name]) for name in self.arguments.parameters if name in by_name)
        kinds = {name: one.kind for name, one in self.arguments.parameters.items()}
        first = [value for name, value in ordered.items() if kinds[name] is inspect.Parameter.POSITIONAL_ONLY]
        rest = {name: value for name, value in ordered.items() if kinds[name] is not inspect.Parameter.POSITIONAL_ONLY}
        return self.runner.run(*first, **rest)

    def neutral(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        level, source = self.attempt.level, source_inside(self.runner)
        values = Neutral(lengths_of(inputs, self.axes), self.sizes, source, self.request, level)
        turns = ROTARY if level or self.request.positions else ()
        words = {role: name for role, name in self.arguments.keywords.items() if role != "memory"}
        defaults = self.arguments.defaults
        off = {**TO_EVALUATE, **({"dropout": 0.0} if type(defaults.get("dropout")) is float else {})}
        switches = {
            role
            for role, best in off.items()
            if role in defaults
            and defaults[role] is not best
            and getattr(self.runner.target, words[role], None) is not best
        }  # Flax raises an error if a switch is set both in the constructor and in the call
        always = {*self.arguments.required, *self.attempt.more, *turns, *switches}
        said = {role: values.value(role, name) for role, name in words.items() if role in always}
        unknown = [words[role] for role, value in said.items() if value is ...]
        if unknown:
            raise UncalledError(f"the call needs `{unknown[0]}`, for which no neutral value is known")
        return said

    def words(self, inputs: Mapping[str, Any]) -> str:
        texts = {"position_ids": "0, 1, 2, ..."} | dict.fromkeys(MADE, "hides nothing")
        texts |= dict.fromkeys(ROTARY, "the angles of RoPE" if self.request.positions else "angles of 0")
        said = ((role, self.arguments.keywords[role], value) for role, value in self.neutral(inputs).items())
        return ", ".join(f"{name}: {texts.get(role)}" if isinstance(value, np.ndarray | tuple) else f"{name}={value!r}"
                         for role, name, value in said)  # fmt: skip


def convert_value(value: Any, convert: Callable[[Array], Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(convert_value(one, convert) for one in value)
    if np.iscomplexobj(value):
        return convert(value.real) + 1j * convert(value.imag)
    return convert(value) if isinstance(value, np.ndarray) else value
