"""How a layer wants to be called: which argument is x, in which order of axes, and what all others are given.

Nothing is known of the arguments but their names. What is likely is tried first; an error of the layer says what to
try otherwise.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis import turning_tables
from attn_exp.diagnosis.clock import end_of
from attn_exp.diagnosis.libraries import home, in_jax, join, stack
from attn_exp.diagnosis.module_sizes import FEW, ROOM
from attn_exp.diagnosis.of_chance import is_noted_so, is_of_chance, lone_key, random_key
from attn_exp.diagnosis.offer import BY_NAME, plain
from attn_exp.diagnosis.packs import Pack, packs_in, taken_apart
from attn_exp.diagnosis.returned import parts_of
from attn_exp.diagnosis.sides import side_of_name
from attn_exp.diagnosis.sizes_of_files import OF_BATCH, exchanged, of_calls, of_counts
from attn_exp.diagnosis.turning_tables import Turning
from attn_exp.diagnosis.uses import keywords_read, lengths_compared
from attn_exp.errors import UserError
from attn_exp.own_code import error_line, held

MOST_TRIES = 160
ENTRIES, HERE, THERE = 2, 7, 5
"""Entries, and tokens of x and of the memory, in a first call: no size of a layer is likely to be one of them."""
IN_ROWS, IN_FRAMES = 6, 16
"""Tokens that lie in several rows of an image, and in several frames of a video: seven lie in one."""
MEMORY = ("context", "memory", "encoderhiddenstates", "xa", "y", "data", "media", "cond", "keyvaluestates", "kv",
          "source", "inputskv", "xkv", "keyvalue", "crossinput", "xcross", "encoderoutput", "encoderoutputs", "enc",
          "ctx", "condition", "x2", "other", "text", "latents", "xkeyvalue", "contexts", "encoder", "memories",
          "contextstates", "inputkv", "tgt", "kvinput", "z", "states", "encoderstates", "encout", "encoderout", "xenc",
          "src", "sourcestates", "crossattentionstates", "crossstates", "crosshiddenstates")  # fmt: skip
"""What people call what keys and values are made of, where it is not x."""
QUERY = ("inputsq", "xq", "queryinput", "inputq", "queryantecedent", "xquery", "qinput")
KEYS = ("inputsk", "xk", "keyinput", "inputk", "keyantecedent", "xkey", "kinput")
VALUES = ("inputsv", "xv", "valueinput", "inputv", "valueantecedent", "xvalue", "vinput")


@dataclass(frozen=True)
class Way:
    """How a layer is called: `sides` says which argument is x or the memory, `axes` how they lie, and `given` what
    the other arguments are given, made for the sizes of a call."""

    sides: Mapping[str, str]
    axes: str
    given: Mapping[str, Callable[[Sizes], Any]] = field(default_factory=dict)
    positional: tuple[str, ...] = ()
    memory: bool = False
    width: int = 0
    tokens: int = 0
    """How many tokens it takes, where it takes no other number of them."""
    told: Mapping[str, int | str] = field(default_factory=dict)
    """Names of its file and what they are in a call: a number, or the `batch` or the `rows` of x."""
    asked: tuple[Any, ...] = ()
    """The positions that are asked for, which tables of its caller may hold."""
    turning: Turning | None = None
    """How such tables turn: by no angle where there is none."""
    asks: str = ""
    """Whether it answers for the `first` or the `last` token alone: then each token is put there in turn; or takes one
    query in each call, `alone` or in a `row` of one."""

    def call(self, layer: Callable[..., Any], x: Any, memory: Any = None, **named: Any) -> Any:
        """Call a layer with x `[b t m]`, and return what it says with its first array as `[b t n]`."""
        if self.groups:
            return self.in_first_group(layer, x, memory, named)
        if self.asks in ONE_QUERY:
            return self.each_alone(layer, x, memory, named)
        if self.asks:
            return self.each_in_turn(layer, x, named)
        theirs = self.of_memory or self.axes
        if not ("b" in self.axes and "b" in theirs) and x.shape[0] > 1:
            return self.one_by_one(layer, x, memory, named)
        other = x if memory is None else memory
        sizes = Sizes(x.shape[0], x.shape[1], other.shape[1], x, self.turning)
        arguments = {name: lay(x, self.axes, self.beside) if side == "x" else lay(other, theirs, self.beside)
                     for name, side in self.sides.items()
                     if side == "x" or memory is not None or name not in self.optional}  # fmt: skip
        arguments |= {name: arguments[name][:, None] for name in self.in_groups if name in arguments}
        arguments |= {name: make(sizes) for name, make in self.given.items()}
        return unlaid(self.said(layer, arguments | named, sizes), self.axes, tuple(x.shape))

    def said(self, layer: Callable[..., Any], arguments: dict[str, Any], sizes: Sizes) -> Any:
        """Return what a layer says to some arguments, by their names."""
        for pack in self.packs:
            arguments = pack.closed(arguments)
        first = [arguments.pop(name) for name in self.positional if name in arguments]
        with exchanged(type(getattr(layer, "module", layer)), self.told, sizes):
            return layer(*first, **arguments)

    packs: tuple[Pack, ...] = ()
    optional: frozenset[str] = frozenset()
    of_memory: str = ""
    """How the memory lies, where it lies otherwise than x: beside an image, as the tokens of a text."""
    beside: float = 0.5
    """What x is multiplied by at the places of axes that never see each other."""
    in_groups: frozenset[str] = frozenset()
    """Those of the memory that come in groups, as images do: `[b 1 s m]`."""

    groups: tuple[tuple[int, ...], ...] = ()
    """The tokens that a layer takes in groups that see no other, as windows of an image are: x is the first group."""

    def in_first_group(self, layer: Callable[..., Any], x: Any, memory: Any, named: Mapping[str, Any]) -> Any:
        """Return the answer for the tokens of one group, beside others of other numbers."""
        order = np.argsort(np.concatenate(self.groups))
        places = order % x.shape[1]  # of each token in its group
        whole, others = (
            None if one is None else join([one * 0.5**at for at in range(len(self.groups))], 1)[:, order]
            for one in (x, memory)
        )
        sizes = tuple(x.shape[1:2]) * 2
        masks = {word: in_each(mask, places, sizes) for word, mask in named.items()}
        said = replace(self, groups=()).call(layer, whole, others, **masks)
        first = next(iter(parts_of(said).values()), None)
        return said if first is None or len(first.shape) < len("btm") else first[:, list(self.groups[0])]

    def each_alone(self, layer: Callable[..., Any], x: Any, memory: Any, named: Mapping[str, Any]) -> Any:
        """Return the answers for the tokens, each of which is the query of an entry of its own."""
        batch, tokens, width = x.shape
        other = x if memory is None else memory
        sizes = Sizes(batch, tokens, other.shape[1], x, self.turning)
        beside = {name: make(sizes) for name, make in self.given.items()} | dict(named)
        arguments = {name: for_each_query(value, batch, tokens) for name, value in beside.items()}
        queries = x.reshape(batch * tokens, *([1] if self.asks == ONE_QUERY[1] else []), width)
        keys = repeated(other, tokens)
        arguments |= {name: queries if side == "x" else keys for name, side in self.sides.items()}
        said = self.said(layer, arguments, sizes)
        first = next(iter(parts_of(said).values()), None)
        if first is None or tuple(first.shape[:-1]) not in ((batch * tokens,), (batch * tokens, 1)):
            return said
        return first.reshape(batch, tokens, first.shape[-1])

    def each_in_turn(self, layer: Callable[..., Any], x: Any, named: Mapping[str, Any]) -> Any:
        """Return the answers for the tokens, each of which is put before all others, or behind them."""
        batch, tokens, width = x.shape
        alone = [(x[:, at : at + 1], x[:, :at], x[:, at + 1 :]) for at in range(tokens)]
        orders = [join(parts if self.asks == "first" else (*parts[1:], parts[0]), 1) for parts in alone]
        turned = stack(orders, 1).reshape(batch * tokens, tokens, width)
        said = replace(self, asks="").call(layer, turned, **named)
        return next(iter(parts_of(said).values())).reshape(batch, tokens, -1)

    def one_by_one(
        self, layer: Callable[..., Any], x: Any, memory: Any, named: Mapping[str, Any],
        of_entries: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Return the answers to the entries of a batch, each of which is a call; `of_entries` are words of each."""
        said = [
            self.call(layer, entry_of(x, at), None if memory is None else entry_of(memory, at),
                      **named, **{word: array[at] for word, array in (of_entries or {}).items()})
            for at in range(x.shape[0])
        ]  # fmt: skip
        first = [next(iter(parts_of(one).values()), None) for one in said]
        if any(one is None for one in first):
            return said[0]
        return join([one if hasattr(one, "detach") else np.asarray(one) for one in first], 0)


