"""Objects of no library as layers that hold matrices."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any, cast

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.offer import BY_NAME, offered, parameters_of
from attn_exp.diagnosis.asking.offer import plain as plain_name
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.calling.search_of_ways import NoWayError
from attn_exp.diagnosis.calling.tokens import as_tokens_lie
from attn_exp.diagnosis.calling.way import LAID, Way
from attn_exp.diagnosis.calling.ways_into_layers import find_way
from attn_exp.diagnosis.code.libraries import library, wanted
from attn_exp.diagnosis.inside.cores import seen_inside
from attn_exp.diagnosis.inside.inner import Look, UnreadError, another_each_time
from attn_exp.diagnosis.making.constructing import construct
from attn_exp.diagnosis.making.told_sizes import sizes_of
from attn_exp.diagnosis.matrices.bound import Bound
from attn_exp.diagnosis.matrices.module_sizes import (
    Sizes,
)
from attn_exp.diagnosis.matrices.plain_layers import (
    PlainLayer,
    arrays_in,
    boxes_of,
    evaluated,
    keeps_what_it_makes,
    matrices_in,
    method_of,
    plain,
)
from attn_exp.diagnosis.matrices.roles import TOKENS, NotFoundError
from attn_exp.diagnosis.reading.layers_of_jax import library_of_jax
from attn_exp.diagnosis.reading.numbers_of_layers import enlarge, redraw, widths_of
from attn_exp.diagnosis.reading.read_layers import (
    taken_by,
    telling,
    understood,
    with_heads_told,
    words_for_masks,
)
from attn_exp.errors import UncalledError, UserError
from attn_exp.own_code import LeftError, OwnFunction, held


def of_no_library(own: OwnFunction, sizes: Sizes, request: Request) -> Bound:
    """Return an object of no library, or what a class makes, as a layer that holds its own matrices.

    It may make them when it is called first.

    Raises:
        NoMatricesError: it holds none.
        UserError: it cannot be called, or what it does is no attention.
    """
    held_by_it = matrices_of(own, request)
    if any(array.any() for array in held_by_it):
        return of_plain(own, sizes, request)
    kind = own.function if inspect.isclass(own.function) else type(own.function)
    if not keeps_what_it_makes(kind) or (held_by_it and takes_heads(getattr(kind, method_of(kind)))):
        raise NoMatricesError(f"{own.name} holds no matrices")
    try:
        return of_plain(own, sizes, request)
    except UncalledError as error:
        raise NoMatricesError(f"{own.name} holds no matrices") from error


def takes_heads(function: Any) -> bool:
    """Return whether a function's arguments are named q, k and v, whatever else it takes."""
    with suppress(UserError):
        return {"q", "k", "v"} <= {BY_NAME.get(plain_name(one.name), "") for one in parameters_of(function, "")} or (
            offered(function, "").core
        )
    return False


class NoMatricesError(UserError):
    """An object of no library holds no matrices, also after it was called."""


def matrices_of(own: OwnFunction, request: Request) -> list[Array]:
    """Return the matrices that an object of no library, or what a class makes, holds; zeros may be filled by calls."""
    made = own.function
    try:
        if inspect.isclass(made):
            made = construct(own.function, own.name, sizes_of(request), lambda one, _: one)
        return [plain(array) for _, _, array in arrays_in(made) if sum(length > 1 for length in array.shape) > 1]
    except (Exception, LeftError):
        return []


def of_plain(own: OwnFunction, sizes: Sizes, request: Request) -> Bound:
    """Return an object of no library as a layer that holds its own matrices.

    Raises:
        UserError: it cannot be made or called, or what it does is no attention.
    """

    def works(made: Any, of_size: Sizes) -> Bound:
        known = of_size if inspect.isclass(own.function) else None
        return with_heads_told(of_arrays(PlainLayer(evaluated(made)), own.name, request, known, of_size.size), made)

    try:
        if not inspect.isclass(own.function):
            return works(copy.deepcopy(own.function), sizes)
        return cast("Bound", construct(own.function, own.name, sizes, works))
    except NoWayError as error:
        raise UncalledError(f"{own.name} cannot be called with x: {error}") from error


