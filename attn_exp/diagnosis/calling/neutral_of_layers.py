"""What the other arguments of a layer are given, by their names and notes: what changes nothing is tried first."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from attn_exp.diagnosis.asking.chance import is_of_chance, random_key
from attn_exp.diagnosis.asking.offer import plain
from attn_exp.diagnosis.calling import turning_tables
from attn_exp.diagnosis.calling.way import Sizes, Way, image
from attn_exp.diagnosis.matrices.module_sizes import IMAGES
from attn_exp.diagnosis.matrices.sizes_of_files import OF_BATCH

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


def ends_of(side: str) -> Make:
    """Return what makes where each of the texts ends that lie one after the other, from 0 on: here there is one."""
    return lambda sizes: sizes.array(np.array([0, getattr(sizes, side)], np.int32))


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


def empty_mapping(sizes: Sizes) -> dict[str, Any]:
    """Return another empty mapping for each call, which may write to it."""
    return {}


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


MODES = dict.fromkeys(("training", "istraining", "train", "trainmode", "istrain"), True)
MODES |= dict.fromkeys(("deterministic", "inference", "eval", "evaluation", "isinference"), False)
"""What tells a call that this is training, where it has this value."""
HEADS_TOLD = (3, 4, 2, 1)
"""How many heads a call is told: of one alone, what is wrong with several does not show."""
WIDE = (None, (-1, -1), -1, (2**20, 2**20), 2**20, 0)
"""What a window is given that hides nothing."""
OF_IMAGES = (*IMAGES, "size", "xsize", "thw", "targetsize", "mapsize", "outputsize", "patchresolution", "gridsizes")
"""What people call height and width in one."""
IS_MAPPING = re.compile(r"^(typing\.)?(Mutable)?(dict|Dict|Mapping)\b")
NEUTRAL: tuple[tuple[Callable[[str, str], bool], Callable[[list[int]], tuple[Make, ...]]], ...] = (
    (lambda word, note: bool(IS_MAPPING.match(note)), always(empty_mapping, nothing)),
    (lambda word, note: word.endswith(("cos", "cosine")), table(1.0)),
    (lambda word, note: word.endswith(("sin", "sine")), table(0.0)),
    (lambda word, note: "freq" in word and word not in ("freq", "freqs"), complex_tables),
    (lambda word, note: word in ("pe", "pos", "cossin", "rot") or any(
        part in word for part in ("positionembedding", "rotary", "rope", "posemb", "freq")), angles),
    (lambda word, note: "mask" in word or word in ("pad", "padding"),
     lambda sizes: (*MASKS, Filled("b h t s", True, sizes[0]))),
    (lambda word, note: "window" in word, lambda sizes: (*(constant(one) for one in WIDE), *MASKS[1:4])),
    (lambda word, note: bool(re.fullmatch("cu.*(len|length)s?.*", word)), always(ends_of("rows"))),
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
    (lambda word, note: MODES.get(word) is False, always(constant(True))),
    (lambda word, note: "bool" in note or word in MODES or word in (
        "outputattentions", "usecache", "decode", "needweights"), always(constant(False), constant(True))),
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