def entry_of(array: Any, at: int) -> Any:
    """Return one entry of a batch, as a batch of one."""
    if type(array).__module__.partition(".")[0] == "jaxlib":  # JAX compiles each step anew for each size
        return in_jax(np.asarray(array)[at : at + 1])
    return array[at : at + 1]


ONE_QUERY = ("alone", "row")


def in_each(mask: Any, places: Array, sizes: tuple[int, ...]) -> Any:
    """Return a mask for the tokens of one group as one for those of all; anything else as it is."""
    shape = tuple(getattr(mask, "shape", ()))
    if shape[-1:] != sizes[-1:]:
        return mask
    return mask[..., places, :][..., places] if shape[-2:] == sizes else mask[..., places]


def for_each_query(value: Any, batch: int, tokens: int) -> Any:
    """Return a mask `[t s]` or `[b t s]` as `[b*t s]`, and anything else of entries so often as each has queries."""
    shape = tuple(getattr(value, "shape", ()))
    if len(shape) > 1 and shape[-2] == tokens and set(shape[:-2]) <= {1, batch} and len(shape) < len("bhtsx"):
        many = shape[0] == batch and len(shape) > len("ts")
        whole = value if many else stack([value] * batch, 0)
        return whole.reshape(batch * tokens, shape[-1])
    return repeated(value, tokens) if shape and shape[0] == batch else value


def repeated(entries: Any, times: int) -> Any:
    """Return each entry so often in a row."""
    return stack([entries] * times, 1).reshape(-1, *entries.shape[1:])


@dataclass(frozen=True)
class Sizes:
    """The sizes of a call, and one of its arrays, which says the library and the type; how tables turn, if they do."""

    batch: int
    rows: int
    keys: int
    x: Any
    turning: Turning | None = None

    def array(self, array: Array) -> Any:
        """Return an array of NumPy in the library of x; numbers in its type."""
        return beside(array, self.x)


def beside(array: Array, x: Any) -> Any:
    """Return an array of NumPy in the library, the type and the place of another."""
    home = type(x).__module__.partition(".")[0]
    if home == "torch":
        import torch  # noqa: PLC0415 - x is one of its own

        made = torch.as_tensor(array, device=x.device)
        if made.is_complex():
            return made.to(x.dtype.to_complex())
        return made.to(x.dtype) if made.is_floating_point() else made
    if home in ("jax", "jaxlib"):
        return in_jax(array, x.dtype if array.dtype.kind == "f" else None)
    return array.astype(x.dtype) if array.dtype.kind == "f" else array


