"""Layers whose parameters something else makes: `params = init_attention(key, d_model)`, then `attention(params, x)`.

What makes them is another function of the file, or a method of the class: one that takes sizes, settings and random
keys alone, and returns arrays, or leaves them in its object. Which one it is, is found by trying: with what it makes, a
call gives an answer. Names say no more than which is tried first.
"""

from __future__ import annotations

import copy
import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from attn_exp.diagnosis.asking.chance import is_of_chance
from attn_exp.diagnosis.asking.offer import is_required, parameters_of, plain, role_of
from attn_exp.diagnosis.asking.sides import parts_of_name, side_of_name
from attn_exp.diagnosis.asking.uses import Use, is_of_a_library, uses_of
from attn_exp.diagnosis.making.configurations import is_config, is_plain
from attn_exp.diagnosis.making.constructing import construct
from attn_exp.diagnosis.matrices.module_sizes import HEADS, SHARED, Sizes
from attn_exp.diagnosis.matrices.plain_layers import METHODS, held_by, matrices_in, method_of
from attn_exp.errors import UserError
from attn_exp.own_code import LeftError

HINTS = {"init", "initialize", "initialise", "create", "make", "build", "new", "setup", "random", "get", "params",
         "param", "parameters", "weights", "fun", "fn"}  # fmt: skip
"""Words of what makes parameters, which are tried first."""
OF_WEIGHTS = {"params", "param", "parameters", "weights", "weight", "p", "w", "theta", "variables", "state", "model"}
"""Words for parameters that are handed over as one."""
KNOWN = Sizes(8, 2, 4, 2)
MADE_WITH = Sizes(24, 3, 8, 3)
MOST_MAKERS, MOST_METHODS = 6, 3


@dataclass(frozen=True)
class Leaf:
    """The place of an array in a tree of them, by its path."""

    path: str


def taken_apart(value: Any, path: str, leaves: dict[str, Any]) -> Any:
    """Return a tree with places instead of its arrays of floats, which are noted with their paths."""
    if held_by(value, "dtype") is not None and held_by(value, "shape") is not None:
        if "float" not in str(value.dtype):
            return value
        leaves[path] = value
        return Leaf(path)
    return with_parts(value, lambda part, key: taken_apart(part, f"{path}/{key}" if path else str(key), leaves))


def put_together(form: Any, leaves: Mapping[str, Any]) -> Any:
    """Return a tree with arrays at their places."""
    if isinstance(form, Leaf):
        return leaves[form.path]
    return with_parts(form, lambda part, _: put_together(part, leaves))


def with_parts(value: Any, new: Callable[[Any, Any], Any]) -> Any:
    """Return a mapping, a list, a tuple or an object of somebody's own with other parts, `new` of each and its key."""
    if isinstance(value, Mapping):
        parts = {key: new(part, key) for key, part in value.items()}
        with suppress(Exception):  # as a mapping of its own kind, where that can be made of one
            kind: Any = type(value)
            return kind(parts)
        return parts
    if isinstance(value, list | tuple):
        parted = [new(part, getattr(value, "_fields", range(len(value)))[at]) for at, part in enumerate(value)]
        return value._make(parted) if hasattr(value, "_make") else type(value)(parted)
    if is_of_a_library(type(value)) or inspect.isroutine(value) or inspect.isclass(value) or isinstance(value, Leaf):
        return value
    made = copy.copy(value)
    for name, part in getattr(value, "__dict__", {}).items():
        object.__setattr__(made, name, new(part, name))  # it may be frozen
    return made


def layers_made_so(function: Any) -> Iterator[Any]:
    """Yield classes of layers that hold what somebody's maker makes, the likeliest first: those of a function and of
    the makers of its file, or of a class and of its methods."""
    if inspect.isclass(function):
        yield from of_methods(function)
    elif callable(function) and not inspect.isclass(type(function).__dict__.get("__wrapped__")):
        yield from of_file(function)