def way_into_plain(
    layer: PlainLayer, forward: Sequence[inspect.Parameter], into: Callable[[Array], Any], widths: Sequence[int],
    head: int,
) -> Way:  # fmt: skip
    """Return how an object of no library is called: with arrays, else with them in a class of its file's own.

    Raises:
        NoWayError: it cannot be called.
    """
    axes = (*LAID, "mt")
    try:
        return find_way(layer, forward, into, axes, widths, head)
    except NoWayError:
        for box in boxes_of(layer):
            layer.box = box
            with suppress(NoWayError):
                return find_way(layer, forward, into, axes, widths, head)
        raise


def with_what_calls_make(layer: PlainLayer, name: str, sizes: Sizes, head: int) -> PlainLayer:
    """Return a layer with the matrices that it makes when it is called first, without what calls leave behind.

    Raises:
        NoWayError: it cannot be called.
        NoMatricesError: it has no matrices then.
    """
    made = layer.module
    if not keeps_what_it_makes(type(made), only_names=matrices_in(made)) or not can_be_copied(made):
        return layer
    named = [layer.library] if layer.places else wanted(type(layer.module))[:1]
    lent, kind = library(named[0]), layer.kind
    if not layer.places and lent.name != "numpy":
        kind = "float32"  # the type in which the others make arrays
    widths, forward = widths_of(layer, sizes), taken_by(layer.forward, name)
    with layer.untouched():
        way = way_into_plain(layer, forward, lambda array: lent.into(array, kind), widths, head)
    rng = np.random.default_rng(89)
    sizes_of_calls = [way.tokens] * 3 if way.tokens else [7, 7, 6]

    def called(tokens: int) -> Any:
        x = lent.into(rng.standard_normal((2, tokens, way.width)), kind)
        return way.call(layer, x, x if way.memory else None)

    with held():
        settled = layer.settled([partial(called, tokens) for tokens in sizes_of_calls])
    if not any(sum(length > 1 for length in array.shape) > 1 for array in settled.parameters.values()):
        raise NoMatricesError(f"{name} holds no matrices")
    return settled


def can_be_copied(made: Any) -> bool:
    """Say whether somebody's object can be copied with all that it holds: some hold what cannot, or say what lacks."""
    with suppress(Exception):
        return copy.deepcopy(made) is not None
    return False


def of_arrays(layer: PlainLayer, name: str, request: Request, sizes: Sizes | None, head: int) -> Bound:
    """Return a layer of plain arrays whose roles are found by what they do.

    Raises:
        UserError: it cannot be called, or what it does is no attention.
    """
    layer = with_what_calls_make(layer, name, sizes or sizes_of(request), head)
    redraw(layer, request.seed)
    enlarge(layer, request.seed)
    lent = library(layer.library)
    home = {"numpy": np.dot, "jax": None}.get(layer.library) or getattr(sys.modules.get("torch"), "matmul", None)
    forward = taken_by(layer.forward, name)
    way = way_into_plain(layer, forward, lambda array: lent.into(array, layer.kind), widths_of(layer, sizes), head)
    way = replace(way, asked=request.positions)
    layer.see_type(way)
    layer.leave_out_idle(way)
    way = as_tokens_lie(layer, way, {sizes.heads} if sizes else ())
    home = home if layer.library != "jax" else library_of_jax()
    look = Look(name, cache(partial(seen_inside, layer, way, words_for_masks(way, forward))), request)
    try:
        return telling(replace(understood(layer, way, forward, home), look=look))
    except NotFoundError as error:
        x = np.random.default_rng(97).standard_normal((2, way.tokens or TOKENS, way.width))
        again = partial(another_each_time, name, request, lambda: layer.answer(way, x, x if way.memory else None))
        raise UnreadError(f"{name}: no projections found: {error}", replace(look, otherwise=again)) from error