# How x lies


LAID = ("btm", "tm", "bhwm", "bmt", "bmhw", "bmfhw", "bfhwm")


def lay(x: Any, axes: str, beside: float = 0.5) -> Any:
    """Return x `[b t m]` in another order of axes; tokens of an image or a video lie in rows of one length.

    Along an axis in capitals each token lies twice; at other places that see nothing of x lies x times `beside`.
    """
    batch, tokens, width = x.shape
    if axes == "btm":
        return x
    if type(x).__module__.partition(".")[0] == "jaxlib":  # JAX compiles each step anew for each size
        return in_jax(lay(np.asarray(x), axes, beside))
    places, apart = [axis for axis in axes if axis in SPACE], [axis for axis in axes if axis in APART + ALONE]
    for axis in apart[::-1]:
        x = stack((x, x * beside)[: long(axis)], 1)
    whole = x.reshape(batch, *map(long, apart), *lengths_of(places, tokens), width)
    for at in (at for at, place in enumerate(places, 1 + len(apart)) if place.isupper()):
        whole = whole[(*[slice(None)] * at, np.repeat(np.arange(whole.shape[at]), 2))]
    laid = in_order(whole, ["b", *apart, *places, "m"], axes if "b" in axes else f"b{axes}")
    laid = laid if "b" in axes else laid[0]
    return laid.contiguous() if hasattr(laid, "contiguous") else laid


SPACE = "tfhwHW"
"""Letters of axes along which tokens lie: time alone, or the frames, rows and columns of a video. H and W are rows and
columns of an image in which each token is a square of four points: what pools squares leaves each token one then."""
APART, ALONE = "pqr", "1"
"""Letters of axes whose places never see each other: x lies at the first of two; and of one that has one place."""


def long(axis: str) -> int:
    """Return how many places an axis has beside those of tokens."""
    return 1 if axis == ALONE else 2


def in_order(array: Any, before: Sequence[str], after: Sequence[str]) -> Any:
    """Return an array of any library with its axes in another order."""
    order = [list(before).index(axis) for axis in after]
    return array.permute(*order) if hasattr(array, "permute") else array.transpose(order)


def lengths_of(places: Sequence[str], tokens: int) -> tuple[int, ...]:
    """Return how many tokens lie along each of one, two or three axes."""
    if len(places) == 1:
        return (tokens,)
    first, last = image(tokens)
    return (first, last) if len(places) == len("hw") else (*image(first), last)


def unlaid(said: Any, axes: str, shape: tuple[int, ...]) -> Any:
    """Return what a layer says with its output as `[b t n]`, where it has the numbers of one."""
    batch, tokens, _ = shape
    parts = {name: np.asarray(part) if type(part).__module__.startswith("jaxlib") else part
             for name, part in parts_of(said).items()}  # fmt: skip
    if not parts:
        return said
    first = output_of(parts, axes, batch, tokens)
    if first is None:
        return said
    array = turned(parts.pop(first), axes, batch, tokens)
    return (array, *parts.values()) if parts else array


def output_of(parts: Mapping[str, Any], axes: str, batch: int, tokens: int) -> str | None:
    """Return the name of the first array that can be the output."""
    return next((name for name, part in parts.items() if turned(part, axes, batch, tokens) is not None), None)


def turned(part: Any, axes: str, batch: int, tokens: int) -> Any:
    """Return one array as `[b t n]`, or None where it has other sizes."""
    places, apart = [axis for axis in axes if axis in SPACE], [axis for axis in axes if axis in APART + ALONE]
    along = lengths_of(places, tokens)
    along = tuple(length * (1 + place.isupper()) for place, length in zip(places, along, strict=True))
    lengths = {"b": batch, **{axis: long(axis) for axis in apart}, **dict(zip(places, along, strict=True))}
    shape = tuple(part.shape)
    if len(shape) != len(axes) or any(lengths.get(axis, size) != size for axis, size in zip(axes, shape, strict=True)):
        return None
    part = part[tuple(slice(None, None, 2) if axis.isupper() else slice(None) for axis in axes)]
    laid = in_order(part, axes, [*apart, *(["b"] if "b" in axes else []), *places, "m"])
    for _ in apart:
        laid = laid[0]
    return laid.reshape(batch, tokens, shape[axes.index("m")])


def image(tokens: int) -> tuple[int, int]:
    """Return the height and the width of an image of so many points: as near to each other as they can be."""
    height = next((n for n in range(int(max(tokens, 0) ** 0.5), 0, -1) if tokens % n == 0), 1)
    return height, tokens // height


# What other arguments are given

Make = Callable[[Sizes], Any]


def nothing(sizes: Sizes) -> Any:
    """Return None."""


def as_x(sizes: Sizes) -> Any:
    """Return x, as any array."""
    return sizes.x


def constant(value: Any) -> Make:
    """Return the maker of a value that is the same for all sizes."""
    return lambda sizes: value