def of_file(function: Any) -> Iterator[Any]:
    """Yield the classes of layers that are a function and what one of the makers of its file makes."""
    try:
        taken = [one for one in parameters_of(function, "") if is_plain(one)]
    except UserError:
        return
    words = sorted(filter(may_hold_all, taken), key=lambda one: plain(one.name) not in OF_WEIGHTS)[:2]
    for maker in makers_in_file(function):
        making = Making(maker, as_it_is_told(parameters_of(maker, "")))
        made = made_once(making)
        every = tuple(one.name for one in taken if may_hold_all(one))
        if isinstance(made, Mapping) and set(made) == set(every):  # each of them is one of what is made
            yield class_of(function, making, every, taken)
        elif made is not None:
            yield from (
                class_of(function, making, (one.name,), taken) for one in words if fits(function, one.name, made)
            )


def makers_in_file(function: Any) -> list[Any]:
    """Return what may make a function's parameters, those first that share words with it: functions of its file, or of
    one beside it. There are none where it has a name for each thing that it takes."""
    code = inspect.unwrap(function)
    with suppress(UserError):
        if not any(map(may_hold_all, parameters_of(function, ""))):
            return []
    own, space = set(parts_of_name(getattr(code, "__name__", ""))), getattr(code, "__globals__", {})
    here = folder_of(code)
    every = [(name, one) for name, one in space.items()
             if one is not function and is_maker(one) and folder_of(inspect.unwrap(one)) == here]  # fmt: skip
    every.sort(key=lambda one: (-len(own & set(parts_of_name(one[0]))), not is_hinted(one[0])))
    return [one for _, one in every[:MOST_MAKERS]]


def folder_of(function: Any) -> str:
    """Return where the code of a function lies."""
    return str(getattr(getattr(function, "__code__", None), "co_filename", "")).rpartition(os.sep)[0]


def made_once(making: Making) -> Any:
    """Return what a maker makes, of any sizes; None where it cannot be called, or makes no matrices."""
    made = list[Any]()

    def init(self: Any, **said: Any) -> None:
        made.append(making.maker(**arguments(making.taken, said)))

    kind = standing_for(making.maker, making.maker, (init, making.taken), (lambda self: None, ()))
    with suppress(Exception, LeftError):
        construct(kind, kind.__name__, MADE_WITH, lambda one, _: one)
    leaves: dict[str, Any] = {}
    if made:
        taken_apart(made[-1], "", leaves)
    return made[-1] if holds_matrices(made, leaves) else None


def holds_matrices(made: Any, leaves: Mapping[str, Any]) -> bool:
    """Say whether one of the arrays of something is a matrix."""
    return any(sum(length > 1 for length in one.shape) > 1 for one in leaves.values()) or matrices_in(made)


def fits(function: Any, word: str, made: Any) -> bool:
    """Say whether what a maker makes has any of the keys and fields that a function's code reads of an argument."""
    use = uses_of(inspect.unwrap(function)).get(word, Use())
    keys = [*use.keys, *use.fields]
    return not keys or any(key in made if isinstance(made, Mapping) else hasattr(made, key) for key in keys)


def may_hold_all(given: inspect.Parameter) -> bool:
    """Say whether an argument may be all parameters of a layer at once: it is no input, no mask and no size."""
    is_other = side_of_name(given.name) in ("x", "q", "k", "v") or role_of(given.name) in ("mask", "padding", "causal")
    return is_required(given) and not is_other and type(KNOWN.value(given.name)) is not int


def is_maker(one: Any) -> bool:
    """Say whether something of a file may make parameters: a function of sizes, settings and random keys alone."""
    if not inspect.isfunction(inspect.unwrap(one)) or is_of_a_library(inspect.unwrap(one)):
        return False
    try:
        taken = parameters_of(one, "")
    except (UserError, ValueError):
        return False
    is_told_sizes = all(map(is_size, filter(is_required, taken)))
    return bool(taken) and takes_no_input(taken) and (is_told_sizes or is_hinted(getattr(one, "__name__", "")))


def takes_no_input(taken: Sequence[inspect.Parameter]) -> bool:
    """Say whether none of what a function needs is an input, a mask or a matrix by its name."""
    needed = [one for one in taken if is_required(one) and is_plain(one)]
    is_key = any(plain(one.name) in KEYS for one in needed) and not any(plain(one.name) in ("q", "v") for one in needed)
    return not any(is_input(one) for one in needed if not (is_key and plain(one.name) in KEYS))


def is_input(given: inspect.Parameter) -> bool:
    """Say whether a parameter is an input, a mask or a matrix by its name, and no random key, size or setting."""
    name, word = given.name, plain(given.name)
    if is_size(given):
        return False
    return bool(side_of_name(name)) or role_of(name) in ("mask", "padding") or word in OF_WEIGHTS


