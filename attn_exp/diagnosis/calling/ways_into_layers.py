"""How a layer wants to be called: which argument is x, in which order of axes, and what all others are given.

Nothing is known of the arguments but their names. What is likely is tried first; an error of the layer says what to
try otherwise.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.chance import is_noted_so, lone_key
from attn_exp.diagnosis.asking.offer import BY_NAME, plain
from attn_exp.diagnosis.asking.sides import side_of_name
from attn_exp.diagnosis.asking.uses import keywords_read, lengths_compared
from attn_exp.diagnosis.calling.neutral_of_layers import MODES, Filled, Make, as_x, candidates, constant, says_nothing
from attn_exp.diagnosis.calling.search_of_ways import ENTRIES, HERE, THERE, NoWayError, Search, left_out, trouble
from attn_exp.diagnosis.calling.way import ALONE, LAID, ONE_QUERY, Way
from attn_exp.diagnosis.code.libraries import home
from attn_exp.diagnosis.code.returned import parts_of
from attn_exp.diagnosis.matrices.module_sizes import FEW, ROOM
from attn_exp.diagnosis.matrices.sizes_of_files import of_calls, of_counts
from attn_exp.own_code import held

MEMORY = ("context", "memory", "encoderhiddenstates", "xa", "y", "data", "media", "cond", "keyvaluestates", "kv",
          "source", "inputskv", "xkv", "keyvalue", "crossinput", "xcross", "encoderoutput", "encoderoutputs", "enc",
          "ctx", "condition", "x2", "other", "text", "latents", "xkeyvalue", "contexts", "encoder", "memories",
          "contextstates", "inputkv", "tgt", "kvinput", "z", "states", "encoderstates", "encout", "encoderout", "xenc",
          "src", "sourcestates", "crossattentionstates", "crossstates", "crosshiddenstates")  # fmt: skip
"""What people call what keys and values are made of, where it is not x."""
QUERY = ("inputsq", "xq", "queryinput", "inputq", "queryantecedent", "xquery", "qinput")
KEYS = ("inputsk", "xk", "keyinput", "inputk", "keyantecedent", "xkey", "kinput")
VALUES = ("inputsv", "xv", "valueinput", "inputv", "valueantecedent", "xvalue", "vinput")


def sides_of(parameters: Sequence[inspect.Parameter]) -> tuple[dict[str, str], frozenset[str]]:
    """Return which argument is x and which the memory, and those of them that may be left out."""
    given_arrays = [given for given in parameters if is_named(given) and not is_noted_so(str(given.annotation))
                    and given.annotation != NO_MEMORY]  # fmt: skip
    named = {given.name: plain(given.name) for given in given_arrays}
    needed = {given.name for given in parameters if given.default is given.empty}
    roles = {name: BY_NAME.get(word, "") or (side_of_name(name) if name in needed else "")
             for name, word in named.items()}  # fmt: skip
    found: dict[str, str] = {}
    for name, word in named.items():
        role = roles[name]
        if role in ("q", "k", "v") or word in (*QUERY, *KEYS, *VALUES):
            found[name] = "x" if role == "q" or word in QUERY else "memory"
    if "x" in found.values():
        found |= {name: "memory" for name, word in named.items() if name not in found and word in MEMORY}
        unknown = [given.name for given in given_arrays if given.name in needed - set(found) and says_nothing(given)]
        if len(found) == len(unknown) == 1:  # what a query is given beside is what it asks
            found |= {unknown[0]: "memory"}
        return found, frozenset(found) - needed
    first = next((name for name, word in named.items() if BY_NAME.get(word) == "x"), next(iter(named), ""))
    found = {first: "x"} if first else {}
    others = {name for name, word in named.items() if name != first and word in MEMORY}
    taken = found | dict.fromkeys(others, "memory") | {
        name: "memory" for name, role in roles.items() if role in ("k", "v") and name != first
    }  # fmt: skip
    return taken, frozenset(taken) - needed


NO_MEMORY = "beside x"
"""The note of an argument that is called as a memory is, and is none: numbers of each two tokens, say."""


def without_memories(parameters: Sequence[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return the parameters of a call with a note beside each that is taken for a memory for its name alone."""
    sides, _ = sides_of(parameters)
    return [given.replace(annotation=NO_MEMORY) if plain(given.name) in MEMORY and sides.get(given.name) == "memory"
            else given for given in parameters]  # fmt: skip