@dataclass(frozen=True)
class Filled:
    """What makes an array of one number; `shape` is in the letters of axes, `turns` is the size of a head.

    r counts the distances between queries and keys, as those need who code places by them.
    """

    shape: str
    value: float | bool
    turns: int = 0
    of_angles: bool = False
    """Whether it is a table of angles themselves, where they are asked for; others are of cosines, or of sines."""

    def __call__(self, sizes: Sizes) -> Any:
        lengths = {"b": sizes.batch, "t": sizes.rows, "s": sizes.keys, "1": 1, "d": self.turns,
                   "m": sizes.x.shape[-1], "r": sizes.rows + sizes.keys - 1}  # fmt: skip
        lengths["h"] = sizes.x.shape[-1] // self.turns if self.turns else 1
        lengths["n"] = sizes.batch * lengths["h"]
        if sizes.turning is not None and isinstance(self.value, float):
            made_of = partial(np.multiply, 1.0) if self.of_angles else np.cos if self.value else np.sin
            table = turning_tables.filled(self.shape, lengths, sizes.turning, made_of)
            if table is not None:
                return sizes.array(table)
        kind = np.bool_ if isinstance(self.value, bool) else np.int64 if isinstance(self.value, int) else np.float64
        return sizes.array(np.full([lengths[letter] for letter in self.shape.split()], self.value, kind))


def read_otherwise(way: Way) -> Iterator[Way]:
    """Yield the way with each mask of True or 1 the other way round, as those hide all where True hides; then all.

    What each token is multiplied by is 0 at first, as it may be added.
    """
    others = {
        name: replace(make, value=1.0) if make.shape == OF_TOKENS else replace(
            make, value=False if make.value is True else 0.0
        ) for name, make in way.given.items() if isinstance(make, Filled) and (
            make.shape == OF_TOKENS or (make in MASKS and (make.value is True or make.value == 1.0)))
    }  # fmt: skip
    yield from (replace(way, given={**way.given, name: other}) for name, other in others.items())
    if len(others) > 1:
        yield replace(way, given={**way.given, **others})


OF_TOKENS = "b t 1"
"""The axes of one number for each token."""


@dataclass(frozen=True)
class Side:
    """What makes the height or the width of the image that all tokens are but those `beside` it, or both."""

    place: int | None
    beside: int

    def __call__(self, sizes: Sizes) -> Any:
        lengths = image(sizes.rows - self.beside)
        return lengths if self.place is None else lengths[self.place]


BESIDE = (0, 1, 2)
"""Tokens that may stand beside those of an image, as one of its class does."""


def counted(shape: str) -> Make:
    """Return what makes the places of tokens."""

    def make(sizes: Sizes) -> Any:
        places = np.arange(sizes.rows)
        return sizes.array(np.tile(places, (sizes.batch, 1)) if shape == "b t" else places)

    return make


def opened(sizes: Sizes) -> Any:
    """Return `[b t]` that is True at the first token alone, where something begins that counts for all after it."""
    return sizes.array(np.tile(np.arange(sizes.rows) == 0, (sizes.batch, 1)))


