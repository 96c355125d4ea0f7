"""Modules of PyTorch with q/k/v projections inside: they are made of their class, called, and their matrices read."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np

from attn_exp.diagnosis.asking.case import differs, expected, same_numbers
from attn_exp.diagnosis.asking.clock import ASKING_MORE, is_over
from attn_exp.diagnosis.asking.offer import offered, parameters_of, plain
from attn_exp.diagnosis.asking.questions import Inside, layer_cases
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.calling.mask_forms import (
    takes_no_mask,
    taking_masks,
)
from attn_exp.diagnosis.calling.neutral_of_layers import read_otherwise
from attn_exp.diagnosis.calling.search_of_ways import HERE, NoWayError
from attn_exp.diagnosis.calling.tokens import (
    are_apart,
    as_tokens_lie,
    depending,
    takes_any_number,
)
from attn_exp.diagnosis.calling.way import Way
from attn_exp.diagnosis.calling.ways_into_layers import find_way, without_memories
from attn_exp.diagnosis.code.libraries import DIGITS, library
from attn_exp.diagnosis.inside.cores import Seen, first_seen, seen_inside
from attn_exp.diagnosis.inside.inner import Look, OtherShapeError, UnreadError, tells_all
from attn_exp.diagnosis.making.constructing import construct
from attn_exp.diagnosis.making.told_sizes import (
    OTHER_HEADS,
    OTHER_SIZE,
    SIZE,
    WINDOWS,
    is_module,
    is_told,
    sizes_of,
    with_sizes_apart,
    words_of_class,
)
from attn_exp.diagnosis.matrices.bound import Bound
from attn_exp.diagnosis.matrices.layers import (
    TorchLayer,
    with_drawn_tensors_held,
    with_listed_layers_held,
    without_slopes,
)
from attn_exp.diagnosis.matrices.module_sizes import (
    FEW,
    HEADS,
    ROOM,
    Sizes,
    head_count,
    whole_numbers,
)
from attn_exp.diagnosis.matrices.named_matrices import (
    FUSED,
    layer_of,
    matrices,
    separate_heads,
)
from attn_exp.diagnosis.matrices.plain_layers import may_be_layer
from attn_exp.diagnosis.matrices.pure_layers import kind_of
from attn_exp.diagnosis.matrices.roles import NotFoundError
from attn_exp.diagnosis.matrices.sizes_of_files import exchanged as with_numbers
from attn_exp.diagnosis.matrices.sizes_of_files import smaller
from attn_exp.diagnosis.reading.layers_of_arrays import NoMatricesError, of_no_library
from attn_exp.diagnosis.reading.layers_of_jax import filled, of_pure
from attn_exp.diagnosis.reading.numbers_of_layers import (
    awake,
    axes_of,
    enlarge,
    head_size,
    redraw,
    rest_batch_norms,
    widths_of,
    with_numbers_of_now,
)
from attn_exp.diagnosis.reading.read_layers import (
    called,
    fit,
    if_understood,
    is_averaged,
    taken_by,
    telling,
    understood,
    with_heads_told,
    with_some_at_rest,
    words_for_masks,
)
from attn_exp.errors import UncalledError, UserError
from attn_exp.own_code import OwnFunction


def bound(own: OwnFunction, request: Request) -> Bound:
    """Return what is to be called.

    Raises:
        UserError: a module that cannot be made or called, or whose projections are not known.
    """
    home = kind_of(own.function)
    if home:
        return with_again(own, request, partial(of_pure, own, request=request, kind=home))
    if not is_module(own.function):
        if may_be_layer(own.function):
            with suppress(NoMatricesError):
                return with_again(own, request, partial(of_no_library, own, request=request))
        return Bound(own.function, own.function)
    if not inspect.isclass(own.function):
        copied = without_slopes(with_listed_layers_held(copy.deepcopy(own.function)).double().eval())
        enlarge(TorchLayer(copied), request.seed)
        return of_module(copied, Known(own.name, request, told=request.head))
    return with_again(own, request, partial(of_class, own, request=request))


def with_again(own: OwnFunction, request: Request, make: Callable[[Sizes], Bound]) -> Bound:
    """Return a layer that was made of its class, and can be made again in other sizes; one that was given cannot."""
    if not inspect.isclass(own.function):
        return make(sizes_of(request))

    def again() -> Bound | None:
        with suppress(UserError):
            return make(sizes_of(request, OTHER_HEADS, OTHER_SIZE))
        return None

    def others() -> Seen | None:
        if is_over(ASKING_MORE, "other sizes of it"):
            return None
        try:
            look: Any = make(sizes_of(request, OTHER_HEADS, OTHER_SIZE)).look
        except UserError as error:  # a clock may leave no time to make it
            look = error.look if isinstance(error, UnreadError) else None
        return look.seen() if isinstance(look, Look) else None

    try:
        made = make(sizes_of(request))
    except UnreadError as error:
        error.look = replace(error.look, others=others)
        raise
    look = replace(made.look, others=others) if isinstance(made.look, Look) else made.look
    return replace(made, look=look, again=made.again if made.inside is None else again)


def of_class(own: OwnFunction, sizes: Sizes, request: Request) -> Bound:
    """Return a module of a class with such sizes, also where it is its file that says them.

    Raises:
        UserError: it cannot be made, or what is made cannot be called.
    """
    told = smaller(own.function, sizes)
    few = {name: FEW if size == ROOM else size for name, size in told.items()}
    with suppress(Exception), with_numbers(own.function, told):
        if told:
            return of_sizes_told(own, sizes, request, told)
    try:
        return of_sizes_told(own, sizes, request, {})
    except UserError as error:
        if few == told or isinstance(error, UnreadError):
            raise
        with suppress(Exception), with_numbers(own.function, few):  # a mask of so many tokens may be taken whole
            return of_sizes_told(own, sizes, request, few)
        raise


def with_switches_said(found: Bound, sizes: Sizes) -> Bound:
    """Return a layer with a word on the switches that its class was given and would not have by itself."""
    if found.offer is None or not sizes.switched:
        return found
    said = "; ".join(filter(None, (found.offer.said, f"made with {sizes.switched}")))
    return replace(found, offer=replace(found.offer, said=said))


def of_sizes_told(own: OwnFunction, sizes: Sizes, request: Request, told: Mapping[str, int | str]) -> Bound:
    """Return a module of a class with such sizes, in which nothing is all zeros or ones; `told` are those of its file.

    Raises:
        UserError: it cannot be made, or what is made cannot be called.
    """
    import torch  # noqa: PLC0415 - the class is one of PyTorch's

    def works(made: Any, of_size: Sizes) -> Bound:
        module = with_listed_layers_held(made).double()
        known = (one for one in module.parameters() if not torch.nn.parameter.is_lazy(one))
        if any(one.numel() == 0 for one in known):
            raise UncalledError(f"{own.name} was made with a matrix that holds nothing")
        module.eval()  # what it returns is not always the module
        heads = of_size.heads if is_told(own) else None
        keeps = any(word in HEADS for word, _ in whole_numbers(module))  # it may have been told another number of them
        count = 0 if keeps or not any(map(COUNTS_HEADS.search, words_of_class(own))) else of_size.heads
        found = of_module(module, Known(own.name, request, of_size, heads, fresh=True, by_file=told, heads=count))
        found = with_switches_said(found if told else replace(found, written=of_size.words), of_size)
        return telling(found, [one.name for one in given if any(map(plain(one.name).count, WINDOWS))])

    given = parameters_of(own.function, own.name)
    torch.manual_seed(sizes.seed)
    made: Bound = construct(own.function, own.name, sizes, works)
    return (
        remade(own, request, made)
        if made.inside is None
        else with_sizes_apart(own.function, own.name, sizes, works, made, told)
    )


def remade(own: OwnFunction, request: Request, made: Bound) -> Bound:
    """Return a module without parameters as a function of q, k and v, made anew for each size of a head."""
    known = dict[int, Any]()
    sizes = sizes_of(request)

    def call(*positional: Any, **named: Any) -> Any:
        arrays = [value for value in (*positional, *named.values()) if hasattr(value, "shape")]
        size = int(arrays[0].shape[-1]) if arrays else SIZE
        if size not in known:
            of_size = replace(sizes, size=size, width=size * sizes.heads)
            known[size] = construct(own.function, own.name, of_size, evaluated_module)
        return known[size](*positional, **named)

    return replace(made, call=call)


def evaluated_module(module: Any, _: Sizes) -> Any:
    """Return a module in float64 that is told that this is no training."""
    module.double()
    module.eval()
    return module


@dataclass(frozen=True)
class Known:
    """What is known of a module before it is called: its name, what is asked, and how it was made.

    `sizes` are those that it was made with, `told` how many heads it has by the user's word, and what is `fresh` may be
    given other numbers where all of them are the same. `by_file`: sizes that its file holds then. `heads`: how many its
    class was told that it has, by a word that counts nothing else, or 0.
    """

    name: str
    request: Request
    sizes: Sizes | None = None
    told: int | None = None
    fresh: bool = False
    by_file: Mapping[str, int | str] = field(default_factory=dict)
    heads: int = 0


def of_module(module: Any, known: Known) -> Bound:
    """Return a module as a layer that holds its own matrices; one without parameters is a function of q, k and v.

    Raises:
        UserError: it cannot be called, has no projections that are known, or its heads are not.
    """
    forward = taken_by(module.forward, known.name)
    layer = TorchLayer(filled(with_drawn_tensors_held(module) if known.fresh else module, forward, known.sizes))
    if not layer.places or not any(tensor.ndim > 1 for tensor in layer.places.values()):
        return with_gates(layer, forward, known)
    if known.fresh:
        redraw(layer, known.request.seed)
        enlarge(layer, known.request.seed)
        rest_batch_norms(module)
    try:
        return of_layer(layer, forward, known)
    except UnreadError as error:
        others = without_memories(forward)
        if others == forward or tells_all(error.look()):
            raise
        unread = error
    try:  # what is called as a memory is may be something else, as numbers of each two tokens are
        return of_layer(layer, others, known)
    except UserError as error:
        raise (error if isinstance(error, UnreadError) and tells_all(error.look()) else unread) from error


def with_gates(layer: TorchLayer, forward: Sequence[inspect.Parameter], known: Known) -> Bound:
    """Return a module without matrices as a function of q, k and v; one that holds numbers may be seen from inside.

    Its arguments may be other inputs, where their names do not say that they are q, k and v; its gates are opened.
    """
    made = Bound(layer.module, layer.module, offered(layer.module.forward, known.name))
    if made.offer is None or not made.offer.guessed or not layer.places or not known.fresh:
        return made
    with suppress(UserError):
        layer, way = with_way(layer, forward, known.request, known.sizes)
        layer.put({name: np.full_like(array, PARTLY_OPEN) for name, array in layer.parameters.items()})
        look = Look(known.name, cache(partial(seen_inside, layer, way, words_for_masks(way, forward))), known.request)
        return replace(made, look=look)
    return made


PARTLY_OPEN = 0.3
"""Of a gate: not so far that it and what it leaves, 1 less it, are the same."""


def of_layer(layer: TorchLayer, forward: Sequence[inspect.Parameter], known: Known) -> Bound:
    """Return a layer of PyTorch that is called with what it takes, `forward`.

    Raises:
        UserError: it cannot be called, has no projections that are known, or its heads are not.
    """
    module, name, request, sizes, told = layer.module, known.name, known.request, known.sizes, known.told
    try:
        layer, way = with_way(layer, forward, request, sizes)
    except UserError as error:
        return of_another_call(layer, forward, known, error)
    way = replace(way, told={**known.by_file, **way.told}, asked=request.positions)
    way = taking_masks(layer, depending(layer, way), forward, head_size(layer, sizes))
    if known.fresh:
        awake(layer, way)
    own = next((count for word, count in whole_numbers(module) if word in HEADS), 0)
    heads = told or own
    way = as_tokens_lie(layer, way, {heads, own})
    if are_apart(layer, way):
        raise UncalledError(f"{name} cannot be called with x: of what was tried as x no token sees another")
    way = way if way.tokens or takes_any_number(layer, way) else replace(way, tokens=HERE)
    now = {name: np.array(array) for name, array in layer.parameters.items()}
    see = cache(partial(seen_inside, layer, way, words_for_masks(way, forward), known.heads))
    look = Look(
        name, see, request, at_first=partial(with_numbers_of_now, layer, now), switched=sizes.switched if sizes else ""
    )
    found = with_some_at_rest(layer, way, forward, module, heads) if known.fresh else None
    try:
        found = found or read_as_it_is(layer, way, forward, request, told, name)
        return replace(with_heads_told(found, module, known.heads), look=look)
    except UserError as error:
        raise UnreadError(str(error), look) from error


def of_another_call(
    layer: TorchLayer, forward: Sequence[inspect.Parameter], known: Known, error: UserError
) -> Bound:  # fmt: skip
    """Return a module that gives no row for each token as a layer, as its names say.

    Raises:
        UserError: it is none; attention may be seen inside.
    """
    name, request = known.name, known.request
    said = f"{name} cannot be called with x: {error}"
    if not isinstance(error, NoWayError):
        raise UncalledError(said) from error
    ways = [*filter(None, [error.way]), *error.others]
    look = Look(name, cache(partial(first_seen, layer, ways, lambda way: words_for_masks(way, forward))), request)
    if error.way is not None:
        with suppress(UserError):
            found = by_names(layer.module, name, request, error.way, known.told, NotFoundError(str(error)))
            return replace(found, look=look)
    if ways:
        raise OtherShapeError(said, look) from error
    raise UncalledError(said) from error


def read_as_it_is(
    layer: TorchLayer, way: Way, forward: Sequence[inspect.Parameter], request: Request, told: int | None, name: str
) -> Bound:  # fmt: skip
    """Return a layer whose matrices are found by what they do, else by name.

    Raises:
        UserError: none of this says which they are.
    """
    module = layer.module
    try:
        found = understood(layer, way, forward, module)
    except NotFoundError as error:
        others = (if_understood(layer, other, forward, module) for other in read_otherwise(way))
        turned = next(filter(None, others), None)
        if turned is None:
            return by_names(module, name, request, way, told, error)
        found = turned
    return replace(found, named=None if is_averaged(found) else as_named(module, name, found.inside, told))


def with_way(
    layer: TorchLayer, forward: Sequence[inspect.Parameter], request: Request, sizes: Sizes | None
) -> tuple[TorchLayer, Way]:  # fmt: skip
    """Return a layer and how it is called; one whose own numbers are of float32 in that type.

    Raises:
        NoWayError: it cannot be called.
    """
    lent = library("torch", request.device)

    def way_into(kind: str) -> Way:
        known = axes_of(layer.module), widths_of(layer, sizes), head_size(layer, sizes)
        return find_way(layer, forward, lambda array: lent.into(array, kind), *known)

    try:
        way = way_into("float64")
    except NoWayError as error:
        if not error.about_type:
            raise
    else:
        if not takes_no_mask(layer, way, forward):
            return layer, way
        single = TorchLayer(layer.module, single=True)  # scores may be made float32 where there is a mask
        if not takes_no_mask(single, replace(way, given={}), forward):
            return single, way_into("float32")
        return TorchLayer(layer.module.double()), way
    layer = TorchLayer(layer.module, single=True)
    return layer, way_into("float32")


def as_named(module: Any, name: str, found: Inside | None, told: int | None) -> Inside | None:
    """Return the matrices and heads that a module's names say, where what it computes says others; None where not.

    Names bind where each of q, k and v has its own, or where `in_proj_weight` says that they are those of
    nn.MultiheadAttention: what such a module makes of its matrices may be a mistake. One matrix of another name holds
    them in any order. Which way a bare parameter lies no name says.
    """
    if found is None or (getattr(module, "in_proj_weight", None) is None and any(hasattr(module, w) for w in FUSED)):
        return None
    try:
        arrays = matrices(module, name)
        for side in "qkvo":
            bare, key = layer_of(module, side), f"W_{side}"
            is_bare = bare is not None and getattr(bare, "weight", None) is None
            if is_bare and key in arrays and same_numbers(arrays[key].T, found.arrays.get(key)):
                arrays[key] = found.arrays[key]
        if "W_o" not in arrays or "W_o" not in found.arrays:  # what stands behind attention may be something else
            last = ("W_o", "b_o")
            arrays = {key: array for key, array in arrays.items() if key not in last}
            arrays |= {key: array for key, array in found.arrays.items() if key in last}
        numbers = {word: value for word, value in whole_numbers(module) if value > 0}
        spoken = next((value for word, value in numbers.items() if word in HEADS), told or found.heads)
        heads = len(separate_heads(module)) or spoken
        size = arrays["W_q"].shape[1] // heads
        groups = arrays["W_k"].shape[1] // size
    except (UserError, ZeroDivisionError):
        return None
    if not fit(arrays, heads, groups):
        return None
    as_found = (heads, groups) == (found.heads, found.groups) and set(arrays) == set(found.arrays)
    if as_found and all(same_numbers(array, found.arrays[key]) for key, array in arrays.items()):
        return None
    return Inside(arrays, heads, groups, found.around, found.tokens)


COUNTS_HEADS = re.compile("heads$|^heads|n(um)?head|headcount|headnum")
"""What a word is like that counts heads, and nothing else about them."""


def by_names(
    module: Any, name: str, request: Request, way: Way, told: int | None, error: NotFoundError
) -> Bound:  # fmt: skip
    """Return a module as a layer whose matrices are known by their names alone, as what they do does not tell them.

    Raises:
        UserError: their names do not tell them either.
    """
    layer = TorchLayer(module)
    try:
        arrays = matrices(module, name)
    except UserError as unknown:
        raise UserError(f"{unknown}; {error}") from unknown
    call, offer = called(layer, way, taken_by(module.forward, name), "")

    def right(count: int) -> bool:
        if not fit(arrays, count, inside(count).groups):
            return False
        caller = Caller(call, offer, library("torch", request.device), request, "bhtd", layer.kind)
        case = next(layer_cases(request, offer, True, inside(count)))
        output = caller(case).output
        return output is not None and not differs(output, expected(case), DIGITS["float32"])

    def inside(count: int) -> Inside:
        return Inside(arrays, count, arrays["W_k"].shape[1] // (arrays["W_q"].shape[1] // count), tokens=way.tokens)

    count = len(separate_heads(module)) or head_count(module, arrays, told, right, name)
    found = inside(count) if count <= arrays["W_q"].shape[1] else None
    if found is None or not fit(arrays, count, found.groups):
        raise UserError(f"{name}: no projections found; {error}")
    return Bound(call, module, offer, found)
