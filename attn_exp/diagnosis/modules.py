"""Modules of PyTorch with q/k/v projections inside: their matrices are read, and those of a run are put into them."""

from __future__ import annotations

import copy
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, cast

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis import learned_queries
from attn_exp.diagnosis.arranged import arrangements
from attn_exp.diagnosis.bound import Bound, Layer
from attn_exp.diagnosis.call import IS_LAYER, Caller
from attn_exp.diagnosis.case import differs, expected
from attn_exp.diagnosis.clock import ASKING_MORE, MAKING, is_over, while_there_is_time
from attn_exp.diagnosis.configurations import is_plain
from attn_exp.diagnosis.constructing import PoorError, construct, with_argument
from attn_exp.diagnosis.cores import Seen, first_seen, seen_inside
from attn_exp.diagnosis.exchanging import at_rest, exchanged, heads_apart, is_more_than_matrices
from attn_exp.diagnosis.function_layers import function_layers
from attn_exp.diagnosis.inner import Look, OtherShapeError, UnreadError, tells_all
from attn_exp.diagnosis.layers import TorchLayer, with_drawn_tensors_held, without_slopes
from attn_exp.diagnosis.libraries import DIGITS, library, modules_named, wanted
from attn_exp.diagnosis.makers import class_around, class_of, may_make
from attn_exp.diagnosis.mask_forms import (
    OF_ENTRY,
    MaskForm,
    mask_form,
    padding_form,
    takes_keys,
    takes_no_mask,
    taking_masks,
)
from attn_exp.diagnosis.module_sizes import (
    CAUSAL,
    CONFIG,
    HEADS,
    SHARED,
    Sizes,
    about_heads,
    head_count,
    is_switch_of_causal,
    whole_numbers,
)
from attn_exp.diagnosis.named_matrices import (
    FUSED,
    layer_of,
    matrices,
    plain_array,
    put_matrices,
    separate_heads,
    sounds_like,
)
from attn_exp.diagnosis.normed_queries import last_token, scaled_by_norms
from attn_exp.diagnosis.offer import BY_NAME, Offer, is_array_of_mask, offered, parameters_of, plain, role_of
from attn_exp.diagnosis.plain_layers import PlainLayer, boxes_of, evaluated, matrices_in, may_be_layer
from attn_exp.diagnosis.plain_layers import plain as plain_numbers
from attn_exp.diagnosis.projected_before import projected_before
from attn_exp.diagnosis.pure_layers import HaikuMaker, PureLayer, kind_of, pure, without_self
from attn_exp.diagnosis.questions import Inside, layer_cases
from attn_exp.diagnosis.request import Request
from attn_exp.diagnosis.returned import parts_of
from attn_exp.diagnosis.roles import OPEN, TOKENS, NotFoundError, Roles, find, restored
from attn_exp.diagnosis.several import mixes_as_known
from attn_exp.diagnosis.sides import biases_of, side_of_name
from attn_exp.diagnosis.sizes_of_files import exchanged as with_numbers
from attn_exp.diagnosis.sizes_of_files import smaller
from attn_exp.diagnosis.slices import made_of_slices
from attn_exp.diagnosis.surroundings import Inner, Watch, surroundings
from attn_exp.diagnosis.tokens import (
    are_apart,
    depending,
    entries_apart,
    groups_apart,
    takes_any_number,
    tokens_first,
)
from attn_exp.diagnosis.uses import uses_of
from attn_exp.diagnosis.values_of_x import made_of_x
from attn_exp.diagnosis.ways_into_layers import (
    ALONE,
    HERE,
    LAID,
    ONE_QUERY,
    Filled,
    NoWayError,
    Side,
    Way,
    find_way,
    parameters_of_call,
    read_otherwise,
    with_memory,
    with_one_query,
    without_memories,
)
from attn_exp.errors import UncalledError, UserError
from attn_exp.forms.around import Around, Norm
from attn_exp.own_code import LeftError, OwnFunction
from attn_exp.rules.masks.causal import Causal

MADE_WITH, SIZE = 3, 8
"""Heads of a module that is made of its class, where nobody asks for others, and the numbers of each."""
OTHER_HEADS, OTHER_SIZE = 4, 12
"""Those of the one that holds a name to the proof: of one size, `sqrt(width)` may be the size of a head by chance."""


def bound(own: OwnFunction, request: Request) -> Bound:
    """Return what is to be called.

    Raises:
        UserError: a module that cannot be made or called, or whose projections are not known.
    """
    home = kind_of(own.function)
    if home:
        return with_again(own, request, partial(of_pure, own, request=request, kind=home))
    if around := class_around(own.function):
        return bound(replace(own, function=around), request)
    if not is_module(own.function):
        is_plain = may_be_layer(own.function) and holds_matrices(own, request)
        plain = with_again(own, request, partial(of_plain, own, request=request)) if is_plain else None
        made_by = None if plain else class_of(own.function, own.name, sizes_of(request), is_module)
        return bound(replace(own, function=made_by), request) if made_by else plain or Bound(own.function, own.function)
    if not inspect.isclass(own.function):
        copied = without_slopes(copy.deepcopy(own.function).double().eval())
        enlarge(TorchLayer(copied), request.seed)
        return of_module(copied, Known(own.name, request, told=request.head))
    return with_again(own, request, partial(of_class, own, request=request))


def holds_matrices(own: OwnFunction, request: Request) -> bool:
    """Say whether an object of no library, or what a class makes, holds matrices and takes no q, k and v."""
    made = own.function
    try:
        if inspect.isclass(made):
            made = construct(own.function, own.name, sizes_of(request), lambda one, _: one)
        return matrices_in(made)
    except (Exception, LeftError):
        return False


def of_plain(own: OwnFunction, sizes: Sizes, request: Request) -> Bound:
    """Return an object of no library as a layer that holds its own matrices.

    Raises:
        UserError: it cannot be made or called, or what it does is no attention.
    """

    def works(made: Any, of_size: Sizes) -> Bound:
        known = of_size if inspect.isclass(own.function) else None
        found = of_arrays(PlainLayer(evaluated(made)), own.name, request, known, of_size.size)
        told = of_size.heads if known is not None and is_told(own) else 1
        return replace(found, named=of_heads_told(made, found.inside, told))

    try:
        if not inspect.isclass(own.function):
            return works(copy.deepcopy(own.function), sizes)
        return cast("Bound", construct(own.function, own.name, sizes, works))
    except NoWayError as error:
        raise UncalledError(f"{own.name} cannot be called with x: {error}") from error


def of_heads_told(made: Any, found: Inside | None, told: int) -> Inside | None:
    """Return what an object holds of one head as that of the heads that its class is told and keeps; None of others.

    A head that has fewer numbers than x may be one of several, or what is told is how many it has.
    """
    is_kept = told > 1 and any(word in HEADS and value == told for word, value in whole_numbers(made))
    if found is None or not is_kept or found.heads > 1:
        return None
    shapes = [found.arrays[f"W_{side}"].shape for side in "qkv"]
    is_whole = all(columns == shapes[0][0] and columns % told == 0 for _, columns in shapes)
    return replace(found, heads=told, groups=told) if is_whole else None


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


