"""Layers of Flax, Haiku, Equinox and Keras: made for one input, and called with parameters as mappings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from attn_exp.diagnosis.asking.offer import parameters_of
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.calling.search_of_ways import HERE, NoWayError
from attn_exp.diagnosis.calling.tokens import (
    as_tokens_lie,
    takes_any_number,
)
from attn_exp.diagnosis.calling.way import Way
from attn_exp.diagnosis.calling.ways_into_layers import find_way
from attn_exp.diagnosis.code.libraries import library
from attn_exp.diagnosis.inside.cores import first_seen, seen_inside
from attn_exp.diagnosis.inside.inner import Look, OtherShapeError, UnreadError
from attn_exp.diagnosis.making.constructing import construct
from attn_exp.diagnosis.making.told_sizes import MADE_WITH, SIZE, with_sizes_apart
from attn_exp.diagnosis.matrices.bound import Bound
from attn_exp.diagnosis.matrices.module_sizes import (
    Sizes,
)
from attn_exp.diagnosis.matrices.pure_layers import HaikuMaker, PureLayer, pure, without_self
from attn_exp.diagnosis.matrices.roles import NotFoundError
from attn_exp.diagnosis.matrices.sizes_of_files import exchanged as with_numbers
from attn_exp.diagnosis.matrices.sizes_of_files import smaller
from attn_exp.diagnosis.reading.numbers_of_layers import awake, axes_of, enlarge, redraw
from attn_exp.diagnosis.reading.read_layers import (
    exchanged_by_names,
    taken_by,
    telling,
    understood,
    with_heads_told,
    with_some_at_rest,
    words_for_masks,
)
from attn_exp.errors import UserError
from attn_exp.own_code import OwnFunction


def of_pure(own: OwnFunction, sizes: Sizes, request: Request, kind: str) -> Bound:
    """Return a layer of flax, haiku, Equinox or Keras, or one of such a class in these sizes, also those of its file.

    Raises:
        UserError: it cannot be made or called.
    """
    told = smaller(own.function, sizes) if inspect.isclass(own.function) and kind != "haiku" else {}
    unread: UnreadError | None = None
    try:
        with with_numbers(own.function, told):
            if told:
                return of_pure_told(own, sizes, request, kind, told)
    except UnreadError as error:
        unread = error
    except Exception:  # it may be made with no other numbers
        unread = None
    try:
        return of_pure_told(own, sizes, request, kind, {})
    except UserError as error:
        raise (unread or error) from error  # with sizes of its own, tokens and their numbers may not be told apart


def of_pure_told(own: OwnFunction, sizes: Sizes, request: Request, kind: str, told: Mapping[str, int | str]) -> Bound:
    """Return a layer of flax, haiku, Equinox or Keras; `told` are sizes of its file.

    Raises:
        UserError: it cannot be made or called.
    """

    def works(made: Any, of_size: Sizes) -> Bound:
        layer, way = way_into_pure(own, request, kind, made, of_size)
        if not layer.leaves:
            return Bound(own.function, np.dot if kind == "keras" else library_of_jax())
        if inspect.isclass(own.function):
            redraw(layer, request.seed)
            enlarge(layer, request.seed)
            awake(layer, way)
        way = replace(way, told={**told, **way.told}, asked=request.positions)
        forward = taken_by(forward_of(kind, made), own.name)
        way = as_tokens_lie(layer, way, {of_size.heads})
        way = way if way.tokens or takes_any_number(layer, way) else replace(way, tokens=HERE)
        look = Look(own.name, cache(partial(seen_inside, layer, way, words_for_masks(way, forward))), request)
        origin = np.dot if kind == "keras" else library_of_jax()
        try:
            found = with_some_at_rest(layer, way, forward, origin, of_size.heads)
            found = found or understood(layer, way, forward, origin)
        except NotFoundError as error:
            raise UnreadError(f"{own.name}: no projections found: {error}", look) from error
        return telling(with_heads_told(replace(found, look=look, named=exchanged_by_names(found)), made))

    if not inspect.isclass(own.function):
        return works(own.function, sizes)
    maker = maker_of(own, kind)
    return with_sizes_apart(maker, own.name, sizes, works, construct(maker, own.name, sizes, works), told)


def way_into_pure(
    own: OwnFunction, request: Request, kind: str, made: Any, of_size: Sizes
) -> tuple[PureLayer, Way]:  # fmt: skip
    """Return a layer of flax, haiku, Equinox or Keras, and how it is called.

    Raises:
        NoWayError: it cannot be called.
        OtherShapeError: it answers, but not with a row for each token; what is inside may be seen.
    """
    lent = library("numpy" if kind == "keras" else "jax")
    orders = OF_ONE if kind == "equinox" else OF_MANY

    def called_in(made: Any, orders: Sequence[str]) -> tuple[PureLayer, Way]:
        forward = taken_by(forward_of(kind, made), own.name)
        ways = list[Way]()

        def example(call: Callable[..., Any]) -> None:
            widths, size = [of_size.width], of_size.size
            ways.append(find_way(call, forward, lambda array: lent.into(array, "float32"), orders, widths, size))

        layer = pure(kind, made, example)
        if not ways:
            example(layer)
        return layer, ways[0]

    try:
        if kind == "keras" and not made.built:  # a call that fails may leave it built for other axes
            return in_the_first_order(lambda order: called_in(unbuilt(made), (order,)), orders)
        return called_in(made, orders)
    except NoWayError as error:
        if not error.others and error.way is None:
            raise
        raise of_another_shape(own, request, kind, made, error) from error


def of_another_shape(
    own: OwnFunction, request: Request, kind: str, made: Any, error: NoWayError
) -> OtherShapeError:  # fmt: skip
    """Return the error of a layer that answers in another shape, with what looks inside it."""
    lent = library("numpy" if kind == "keras" else "jax")
    ways = [*filter(None, [error.way]), *error.others]
    x = np.random.default_rng(17).standard_normal((2, ways[0].tokens or HERE, ways[0].width))
    made = unbuilt(made) if kind == "keras" else made
    layer = pure(kind, made, lambda call: ways[0].call(call, lent.into(x, "float32")))
    redraw(layer, request.seed)
    forward = taken_by(forward_of(kind, made), own.name)
    see = partial(first_seen, layer, ways, lambda way: words_for_masks(way, forward))
    return OtherShapeError(f"{own.name} cannot be called with x: {error}", Look(own.name, cache(see), request))


OF_MANY = ("btm", "tm", "bhwm", "bmhw", "bmt", "hwm", "bfhwm")


OF_ONE = ("tm", "btm", "mhw", "hwm", "mt", "bhwm", "bmhw")
"""The orders of axes to try, of layers that take many entries at once, and of those that take one."""


def unbuilt(made: Any) -> Any:
    """Return a layer of Keras made anew, or the same one where its class does not say of what."""
    with suppress(Exception):
        return type(made).from_config(made.get_config())
    with suppress(Exception):  # its class may take no name
        known = made.get_config()
        return type(made)(**{one.name: known[one.name] for one in parameters_of(type(made), "") if one.name in known})
    return made


def in_the_first_order(
    call: Callable[[str], tuple[PureLayer, Way]], orders: Sequence[str]
) -> tuple[PureLayer, Way]:  # fmt: skip
    """Return what the first order of axes gives with which a call does not fail.

    Raises:
        NoWayError: all fail; it is that of the first, or of the first that gave an answer of another shape.
    """
    errors = list[NoWayError]()
    for order in orders:
        try:
            return call(order)
        except NoWayError as error:
            errors.append(error)
    raise next((error for error in errors if error.others), errors[0])


def library_of_jax() -> Any:
    """Return a function of JAX, which stands for its library."""
    import jax.numpy as jnp  # noqa: PLC0415 - the layer brought it

    return jnp.dot


def maker_of(own: OwnFunction, kind: str) -> Any:
    """Return what makes layers of a class of some library, and says what the class takes."""
    return signed(partial(HaikuMaker, own.function) if kind == "haiku" else own.function, own.function, kind)


def signed(maker: Callable[..., Any], kind: Any, home: str) -> Any:
    """Return what makes objects of a class, and says what the class takes: Keras and haiku hide that."""
    if home not in ("keras", "haiku", "nnx"):
        return maker

    def make(**said: Any) -> Any:
        return HaikuMaker(kind, said) if home == "haiku" else maker(**said)

    make.__signature__ = inspect.signature(without_self(kind.__init__))  # type: ignore[attr-defined]
    make.__module__, vars(make)["owner"] = kind.__module__, kind
    return make


def forward_of(kind: str, made: Any) -> Callable[..., Any]:
    """Return what says which arguments a call of a layer takes: of a graph of Keras its inputs alone.

    Each graph has a word for masks, and does nothing with them.
    """
    if kind == "keras" and any(base.__name__ in ("Functional", "Sequential") for base in type(made).__mro__):
        return graph_of(made)
    if kind == "pair":
        return without_self(made.apply)
    forward: Callable[..., Any] = made.call if kind == "keras" else made.forward if kind == "haiku" else made.__call__
    return forward


def graph_of(made: Any) -> Callable[..., Any]:
    """Return a graph of Keras as a function of its inputs."""

    def call(inputs: Any) -> Any:
        return made(inputs)

    return call


def filled(module: Any, forward: Sequence[inspect.Parameter], sizes: Sizes | None) -> Any:
    """Return a module whose parameters have sizes: lazy ones get them with the first call, as those that it makes then.

    What buffers hold that nobody has filled yet is 0.
    """
    from torch.nn.parameter import is_lazy  # noqa: PLC0415 - the module is one of PyTorch's

    for buffer in module.buffers():
        if not is_lazy(buffer) and buffer.is_floating_point() and buffer.isnan().any():
            buffer.nan_to_num_(nan=0.0)
    tensors = list(module.parameters())
    if not tensors or any(is_lazy(tensor) for tensor in tensors):
        lent = library("torch", "cpu")
        width = sizes.width if sizes is not None else SIZE * MADE_WITH
        with suppress(UserError):
            find_way(module, forward, lambda array: lent.into(array, "float64"), axes_of(module), [width], SIZE)
    return module