def parameters_of_call(call: Callable[..., Any], given: Sequence[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return the parameters of a call, with those that stars hide: x by its place, and the keywords that it reads."""
    kinds, named = {one.kind for one in given}, [one for one in given if is_named(one)]
    if not named and inspect.Parameter.VAR_POSITIONAL in kinds:
        named = [inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY)]
    known = {one.name for one in named}
    read = keywords_read(call) if inspect.Parameter.VAR_KEYWORD in kinds else {}
    named += [inspect.Parameter(word, inspect.Parameter.KEYWORD_ONLY, default=default)
              for word, default in read.items() if word not in known]  # fmt: skip
    return named


def is_named(given: inspect.Parameter) -> bool:
    """Say whether a parameter stands for one argument."""
    return given.kind not in (given.VAR_POSITIONAL, given.VAR_KEYWORD)


def find_way(
    layer: Callable[..., Any], parameters: Sequence[inspect.Parameter], into: Callable[[Array], Any],
    axes: Sequence[str], widths: Sequence[int], head: int,
) -> Way:  # fmt: skip
    """Return the first way of calling a layer that gives an answer for every token; a lone key may be a random one.

    Raises:
        UserError: none does; it says the error of the first call.
    """
    key = lone_key(parameters) if home(into(np.zeros(1))).__name__.startswith("jax") else ""
    if key:
        noted = [one.replace(annotation="PRNGKey") if one.name == key else one for one in parameters]
        with suppress(NoWayError):
            return way_into(layer, noted, into, axes, widths, head)
    return way_into(layer, parameters, into, axes, widths, head)


def way_into(
    layer: Callable[..., Any], parameters: Sequence[inspect.Parameter], into: Callable[[Array], Any],
    axes: Sequence[str], widths: Sequence[int], head: int,
) -> Way:  # fmt: skip
    """Return the first way of calling a layer that gives an answer for every token.

    `into` lends an array to its library; `axes` and `widths` of x are tried in their order, first with what the layer
    needs alone, then with what it could do without too.

    Raises:
        UserError: none does; it says the error of the first call.
    """
    sides, optional = sides_of(parameters)
    positional = tuple(given.name for given in parameters if given.kind is given.POSITIONAL_ONLY)
    others = [given for given in parameters if is_named(given) and given.name not in sides]
    needed = {given.name: candidates(given.name, str(given.annotation), head, is_needed=True)
              for given in others if given.default is given.empty}  # fmt: skip
    needed |= {given.name: (constant(not given.default),) for given in others
               if plain(given.name) in MODES and given.default is MODES[plain(given.name)]}  # fmt: skip
    more = {given.name: (left_out, *candidates(given.name, str(given.annotation), head))
            for given in others if given.default is None or is_empty(given.default) or is_no_mask(given)}  # fmt: skip
    search = Search(layer, into)
    bare = Way({}, axes[0], {}, positional, width=widths[0])
    if (instead := with_x_instead(search, others, needed, bare, axes, set(sides) - optional)) is not None:
        return instead
    memories = frozenset(name for name, side in sides.items() if side == "memory")
    starts = [(needed, optional, axes, frozenset[str]()),
              *((*start, frozenset[str]()) for start in starts_anew(needed, more, optional, axes))]  # fmt: skip
    starts += [(given, frozenset[str](), axes[:1], memories) for given in (needed, needed | more)] if memories else []
    usual = in_a_usual_way(search, replace(bare, sides=sides), starts, widths)
    if usual is not None:
        return with_unknown_memory(layer, with_memory(layer, usual, into), into, set(needed))
    if FEW in search.lengths:  # of which its class may have been told
        known = Way(sides, axes[0], {}, positional, width=widths[0])
        if (few := of_one_number(search, known, axes, needed, [FEW])) is not None:
            return few
    if ROOM in search.lengths and not of_counts(layer):  # its class may be told fewer
        raise NoWayError(search)
    unknown = {given.name: "memory" for given in others if given.name in needed and says_nothing(given)}
    start, search.tries = Way(sides | unknown, axes[0], {}, positional, width=widths[0]), 0
    rest = {name: makes for name, makes in needed.items() if name not in unknown}  # keys are made of one
    other = None if memories or not unknown else in_some_order(search, start, rest, axes)
    if other is None and (queries := asking(sides, rest)):
        left = {name: makes for name, makes in rest.items() if name not in queries}
        other = in_some_order(search, replace(start, sides=queries), left, axes)
    other = other or beside_an_image(search, replace(start, optional=optional), rest, axes)
    if other is not None:
        return with_memory(layer, other, into)
    insisted = lengths_compared(type(getattr(layer, "module", layer)))
    search.lengths |= set(insisted)
    for width in dict.fromkeys((search.width or widths[0], widths[0], *(one for one in widths if one in insisted))):
        likely = Way(sides, axes[0], {}, positional, width=width)
        way = with_sizes_told(search, likely, axes, needed) or of_one_query(search, likely, needed)
        way = way or in_a_rare_way(search, likely, axes, needed)
        if way is not None:
            return way
    raise NoWayError(search)


def asking(sides: Mapping[str, str], needed: Collection[str]) -> dict[str, str]:
    """Return which argument is x and which the memory, where another than the first speaks of queries; else nothing."""
    named = [name for name in needed if "quer" in plain(name)]
    return dict.fromkeys(sides, "memory") | {named[0]: "x"} if len(named) == len(sides) == 1 else {}


def in_a_usual_way(
    search: Search, bare: Way, starts: Sequence[tuple[*Start, frozenset[str]]], widths: Sequence[int]
) -> Way | None:  # fmt: skip
    """Return the first way of calling with x in one of some orders and widths; the last of a start come in groups.

    A width that an error of a product asks for is tried too.
    """
    for options, left, orders, groups in starts:
        for order in orders:
            for width in (known := list(widths)):
                way = search.filled(replace(bare, axes=order, width=width, optional=left, in_groups=groups), options)
                if way is not None:
                    return way
                fitting = re.search(r"\((\d+)x(\d+) and (\d+)x(\d+)\)", search.said)
                if fitting and int(fitting[3]) not in known and int(fitting[2]) == width:
                    known.append(int(fitting[3]))
                search.tries = 0
        if search.lengths & {ROOM, FEW}:  # it insists on a length that its class may have been told
            return None
    return None


Start = tuple[Mapping[str, Sequence[Make]], frozenset[str], Sequence[str]]
"""What other arguments may be given, which inputs may be left out, and the orders of axes."""


def starts_anew(
    needed: dict[str, tuple[Make, ...]], more: dict[str, tuple[Make, ...]], optional: frozenset[str],
    axes: Sequence[str],
) -> Iterator[Start]:  # fmt: skip
    """Yield where a search starts anew: with `y=None` that a layer cannot do without, and with all that it may take."""
    if optional:
        yield needed, frozenset[str](), axes[:1]
    if more:
        yield needed | more, optional, axes


def with_x_instead(
    search: Search, others: Sequence[inspect.Parameter], needed: Mapping[str, Sequence[Make]], start: Way,
    axes: Sequence[str], wanted: set[str],
) -> Way | None:  # fmt: skip
    """Return the way of calling with x a layer that may take q, k and v too, projected already; None of others.

    `wanted` are the inputs that it cannot do without.
    """
    instead = next((one.name for one in others if one.name not in needed and BY_NAME.get(plain(one.name)) == "x"), "")
    is_enough = bool(instead) and not wanted
    return in_some_order(search, replace(start, sides={instead: "x"}), needed, axes) if is_enough else None


def in_some_order(
    search: Search, start: Way, options: Mapping[str, Sequence[Make]], axes: Sequence[str]
) -> Way | None:  # fmt: skip
    """Return the way of calling a layer in the first order of axes in which it gives an answer; None if it does not."""
    for order in axes:
        way, search.tries = search.filled(replace(start, axes=order), options), 0
        if way is not None:
            return way
    return None


def with_sizes_told(
    search: Search, start: Way, axes: Sequence[str], needed: Mapping[str, Sequence[Make]]
) -> Way | None:  # fmt: skip
    """Return the way of calling a layer whose file says how many entries and tokens it is called with."""
    for order in axes if (told := of_calls(search.layer)) else ():
        search.tries = 0
        if (way := search.filled(replace(start, axes=order, told=told), needed)) is not None:
            return with_memory(search.layer, way, search.into)
    return None


def of_one_query(search: Search, start: Way, needed: Mapping[str, Sequence[Make]]) -> Way | None:
    """Return the way of calling a layer that takes one query in each call; None of others."""
    for asks in ONE_QUERY if "memory" in start.sides.values() else ():
        one = replace(start, axes=LAID[0], asks=asks)
        way = Search(search.layer, search.into, end=search.end).filled(one, needed)
        if way is not None and (way := with_memory(search.layer, way, search.into)).memory:
            return way
    return None


def in_a_rare_way(
    search: Search, start: Way, axes: Sequence[str], needed: Mapping[str, Sequence[Make]]
) -> Way | None:  # fmt: skip
    """Return the way of calling a layer that answers for its first token alone, that takes an image of even sides, a
    batch of one entry, or one number of tokens."""
    layer, into = search.layer, search.into
    for place in ("first", "last") if search.of_one and "memory" not in start.sides.values() else ():
        for order in axes:
            one = replace(start, axes=order, asks=place)
            way = Search(layer, into, end=search.end, others=search.others).filled(one, needed)
            if way is not None and asks(layer, way, into):
                return way
    others = list(SEVERAL) if LACKS_AXES.search(search.first) else []
    others += [*(order.replace("hw", "HW") for order in axes), *(order.replace("b", ALONE) for order in axes)]
    for order in (other for other in others if other not in axes):
        way = Search(layer, into, end=search.end, others=search.others).filled(replace(start, axes=order), needed)
        if way is not None and (order not in SEVERAL or keeps_apart(layer, way, into)):
            return with_memory(layer, way, into)
    said = sorted(search.lengths, key=lambda count: (-search.times_said[count], count))
    counts = [*said, *(count for count in SQUARES if count not in search.lengths)]
    way = of_one_number(search, start, axes, needed, counts)
    if way is None and search.lengths and (told := of_counts(layer)):  # few, for what its file counts in hundreds
        few = Search(layer, into, end=search.end)
        few.filled(replace(start, axes=axes[0], told=told), needed)
        way = of_one_number(search, replace(start, told=told), axes, needed, sorted(few.lengths))
    return way


SEVERAL, LACKS_AXES = ("bptm", "btpm", "btmp"), re.compile("tuple index out of range|not enough values to unpack")
"""Orders of axes of several texts at once, and how code says that x has too few axes."""


def keeps_apart(layer: Callable[..., Any], way: Way, into: Callable[[Array], Any]) -> bool:
    """Say whether tokens of several texts at once see those of their own alone: else they are rows of one image."""
    x = into(np.random.default_rng(12).standard_normal((ENTRIES, HERE, way.width)))
    with held():
        one, other = (
            next(iter(parts_of(replace(way, beside=factor).call(layer, x)).values())) for factor in (0.5, -2.0)
        )
    return bool(abs(one - other).max() <= 1e-5 * abs(one).max())


def of_one_number(
    search: Search, start: Way, axes: Sequence[str], needed: Mapping[str, Sequence[Make]], counts: Sequence[int]
) -> Way | None:  # fmt: skip
    """Return the way of calling a layer with the first of some numbers of tokens that it takes; None if it does not."""
    for tokens in (count for count in counts if 1 < count < start.width - 2):
        fixed = Search(search.layer, search.into, tokens, search.end, search.others)
        for order in axes:
            way = fixed.filled(replace(start, axes=order), needed)
            if way is not None:
                return replace(way, tokens=tokens)
    return None


SQUARES = (9, 16, 49)
"""Numbers of tokens that are those of a square image, which some code takes alone."""


def is_no_mask(given: inspect.Parameter) -> bool:
    """Say whether the default of a mask is a number, which its code may not bear."""
    return type(given.default) in (int, float) and "mask" in given.name.lower()


def is_empty(default: Any) -> bool:
    """Say whether a default is an array without numbers, which stands for None."""
    return 0 in getattr(default, "shape", ())


def asks(layer: Callable[..., Any], way: Way, into: Callable[[Array], Any]) -> bool:
    """Say whether it is the first, or the last, token that a layer answers for: the order of all others is the same."""
    x = np.random.default_rng(11).standard_normal((2, HERE, way.width))
    alone = replace(way, asks="")
    asking, rest = (0, [*range(1, HERE)]) if way.asks == "first" else (HERE - 1, [*range(HERE - 1)])

    def said(order: Sequence[int], first: int) -> Any:
        places = [first, *order] if way.asks == "first" else [*order, first]
        return next(iter(parts_of(alone.call(layer, into(x[:, places]))).values()))

    one, other, moved = said(rest, asking), said(rest[::-1], asking), said([asking, *rest[1:]], rest[0])
    rounding = 1e-5 * abs(one).max()
    return bool(abs(one - other).max() < rounding < abs(one - moved).max())  # where it is the same, none asks


def with_one_query(layer: Callable[..., Any], way: Way, into: Callable[[Array], Any]) -> Way | None:
    """Return the way of calling a layer with one query for each entry, where it has another input; None of others.

    That may be what a call needs and nothing tells what it is.
    """
    others = {name for name in way.given if name not in way.sides and says_nothing(by_name(name))}
    others = {name for name in others if is_of_tokens(way.given[name])} or others
    sides = dict(way.sides) | ({} if "memory" in way.sides.values() else dict.fromkeys(others, "memory"))
    given = {name: replace(make, shape=make.shape.replace("t", "b")) if isinstance(make, Filled) else make
             for name, make in way.given.items() if name not in sides}  # fmt: skip
    for asks in ONE_QUERY if "memory" in sides.values() else ():
        one = with_memory(layer, replace(way, sides=sides, axes=LAID[0], given=given, asks=asks), into)
        if one.memory and not trouble(layer, one, into, way.width, HERE)[0]:
            return one
    return None


def is_of_tokens(make: Make) -> bool:
    """Say whether what an argument is given has as many numbers as a token."""
    return make is as_x or (isinstance(make, Filled) and "m" in make.shape)


def by_name(name: str) -> inspect.Parameter:
    """Return a parameter of which nothing but its name is known."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)


BESIDE_IMAGES = ("btm", "tm")
"""How tokens of a text lie that are keys of an image."""


def beside_an_image(
    search: Search, start: Way, options: Mapping[str, Sequence[Make]], axes: Sequence[str]
) -> Way | None:  # fmt: skip
    """Return the way of calling a layer with an image as x and a text as its memory; None if it takes no such."""
    images = [order for order in axes if "w" in order]
    for lies in BESIDE_IMAGES if images and "memory" in start.sides.values() else ():
        if (way := in_some_order(search, replace(start, of_memory=lies), options, images)) is not None:
            return way
    return None


def with_unknown_memory(layer: Callable[..., Any], way: Way, into: Callable[[Array], Any], needed: set[str]) -> Way:
    """Return the way with what a call needs and nothing tells what it is as tokens that x attends to, where the layer
    answers to such of another number. Beside an image that may be anything; else it took an array like x, as its name
    does not say: a residual is one too."""
    beside = "w" in way.axes
    likely = {name for name, make in way.given.items() if is_like_x(make) and make not in candidates(name, "", 1)}
    silent = {
        name for name, make in way.given.items() if (beside or is_of_tokens(make)) and says_nothing(by_name(name))
    }
    unknown = needed & (silent if beside else silent | likely)
    if not unknown or "memory" in way.sides.values():
        return way
    lengths = (THERE, HERE) if beside or unknown <= likely else (THERE,)  # what is added to x is as long as x
    given = {name: make for name, make in way.given.items() if name not in unknown}
    sides = {**way.sides, **dict.fromkeys(unknown, "memory")}
    others = [(way.axes, lies) for lies in BESIDE_IMAGES] if beside else [(TOKENS, "")]
    for axes, lies in dict.fromkeys([(way.axes, ""), *others]):
        one = replace(way, axes=axes, sides=sides, given=given, of_memory=lies)
        if not trouble(layer, one, into, way.width, HERE)[0] and with_memory(layer, one, into, lengths).memory:
            return replace(one, memory=True)
    return way


TOKENS = "tm"
"""The axes of tokens without a batch."""


def is_like_x(make: Make) -> bool:
    """Say whether an argument is given an array like x, or like one entry of it."""
    return isinstance(make, Filled) and make.shape in ("b t m", "t m")


def with_memory(
    layer: Callable[..., Any], way: Way, into: Callable[[Array], Any], lengths: Sequence[int] = (THERE, HERE)
) -> Way:  # fmt: skip
    """Return the way with room for a memory, where the layer answers to one of another length."""
    if "memory" not in way.sides.values():
        return way
    rng = np.random.default_rng(5)
    for tokens in lengths:  # some take as many keys as queries alone
        x, memory = (into(rng.standard_normal((2, count, way.width))) for count in (HERE, tokens))
        try:
            with held():
                said = way.call(layer, x, memory)
            first = next(iter(parts_of(said).values()))
            fits = tuple(first.shape[:2]) == tuple(x.shape[:2])
            if fits:
                with held():  # code that makes q, k and v of its first argument has no room for another input
                    again = next(iter(parts_of(way.call(layer, x, memory * 2 + 1)).values()))
                fits = bool(abs(again - first).max() > 0)
        except Exception:
            fits = False
        if fits:
            break
    return with_inputs_as_they_are_for(layer, replace(way, memory=fits), into)


def with_inputs_as_they_are_for(layer: Callable[..., Any], way: Way, into: Callable[[Array], Any]) -> Way:
    """Return the way with its two inputs the other way round, where no name says which one asks and the other one does.

    A token of what asks changes its own row alone, and one of the memory those of others.
    """
    memories = [name for name, side in way.sides.items() if side == "memory"]
    if not way.memory or way.optional or any(plain(name) not in SILENT for name in memories):
        return way
    rng = np.random.default_rng(6)
    x, memory = rng.standard_normal((2, 2, HERE, way.width))
    x_changed, memory_changed = (np.concatenate([one[:, :1] + 1.0, one[:, 1:]], axis=1) for one in (x, memory))
    with suppress(Exception), held():
        rows, of_x, of_memory = (
            next(iter(parts_of(way.call(layer, into(one), into(other))).values()))[:, 1:]
            for one, other in ((x, memory), (x_changed, memory), (x, memory_changed))
        )
        if bool(abs(of_x - rows).max() > 0) and bool(abs(of_memory - rows).max() == 0):
            return replace(way, sides={name: "x" if name in memories else "memory" for name in way.sides})
    return way


SILENT = ("y", "z", "x2", "other")
"""Of `MEMORY`, what people call one of two inputs whatever it is for."""