def of_arrays(layer: PlainLayer, name: str, request: Request, sizes: Sizes | None, head: int) -> Bound:
    """Return a layer of plain arrays whose roles are found by what they do.

    Raises:
        UserError: it cannot be called, or what it does is no attention.
    """
    redraw(layer, request.seed)
    enlarge(layer, request.seed)
    lent = library(layer.library)
    home = {"numpy": np.dot, "jax": None}.get(layer.library) or getattr(sys.modules.get("torch"), "matmul", None)
    forward = taken_by(layer.forward, name)
    way = way_into_plain(layer, forward, lambda array: lent.into(array, layer.kind), widths_of(layer, sizes), head)
    layer.see_type(way)
    layer.leave_out_idle(way)
    way, home = entries_apart(layer, tokens_first(layer, way)), home if layer.library != "jax" else library_of_jax()
    look = Look(name, cache(partial(seen_inside, layer, way, words_for_masks(way, forward))), request)
    heads = sizes.heads if sizes is not None and sizes.heads > 1 else None
    try:
        found = understood(layer, way, forward, home)
    except NotFoundError as error:
        named = as_names_say(layer, way, heads) if heads else None
        if named is None:
            raise UnreadError(f"{name}: no projections found: {error}", look) from error
        return replace(with_roles(layer, way, forward, home, named), look=look)
    found = telling(replace(found, look=look))
    if heads and found.inside is not None and found.inside.heads != heads and found.roles and not found.roles.sure:
        named = as_names_say(layer, way, heads)
        return found if named is None else replace(with_roles(layer, way, forward, home, named), look=look)
    return found


def as_names_say(layer: PlainLayer, way: Way, heads: int) -> Roles | None:
    """Return the roles that names say in a layer that may mix tokens with heads, as long as one token says the rest."""
    said = {sounds_like(name) for name in layer.parameters}
    if not {"q", "k", "v"} <= said:
        return None
    every = arrangements(layer, lambda x, memory=None: layer.answer(way, x, memory), way, sounds_like, False, heads)
    return next(iter(every), None)