def is_size(given: inspect.Parameter) -> bool:
    """Say whether a parameter is a size, a setting, a shape or a random key by its name or its note."""
    name, word, note = given.name, plain(given.name), str(given.annotation)
    is_other = is_of_chance(name, note) or is_config(word) or word in SHAPES
    return is_other or type(KNOWN.value(name)) is int or "int" in note


SHAPES = ("inputshape", "inshape", "shape", "inputsize")


@dataclass(frozen=True)
class Making:
    """What makes parameters, and what it takes."""

    maker: Callable[..., Any]
    taken: Sequence[inspect.Parameter]


class Shape(inspect.Parameter):
    """The width of an input, of which a maker is told the shape; `word` is its own name for that."""

    word: str


def as_it_is_told(taken: Sequence[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return the parameters of a maker with a note beside what it calls `k` or `key`, which is a random one, and with
    the width of its input instead of a shape."""
    return [told_so(one) for one in taken if is_plain(one)]


def told_so(given: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter of a maker as one that is known."""
    if plain(given.name) in KEYS and given.annotation is given.empty:
        return given.replace(annotation="PRNGKey")
    if plain(given.name) not in SHAPES or not is_required(given):
        return given
    width = Shape("input_dim", given.KEYWORD_ONLY)
    width.word = given.name
    return width


def arguments(taken: Sequence[inspect.Parameter], said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a maker is given, of what its object is made of."""
    known = {one.name: one for one in taken if one.name in said}
    return {one.word if isinstance(one, Shape) else name: (2, 7, said[name]) if isinstance(one, Shape) else said[name]
            for name, one in known.items()}  # fmt: skip


KEYS = ("k", "key", "keys", "subkey")
"""What a maker calls its random key; it has no queries and values."""


def class_of(function: Any, making: Making, words: tuple[str, ...], taken: Sequence[inspect.Parameter]) -> Any:
    """Return a class of layers that are a function with its parameters as they are made.

    The one of `words` is all of them; of several, each is one of what is made, by its name.
    """
    told = [one for one in taken if one.name not in words and is_told(one, making.taken)]
    names = [one.name for one in told]
    rest = [one for one in taken if one.name not in (*words, *names)]

    def init(self: Any, **said: Any) -> None:
        made = making.maker(**arguments(making.taken, said))
        keep(self, made, {name: said[name] for name in names if name in said})

    def forward(self: Any, *given: Any, **named: Any) -> Any:
        made = put_together(self.form, self.weights)
        named |= in_a_row(rest, given) | ({words[0]: made} if len(words) == 1 else made)
        return called(function, {**self.told, **named})

    vars(forward)["__wrapped__"] = inspect.unwrap(function)  # whose code may say what is inside of its arguments
    return standing_for(function, making.maker, (init, [*making.taken, *told]), (forward, rest))


def keep(layer: Any, made: Any, told: Mapping[str, Any]) -> None:
    """Let a layer hold what is made, taken apart, and what it is told in each call: counts by name too."""
    layer.weights = {}
    layer.form = taken_apart(made, "", layer.weights)
    layer.told = dict(told)
    vars(layer).update({name: value for name, value in told.items() if type(value) is int and not hasattr(layer, name)})


def of_methods(kind: Any) -> Iterator[Any]:
    """Yield the classes of layers that are objects of a class with what one of its methods makes."""
    answers = method_that_answers(kind)
    if not answers or is_of_a_library(kind):
        return
    try:
        made_of = parameters_of(kind, "")
        taken = [one for one in bare(kind, answers) if is_plain(one)]
    except (UserError, TypeError, ValueError):
        return
    for maker in makers_of(kind, answers)[:MOST_METHODS]:
        yield from of_method(kind, (maker, answers), made_of, taken)


def method_that_answers(kind: type) -> str:
    """Return what a class calls the method that does it: of several usual names, one that says what it takes."""
    usual = [word for word in METHODS if inspect.isfunction(getattr(kind, word, None))]
    told = [word for word in usual if all(is_plain(one) for one in bare(kind, word))]
    return next(iter(told), method_of(kind))


def makers_of(kind: type, answers: str) -> list[str]:
    """Return the methods of a class that take sizes, settings and random keys alone, those with usual names first."""
    found: list[str] = []
    for home in kind.__mro__[:-1]:
        for name, one in vars(home).items():
            method = getattr(one, "__func__", one)
            if name in ("__init__", "__new__", answers, *found) or not inspect.isfunction(method):
                continue
            taken = bare(kind, name)
            if not re.fullmatch(r"__\w+__", name) and takes_no_input(taken) and (taken or is_hinted(name)):
                found.append(name)
    return sorted(found, key=lambda name: not is_hinted(name))


def is_hinted(name: str) -> bool:
    """Say whether a name is like those of what makes parameters."""
    return bool(HINTS & set(parts_of_name(name)))


def bare(kind: type, name: str) -> list[inspect.Parameter]:
    """Return what a method of an object of a class takes."""
    one = inspect.getattr_static(kind, name)
    given = list(inspect.signature(getattr(one, "__func__", one)).parameters.values())
    return given if isinstance(one, staticmethod) else given[1:]


def of_method(
    kind: Any, names: tuple[str, str], made_of: Sequence[inspect.Parameter], taken: Sequence[inspect.Parameter]
) -> Iterator[Any]:  # fmt: skip
    """Yield the classes of layers that are objects of a class with what one method makes: that it leaves in its object,
    or returns as the first argument of the other method."""
    maker, answers = names
    of_maker = as_it_is_told(bare(kind, maker))

    def begun(said: Mapping[str, Any]) -> tuple[Any, Any]:
        one = kind(**arguments(made_of, said))
        return one, getattr(one, maker)(**arguments(of_maker, said))

    first = next(iter(taken), None)
    word = first.name if first is not None and may_hold_all(first) else ""
    told = [one for one in taken if word and one.name != word and is_told(one, [*made_of, *of_maker])]
    counted = [one.name for one in told]
    rest = [one for one in taken if one.name != word and one.name not in counted]

    def init(self: Any, **said: Any) -> None:
        self.one, made = begun(said)
        keep(self, made if word else None, {name: said[name] for name in counted if name in said})
        if not holds_matrices(self, self.weights):
            raise TypeError(f"{maker} makes no matrices")

    def forward(self: Any, *given: Any, **named: Any) -> Any:
        named |= in_a_row(rest, given) | ({word: put_together(self.form, self.weights)} if word else {})
        return called(getattr(self.one, answers), {**self.told, **named})

    vars(forward)["__wrapped__"] = inspect.unwrap(getattr(kind, answers))
    yield standing_for(kind, kind, (init, [*made_of, *of_maker, *told]), (forward, rest))


def is_told(given: inspect.Parameter, made_of: Sequence[inspect.Parameter]) -> bool:
    """Say whether an argument of a call is known as a layer is made: a size, settings, or what its maker is told."""
    word = plain(given.name)
    if any(one.name == given.name for one in made_of) and not is_of_chance(given.name, str(given.annotation)):
        return True
    is_size = type(KNOWN.value(given.name)) is int and not side_of_name(given.name)
    if not is_required(given):
        return is_size and (word in HEADS or word in SHARED)
    return is_size or is_config(word)


def in_a_row(taken: Sequence[inspect.Parameter], given: Sequence[Any]) -> dict[str, Any]:
    """Return arguments that were given in a row by their names."""
    return dict(zip([one.name for one in taken], given, strict=False))


def called(function: Any, named: Mapping[str, Any]) -> Any:
    """Return what a function says, given its arguments in a row as far as it takes them so: what `vmap` makes of one
    maps over all that is given by name."""
    bound = inspect.signature(function).bind(**named)
    return function(*bound.args, **bound.kwargs)


def standing_for(
    function: Any, maker: Any, init: tuple[Any, Sequence[inspect.Parameter]],
    forward: tuple[Any, Sequence[inspect.Parameter]],
) -> Any:  # fmt: skip
    """Return a class with these two methods, which says that they take what `function` and its `maker` take."""
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    for method, taken in (init, forward):
        named = {one.name: one.replace(kind=one.KEYWORD_ONLY) for one in reversed(taken) if is_plain(one)}
        vars(method)["__signature__"] = inspect.Signature([own, *reversed(named.values())])
    space = {"__init__": init[0], "forward": forward[0], "owner": maker, "__module__": maker.__module__}
    return type(getattr(inspect.unwrap(function), "__name__", "made"), (), space)
