"""Describe the inputs of a function (array layouts, mask formats and keywords), and pass a case to it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from attn_exp.arrays import Array, Shape
from attn_exp.diagnosis.asking.case import Case
from attn_exp.diagnosis.asking.request import Filler, Gap, Request
from attn_exp.forms import steps
from attn_exp.forms.pipeline import At, Recipe
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.window import Window
from attn_exp.rules.scores.added import Added
from attn_exp.rules.scores.alibi import Alibi, slopes
from attn_exp.rules.scores.sink import Sink
from attn_exp.rules.scores.softcap import Softcap

LAYOUTS = ("bhtd", "bthd", "htd", "td", "btm")
"""The usual layouts: b batch, h heads, t tokens, d head size, m all heads concatenated (h*d)."""
RARE = ("tbhd", "thd", "tbd", "btd", "ntd", "tbm", "tm", "bhdt", "hdt", "bdt", "bmt", "ndt")
"""Layouts that are tried if no usual one is right; n is batch and heads in one axis (b*h)."""
WIDE = "btm"
"""The layout of functions that split heads themselves and take the number of heads."""
KNOWN = (*LAYOUTS, *RARE)
LISTED = ("hbtd",)
"""Layouts that occur only in outputs: a list of heads."""
JOINED = {"m": "hd", "n": "bh"}
"""Letters for two axes that are merged into one."""


def spread(layout: str) -> str:
    return "".join(JOINED.get(letter, letter) for letter in layout)


def has_batch(layout: str) -> bool:
    return "b" in spread(layout)


def has_heads(layout: str) -> bool:
    return "h" in spread(layout)


def is_joined(layout: str) -> bool:
    return "m" in layout


def cuts_heads(layout: str) -> bool:
    letters = spread(layout)
    return is_joined(layout) or ("h" in letters and letters.index("t") < letters.index("h"))


def to_layout(array: Array, layout: str) -> Array:
    """Convert heads `[b h t d]` to a layout; if it has no batch or head axis, keep the first example or head."""
    letters = spread(layout)
    chosen = array[tuple(slice(None) if letter in letters else 0 for letter in "bhtd")]
    kept = [letter for letter in "bhtd" if letter in letters]
    turned = chosen.transpose([kept.index(letter) for letter in letters])
    sizes = dict(zip(letters, turned.shape, strict=True))
    laid_out: Array = turned.reshape([math.prod(sizes[one] for one in JOINED.get(letter, letter)) for letter in layout])
    return laid_out.copy()


def from_layout(array: Array, layout: str, sizes: Mapping[str, int]) -> Array:
    """Convert an output to `[b h t e]`, where `sizes["h"]` is the number of heads.

    If its axes do not fit the layout, return an array that is not 4-dimensional, so that it matches nothing.
    """
    heads, letters = sizes["h"], spread(layout)
    joined = [size for letter, size in zip(layout, array.shape, strict=False) if letter in "mn"]
    if array.ndim != len(layout) or any(size % heads for size in joined):
        return array[None] if array.ndim == len("bhtd") else array
    split = [
        part
        for letter, size in zip(layout, array.shape, strict=True)
        for part in {"m": (heads, size // heads), "n": (size // heads, heads)}.get(letter, (size,))
    ]
    turned = array.reshape(split).transpose([letters.index(letter) for letter in "bhtd" if letter in letters])
    for place, letter in enumerate("bhtd"):
        turned = turned if letter in letters else np.expand_dims(turned, place)
    return turned


def layouts_of_answer(array: Array, shape: Shape, first: str) -> Iterator[str]:
    """Yield the layouts from which an array converts to `shape`, `[b h t e]`; `first` is the likeliest.

    The last axis must be d or m: a transposed output is wrong.
    """
    heads = {"h": shape[1]}
    for layout in dict.fromkeys((first, *(one for one in (*KNOWN, *LISTED) if one[-1] in "dm"))):
        if len(layout) == array.ndim and from_layout(array, layout, heads).shape == shape:
            yield layout


def axes(layout: str) -> str:
    return " ".join({"m": "h*d", "n": "b*h"}.get(letter, letter) for letter in layout)


# Mask formats

KINDS = ("booleans", "ones and zeros", "integers", "added")
AXES = ("t s", "b 1 t s", "b t s", "b h t s", "b*h t s")
OF_KEYS = ("b s", "b 1 1 s", "b 1 s")
"""Axes of masks that all queries share."""
LOWEST, ADDED = -np.inf, -1e9
"""Values of hidden keys in additive masks: -inf always hides, -1e9 is the most common."""
WANTED = re.compile(r"has no attribute '(\w*mask\w*)'")
"""The error message of code that expects an object with the mask as an attribute."""
WORDS = {"booleans": "", "added": "additive masks", "ones and zeros": "masks of ones and zeros",
         "integers": "integer masks"}  # fmt: skip


@dataclass(frozen=True)
class Masking:
    """One way to write a boolean mask as the argument of a function.

    `kind`: "added" is 0 where a query may attend and `lowest` elsewhere; "ones and zeros" is 1 and 0 as floats.
    `axes` are those of a mask that batch and heads share. `neutral`: what to pass if nothing is hidden: the mask, None,
    or the inverted mask. `attribute`: wrap the mask in an object with this attribute. `opposite`: this mask has the
    opposite polarity of the other one in the same call.
    """

    kind: str = "booleans"
    axes: str = "t s"
    neutral: str = "mask"
    attribute: str = ""
    lowest: float = LOWEST
    opposite: bool = False

    def write(self, mask: Array, at: At, blocks: bool = False) -> Any:
        """Write a mask `[t s]` or `[b h t s]` in this format; with `blocks`, True means hidden."""
        if self.opposite:
            mask, blocks = ~mask, not blocks
        seen = ~mask if blocks else mask
        if self.neutral != "mask" and seen.all():
            if self.neutral == "none":
                return None
            seen, mask = ~seen, ~mask
        if self.kind == "added":
            return np.where(self.arrange(seen, at), 0.0, self.lowest)
        arranged: Array = self.arrange(mask, at)
        if self.kind == "ones and zeros":
            return np.where(arranged, 1.0, 0.0)
        return arranged.astype(np.int64 if self.kind == "integers" else np.bool_)

    def arrange(self, mask: Array, at: At) -> Array:
        """Return a mask with the axes of this format; a mask that varies along other axes too keeps those."""
        if self.axes in OF_KEYS:
            keys = whole(mask, at)[:, 0, 0]
            return {"b s": keys, "b 1 s": keys[:, None], "b 1 1 s": keys[:, None, None]}[self.axes]
        if self.axes == "t s" or mask.shape[:-2] == (at.batch, at.heads):
            return mask.reshape(-1, *mask.shape[-2:]) if self.axes == "b*h t s" else mask
        if self.axes in ("b h t s", "b*h t s"):
            full = whole(mask, at)
            return full if self.axes == "b h t s" else full.reshape(-1, *full.shape[-2:])
        each = whole(mask, at)[:, :1]
        return each if self.axes == "b 1 t s" else each[:, 0]

    def wrap(self, mask: Any) -> Any:
        return SimpleNamespace(**{self.attribute: mask}) if self.attribute and mask is not None else mask

    def like(self, other: Masking) -> Masking:
        return replace(self, neutral=other.neutral, attribute=other.attribute)

    def __str__(self) -> str:
        return f"{WORDS[self.kind] or 'masks'} [{self.axes}]" if self.axes != "t s" else WORDS[self.kind]


def attribute_of(error: str) -> str:
    found = WANTED.search(error)
    return found[1] if found else ""


def whole(mask: Array, at: At) -> Array:
    """Broadcast a mask to `[b h t s]`."""
    return np.ascontiguousarray(np.broadcast_to(mask, (at.batch, at.heads, at.rows, at.keys)))


MASKINGS = tuple(Masking(kind, axes) for axes, kind in product(AXES, KINDS))
"""Every way to write a mask of queries and keys, the likeliest first."""
PADDINGS = tuple(Masking(kind, axes) for axes, kind in product((*OF_KEYS, "b 1 t s"), KINDS))
"""Every way to write a mask of keys only, the likeliest first."""


# The keywords of a function


class WindowCount(NamedTuple):
    """How to write a window `(left, right)` as one number: `factor * left + own`."""

    factor: int
    """2 if the keys on both sides count, 1 if only those on one side do."""
    own: int
    """1 if the query's own key counts too."""
    both_sides: bool
    """Whether the window has as many keys on the right as on the left, or none on the right."""