def of_function(own: OwnFunction, request: Request) -> Bound | None:
    """Return a function of x and arrays of which nothing is known as a layer that holds them; None of others.

    Raises:
        UnreadError: its attention is seen inside, and its matrices are not found.
    """
    unread: UnreadError | None = None
    names = wanted(own.function)
    for name in names[:1] if modules_named(own.function) else names:
        for made, lengths in function_layers(own.function, library(name, request.device)):
            layer = PlainLayer(made)
            layer.forward = made
            sizes = Sizes(lengths.width, lengths.heads, lengths.inner // lengths.heads, lengths.heads, request.seed)
            try:
                found = of_arrays(layer, own.name, request, sizes, sizes.size)
                assert found.offer is not None
                words = "; ".join(filter(None, (found.offer.said, IN_STEPS if made.step else "")))
                offer = replace(found.offer, said=words)
                return replace(found, offer=offer, inside=as_arguments_say(layer, found.inside))
            except UnreadError as error:
                if unread is not None:
                    break
                unread = error
            except (UserError, NotFoundError):
                continue
    if unread is not None and tells_all(unread.look()):
        raise unread
    return None


IN_STEPS = "each token in a call of its own, with what those before it left"


def as_arguments_say(layer: PlainLayer, found: Inside | None) -> Inside | None:
    """Return what a layer holds with each matrix and bias that the name of an argument says, as it was given.

    Names bind: what is made of a matrix that is another's, or of twice a bias, is a mistake.
    """
    if found is None:
        return None
    arrays, own = dict(found.arrays), {re.split(r"[./]", name)[-1]: array for name, array in layer.parameters.items()}
    biases = biases_of(list(own))
    for name, array in own.items():
        side, kind = side_of_name(biases.get(name, name)).removeprefix("W_"), "b" if name in biases else "W"
        known = arrays.get(f"{kind}_{side}")
        if known is not None and array.size == known.size and not np.array_equal(array.T, known):
            arrays[f"{kind}_{side}"] = array.reshape(known.shape) if kind == "b" else array
    fitting = all(array.shape == found.arrays[name].shape for name, array in arrays.items())
    return replace(found, arrays=arrays) if fitting else found


WINDOWS = ("kernel", "window", "block", "chunk", "group", "local", "span")
"""Parts of words that say how many tokens see each other, of which there may be one."""


def telling(found: Bound, windows: Sequence[str] = ()) -> Bound:
    """Return a layer of which answers tell something; `windows` may say how many tokens see each other.

    Raises:
        PoorError: its heads have one number each, or no token sees another.
    """
    if windows and found.inside is not None and sees_itself_alone(found.inside, found.call, TorchLayer(found.origin)):
        raise PoorError(found, "no token that sees another")
    if found.inside is not None and found.inside.arrays["W_q"].shape[1] == found.inside.heads:
        raise PoorError(found, "heads of one number")
    return found


def sees_itself_alone(inside: Inside, call: Callable[..., Any], layer: TorchLayer) -> bool:
    """Say whether each token of a layer sees no other."""
    x, other = np.random.default_rng(59).standard_normal((2, 1, inside.tokens or TOKENS, len(inside.arrays["W_q"])))
    changed = np.concatenate([other[:, :1], x[:, 1:]], axis=1)
    first, again = (plain_numbers(next(iter(parts_of(call(layer.lent(one))).values()))) for one in (x, changed))
    return np.array_equal(first[:, 1:], again[:, 1:])


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


def sizes_of(request: Request, heads: int = MADE_WITH, size: int = SIZE) -> Sizes:
    """Return the sizes of a module that is made of its class: as many heads as are asked for, or these."""
    heads = request.head or heads
    shared = request.kv_head if request.kv_head and heads % request.kv_head == 0 else heads
    causal = any(isinstance(mask, Causal) for mask in request.masks) or None
    return Sizes(size * heads, heads, size, shared, request.seed, causal=causal, scaled=request.scale is not False)


def of_class(own: OwnFunction, sizes: Sizes, request: Request) -> Bound:
    """Return a module of a class with such sizes, also where it is its file that says them.

    Raises:
        UserError: it cannot be made, or what is made cannot be called.
    """
    told = smaller(own.function, sizes)
    with suppress(Exception), with_numbers(own.function, told):
        if told:
            return of_sizes_told(own, sizes, request, told)
    return of_sizes_told(own, sizes, request, {})


def of_sizes_told(own: OwnFunction, sizes: Sizes, request: Request, told: Mapping[str, int | str]) -> Bound:
    """Return a module of a class with such sizes, in which nothing is all zeros or ones; `told` are those of its file.

    Raises:
        UserError: it cannot be made, or what is made cannot be called.
    """
    import torch  # noqa: PLC0415 - the class is one of PyTorch's

    def works(made: Any, of_size: Sizes) -> Bound:
        module = made.double()
        module.eval()  # what it returns is not always the module
        heads = of_size.heads if is_told(own) else None
        keeps = any(word in HEADS for word, _ in whole_numbers(module))  # it may have been told another number of them
        count = 0 if keeps or not any(map(COUNTS_HEADS.search, words_of_class(own))) else of_size.heads
        found = of_module(module, Known(own.name, request, of_size, heads, fresh=True, by_file=told, heads=count))
        found = found if found.named is not None else replace(found, named=as_its_class_is_told(found, count))
        return telling(found, [one.name for one in given if any(map(plain(one.name).count, WINDOWS))])

    given = parameters_of(own.function, own.name)
    torch.manual_seed(sizes.seed)
    made: Bound = construct(own.function, own.name, sizes, works)
    return (
        remade(own, request, made)
        if made.inside is None
        else with_sizes_apart(own.function, own.name, sizes, works, made, told)
    )


def with_sizes_apart(
    kind: Any, name: str, sizes: Sizes, works: Callable[[Any, Sizes], Bound], made: Bound, told: Mapping[str, Any]
) -> Bound:
    """Return a layer of one head that has as many numbers as x, made so that it has others; as it is, if none can be.

    What is wrong with the one number is right with the other where both are the same. One of them is that of x, unless
    its file has `told` it.
    """
    inside = made.inside
    if inside is None or inside.heads != 1 or len(set(inside.arrays["W_q"].shape)) > 1:
        return made
    uses = uses_of(kind)
    given = [one for one in parameters_of(kind, name) if is_size_of_layer(one)]
    given = [one for one in given if one.name not in uses or not uses[one.name].divides]
    several = given[::-1] if told or len(given) > 1 else []
    for one in while_there_is_time(several, MAKING, "a head of another size than x"):
        with suppress(UserError):
            maker = with_argument(kind, name, one.name, OTHER_INNER)
            other: Bound = construct(maker, name, sizes, works)
            if other.inside is not None and len(set(other.inside.arrays["W_q"].shape)) > 1:
                return other
    return made


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
    """Say whether a layer is one of a class that is told how many key/value heads it has."""
    if not inspect.isclass(own.function) or not is_module(own.function):
        return False
    return any(word in SHARED or ("kv" in word and "head" in word) for word in words_of_class(own))


def may_be_causal(own: OwnFunction) -> bool:
    """Say whether a layer is one of a class, or made by a function, that is told whether it is causal.

    A switch that speaks of a mask says so where the layer is given none when it is called.
    """
    if not inspect.isclass(own.function) and not (
        inspect.isfunction(own.function) and may_make(own.function, own.name)
    ):
        return False
    call = getattr(own.function, "forward", own.function.__call__)
    takes_mask = any(role_of(name) in ("mask", "padding") for name in inspect.signature(call).parameters)
    switches = () if takes_mask else parameters_of(own.function, own.name)
    return any(word in CAUSAL for word in words_of_class(own)) or any(map(is_switch_of_causal, switches))


def words_of_class(own: OwnFunction) -> list[str]:
    """Return what a class is told, by words of its own or in a configuration."""
    given = parameters_of(own.function, own.name)
    read = uses_of(own.function) if any(plain(one.name) in CONFIG for one in given) else {}
    return [plain(one.name) for one in given] + [plain(name) for name in read]


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


def is_module(function: Any) -> bool:
    """Say whether something is a module of PyTorch, flax, haiku, Equinox or Keras, or a class of them."""
    if kind_of(function):
        return True
    named = [base.__module__ for base in (function if inspect.isclass(function) else type(function)).__mro__]
    return any(home.startswith("torch.nn") for home in named)


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
    if way.axes == "tm" and are_apart(layer, way):
        way = with_one_query(layer, way, layer.lent) or way
    way = replace(way, told={**known.by_file, **way.told})
    way = taking_masks(layer, depending(layer, way), forward, head_size(layer, sizes))
    way, before = entries_apart(layer, tokens_first(layer, way)), way
    if known.fresh:
        awake(layer, way)
    own = next((count for word, count in whole_numbers(module) if word in HEADS), 0)
    heads = told or own
    way = groups_apart(layer, way, {heads, own})
    if not way.groups and (way.axes != before.axes or not way.memory):
        way = with_memory(layer, way, layer.lent)
    if are_apart(layer, way):
        raise UncalledError(f"{name} cannot be called with x: of what was tried as x no token sees another")
    way = way if way.tokens or takes_any_number(layer, way) else replace(way, tokens=HERE)
    now = {name: np.array(array) for name, array in layer.parameters.items()}
    see = cache(partial(seen_inside, layer, way, words_for_masks(way, forward), known.heads))
    look = Look(name, see, request, at_first=partial(with_numbers_of_now, layer, now))
    found = with_exchanged(layer, way, forward, told) if is_more_than_matrices(layer, way) else None
    found = found or (with_some_at_rest(layer, way, forward, module, heads) if known.fresh else None)
    try:
        return replace(found or read_as_it_is(layer, way, forward, request, told, name), look=look)
    except UserError as error:
        raise UnreadError(str(error), look) from error


@contextmanager
def with_numbers_of_now(layer: Layer, now: Mapping[str, Array]) -> Iterator[None]:
    """Let a layer have these numbers again, of what it still holds, meanwhile."""
    with restored(layer) as before:
        layer.put({name: now[name] for name in before if name in now})
        yield


def words_for_masks(way: Way, forward: Sequence[inspect.Parameter]) -> dict[str, str]:
    """Return a layer's words for masks, and what each is: a mask, or a padding."""
    return {given.name: role for given in forward if given.name not in way.sides and may_be_array(given)
            and (role := role_of(given.name)) in ("mask", "padding")}  # fmt: skip


def of_another_call(
    layer: TorchLayer, forward: Sequence[inspect.Parameter], known: Known, error: UserError
) -> Bound:  # fmt: skip
    """Return a module that gives no row for each token as a layer of its own queries, or as its names say.

    Raises:
        UserError: it is none of these; attention may be seen inside.
    """
    name, request = known.name, known.request
    said = f"{name} cannot be called with x: {error}"
    if not isinstance(error, NoWayError):
        raise UncalledError(said) from error
    for other in learned_queries.asked(layer.module, error.answered) if error.answered else ():
        with suppress(UserError):
            return of_module(other, replace(known, fresh=False))
    ways = [*filter(None, [error.way]), *error.others]
    look = Look(name, cache(partial(first_seen, layer, ways, lambda way: words_for_masks(way, forward))), request)
    if error.way is not None:
        with suppress(UserError):
            found = by_names(layer.module, name, request, error.way, known.told, NotFoundError(str(error)))
            return replace(found, look=look)
    if ways:
        raise OtherShapeError(said, look) from error
    raise UncalledError(said) from error


def with_some_at_rest(
    layer: TorchLayer | PureLayer, way: Way, forward: Sequence[inspect.Parameter], origin: Any, heads: int
) -> Bound | None:  # fmt: skip
    """Return a layer in which what stands beside its attention does nothing, if that can be; None of others.

    Convolutions of each number by itself hand on what they are given, and matrices that mix heads leave each as it is.
    """
    convolutions = at_rest(layer.module) if isinstance(layer, TorchLayer) else {}
    mixing_heads = heads_apart(layer, heads) if heads > 1 else {}
    words = {"its convolutions hand on what they are given": convolutions,
             "heads that are not mixed with each other": mixing_heads}  # fmt: skip
    said = [one for one, those in words.items() if those]
    before = {name: np.array(array) for name, array in layer.parameters.items()}
    resting = {name: array for name, array in {**convolutions, **mixing_heads}.items() if name in before}
    if not resting:
        return None
    layer.put(resting)
    shown = layer.hide(resting)
    found = if_understood(layer, way, forward, origin)
    if found is None or found.offer is None:
        shown()
        layer.put(before)
        return None
    said = [found.offer.said or "with", *said]
    return replace(found, offer=replace(found.offer, said="; ".join(said).replace("with;", "with")))


def read_as_it_is(
    layer: TorchLayer, way: Way, forward: Sequence[inspect.Parameter], request: Request, told: int | None, name: str
) -> Bound:  # fmt: skip
    """Return a layer whose matrices are found by what they do, else those that others are exchanged for, else by name.

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
            other = with_exchanged(layer, way, forward, told) or mixing(layer, way, forward, module, told)
            if other is not None:
                return other
            try:
                return by_names(module, name, request, way, told, error)
            except UserError:
                before = projected(module, way, request, told, name)
                if before is None:
                    raise
                return before
        found = turned
    found = unless_lopsided(found, partial(mixing, layer, way, forward, module, told))
    return replace(
        found, named=None if is_averaged(found) else as_named(module, name, found.inside, told),
        mixed=lambda: None if found.roles is None or found.roles.sure else mixing(layer, way, forward, module, told),
    )  # fmt: skip


def projected(module: Any, way: Way, request: Request, told: int | None, name: str) -> Bound | None:
    """Return a layer that takes q, k and v, or q alone, projected already with matrices before it; None of others.

    A layer that has matrices besides, which must be 0 for that, is none.
    """
    for made, words in projected_before(module, way):
        with suppress(UserError):
            found = of_module(made, Known(name, request, told=told))
            if found.offer is not None and not matrices_set_aside(found):
                said = "; ".join(filter(None, (found.offer.said, words)))
                return replace(found, offer=replace(found.offer, said=said if found.offer.said else f"with {said}"))
    return None


def unless_lopsided(found: Bound, mixing: Callable[[], Bound | None]) -> Bound:
    """Return what was found, or the layer as one that mixes tokens with heads, which may hide some of its queries."""
    if found.roles is None or found.roles.sure:
        return found
    queries, values = (sum(len(piece.columns) for piece in found.roles.sides[side]) for side in "qv")
    return (mixing() if queries < values else None) or found


def matrices_set_aside(found: Bound) -> list[str]:
    """Return the names of a layer's matrices that are no part of its attention."""
    if found.roles is None or found.layer is None:
        return []
    own = found.layer.parameters
    return [name for name in found.roles.neutral if sum(length > 1 for length in own[name].shape) > 1]


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


def with_exchanged(layer: TorchLayer, way: Way, forward: Sequence[inspect.Parameter], told: int | None) -> Bound | None:
    """Return a layer whose projections are exchanged for matrices, as they are more than that; None of others.

    Where it pools squares of an image, each token is one.
    """
    squares = [replace(way, axes=way.axes.replace("hw", "HW"), tokens=0)] if "hw" in way.axes else []
    for one in (*squares, way) if way.tokens else (way, *squares):
        with suppress(Exception), exchanged(layer, one) as names:  # it may take no such image
            if not names and one is way:
                continue
            try:
                found = understood(layer, one, forward, layer.module)
            except NotFoundError:
                other = mixing(layer, one, forward, layer.module, told)
                if other is None:
                    raise
                found = other
            assert found.offer is not None
            said = f"{' and '.join(names)} exchanged for {'one matrix' if len(names) == 1 else 'a matrix each'}"
            words = "; ".join(part for part in (found.offer.said, said if found.offer.said else f"with {said}") if part)
            return replace(found, offer=replace(found.offer, said=words if names else found.offer.said))
    return None


def mixing(
    layer: TorchLayer, way: Way, forward: Sequence[inspect.Parameter], module: Any, told: int | None
) -> Bound | None:
    """Return a layer that mixes tokens with heads, if it does so in a way that is known."""
    numbers = {word: value for word, value in whole_numbers(module) if value > 0}
    heads = next((value for word, value in numbers.items() if word in HEADS), told)
    others = set(numbers.values())  # h of d numbers each, whatever people call them
    counts = [heads] if heads else [h for h in others if 1 < h < way.width and way.width / h in others]

    def probe(x: Array, memory: Array | None = None) -> Array:
        return layer.answer(way, x, memory)

    with layer.without_norms():
        every = [roles for memory in ((True, False) if way.memory else (False,)) for count in counts
                 for roles in arrangements(layer, probe, way, sounds_like, memory, count)]  # fmt: skip
    for roles in every:
        found = with_roles(layer, way, forward, module, roles)
        offer = cast("Offer", found.offer)
        caller = Caller(found.call, offer, library("torch", "cpu"), Request(), "bhtd", layer.kind)
        case = next(layer_cases(Request(), offer, True, found.inside))
        asked = case, caller(case)
        with without_queries(layer, roles) as arrays:
            equal = replace(case, given=replace(case.given, arrays=arrays)), caller(case)
        if mixes_as_known(asked, equal):
            return found
    return None


def if_understood(layer: Layer, way: Way, forward: Sequence[inspect.Parameter], origin: Any) -> Bound | None:
    """Return a layer whose roles are found, called in this way; None where they are not."""
    with suppress(NotFoundError):
        return understood(layer, way, forward, origin)
    return None


def of_parts_of_x(layer: Layer, way: Way, forward: Sequence[inspect.Parameter], origin: Any) -> Bound | None:
    """Return a layer whose heads take slices of x, or whose values are x itself; None of others."""

    if way.tokens:  # it takes no other number of them
        return None

    def probe(x: Array, memory: Array | None = None) -> Array:
        return layer.answer(way, x, memory)

    words, found = "each head takes a slice of x", None
    with suppress(NotFoundError, RuntimeError, ValueError):
        found = made_of_slices(layer, probe, way.width, sounds_like)
    if found is None:
        with suppress(NotFoundError, RuntimeError, ValueError), layer.without_norms():
            words, found = "its values are x itself", made_of_x(layer, probe, way.width, sounds_like)
    if found is None:
        return None
    around = surroundings(watching(layer, way), way, Inner(found[0], found[1], found[1]), layer.rounding * 100)
    said = "; ".join([words_of(around, [], way) or "with", words]).replace("with;", "with")
    call, offer = called(layer, way, forward, said)
    inside = Inside(found[0], found[1], found[1], around if around is not None and str(around) else None, way.tokens)
    return Bound(call, origin, offer, inside, layer, given=(*way.sides, *way.given))


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
            if is_bare and key in arrays and same(arrays[key].T, found.arrays.get(key)):
                arrays[key] = found.arrays[key]
        if "W_o" not in arrays:  # its name says nothing
            arrays |= {key: array for key, array in found.arrays.items() if key in ("W_o", "b_o")}
        numbers = {word: value for word, value in whole_numbers(module) if value > 0}
        spoken = next((value for word, value in numbers.items() if word in HEADS), told or found.heads)
        heads = len(separate_heads(module)) or spoken
        size = arrays["W_q"].shape[1] // heads
        groups = arrays["W_k"].shape[1] // size
    except (UserError, ZeroDivisionError):
        return None
    if arrays["W_q"].shape[1] % heads or arrays["W_k"].shape[1] % size or heads % groups:
        return None
    if not fit(arrays, heads, groups):
        return None
    as_found = (heads, groups) == (found.heads, found.groups) and set(arrays) == set(found.arrays)
    if as_found and all(same(array, found.arrays[key]) for key, array in arrays.items()):
        return None
    return Inside(arrays, heads, groups, found.around, found.tokens)


def as_its_class_is_told(found: Bound, heads: int) -> Inside | None:
    """Return the matrices of a layer of one head as those of several, where its class was told that it has so many."""
    inside = found.inside
    if inside is None or inside.heads != 1 or heads < len("qk") or is_averaged(found):
        return None
    if any(inside.arrays[f"W_{side}"].shape[1] % heads for side in "qkv"):
        return None
    return Inside(inside.arrays, heads, heads, inside.around, inside.tokens)


COUNTS_HEADS = re.compile("heads$|^heads|n(um)?head|headcount|headnum")
"""What a word is like that counts heads, and nothing else about them."""


def same(one: Array, other: Array | None) -> bool:
    """Say whether two arrays are the same."""
    return other is not None and np.array_equal(one, other)


def understood(layer: Layer, way: Way, forward: Sequence[inspect.Parameter], origin: Any) -> Bound:
    """Return a layer whose roles are found by what its parameters do.

    Raises:
        NotFoundError: what it computes is no attention that is known.
    """
    before = {name: np.array(array) for name, array in layer.parameters.items()}
    try:
        return with_roles(layer, way, forward, origin, roles_of(layer, way))
    except NotFoundError:
        layer.put(before)  # what stands beside attention may be 0 by now
        other = of_parts_of_x(layer, way, forward, origin)
        if other is None:
            raise
        return other


def with_roles(layer: Layer, way: Way, forward: Sequence[inspect.Parameter], origin: Any, roles: Roles) -> Bound:
    """Return a layer whose roles are known."""
    aside = own_numbers_kept(layer, roles)
    arrays = roles.arrays(layer.parameters)
    if not fit(arrays, roles.heads, roles.groups):
        raise NotFoundError("some of what its heads hold is made by none of its matrices")
    inner = Inner(arrays, roles.heads, roles.groups, roles.unit)
    with without_queries(layer, roles) if roles.unit != 1.0 else nullcontext():  # weights of one token are all the same
        around = surroundings(watching(layer, way), way, inner, layer.rounding * 100)
    inside = Inside(
        arrays, roles.heads, roles.groups, around if around is not None and str(around) else None, way.tokens
    )
    inside, scaled = scaled_by_norms(layer, way, inside) if around is not None else (inside, "")
    inside = of_heads_averaged(layer, way, inside)
    aside = numbers_off(layer, way, roles, inside, aside)
    said = words_of(inside.around or around, aside, way) + (scaled and f" and {scaled}")
    call, offer = called(layer, way, forward, said)
    of_points = roles.heads == 1 and {"h", "w"} <= set(way.axes.lower())
    unscaled = of_points or (not any(name.startswith("b_") for name in arrays) and has_table(roles))
    offer = replace(offer, own_keys=keys_of_no_token(roles) if aside else 0, unscaled=unscaled)
    before = None if around is None or around.of_memory is not None else around.before
    if isinstance(layer, TorchLayer) and way.memory and before is not None and before.kind in NORMED_ALONE:
        call = with_normed_memory(call, before)
    needed = tuple(given.name for given in forward if given.default is given.empty)
    known = Bound(call, origin, offer, inside, layer, roles, given=(*way.sides, *way.given), needed=needed)
    return replace(known, masked=masked_by(known, way, forward, said))


def has_table(roles: Roles) -> bool:
    """Say whether a layer has a number for each head and each of many distances."""
    shapes = [array.shape for array in roles.neutral.values() if array.ndim == len(("distances", "heads"))]
    return any(heads == roles.heads < distances for distances, heads in shapes)


def fit(arrays: Mapping[str, Array], heads: int, groups: int) -> bool:
    """Say whether the matrix of the output takes as many numbers as the values of all heads have."""
    return "W_o" not in arrays or len(arrays["W_o"]) == arrays["W_v"].shape[1] // groups * heads


def masked_by(
    known: Bound, way: Way, forward: Sequence[inspect.Parameter], said: str
) -> dict[str, Callable[[], Bound]]:
    """Return what makes the layer with one of its words for a mask as its only one, for each that is not asked else."""
    layer, offer = known.layer, known.offer
    assert layer is not None and offer is not None
    taken = (*way.sides, *offer.parameters.values())

    def with_one(word: str, role: str) -> Bound:
        call, offer = called(layer, way, forward, said, {role: word})
        return replace(known, call=call, offer=offer, named=None)

    def kind(given: inspect.Parameter) -> str:
        role = role_of(given.name) if may_be_array(given) else ""
        return {"mask": "mask", "padding": "mask", "lengths": "lengths"}.get(role, "")

    found = {given.name: kind(given) for given in forward if given.name not in taken}
    return {word: partial(with_one, word, role) for word, role in found.items() if role}


def keys_of_no_token(roles: Roles) -> int:
    """Return how many keys stand beside those of x, with logits and values of 0: one token has a weight of 1 of all."""
    count = 1 / roles.unit - 1 if 0 < roles.unit < 1 else 0.0
    return round(count) if abs(count - round(count)) < ROUNDED else 0


ROUNDED = 1e-3


@contextmanager
def without_queries(layer: Layer, roles: Roles) -> Iterator[dict[str, Array]]:
    """Let queries be 0 meanwhile, so that all scores are; yield the matrices that the layer then has."""
    with with_matrices(layer, roles, no_queries) as arrays:
        yield arrays


@contextmanager
def with_matrices(
    layer: Layer, roles: Roles, change: Callable[[str, Array], Array]
) -> Iterator[dict[str, Array]]:  # fmt: skip
    """Let a layer have other matrices meanwhile; yield all that it then has."""
    with restored(layer) as before:
        arrays = {name: change(name, array) for name, array in roles.arrays(before).items()}
        layer.put(roles.written(before, arrays))
        yield arrays


def no_queries(name: str, array: Array) -> Array:
    """Return zeros for what queries are made with, and other matrices as they are."""
    return np.zeros_like(array) if name in ("W_q", "b_q") else array


def positive_values(name: str, array: Array) -> Array:
    """Return what makes values and the answer of positive numbers positive, and other matrices as they are."""
    return np.abs(array) if name in ("W_v", "b_v", "W_o", "b_o") else array


NORMED_ALONE = ("LayerNorm", "RMSNorm", "GroupNorm")


def with_normed_memory(call: Callable[..., Any], norm: Norm) -> Callable[..., Any]:
    """Return a layer that norms x and not its memory: of x alone keys are those of x as the norm leaves it."""

    def with_memory(x: Any, memory: Any = None, **keywords: Any) -> Any:
        if memory is None:
            of_groups = norm.kind == "GroupNorm"  # over all tokens
            rows, axes = (x.unflatten(-1, (norm.groups, -1)), (1, 3)) if of_groups else (x, (-1,))
            apart = rows if norm.kind == "RMSNorm" else rows - rows.mean(axes, keepdim=True)
            spread = (apart.square().mean(axes, keepdim=True) + norm.eps).sqrt()
            memory = (apart / spread).reshape(x.shape) * x.new_tensor(norm.gain) + x.new_tensor(norm.shift)
        return call(x, memory, **keywords)

    return with_memory


def is_averaged(found: Bound) -> bool:
    """Say whether a layer's heads are others than those that its roles tell, as they are averaged."""
    return found.roles is not None and found.inside is not None and found.roles.heads != found.inside.heads


def of_heads_averaged(layer: Layer, way: Way, inside: Inside) -> Inside:
    """Return a layer of one value for several heads, whose answers or weights are averaged, as heads of equal values.

    Each number of the answer has the same weights then, so that it seems to have one head.
    """
    queries, values = (inside.arrays[f"W_{side}"].shape[1] for side in "qv")
    if inside.heads > 1 or inside.arrays["W_k"].shape[1] != queries:
        return inside
    told = [value for word, value in whole_numbers(getattr(layer, "module", layer)) if word in HEADS]
    last = inside.arrays.get("W_o", np.eye(values))
    for count in dict.fromkeys([*told, *([queries // values] if values and queries % values == 0 else [])]):
        if count < len("qk") or queries % count:
            continue
        arrays = dict(inside.arrays)
        arrays |= {name: np.concatenate([arrays[name]] * count, axis=-1) for name in ("W_v", "b_v") if name in arrays}
        arrays["W_o"] = np.concatenate([last] * count) / count
        averaged = replace(inside, arrays=arrays, heads=count, groups=count)
        if last_token(layer, way)(averaged):
            return averaged
    return inside


def of_pure(own: OwnFunction, sizes: Sizes, request: Request, kind: str) -> Bound:
    """Return a layer of flax, haiku, Equinox or Keras, or one of such a class in these sizes, also those of its file.

    Raises:
        UserError: it cannot be made or called.
    """
    told = smaller(own.function, sizes) if inspect.isclass(own.function) and kind != "haiku" else {}
    with suppress(Exception), with_numbers(own.function, told):
        if told:
            return of_pure_told(own, sizes, request, kind, told)
    return of_pure_told(own, sizes, request, kind, {})


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
        way = replace(way, told={**told, **way.told})
        forward, way = taken_by(forward_of(kind, made), own.name), entries_apart(layer, way)
        look = Look(own.name, cache(partial(seen_inside, layer, way, words_for_masks(way, forward))), request)
        origin = np.dot if kind == "keras" else library_of_jax()
        try:
            found = with_some_at_rest(layer, way, forward, origin, of_size.heads)
            found = found or understood(layer, way, forward, origin)
        except NotFoundError as error:
            raise UnreadError(f"{own.name}: no projections found: {error}", look) from error
        return telling(replace(found, look=look))

    if not inspect.isclass(own.function):
        return works(own.function, sizes)
    maker = partial(HaikuMaker, own.function) if kind == "haiku" else own.function
    maker = signed(maker, own.function, kind)
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
        if not error.others:
            raise
        raise of_another_shape(own, request, kind, made, error) from error


def of_another_shape(
    own: OwnFunction, request: Request, kind: str, made: Any, error: NoWayError
) -> OtherShapeError:  # fmt: skip
    """Return the error of a layer that answers in another shape, with what looks inside it."""
    lent = library("numpy" if kind == "keras" else "jax")
    x = np.random.default_rng(17).standard_normal((2, error.others[0].tokens or HERE, error.others[0].width))
    made = unbuilt(made) if kind == "keras" else made
    layer = pure(kind, made, lambda call: error.others[0].call(call, lent.into(x, "float32")))
    redraw(layer, request.seed)
    forward = taken_by(forward_of(kind, made), own.name)
    see = partial(first_seen, layer, error.others, lambda way: words_for_masks(way, forward))
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


def signed(maker: Callable[..., Any], kind: Any, home: str) -> Any:
    """Return what makes objects of a class, and says what the class takes: Keras and haiku hide that."""
    if home not in ("keras", "haiku", "nnx"):
        return maker

    def make(**said: Any) -> Any:
        return HaikuMaker(kind, said) if home == "haiku" else maker(**said)

    make.__signature__ = inspect.signature(without_self(kind.__init__))  # type: ignore[attr-defined]
    make.__module__, vars(make)["owner"] = kind.__module__, kind
    return make


def taken_by(call: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    """Return what a call takes, also what it takes in stars."""
    return parameters_of_call(call, parameters_of(call, name))


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


def words_of(around: Around | None, aside: Sequence[str], way: Way) -> str:
    """Say what surrounds the attention of a layer, and what was set aside."""
    said = [str(around)] if around is not None and str(around) else []
    said += ["something else around it that is not known"] if around is None else []
    said += [", ".join(aside)] if aside else []
    beside = any(isinstance(make, Side) for make in way.given.values())
    only = "not every number is taken" if way.tokens == HERE else "the only number that it takes"
    why = "as it takes no single one" if beside else only
    said += [f"{way.tokens} tokens, {why}"] if way.tokens and not way.groups else []
    said += ["x as one row alone, of several that share their weights"] if ALONE in way.axes and "b" in way.axes else []
    said += [f"x as one group of {way.tokens} tokens, of {len(way.groups)} that see no other"] if way.groups else []
    said += ["a batch of one entry, the only one that it takes"] if is_single(way) else []
    said += ["each token as the one query of a call"] if way.asks in ONE_QUERY else []
    in_turn = way.asks and way.asks not in ONE_QUERY
    said += [f"each token put {way.asks} in turn, as it answers for that alone"] if in_turn else []
    return f"with {'; '.join(said)}" if said else ""


def is_single(way: Way) -> bool:
    """Say whether a layer takes one entry at a time, on an axis of its own."""
    return ALONE in way.axes and "b" not in way.axes


ROLES_OF_MASKS = ("mask", "padding", "query_padding", "causal")


def called(
    layer: Layer, way: Way, forward: Sequence[inspect.Parameter], said: str, only: Mapping[str, str] | None = None
) -> tuple[Any, Offer]:  # fmt: skip
    """Return a layer as a function of x, and what it takes beside x; `only` is its one word for a mask, by its role."""
    arrays = [given for given in reversed(forward) if plain(given.name) in BY_NAME and may_be_array(given)]
    roles = only or {BY_NAME[plain(given.name)]: given.name for given in arrays}
    taken = {
        role: word for role, word in roles.items() if role in (*ROLES_OF_MASKS, *(only or ())) and word not in way.sides
    }
    causal = next((given for given in arrays if given.name == taken.get("causal")), None)
    is_array = causal is not None and (isinstance(way.given.get(causal.name), Filled) or is_array_of_mask(causal))
    if is_array and "mask" not in taken:
        taken["mask"] = taken.pop("causal")  # an array of a causal mask is one of any
    beside = {"memory": "memory"} if way.memory else {}
    word, form = taken.get("mask", ""), MaskForm()
    if word:
        form = mask_form(layer, way, word)
    if form.role == "padding":
        other = taken.get("padding", "")
        keyed = other if other and takes_keys(layer, way, other) else word
        taken = {role: name for role, name in taken.items() if role != "mask"} | {"padding": keyed}

    forms = {word: form}
    if taken.get("padding", word) != word:
        forms[taken["padding"]] = padding_form(layer, way, taken["padding"]) or MaskForm()

    def call(x: Any, memory: Any = None, **keywords: Any) -> Any:
        for name, one in forms.items():
            if keywords.get(name) is not None:
                keywords[name] = one.write(keywords[name])
        if form.axes == OF_ENTRY and keywords.get(word) is not None:
            return way.one_by_one(layer, x, memory, keywords, {word: keywords.pop(word)})
        return way.call(layer, x, memory, **keywords)

    vars(call)[IS_LAYER] = True
    known = {given.name: given.default for given in forward}
    switches = {role: known[word] for role, word in taken.items() if isinstance(known[word], bool)}
    return call, Offer(False, {"x": "x", **beside, **taken}, (), dict.fromkeys([*beside, *taken]) | switches, said=said)


def may_be_array(given: inspect.Parameter) -> bool:
    """Say whether an argument may be an array or a plain value: one that is noted as an object of its own is none."""
    note = given.annotation
    said = note if isinstance(note, str) else str(note)
    return note is given.empty or bool(re.search(r"(?i)tensor|array|\bany\b|bool|float|int", said))


def roles_of(layer: Layer, way: Way) -> Roles:
    """Return which parameter is which, with the memory apart from x, or where that says nothing, with x alone.

    Raises:
        NotFoundError: what the layer computes is no attention that is known.
    """

    def probe(x: Array, memory: Array | None = None) -> Array:
        return layer.answer(way, x, memory)

    def of_first(x: Array, memory: Array | None = None) -> Array:
        said: Array = probe(x[:, ::-1], None if memory is None else memory[:, ::-1])
        return said[:, ::-1]

    def found(ask: Callable[..., Array]) -> Roles:
        if way.memory:
            with suppress(NotFoundError):
                return find(layer, ask, way.width, sounds_like, memory=True)
        return find(layer, ask, way.width, sounds_like, tokens=way.tokens)

    with layer.without_norms():
        try:
            return found(probe)
        except NotFoundError:
            with suppress(NotFoundError):
                return found(of_first)  # the last token may see itself alone, or nothing
            raise


def watching(layer: Layer, way: Way) -> Watch:
    """Return what calls a layer and notes what its norms see."""

    def watch(x: Array, memory: Array | None) -> tuple[Array, list[Any]]:
        with layer.watched() as seen:
            answer = layer.answer(way, x, memory)
        return answer, [(norm, plain_numbers(given), plain_numbers(said)) for norm, given, said in seen]

    return watch


def own_numbers_kept(layer: Layer, roles: Roles) -> list[str]:
    """Set what is added beside attention to 0, open its gates, and say it; what a norm holds stays."""
    own = layer.parameters
    zeros = {
        name: array for name, array in roles.neutral.items()
        if name not in layer.of_norms and not array.any() and own[name].any()
    }  # fmt: skip
    gates = {name: array for name, array in roles.neutral.items() if (array == OPEN).all()}
    layer.put(zeros | gates)
    return [*(f"{name} set to 0" for name in zeros), *(f"its gate open by {name}" for name in gates)]


def numbers_off(layer: Layer, way: Way, roles: Roles, inside: Inside, aside: list[str]) -> list[str]:
    """Set a number of each head to what its softplus, exponential or sigmoid makes 0, where 0 leaves it an effect.

    Return what is set `aside`, in words.
    """
    few = [name for name, array in roles.neutral.items() if array.size in (1, roles.heads) and not array.any()]
    few = [name for name in few if name not in layer.of_norms and not layer.parameters[name].any()]
    if not few or last_token(layer, way)(inside):
        return aside
    for name in few:
        before = np.array(layer.parameters[name])
        for number in (-OPEN, OPEN):
            layer.put({name: np.full(before.shape, number)})
            if last_token(layer, way)(inside):
                return [*(said for said in aside if said != f"{name} set to 0"), f"{name} set to {number:g}"]
        layer.put({name: before})
    return aside


def awake(layer: TorchLayer | PureLayer, way: Way) -> None:
    """Set to 1 what is 0 in a new layer and keeps its matrices from changing anything, as a gain of a residual does."""
    off = {name: np.ones_like(array) for name, array in layer.parameters.items()
           if not array.any() and sum(length > 1 for length in array.shape) < 2}  # fmt: skip
    if not off:
        return
    x = np.random.default_rng(17).standard_normal((2, way.tokens or TOKENS, way.width))

    def is_off() -> bool:
        with restored(layer) as before:
            said = layer.answer(way, x, None)
            rng = np.random.default_rng(19)  # a norm of matrices takes a factor away
            layer.put({name: array + 0.5 * array.std() * rng.standard_normal(array.shape)
                       for name, array in before.items() if array.ndim > 1})  # fmt: skip
            return np.allclose(said, layer.answer(way, x, None))

    for name, ones in off.items() if is_off() else ():
        layer.put({name: ones})
        if is_off():
            layer.put({name: 0 * ones})


def redraw(layer: TorchLayer | PlainLayer | PureLayer, seed: int) -> None:
    """Give matrices, biases and norms numbers of their own where all of theirs are the same, or were never set.

    So is done where they are those of another one: a copy of a layer starts with what that has.
    """
    rng, known = np.random.default_rng([seed, 23]), set[bytes]()
    for name, array in layer.parameters.items():
        size = float(np.abs(array).max(initial=0.0))
        unset = not UNSET[0] < size < UNSET[1] and size != 0.0  # NaN too: `torch.empty` holds whatever was there
        copied = array.tobytes() in known
        known.add(array.tobytes())
        if array.size < 2 or (np.ptp(array) and not unset and not copied):
            continue
        array = np.zeros_like(array) if unset else array  # noqa: PLW2901
        if sum(length > 1 for length in array.shape) > 1 and name not in layer.of_norms:
            layer.put({name: rng.standard_normal(array.shape) / np.sqrt(max(array.shape))})
        elif "bias" in name or name in layer.of_norms:
            layer.put({name: array + 0.2 * rng.standard_normal(array.shape)})


def enlarge(layer: TorchLayer | PlainLayer | PureLayer, seed: int) -> None:
    """Give other numbers to matrices and gains that are near 0: attention beside a residual would not be seen.

    Many start so: `gain=1e-5` of a last matrix, a factor of 1e-6 for each feature of what is added.
    """
    rng = np.random.default_rng([seed, 29])
    for name, array in layer.parameters.items():
        if not 0.0 < np.abs(array).max(initial=0.0) < SMALL or name in layer.of_norms:
            continue
        if sum(length > 1 for length in array.shape) > 1:
            layer.put({name: rng.standard_normal(array.shape) / np.sqrt(max(array.shape))})
        elif not np.ptp(array):
            layer.put({name: np.ones_like(array)})


SMALL = 1e-3
"""Below this is the largest number of a matrix that is meant to change nothing at first."""


def rest_batch_norms(module: Any) -> None:
    """Let each BatchNorm hand on what it is given, as a new one does but for its small number: it is a line for each
    number where nobody trains, and may stand between any matrix and what that is multiplied by."""
    for child in module.modules():
        if "BatchNorm" in type(child).__name__ and getattr(child, "running_var", None) is not None:
            child.running_mean.zero_()
            child.running_var.fill_(1.0 - child.eps)
            if child.weight is not None:
                child.weight.data.fill_(1.0)
                child.bias.data.zero_()


UNSET = (1e-20, 1e6)
"""The largest number of a parameter lies between these, if anybody has set it."""


def axes_of(module: Any) -> tuple[str, ...]:
    """Return the orders of axes to try, by which kinds of layers are inside."""
    kinds = {type(child).__name__ for child in module.modules()}
    likely = [axes for kind, axes in (("Conv3d", "bmfhw"), ("Conv2d", "bmhw"), ("Conv1d", "bmt")) if kind in kinds]
    return tuple(dict.fromkeys([*likely, *LAID]))


def widths_of(layer: TorchLayer | PlainLayer, sizes: Sizes | None) -> list[int]:
    """Return how many numbers a token may have: those that a layer was made with, else the axes of its matrices.

    Those may be for a head each, so that a token has as many for each head.
    """
    shapes = [shape for array in layer.parameters.values() if len(shape := tuple(array.shape)) > 1]
    axes = [length for shape in shapes[:2] for length in (shape[1], shape[0], *shape[2:])]
    told = [value for word, value in whole_numbers(getattr(layer, "module", layer)) if word in HEADS and value > 1]
    of_heads = [heads * axes[0] for heads in told[:1] if axes]
    return list(dict.fromkeys([*([sizes.width] if sizes is not None else []), *axes[:4], *of_heads]))


def head_size(layer: TorchLayer, sizes: Sizes | None) -> int:
    """Return how many numbers a head is likely to have, which tables of angles depend on."""
    numbers = {word: value for word, value in whole_numbers(layer.module) if value > 0}
    known = next((value for word, value in numbers.items() if word in ("headdim", "headsize", "dhead", "dimhead")), 0)
    if known or sizes is not None:
        return known or (sizes.size if sizes is not None else 1)
    heads = next((value for word, value in numbers.items() if word in HEADS), 1)
    return max(max(widths_of(layer, None), default=1) // heads, 1)


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


# A module as a function of x and a layer's matrices, which are put into it in place of its own

MATRICES = ("W_q", "W_k", "W_v", "W_o", "b_q", "b_k", "b_v", "b_o")


def as_function(own: OwnFunction, request: Request, module: Bound) -> Bound:
    """Return a module, or a class of them, as a function of x, W_q, W_k, W_v, W_o, the biases and the number of heads.

    A class is made anew for each call, in the sizes of what it is given; a module must have those sizes.
    """
    assert module.inside is not None and module.offer is not None
    known = {name: name for name in MATRICES if name in module.inside.arrays}
    forward = {role: word for role, word in module.offer.parameters.items() if role not in ("x", "memory")}
    offer = Offer(False, {"x": "x", **known, "heads": "num_heads", **forward}, (), dict.fromkeys([*forward, "W_o"]))
    made = dict[tuple[int, ...], Bound]()

    def call(x: Any, num_heads: int, **given: Any) -> Any:
        arrays = {name: given.pop(name) for name in MATRICES if given.get(name) is not None}
        key = (num_heads, *(size for array in arrays.values() for size in array.shape))
        if key not in made:
            made[key] = of_sizes(own, request, x, num_heads, arrays)
        layer = made[key]
        assert layer.inside is not None
        layer.origin.to(x.device, x.dtype)
        if layer.inside.heads != num_heads:
            raise UserError(f"it has {layer.inside.heads} heads, and the run has {num_heads}")
        if layer.inside.around is not None:
            raise UserError(f"it has {layer.inside.around}, and a run has nothing around attention")
        if layer.roles is not None and layer.layer is not None:
            put_by_roles(layer.layer, layer.roles, arrays)
        else:
            put_matrices(layer.origin, arrays)
        return layer.call(x if x.ndim == 3 else x[None], **given)

    return Bound(call, own.function, offer, None if inspect.isclass(own.function) else module.inside)


def of_sizes(own: OwnFunction, request: Request, x: Any, heads: int, arrays: Mapping[str, Any]) -> Bound:
    """Return a class made in the sizes of x and a run's matrices; a module as it is, in a copy."""
    if not inspect.isclass(own.function):
        module = without_slopes(copy.deepcopy(own.function).double().eval())
        return of_module(module, Known(own.name, request, told=heads))
    size, bias = arrays["W_q"].shape[1] // heads, any(name.startswith("b_") for name in arrays)
    sizes = Sizes(x.shape[-1], heads, size, arrays["W_k"].shape[1] // size, request.seed, bias)
    return of_class(own, sizes, request)


def put_by_roles(layer: Layer, roles: Roles, arrays: Mapping[str, Any]) -> None:
    """Write matrices and biases where a layer's roles say that they are; without W_o the last one gives what it takes.

    Raises:
        UserError: they have other sizes, or a place for one is missing.
    """
    plain = {name: plain_array(array) for name, array in arrays.items()}
    own = {name: np.array(array) for name, array in layer.parameters.items()}
    known = roles.arrays(own)
    for name, array in plain.items():
        if name not in known:
            raise UserError(
                "it has no output projection, and the run has one" if name == "W_o" else
                f"W_{name[-1]}: the module has no bias there, and the run has one"
            )  # fmt: skip
        if known[name].shape != array.shape:
            raise UserError(f"{name}: the module has {list(known[name].shape)}, the run {list(array.shape)}")
    whole = {name: plain.get(name, np.zeros_like(array)) for name, array in known.items()}
    if "W_o" in known and "W_o" not in plain:
        whole["W_o"] = np.eye(*known["W_o"].shape)
    layer.put(roles.written(own, whole))
