"""What is made of a layer that is called: its matrices as roles say them, the words for masks, and how it is asked."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.offer import BY_NAME, Offer, is_array_of_mask, parameters_of, plain, role_of, role_taken
from attn_exp.diagnosis.asking.questions import Inside
from attn_exp.diagnosis.asking.sides import parts_of_name
from attn_exp.diagnosis.calling.call import IS_LAYER
from attn_exp.diagnosis.calling.mask_forms import (
    OF_ENTRY,
    MaskForm,
    mask_form,
    padding_form,
    takes,
    takes_keys,
)
from attn_exp.diagnosis.calling.neutral_of_layers import Filled, Side
from attn_exp.diagnosis.calling.search_of_ways import HERE
from attn_exp.diagnosis.calling.turning_tables import Turning, as_asked
from attn_exp.diagnosis.calling.way import ALONE, ONE_QUERY, Way
from attn_exp.diagnosis.calling.ways_into_layers import parameters_of_call
from attn_exp.diagnosis.code.libraries import beside
from attn_exp.diagnosis.code.returned import parts_of
from attn_exp.diagnosis.making.constructing import PoorError
from attn_exp.diagnosis.matrices.bound import Bound, Layer
from attn_exp.diagnosis.matrices.layers import TorchLayer
from attn_exp.diagnosis.matrices.module_sizes import (
    HEADS,
    whole_numbers,
)
from attn_exp.diagnosis.matrices.named_matrices import (
    sounds_like,
)
from attn_exp.diagnosis.matrices.plain_layers import plain as plain_numbers
from attn_exp.diagnosis.matrices.pure_layers import PureLayer
from attn_exp.diagnosis.matrices.roles import OPEN, TOKENS, NotFoundError, Roles, find, restored
from attn_exp.diagnosis.reading.normed_queries import last_token, scaled_by_norms
from attn_exp.diagnosis.reading.numbers_of_layers import at_rest, heads_apart, sinks_off
from attn_exp.diagnosis.reading.surroundings import Inner, Watch, surroundings
from attn_exp.forms.around import Around, Norm
from attn_exp.rules.positions.rope import Rope


def exchanged_by_names(found: Bound) -> Inside | None:
    """Return the matrices of a layer with q, k and v as their names say, where these are others of the same three."""
    inside, layer = found.inside, found.layer
    if inside is None or layer is None:
        return None
    numbers = {name: np.sort(array, axis=None) for name, array in layer.parameters.items() if sounds_like(name)}
    named = dict[str, str]()
    for side in "qkv":
        own = np.sort(inside.arrays[f"W_{side}"], axis=None)
        said = {sounds_like(name) for name, array in numbers.items() if np.array_equal(array, own)}
        named |= {side: said.pop()} if len(said) == 1 else {}
    if sorted(named.values()) != ["k", "q", "v"] or all(side == name for side, name in named.items()):
        return None
    sides = {f"{kind}_{side}": f"{kind}_{name}" for side, name in named.items() for kind in "Wb"}
    arrays = {sides.get(name, name): array for name, array in inside.arrays.items()}
    return replace(inside, arrays=arrays) if fit(arrays, inside.heads, inside.groups) else None


def with_heads_told(found: Bound, made: Any, told: int = 0) -> Bound:
    """Return a layer of one head as one of several by name, where what its class made keeps that it has so many; where
    that keeps no number of them, its class may have been `told` one.

    Of a layer of no library, or of JAX, a head that has fewer numbers than x may be one of several, or what is told is
    how many it has.
    """
    inside, heads = found.inside, next((number for word, number in whole_numbers(made) if word in HEADS), told)
    if found.named is not None or inside is None or inside.heads != 1 or heads < len("qk") or is_averaged(found):
        return found
    shapes = [inside.arrays[f"W_{side}"].shape for side in "qkv"]
    is_whole = isinstance(found.layer, TorchLayer) or all(columns == shapes[0][0] for _, columns in shapes)
    if not is_whole or any(columns % heads for _, columns in shapes):
        return found
    return replace(found, named=replace(inside, heads=heads, groups=heads))


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


def words_for_masks(way: Way, forward: Sequence[inspect.Parameter]) -> dict[str, str]:
    """Return a layer's words for masks, and what each is: a mask, or a padding.

    One that a switch is called after waits for that: `flash_mask` beside `use_flash=False`.
    """
    off = [set(parts_of_name(given.name)) for given in forward if given.default is False]

    def waits(name: str) -> bool:
        own = set(parts_of_name(name)) - {"mask", "masks"}
        return bool(own) and any(own <= switch for switch in off)

    arrays = (given for given in forward if may_be_array(given) and given.annotation not in (bool, "bool"))
    return {given.name: role for given in arrays if given.name not in way.sides
            and (role := role_of(given.name)) in ("mask", "padding") and not waits(given.name)}  # fmt: skip


def with_some_at_rest(
    layer: TorchLayer | PureLayer, way: Way, forward: Sequence[inspect.Parameter], origin: Any, heads: int
) -> Bound | None:  # fmt: skip
    """Return a layer in which what stands beside its attention does nothing, if that can be; None of others.

    Convolutions of each number by itself hand on what they are given, and matrices that mix heads leave each as it is.
    """
    convolutions = at_rest(layer.module) if isinstance(layer, TorchLayer) else {}
    mixing_heads = heads_apart(layer, heads) if heads > 1 else {}
    sinks = sinks_off(layer, way, heads)
    words = {"its convolutions hand on what they are given": convolutions,
             "heads that are not mixed with each other": mixing_heads, "its learned sinks at rest": sinks}  # fmt: skip
    said = [one for one, those in words.items() if those]
    before = {name: np.array(array) for name, array in layer.parameters.items()}
    resting = {name: array for name, array in {**convolutions, **mixing_heads, **sinks}.items() if name in before}
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


def if_understood(layer: Layer, way: Way, forward: Sequence[inspect.Parameter], origin: Any) -> Bound | None:
    """Return a layer whose roles are found, called in this way; None where they are not."""
    with suppress(NotFoundError):
        return understood(layer, way, forward, origin)
    return None


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
        raise


def with_roles(layer: Layer, way: Way, forward: Sequence[inspect.Parameter], origin: Any, roles: Roles) -> Bound:
    """Return a layer whose roles are known.

    Raises:
        NotFoundError: a part is said to be no part of attention, or its heads hold what no matrix makes.
    """
    gone = {name for name, array in roles.neutral.items() if not array.any()}
    if gone & {piece.name for side in "qk" for piece in roles.sides[side]}:
        raise NotFoundError("what makes queries or keys is no part of what it computes")
    aside = [*own_numbers_kept(layer, roles), *heard(layer, roles)]
    arrays = roles.arrays(layer.parameters)
    if not fit(arrays, roles.heads, roles.groups):
        raise NotFoundError("some of what its heads hold is made by none of its matrices")
    inner = Inner(arrays, roles.heads, roles.groups, roles.unit)
    of_one_token = roles.unit != 1.0  # then its weights are all the same
    with with_matrices(layer, roles, no_queries) if of_one_token else nullcontext():
        around = surroundings(watching(layer, way), way, inner, layer.rounding * 100)
    inside = Inside(
        arrays, roles.heads, roles.groups, around if around is not None and str(around) else None, way.tokens
    )
    inside, scaled = scaled_by_norms(layer, way, inside) if around is not None else (inside, "")
    inside = of_heads_averaged(layer, way, inside)
    aside = numbers_off(layer, way, roles, inside, aside)
    said = words_of(inside.around or around, aside, way) + (scaled and f" and {scaled}")
    size = inside.arrays["W_q"].shape[1] // max(inside.heads, 1)
    turns = is_turned(layer, way, size)
    turning = as_asked(way.asked, size) if turns else None
    call, offer = called(layer, replace(way, turning=turning), forward, said)
    of_points = roles.heads == 1 and {"h", "w"} <= set(way.axes.lower())
    has_biases = any(name.startswith("b_") for name in arrays)
    is_of_distances = not has_biases and (has_table(roles) or any(says_distances(given.name) for given in forward))
    unscaled = of_points or is_of_distances or (around is not None and {"q", "k"} <= set(around.heads))
    offer = replace(offer, own_keys=keys_of_no_token(roles) if aside else 0, unscaled=unscaled)
    before = None if around is None or around.of_memory is not None else around.before
    if way.memory and before is not None and before.kind in NORMED_ALONE:
        call = with_normed_memory(call, before)
    known = Bound(call, origin, offer, inside, layer, roles, given=(*way.sides, *way.given))
    return replace(known, masked=find_other_mask_arguments(known, way, forward), has_tables=turns)


def is_turned(layer: Layer, way: Way, size: int) -> bool:
    """Say whether a layer is given tables that turn its heads of so many numbers: with them the other way round it
    answers otherwise."""
    if not way.given:
        return False
    x, memory = np.random.default_rng(61).standard_normal((2, 2, way.tokens or TOKENS, way.width))
    several = [replace(way, turning=Turning(Rope(), size, sense)) for sense in (1, -1)]
    with suppress(Exception):  # such tables may be of other sizes
        one, other = (layer.answer(each, x, memory if way.memory else None) for each in several)
        return not np.allclose(one, other, equal_nan=True)
    return False


def has_table(roles: Roles) -> bool:
    """Say whether a layer has a number for each head and each of many distances."""
    shapes = [array.shape for array in roles.neutral.values() if array.ndim == len(("distances", "heads"))]
    return any(heads == roles.heads < distances for distances, heads in shapes)


def says_distances(name: str) -> bool:
    """Say whether an argument is by its name what is added to the logits for each distance, as in the layers of T5."""
    parts = set(parts_of_name(name))
    return "bias" in parts and bool(parts & {"position", "pos", "relative", "rel"})


def fit(arrays: Mapping[str, Array], heads: int, groups: int) -> bool:
    """Say whether matrices can be cut into so many heads, and that of the output takes the values of all of them."""
    wide = {side: arrays[f"W_{side}"].shape[1] for side in "qkv"}
    if len({len(arrays[f"W_{side}"]) for side in "qkv"}) > 1:  # all three are made of tokens of one width
        return False
    if heads % groups or wide["q"] % heads or wide["k"] != wide["q"] // heads * groups or wide["v"] % groups:
        return False
    return "W_o" not in arrays or len(arrays["W_o"]) == wide["v"] // groups * heads


def find_other_mask_arguments(known: Bound, way: Way, forward: Sequence[inspect.Parameter]) -> tuple[str, ...]:
    """Return the arguments for masks or lengths that no question fills."""
    assert known.offer is not None
    taken = (*way.sides, *known.offer.parameters.values())
    free = [given for given in forward if given.name not in taken and may_be_array(given)]
    return tuple(given.name for given in free if role_taken(given) in ("mask", "padding", "lengths"))


def keys_of_no_token(roles: Roles) -> int:
    """Return how many keys stand beside those of x, with logits and values of 0: one token has a weight of 1 of all."""
    count = 1 / roles.unit - 1 if 0 < roles.unit < 1 else 0.0
    return round(count) if abs(count - round(count)) < ROUNDED else 0


ROUNDED = 1e-3


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
            rows, axes = (x.reshape(*x.shape[:-1], norm.groups, -1), (1, 3)) if of_groups else (x, (-1,))
            apart = rows if norm.kind == "RMSNorm" else rows - rows.mean(axis=axes, keepdims=True)
            spread = ((apart * apart).mean(axis=axes, keepdims=True) + norm.eps) ** 0.5
            gain, shift = (beside(np.asarray(one, np.float64), x) for one in (norm.gain, norm.shift))
            memory = (apart / spread).reshape(x.shape) * gain + shift
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


def taken_by(call: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    """Return what a call takes, also what it takes in stars."""
    return parameters_of_call(call, parameters_of(call, name))


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


def called(layer: Layer, way: Way, forward: Sequence[inspect.Parameter], said: str) -> tuple[Any, Offer]:
    """Return a layer as a function of x, and what it takes beside x."""
    arrays = [given for given in reversed(forward) if plain(given.name) in BY_NAME and may_be_array(given)]
    roles = {BY_NAME[plain(given.name)]: given.name for given in arrays}
    taken = {role: word for role, word in roles.items() if role in ROLES_OF_MASKS and word not in way.sides}
    causal = next((given for given in arrays if given.name == taken.get("causal")), None)
    is_array = causal is not None and (isinstance(way.given.get(causal.name), Filled) or is_array_of_mask(causal))
    if is_array:
        taken = with_causal_array(layer, way, taken)
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


def with_causal_array(layer: Layer, way: Way, taken: Mapping[str, str]) -> dict[str, str]:
    """Return the words for masks by their roles, where that for causal is an array: it is one of any.

    Another mask beside it is one of keys, where it takes that; else the two are asked one after the other.
    """
    word, rest = taken["causal"], {role: name for role, name in taken.items() if role != "causal"}
    other = rest.get("mask", "")
    if not other:
        return rest | {"mask": word}
    is_of_keys = "padding" not in rest and takes_keys(layer, way, other) and takes(layer, way, word)
    return rest | {"mask": word, "padding": other} if is_of_keys else rest


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


def heard(layer: Layer, roles: Roles) -> list[str]:
    """Make matrices larger through which next to nothing of x comes; return what was changed, in words.

    Some layers are made with numbers of a thousandth: then all weights are alike but for less than rounding, and the
    answer is its biases.
    """
    arrays, said = roles.arrays(layer.parameters), list[str]()
    for pair in (("W_q", "W_k"), ("W_v", "W_o")):
        found = [name for name in pair if name in arrays]
        comes = float(np.prod([np.linalg.norm(arrays[name]) / arrays[pair[0]].shape[1] ** 0.5 for name in found]))
        if 0 < comes < FAINT:
            factor = comes ** (-1 / len(found))
            arrays = {name: array * factor if name in found else array for name, array in arrays.items()}
            said.append(f"{' and '.join(found)} times {factor:.3g}")
    if said:
        layer.put(roles.written(layer.parameters, arrays))
    return said


FAINT = 0.01
"""What comes through two matrices of numbers of about 1, below which nothing is told of it."""


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