KEYS = WindowCount(1, 1, both_sides=False)
"""A window of keys before the query, written as its number of keys including the query's own."""
BEFORE = WindowCount(1, 0, both_sides=True)
"""A window on both sides, written as the number of keys on each."""
WINDOWS = (None, KEYS, WindowCount(1, 1, both_sides=True), BEFORE, WindowCount(2, 0, both_sides=True),
           WindowCount(2, 1, both_sides=True))  # fmt: skip
"""Values of `Offer.counted` to try, the likeliest first."""


@dataclass(frozen=True)
class Offer:
    """What a function takes: q, k and v if `core`, else x and a layer's weight matrices.

    `parameters` maps each role to the function's own name for it; `positional` lists the positional-only ones;
    `defaults` are the function's defaults. `said` describes what else is passed. `only_if_right`: the names do not tell
    which arguments are the arrays, or how they are stored, so a wrong answer does not imply wrong attention. `divides`:
    scores are divided by the scale argument. `counted` tells how a window is written as a number; None means that it is
    passed as a pair of sides.
    """

    core: bool
    parameters: Mapping[str, str]
    positional: tuple[str, ...]
    defaults: Mapping[str, Any]
    said: str = ""
    only_if_right: bool = False
    divides: bool = False
    counted: WindowCount | None = None

    def takes(self, role: str) -> bool:
        return role in self.parameters

    def of_keys_alone(self) -> Offer:
        words, defaults = (
            {"padding" if role == "mask" else role: value for role, value in said.items()}
            for said in (self.parameters, self.defaults)
        )
        return replace(self, parameters=words, defaults=defaults)


