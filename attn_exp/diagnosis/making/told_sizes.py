"""What a class is told as it is made here: sizes, heads, and whether it is causal."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from attn_exp.diagnosis.asking.clock import MAKING, while_there_is_time
from attn_exp.diagnosis.asking.offer import parameters_of, plain, role_of
from attn_exp.diagnosis.asking.questions import Inside
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.asking.uses import is_of_a_library, uses_of
from attn_exp.diagnosis.making.configurations import config_class, field_names, is_plain
from attn_exp.diagnosis.making.constructing import construct, with_argument
from attn_exp.diagnosis.matrices.bound import Bound
from attn_exp.diagnosis.matrices.module_sizes import (
    CAUSAL,
    CONFIG,
    HEADS,
    SHARED,
    Sizes,
    about_heads,
    is_switch_of_causal,
)
from attn_exp.diagnosis.matrices.pure_layers import kind_of
from attn_exp.errors import UserError
from attn_exp.own_code import OwnFunction

MADE_WITH, SIZE = 3, 8
"""Heads of a module that is made of its class, where nobody asks for others, and the numbers of each."""


OTHER_HEADS, OTHER_SIZE = 4, 12
"""Those of the one that holds a name to the proof: of one size, `sqrt(width)` may be the size of a head by chance."""


WINDOWS = ("kernel", "window", "block", "chunk", "group", "local", "span")
"""Parts of words that say how many tokens see each other, of which there may be one."""


def sizes_of(request: Request, heads: int = MADE_WITH, size: int = SIZE) -> Sizes:
    """Return the sizes of a module that is made of its class: as many heads as are asked for, or these."""
    heads, size = request.head or heads, request.size or size
    shared = request.kv_head if request.kv_head and heads % request.kv_head == 0 else heads
    causal = request.is_causal or None
    return Sizes(
        size * heads, heads, size, shared, request.seed,
        causal=causal, scaled=request.scale is not False, scale_set=request.scale_set,
    )  # fmt: skip


def with_sizes_apart(
    kind: Any, name: str, sizes: Sizes, works: Callable[[Any, Sizes], Bound], made: Bound, told: Mapping[str, Any]
) -> Bound:
    """Return a layer whose heads have as many numbers as x, made so that they have others; as it is, if none can be.

    What is wrong with the one number is right with the other where both are the same. Of one head, one of the sizes is
    that of x, unless its file has `told` it.
    """
    inside = made.inside
    if inside is None or not has_heads_as_wide_as_x(inside):
        return made
    uses = uses_of(kind)
    given = [one for one in parameters_of(kind, name) if is_size_of_layer(one)]
    given = [one for one in given if one.name not in uses or not uses[one.name].divides]
    several = given[::-1] if told or len(given) > 1 or inside.heads > 1 else []
    for one in while_there_is_time(several, MAKING, "a head of another size than x"):
        with suppress(UserError):
            maker = with_argument(kind, name, one.name, OTHER_INNER)
            other: Bound = construct(maker, name, sizes, works)
            if other.inside is not None and not has_heads_as_wide_as_x(other.inside):
                return other
    return made


def has_heads_as_wide_as_x(inside: Inside) -> bool:
    """Say whether a head of a layer has as many numbers as x."""
    width, columns = inside.arrays["W_q"].shape
    return bool(columns == width * inside.heads)


OTHER_INNER = 16


def is_size_of_layer(given: inspect.Parameter) -> bool:
    """Say whether a parameter of a class may be how many numbers something has, and no number of heads."""
    word = plain(given.name)
    needed = given.default is given.empty or type(given.default) is int
    return needed and is_plain(given) and not (word in HEADS or about_heads(word) or "drop" in word or "len" in word)


def is_told(own: OwnFunction) -> bool:
    """Say whether a class is told how many heads it has, by a word of its own or in a configuration."""
    return any(word in HEADS or about_heads(word) for word in words_of_class(own))


def may_share_heads(own: OwnFunction) -> bool:
    """Return whether a class takes its number of key/value heads, as an argument or in its configuration."""
    if not inspect.isclass(own.function):
        return False
    words = words_of_class(own)
    for given in parameters_of(own.function, own.name):
        settings = config_class(given, own.function)
        words += [] if settings is None or is_of_a_library(settings) else map(plain, field_names(settings))
    return any(word in SHARED or ("kv" in word and "head" in word) for word in words)


def may_be_causal(own: OwnFunction) -> bool:
    """Return whether a class takes a causal flag.

    A flag whose name speaks of a mask counts if the call takes no mask.
    """
    if not inspect.isclass(own.function):
        return False
    call = getattr(own.function, "forward", own.function.__call__)
    takes_mask = any(role_of(name) in ("mask", "padding") for name in inspect.signature(call).parameters)
    switches = () if takes_mask else parameters_of(own.function, own.name)
    return any(word in CAUSAL for word in words_of_class(own)) or any(map(is_switch_of_causal, switches))


def words_of_class(own: OwnFunction) -> list[str]:
    """Return what a class is told, by words of its own or in a configuration."""
    given = parameters_of(own.function, own.name)
    configured = [one.name for one in given if plain(one.name) in CONFIG]
    read = uses_of(own.function) if configured else {}
    told = (name for word in configured if word in read for name in (*read[word].fields, *read[word].keys))
    return [plain(name) for name in (*(one.name for one in given), *read, *told)]


def is_module(function: Any) -> bool:
    """Say whether something is a module of PyTorch, flax, haiku, Equinox or Keras, or a class of them."""
    if kind_of(function):
        return True
    named = [base.__module__ for base in (function if inspect.isclass(function) else type(function)).__mro__]
    return any(home.startswith("torch.nn") for home in named)