def rotations(shape: str, size: int) -> Make:
    """Return what makes complex numbers that turn nothing."""

    def make(sizes: Sizes) -> Any:
        lengths = {"t": sizes.rows, "e": size // 2, "1": 1, "b": sizes.batch}
        turned = (
            None if sizes.turning is None else turning_tables.complex_numbers(shape.split(), lengths, sizes.turning)
        )
        ones = np.ones([lengths[letter] for letter in shape.split()], np.complex128)
        return sizes.array(ones if turned is None else turned)

    return make


def in_pairs(size: int) -> Make:
    """Return what makes cosines and sines of no angle beside each other, `[t d/2 2]`."""

    def make(sizes: Sizes) -> Any:
        turned = None if sizes.turning is None else turning_tables.in_pairs(sizes.rows, size // 2, sizes.turning)
        return sizes.array(np.tile([1.0, 0.0], (sizes.rows, size // 2, 1)) if turned is None else turned)

    return make


def in_matrices(size: int, more: int = 2) -> Make:
    """Return what makes a matrix for each two numbers of a head that turns them by no angle, `[1 1 t d/2 2 2]`.

    `more`: how many axes of length 1 stand before.
    """

    def make(sizes: Sizes) -> Any:
        turned = None if sizes.turning is None else turning_tables.in_matrices(sizes.rows, size // 2, sizes.turning)
        matrices = np.tile(np.eye(2), (sizes.rows, size // 2, 1, 1)) if turned is None else turned
        return sizes.array(matrices.reshape(*[1] * more, *matrices.shape))

    return make


def pair(one: Make, other: Make) -> Make:
    """Return the maker of what two others make, as a pair."""
    return lambda sizes: (one(sizes), other(sizes))


def count_of(size: str) -> Make:
    """Return what makes the number of entries, or of tokens, of a call."""
    return lambda sizes: getattr(sizes, size)


FRAMES = ("t", "f", "frames", "nframes", "numframes", "nt", "tokens", "ntokens", "numtokens")
"""What people call the number of frames of a video, or of tokens."""


def lengths(sizes: Sizes) -> Any:
    """Return the length of each entry of a batch: all keys."""
    return sizes.array(np.full(sizes.batch, sizes.keys, np.int64))


def ends(sizes: Sizes) -> Any:
    """Return where each of the texts ends that lie one after the other, beginning with 0: here there is one."""
    return sizes.array(np.array([0, sizes.rows], np.int32))


MASKS: tuple[Make, ...] = (
    nothing,
    *(Filled(shape, True) for shape in ("t s", "b t s", "b 1 t s", "b s", "b 1 s", "b t")),
    *(Filled(shape, 1.0) for shape in ("t s", "b t s", "b s", "b 1 t s", "b t")),
    *(Filled(shape, 0.0) for shape in ("t s", "b 1 t s", "b t s")),
    *(Filled(shape, False) for shape in ("t s", "b t s", "b 1 t s", "b s")),
    Filled("s", True),
    Filled("s", 1.0),
)


def candidates(word: str, note: str, head: int, is_needed: bool = False) -> tuple[Make, ...]:
    """Return what an argument of this name may be given, the likeliest first, so that it changes nothing.

    `head`: numbers of a head, of which tables of angles have as many, or half. What a call needs may be anything.
    """
    if is_of_chance(word, note):
        return (random_key, nothing)
    word = plain(word)
    sizes = [head, head // 2] if head > 1 else [head]
    if word == "alibi":
        return (nothing, Filled("n 1 s", 0.0, head), Filled("1 1 t s", 0.0))
    makes = next(makes(sizes) for fits, makes in NEUTRAL if fits(word, note))
    if note == "Tensor" and nothing in makes:  # compiled code may take None at first, and fail when it is compiled anew
        makes = (*(make for make in makes if make is not nothing), nothing)
    if is_needed and not any(kind in note for kind in ("bool", "int", "float", "str")):
        known = set(map(repr, makes))
        return (*makes, *(make for make in all_others(sizes) if repr(make) not in known))
    return makes


TABLES = ("t d", "1 t d", "b t d", "1 t 1 d", "1 1 t d", "t 1 d", "b 1 t d", "b t 1 d")


def table(number: float) -> Callable[[list[int]], tuple[Make, ...]]:
    """Return what makes tables of one number, a row for each place."""
    return lambda sizes: tuple(Filled(shape, number, size) for size in sizes for shape in TABLES)


def complex_tables(sizes: list[int]) -> tuple[Make, ...]:
    """Return makers of rotary tables as complex numbers, and of none."""
    shapes = [shape.replace("d", "e") for shape in TABLES]
    return (*(rotations(shape, sizes[0]) for shape in shapes), in_pairs(sizes[0]), in_matrices(sizes[0], 0), nothing)


def angles(sizes: list[int]) -> tuple[Make, ...]:
    """Return what makes cosines and sines of no angle, as matrices, as a pair or as complex numbers."""
    pairs = [pair(Filled(shape, 1.0, size), Filled(shape, 0.0, size)) for size in sizes for shape in TABLES]
    return (
        nothing,
        *([in_matrices(sizes[0])] if len(sizes) > 1 else []),
        *pairs,
        *complex_tables(sizes)[:-1],
        Filled("1 t d", 0.0, sizes[0], of_angles=True),
        *(Filled(shape, 0.0) for shape in ("1 t m", "1 r m", "b t m", "b r m", "t 1 m", "r 1 m", "t m", "r m")),
    )


def stores(sizes: list[int]) -> tuple[Make, ...]:
    """Return makers of no store of keys and values, and of empty ones with room for all."""
    rooms = [Filled(shape, 0.0, sizes[0]) for shape in ("b s h d", "b h s d")]
    return (nothing, *(pair(room, room) for room in rooms), *rooms)


def of_heads(sizes: list[int]) -> tuple[Make, ...]:
    """Return makers of queries of 0 that are projected already and cut into heads."""
    return tuple(Filled(shape, 0.0, sizes[0]) for shape in OF_HEADS)


OF_HEADS = ("b h t d", "b 1 h t d", "b t h d")


def all_others(sizes: list[int]) -> tuple[Make, ...]:
    """Return makers of what changes nothing whatever it is called: places in a table, and numbers to be added."""
    places = (Filled(shape, 0) for shape in ("t s", "b t s", "b t", "t"))
    added = (Filled(shape, 0.0, sizes[0]) for shape in (
        "h d", "h", "d", "m", "t d", "t m", "b t m", "b m", "h t s", "b h t s", "b t s m", "b t s d", "t s m", "r d",
        "b t s h", "1 1 t s"))  # fmt: skip
    return (*places, *added, *of_heads(sizes))


def always(*makes: Make) -> Callable[[list[int]], tuple[Make, ...]]:
    """Return what gives these makers, whatever the sizes."""
    return lambda sizes: makes


HEADS_TOLD = (3, 4, 2, 1)
"""How many heads a call is told: of one alone, what is wrong with several does not show."""
WIDE = (None, (-1, -1), -1, (2**20, 2**20), 2**20, 0)
"""What a window is given that hides nothing."""
OF_IMAGES = (
    "size",
    "xsize",
    "thw",
    "resolution",
    "inputresolution",
    "gridsize",
    "featsize",
    "targetsize",
    "imgsize",
    "imagesize",
    "spatialsize",
    "mapsize",
    "featuresize",
    "outputsize",
    "patchresolution",
    "gridsizes",
)
"""What people call height and width in one."""
NEUTRAL: tuple[tuple[Callable[[str, str], bool], Callable[[list[int]], tuple[Make, ...]]], ...] = (
    (lambda word, note: word.endswith(("cos", "cosine")), table(1.0)),
    (lambda word, note: word.endswith(("sin", "sine")), table(0.0)),
    (lambda word, note: "freq" in word and word not in ("freq", "freqs"), complex_tables),
    (lambda word, note: word in ("pe", "pos", "cossin", "rot") or any(
        part in word for part in ("positionembedding", "rotary", "rope", "posemb", "freq")), angles),
    (lambda word, note: "mask" in word or word in ("pad", "padding"),
     lambda sizes: (*MASKS, Filled("b h t s", True, sizes[0]))),
    (lambda word, note: "window" in word, lambda sizes: (*(constant(one) for one in WIDE), *MASKS[1:4])),
    (lambda word, note: bool(re.fullmatch("cu.*(len|length)s?.*", word)), always(ends)),
    (lambda word, note: "len" in word, always(nothing, lengths, count_of("rows"))),
    (lambda word, note: "einops" in word or "pattern" in word, always(constant("b n d"))),
    (lambda word, note: "pos" in word and "start" not in word,
     always(counted("b t"), counted("t"), nothing, constant(0))),
    (lambda word, note: word in OF_BATCH, always(count_of("batch"), nothing)),
    (lambda word, note: word in FRAMES, always(count_of("rows"), nothing)),
    (lambda word, note: word in ("h", "height", "hp", "patchh"),
     always(*(Side(0, beside) for beside in BESIDE), constant(1))),
    (lambda word, note: word in ("w", "width", "wp", "patchw"),
     always(*(Side(1, beside) for beside in BESIDE), constant(1))),
    (lambda word, note: word in OF_IMAGES or (word.endswith(("hw", "shape", "shapes")) and note != "int"),
     always(*(Side(None, beside) for beside in BESIDE))),
    (lambda word, note: word in ("deterministic", "eval", "inference"), always(constant(True))),
    (lambda word, note: "bool" in note or word in ("training", "train", "outputattentions", "usecache", "decode",
                                                   "needweights"), always(constant(False), constant(True))),
    (lambda word, note: "bias" in word or "alibi" in word,
     always(nothing, Filled("1 1 t s", 0.0), Filled("t s", 0.0), Filled("b 1 t s", 0.0), Filled("b t s", 0.0),
            constant(0.0))),
    (lambda word, note: word.endswith(("indices", "index", "idxs", "slots")) and "layer" not in word,
     always(counted("t"), counted("b t"), nothing, constant(0))),
    (lambda word, note: any(part in word for part in ("past", "cache", "state", "prev")), stores),
    (lambda word, note: word == "residual", always(Filled("b t m", 0.0))),
    (lambda word, note: "head" in word and "mask" not in word and "ensor" not in note,
     always(*map(constant, HEADS_TOLD))),
    (lambda word, note: "int" in note or word in ("startpos", "layeridx", "layer", "offset", "step", "layerid", "i"),
     always(constant(0), constant(1))),
    (lambda word, note: word.startswith("q") or "quer" in word, lambda sizes: (*of_heads(sizes), nothing)),
    (lambda word, note: True,
     always(nothing, *MASKS[1:3], Filled("b t s m", 0.0), MASKS[3], Filled("t s", 0.0), constant(0), constant(False),
            constant(1), as_x, Filled("1 t m", 0.0), Filled(OF_TOKENS, 0.0), Filled("b s", True),
            opened, Filled("t s", False), Filled("b s", False))),
)  # fmt: skip
"""What an argument is given by its name and its annotation."""


def says_nothing(given: inspect.Parameter) -> bool:
    """Say whether neither the name nor the annotation of an argument tells what it is."""
    return next(at for at, (fits, _) in enumerate(NEUTRAL) if fits(plain(given.name), str(given.annotation))) == (
        len(NEUTRAL) - 1
    )


# Which way a layer is called

MODES = dict.fromkeys(("training", "istraining", "train", "trainmode", "istrain"), True)
MODES |= dict.fromkeys(("deterministic", "inference", "eval", "evaluation", "isinference"), False)
"""What tells a call that this is training, where it has this default."""
SIDE = {"q": "x", "k": "memory", "v": "memory"}


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
    return taken_apart(call, named)


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
    search, packs = Search(layer, into), packs_in(parameters)
    bare = Way({}, axes[0], {}, positional, width=widths[0])
    if (instead := with_x_instead(search, others, needed, bare, axes, set(sides) - optional)) is not None:
        return instead
    memories = frozenset(name for name, side in sides.items() if side == "memory")
    starts = [(needed, optional, axes, frozenset[str]()),
              *((*start, frozenset[str]()) for start in starts_anew(needed, more, optional, axes))]  # fmt: skip
    starts += [(given, frozenset[str](), axes[:1], memories) for given in (needed, needed | more)] if memories else []
    usual = in_a_usual_way(search, replace(bare, sides=sides, packs=packs), starts, widths)
    if usual is not None:
        return with_unknown_memory(layer, with_memory(layer, usual, into), into, set(needed))
    if FEW in search.lengths:  # of which its class may have been told
        known = Way(sides, axes[0], {}, positional, width=widths[0], packs=packs)
        if (few := of_one_number(search, known, axes, needed, [FEW])) is not None:
            return few
    if ROOM in search.lengths and not of_counts(layer):  # its class may be told fewer
        raise NoWayError(search)
    unknown = {given.name: "memory" for given in others if given.name in needed and says_nothing(given)}
    start, search.tries = Way(sides | unknown, axes[0], {}, positional, width=widths[0], packs=packs), 0
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
        likely = Way(sides, axes[0], {}, positional, width=width, packs=packs)
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


class NoWayError(UserError):
    """No way of calling a layer gives an answer; `about_type`: an error spoke of the types of numbers.

    `furthest`: how far a call came, as something to compare; `answered`: for how many tokens it gave an answer; `way`:
    that of calling it for which all is well but that the answer is NaN; `lengths`: numbers of tokens that errors named;
    `others`: ways for which the shape of the answer is another.
    """

    def __init__(self, search: Search) -> None:
        super().__init__(search.first or "it takes nothing")
        self.about_type, self.furthest, self.answered = search.about_type, search.furthest, search.answered
        self.way, self.lengths, self.others = search.way, search.lengths, search.others


def is_no_mask(given: inspect.Parameter) -> bool:
    """Say whether the default of a mask is a number, which its code may not bear."""
    return type(given.default) in (int, float) and "mask" in given.name.lower()


def is_empty(default: Any) -> bool:
    """Say whether a default is an array without numbers, which stands for None."""
    return 0 in getattr(default, "shape", ())


class Search:
    """The search for what a layer's other arguments are given, in one order of axes.

    Of each argument the choice is kept with which the call comes furthest. `lengths` are the numbers in errors that
    speak of the number of tokens, `width` is that of x with which a call came furthest, `of_one` says that it answered
    for one token of several, `answered` for how many.
    """

    def __init__(
        self, layer: Callable[..., Any], into: Callable[[Array], Any], tokens: int = HERE, end: float = 0.0,
        others: list[Way] | None = None,
    ) -> None:  # fmt: skip
        self.layer, self.into, self.tokens = layer, into, tokens
        self.end = end or end_of(MOST_SECONDS)
        self.first, self.said, self.tries, self.about_type = "", "", 0, False
        self.lengths, self.of_one = set[int](), False
        self.times_said = Counter[int]()
        self.furthest: tuple[int, ...] = ()
        self.way: Way | None = None
        self.others = list[Way]() if others is None else others
        self.width, self.answered, self.stepped = 0, 0, ""

    def filled(self, way: Way, options: Mapping[str, Sequence[Make]]) -> Way | None:
        """Return the way with its other arguments, or None where no choice of them gives an answer."""
        if process_time() > self.end:
            return None
        chosen = {name: makes[0] for name, makes in options.items()}
        best = self.come_to(replace(way, given=present(chosen)))
        if best is None:
            return replace(way, given=present(chosen))
        asked = {told_apart(chosen)}
        while not self.is_over():
            found = self.one_better(way, options, chosen, best, asked)
            if isinstance(found, Way) or found is None:
                return found
            best, chosen = found
        return None

    def one_better(
        self, way: Way, options: Mapping[str, Sequence[Make]], chosen: dict[str, Make], best: tuple[int, ...],
        asked: set[tuple[str, ...]],
    ) -> Way | tuple[tuple[int, ...], dict[str, Make]] | None:  # fmt: skip
        """Return the way that gives an answer, or the choice of one argument more with which a call comes further.

        What an error speaks of is tried first, and what the last step was made with last. None: nothing comes further.
        """
        met = [one for one in options if self.is_met(way, chosen, one, best)]
        named = sorted(met, key=lambda one: (not re.search(rf"\b{re.escape(one)}\b", self.said), one == self.stepped))
        resized = [(one, make) for one in named for make in in_sizes_said(chosen[one], self.said)]
        for name, make in (*resized, *((one, make) for one in named for make in options[one])):
            now = chosen | {name: make, **twins(name, make, options)}
            if told_apart(now) in asked:
                continue
            if self.is_over():
                return None
            asked.add(told_apart(now))
            place = self.come_to(replace(way, given=present(now)))
            if place is None:
                return replace(way, given=present(now))
            if place > best:
                self.stepped = name
                return place, now
        return None

    def is_met(self, way: Way, chosen: Mapping[str, Make], name: str, best: tuple[int, ...]) -> bool:
        """Say whether a call comes to an argument at all: else it fails at the same place with a thing of no use."""
        tried = (no_use, as_x) if chosen[name] is nothing else (no_use,)  # None may fail as what is of no use does
        others = (replace(way, given=present({**chosen, name: make})) for make in tried)
        return any(trouble(self.layer, one, self.into, way.width, self.tokens) != (self.said, best) for one in others)

    def is_over(self) -> bool:
        """Say whether enough was tried, or for long enough."""
        return self.tries > MOST_TRIES or process_time() > self.end

    def come_to(self, way: Way) -> tuple[int, ...] | None:
        """Return how far a call comes, as something to compare, or None where it gives an answer."""
        self.tries += 1
        said, place = trouble(self.layer, way, self.into, way.width, self.tokens)
        if not said:  # a table for two entries may pass for one of pairs
            said, place = trouble(self.layer, way, self.into, way.width, self.tokens, ENTRIES + 1)
        if not said and "hw" in way.axes and self.tokens == HERE:  # all tokens lay in one row
            several = IN_FRAMES if "f" in way.axes else IN_ROWS
            said, place = trouble(self.layer, way, self.into, way.width, several)
        self.first, self.said = self.first or said, said
        self.way = self.way or (way if said == IS_NAN else None)
        if place > self.furthest:
            self.furthest, self.width = place, way.width
        alike = sum(one.axes == way.axes for one in self.others) >= MOST_ALIKE
        is_kept = len(self.others) < MOST_OTHERS and not alike
        if said.startswith("its answer has the shape") and "[]" not in said and is_kept:
            self.others.append(replace(way, tokens=0 if self.tokens == HERE else self.tokens))
        shape = re.match(r"its answer has the shape \[2, (?:(\d+), )?\d+\] for", said)
        self.answered = self.answered or (int(shape[1] or 1) if shape else 0)
        self.of_one |= said.startswith("its answer has the shape [2, 1, ")
        if re.search(rf"\b{HERE}\b", said):  # it has another number of tokens in mind, which it may name
            spoken = {int(number) for number in re.findall(r"\d+", said)} - {HERE}
            self.lengths |= spoken
            self.times_said.update(spoken)
        self.about_type |= bool(re.search(r"(?i)dtype|scalar type|\bdouble\b|^AssertionError", said))
        return place if said else None


def told_apart(chosen: Mapping[str, Make]) -> tuple[str, ...]:
    """Return what tells two choices apart: `True == 1.0`, and code that takes the number may refuse the other."""
    return tuple(map(repr, chosen.values()))


MOST_SECONDS = 12.0
"""Of a check, in which ways to call its layer are looked for, in whichever sizes that is made."""


def twins(name: str, make: Make, options: Mapping[str, Sequence[Make]]) -> dict[str, Make]:
    """Return the table of sines in the shape of one of cosines, and the other way round: they never differ in it.

    Height and width are of one image.
    """
    if isinstance(make, Side):
        return {other: replace(make, place=first.place) for other, makes in options.items()
                if other != name and isinstance(first := makes[0], Side)}  # fmt: skip
    parts = re.split("(cos|sin)", name.lower())
    if len(parts) != len(("", "cos", "")) or not isinstance(make, Filled):
        return {}
    other = next((one for one in options if re.split("(cos|sin)", one.lower())[::2] == parts[::2] and one != name), "")
    if not other:
        return {}
    return {other: replace(make, value=1.0 if "cos" in other.lower() else 0.0)}


def in_sizes_said(make: Make, said: str) -> Iterator[Make]:
    """Yield a table with as many numbers in a row as an error speaks of: some heads are turned in part alone."""
    sizes = re.findall(r"(?:size of tensor [ab] \(|[Ee]xpected size |got size |size )(\d+)", said)
    if isinstance(make, Filled) and make.turns:
        yield from (replace(make, turns=int(size)) for size in dict.fromkeys(sizes) if int(size) != make.turns)


class NoUse:
    """A thing that nothing can be done with, not even to compare it."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("nothing can be compared with it")

    def __bool__(self) -> bool:
        raise TypeError("it is neither true nor false")

    __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __eq__
    __hash__ = None  # type: ignore[assignment] # nor is it a key


def no_use(sizes: Sizes) -> Any:
    """Return what nothing can be done with."""
    return NoUse()


def left_out(sizes: Sizes) -> Any:
    """Stand for an argument that is not given."""
    raise AssertionError(sizes)


def present(chosen: Mapping[str, Make]) -> dict[str, Make]:
    return {name: make for name, make in chosen.items() if make is not left_out}


def trouble(
    layer: Callable[..., Any], way: Way, into: Callable[[Array], Any], width: int, tokens: int, entries: int = ENTRIES
) -> tuple[str, tuple[int, ...]]:
    """Return what is wrong with one way of calling, or nothing, and how far the call came."""
    rng = np.random.default_rng(3)
    x = into(rng.standard_normal((entries, tokens, width)))
    try:
        with held():
            said = way.call(layer, x)
        parts = parts_of(said)
        if not parts:
            return f"it returned {type(said).__name__}", AT_THE_END
        first = next(iter(parts.values()))
        if len(first.shape) != 3 or tuple(first.shape[:2]) != tuple(x.shape[:2]):
            return f"its answer has the shape {list(first.shape)} for x {list(lay(x, way.axes).shape)}", AT_THE_END
        first = first.detach() if hasattr(first, "detach") else np.asarray(first)
        if not bool(np.isfinite(float(abs(first).sum()))):
            return IS_NAN, AT_THE_END
    except Exception as error:
        return error_line(error), reached(error)
    return "", ()


MOST_OTHERS, MOST_ALIKE = 4, 2
"""Ways to call a layer that answers in another shape, that are kept, in all and in one order of axes."""
AT_THE_END, IS_NAN = (2**60,), "its answer is NaN"
WITHOUT_PLACE = ("keras.src.", *(f"torch.nn.modules.{part}" for part in (
    "module", "container", "linear", "conv", "pooling", "batchnorm", "normalization")))  # fmt: skip
"""Layers in which nothing comes further: an error in one of them says no more than the place of its call."""


def reached(error: BaseException) -> tuple[int, ...]:
    """Return the place in each function on the way to an error, from the outermost of a layer's own on."""
    places, last = list[int](), error.__traceback__
    while last is not None:
        home = str(last.tb_frame.f_globals.get("__name__", ""))
        if not home.startswith(("attn_exp.", *WITHOUT_PLACE)):
            places.append(last.tb_lasti)
        last = last.tb_next
    return tuple(places)


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

    def is_unknown(name: str, make: Make) -> bool:
        return says_nothing(by_name(name)) if beside else is_like_x(make) and make not in candidates(name, "", 1)

    unknown = {name for name, make in way.given.items() if name in needed and is_unknown(name, make)}
    if not unknown or "memory" in way.sides.values():
        return way
    given = {name: make for name, make in way.given.items() if name not in unknown}
    sides = {**way.sides, **dict.fromkeys(unknown, "memory")}
    for lies in ("", *(BESIDE_IMAGES if beside else ())):
        one = replace(way, sides=sides, given=given, of_memory=lies)
        if not trouble(layer, one, into, way.width, HERE)[0] and with_memory(layer, one, into).memory:
            return replace(one, memory=True)
    return way


def is_like_x(make: Make) -> bool:
    """Say whether an argument is given an array like x, or like one entry of it."""
    return isinstance(make, Filled) and make.shape in ("b t m", "t m")


def with_memory(layer: Callable[..., Any], way: Way, into: Callable[[Array], Any]) -> Way:
    """Return the way with room for a memory, where the layer answers to one of another length."""
    if "memory" not in way.sides.values():
        return way
    rng = np.random.default_rng(5)
    for tokens in (THERE, HERE):  # some take as many keys as queries alone
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