def plain_default(default: Any) -> Any:
    """Return a default if it is a plain value, else `...`, which only records that a default exists."""
    return default if default is None or isinstance(default, bool | int | float | str | tuple | np.generic) else ...


# A case as keyword arguments; anything without a keyword must be built into the function

SCORES: dict[type, tuple[str, Callable[[Any, At], Any]]] = {
    Softcap: ("softcap", lambda rule, at: float(rule.cap)),
    Alibi: ("alibi", lambda rule, at: np.array(slopes(at.heads))),
    Sink: ("sinks", lambda rule, at: np.broadcast_to(np.ravel(np.asarray(rule.logit, np.float64)), (at.heads,)).copy()),
    Added: ("added", lambda rule, at: np.asarray(rule.values, np.float64)),
}
"""The role of the keyword for each score rule, and the value to pass."""
OWN_WORD: dict[type, str] = {Causal: "causal", Window: "window", Padding: "lengths"}
"""The role of the keyword that requests exactly this mask."""


def for_case(case: Case, offer: Offer, request: Request, wide: bool = False) -> dict[str, Any]:
    """Return the keyword arguments of a case by role; a `wide` function splits heads itself, as a layer does."""
    at = at_of(case)
    return {
        **neutral_arguments(at, offer, request),
        **mask_arguments(case.recipe, at, offer, request),
        **score_arguments(case.recipe, at, offer),
        **head_arguments(case, at, offer, wide or case.given.x is not None),
    }


def neutral_arguments(at: At, offer: Offer, request: Request) -> dict[str, Any]:
    neutral: dict[str, Any] = {
        "lengths": np.full(at.batch, at.keys, np.int64),
        "mask": np.full((at.rows, at.keys), not request.blocks),
        "padding": np.full((at.batch, at.keys), not request.blocks),
        "query_padding": np.full((at.batch, at.rows), not request.blocks),
        "causal": False,
        "window": count_keys(at.rows + at.keys, offer.counted) if offer.counted else (at.keys, at.keys),
    }
    needed = {role for role in neutral if offer.takes(role) and role not in offer.defaults}
    needed |= {"causal"} if offer.defaults.get("causal") is True else set()
    return {role: value for role, value in neutral.items() if role in needed}


