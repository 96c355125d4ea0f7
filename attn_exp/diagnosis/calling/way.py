"""How a layer is called, once that is known: which argument is x or the memory, and how their axes lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.calling.turning_tables import Turning
from attn_exp.diagnosis.code.libraries import beside, in_jax, join, stack
from attn_exp.diagnosis.code.returned import parts_of
from attn_exp.diagnosis.matrices.sizes_of_files import exchanged


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
        first = [arguments.pop(name) for name in self.positional if name in arguments]
        with exchanged(type(getattr(layer, "module", layer)), self.told, sizes):
            return layer(*first, **arguments)

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
