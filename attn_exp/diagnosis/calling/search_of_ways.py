"""The search for what a layer's other arguments are given: the choice with which a call comes furthest is kept."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import process_time
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.clock import end_of
from attn_exp.diagnosis.calling.call import reached
from attn_exp.diagnosis.calling.neutral_of_layers import Filled, Make, Side, as_x, nothing
from attn_exp.diagnosis.calling.way import Sizes, Way, lay
from attn_exp.diagnosis.code.returned import parts_of
from attn_exp.errors import UserError
from attn_exp.own_code import error_line, held

MOST_TRIES = 160
ENTRIES, HERE, THERE = 2, 7, 5
"""Entries, and tokens of x and of the memory, in a first call: no size of a layer is likely to be one of them."""
IN_ROWS, IN_FRAMES = 6, 16
"""Tokens that lie in several rows of an image, and in several frames of a video: seven lie in one."""


class NoWayError(UserError):
    """No way of calling a layer gives an answer; `about_type`: an error spoke of the types of numbers.

    `furthest`: how far a call came, as something to compare; `way`: that of calling it for which all is well but that
    the answer is NaN; `lengths`: numbers of tokens that errors named;
    `others`: ways for which the shape of the answer is another.
    """

    def __init__(self, search: Search) -> None:
        super().__init__(search.first or "it takes nothing")
        self.about_type, self.furthest = search.about_type, search.furthest
        self.way, self.lengths, self.others = search.way, search.lengths, search.others


class Search:
    """The search for what a layer's other arguments are given, in one order of axes.

    Of each argument the choice is kept with which the call comes furthest. `lengths` are the numbers in errors that
    speak of the number of tokens, `width` is that of x with which a call came furthest, `of_one` says that it answered
    for one token of several.
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
        self.width, self.stepped = 0, ""

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
        return error_line(error), reached(error, WITHOUT_PLACE)
    return "", ()


MOST_OTHERS, MOST_ALIKE = 4, 2
"""Ways to call a layer that answers in another shape, that are kept, in all and in one order of axes."""
AT_THE_END, IS_NAN = (2**60,), "its answer is NaN"
WITHOUT_PLACE = ("keras.src.", *(f"torch.nn.modules.{part}" for part in (
    "module", "container", "linear", "conv", "pooling", "batchnorm", "normalization")))  # fmt: skip
"""Layers in which nothing comes further: an error in one of them says no more than the place of its call."""