def at_of(case: Case) -> At:
    recipe, given = case.recipe, case.given
    if given.x is not None:
        batch, rows, width = given.x.shape
        size = given.arrays["W_q"].shape[1] // recipe.heads
        keys = rows if given.memory is None else given.memory.shape[1]
        return At(recipe.rules, batch, recipe.heads, recipe.groups, rows, keys, size, width)
    assert given.q is not None and given.k is not None
    batch, heads, rows, size = given.q.shape
    return At(recipe.rules, batch, heads, given.k.shape[1], rows, given.k.shape[2], size, heads * size)


def mask_arguments(recipe: Recipe, at: At, offer: Offer, request: Request) -> dict[str, Any]:
    said: dict[str, Any] = {}
    rest: list[Mask] = []
    for mask in recipe.rules.masks:
        word = OWN_WORD.get(type(mask), "")
        if word and offer.takes(word) and word not in said:
            said[word] = own_word(mask, offer, at)
        elif isinstance(mask, Padding | Filler) and offer.takes("padding"):
            said["padding"] = padding_mask(mask, at, request)
        else:
            rest.append(mask)
    if rest and offer.takes("mask"):
        said["mask"] = join_masks(rest, at, request)
    return said


def own_word(mask: Mask, offer: Offer, at: At) -> Any:
    if isinstance(mask, Window):
        return count_keys(mask.left, offer.counted) if offer.counted else (mask.left, mask.right)
    if isinstance(mask, Padding):
        return np.broadcast_to(np.ravel(mask.lengths), (at.batch,)).astype(np.int64)
    return True


def count_keys(left: int, counted: WindowCount) -> int:
    return left * counted.factor + counted.own


def padding_mask(mask: Padding | Filler, at: At, request: Request) -> Array:
    """Return a padding mask `[b s]`: True = attend, or True = padding if the convention says so."""
    kept = kept_by(mask, at)
    return ~kept if request.blocks else kept


def kept_by(mask: Padding | Filler, at: At) -> Array:
    if isinstance(mask, Filler):
        kept = np.resize(mask.kept, at.keys)
    else:
        places, lengths = np.arange(at.keys), np.ravel(mask.lengths)[:, None]
        kept = places != lengths if isinstance(mask, Gap) else places < lengths
    return np.broadcast_to(kept, (at.batch, at.keys)).copy()


def join_masks(masks: list[Mask], at: At, request: Request) -> Array:
    """Combine masks into one boolean mask: `[t s]` if batch and heads share it, else with axes for them."""
    rules = at.rules.__class__(masks=tuple(masks), offset=at.rules.offset)
    whole = steps.allowed(At(rules, at.batch, at.heads, at.groups, at.rows, at.keys, at.size, at.width))
    shared = whole[0, 0] if whole.shape[:2] == (1, 1) else whole
    return ~shared if request.blocks else shared


def score_arguments(recipe: Recipe, at: At, offer: Offer) -> dict[str, Any]:
    known = ((*SCORES[type(rule)], rule) for rule in recipe.rules.scores if type(rule) in SCORES)
    return {word: write(rule, at) for word, write, rule in known if offer.takes(word)}


def head_arguments(case: Case, at: At, offer: Offer, wide: bool) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for role, count in (("heads", case.recipe.heads), ("kv_heads", case.recipe.groups)):
        if offer.takes(role) and (wide or role not in offer.defaults):
            said[role] = count
    if offer.takes("shared") and at.groups != at.heads:
        said["shared"] = True
    needed = offer.takes("scale") and "scale" not in offer.defaults
    if offer.takes("scale") and (case.explicit_scale or needed):
        scale = float(case.recipe.rules.scale)
        said["scale"] = 1 / scale if offer.divides else scale
    if offer.takes("dropout") and offer.defaults.get("dropout", 0.0) is not None:
        said["dropout"] = 0.0
    return said
