"""Describe the inputs of a function (array layouts, mask formats and keywords), and pass a case to it.

A layout is a string with one letter per axis, such as "bhtd". A `Masking` writes a boolean mask in the format of a
function. An `Offer` names the parameter for each role, such as "mask"; `for_case` returns the values by role.
"""

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
from attn_exp.diagnosis.asking.request import Filler, Request
from attn_exp.forms import steps
from attn_exp.forms.pipeline import Recipe, Setup
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
RARE_LAYOUTS = ("tbhd", "thd", "tbd", "btd", "ntd", "tbm", "tm", "bhdt", "hdt", "bdt", "bmt", "ndt")
"""Layouts that are tried if no usual one is right; n is batch and heads in one axis (b*h)."""
WIDE_LAYOUT = "btm"
"""The layout of functions that split heads themselves and take the number of heads."""
KNOWN_LAYOUTS = (*LAYOUTS, *RARE_LAYOUTS)
OUTPUT_LAYOUTS = ("hbtd",)
"""Layouts that occur only in outputs: a list of heads."""
MERGED_AXES = {"m": "hd", "n": "bh"}
"""Letters for two axes that are merged into one."""


def split_letters(layout: str) -> str:
    """Return a layout with a letter for each of the merged axes: "bthd" for "btm"."""
    return "".join(MERGED_AXES.get(letter, letter) for letter in layout)


def has_batch(layout: str) -> bool:
    return "b" in split_letters(layout)


def has_heads(layout: str) -> bool:
    return "h" in split_letters(layout)


def is_joined(layout: str) -> bool:
    return "m" in layout


def cuts_heads(layout: str) -> bool:
    """Return whether a head is not contiguous in memory: heads are joined, or their axis comes after the tokens."""
    letters = split_letters(layout)
    return is_joined(layout) or ("h" in letters and letters.index("t") < letters.index("h"))


def to_layout(array: Array, layout: str) -> Array:
    """Convert heads `[b h t d]` to a layout; if it has no batch or head axis, keep the first example or head."""
    letters = split_letters(layout)
    chosen = array[tuple(slice(None) if letter in letters else 0 for letter in "bhtd")]
    letters_left = [letter for letter in "bhtd" if letter in letters]
    transposed = chosen.transpose([letters_left.index(letter) for letter in letters])
    sizes = dict(zip(letters, transposed.shape, strict=True))
    merged_sizes = [math.prod(sizes[part] for part in MERGED_AXES.get(letter, letter)) for letter in layout]
    return np.array(transposed.reshape(merged_sizes), order="C")


def from_layout(array: Array, layout: str, heads: int) -> Array:
    """Convert an output to `[b h t e]`.

    If its axes do not fit the layout, return an array that is not 4-dimensional, so that it matches nothing.
    """
    letters = split_letters(layout)
    merged_sizes = [size for letter, size in zip(layout, array.shape, strict=False) if letter in "mn"]
    if array.ndim != len(layout) or any(size % heads for size in merged_sizes):
        return array[None] if array.ndim == len("bhtd") else array
    split_sizes: list[int] = []
    for letter, size in zip(layout, array.shape, strict=True):
        split_sizes += {"m": (heads, size // heads), "n": (size // heads, heads)}.get(letter, (size,))
    transposed = array.reshape(split_sizes).transpose([letters.index(letter) for letter in "bhtd" if letter in letters])
    return np.expand_dims(transposed, tuple(axis for axis, letter in enumerate("bhtd") if letter not in letters))


def layouts_of_answer(array: Array, shape: Shape, likeliest: str) -> Iterator[str]:
    """Yield the layouts in which an array can be read as `[b h t e]` of this `shape`, `likeliest` first.

    The last axis must be d or m: a transposed output is wrong.
    """
    for layout in dict.fromkeys(
        (likeliest, *(layout for layout in (*KNOWN_LAYOUTS, *OUTPUT_LAYOUTS) if layout[-1] in "dm"))
    ):
        if len(layout) == array.ndim and from_layout(array, layout, shape[1]).shape == shape:
            yield layout


def format_axes(layout: str) -> str:
    return " ".join({"m": "h*d", "n": "b*h"}.get(letter, letter) for letter in layout)


# Mask formats

KINDS = ("booleans", "ones and zeros", "integers", "added")
AXES = ("t s", "b 1 t s", "b t s", "b h t s", "b*h t s")
OF_KEYS = ("b s", "b 1 1 s", "b 1 s")
"""Axes of masks that all queries share."""
LOWEST, ADDED = -np.inf, -1e9
"""Values of hidden keys in additive masks: -inf always hides, -1e9 is the most common."""
MISSING_ATTRIBUTE = re.compile(r"has no attribute '(\w*mask\w*)'")
"""The error message of code that expects an object with the mask as an attribute."""
KIND_TEXTS = {"booleans": "", "added": "additive masks", "ones and zeros": "masks of ones and zeros",
         "integers": "integer masks"}  # fmt: skip


@dataclass(frozen=True)
class Masking:
    """One way to write a boolean mask as the argument of a function.

    - `kind`: one of `KINDS`. "added" is 0 where a query may attend and `lowest` elsewhere; "ones and zeros" are floats.
    - `axes`: the axes of a mask that all examples and heads share, one of `AXES` or `OF_KEYS`.
    - `neutral`: what to pass if nothing is hidden: the "mask" itself, "none" for None, or "turned" for its inverse.
    - `attribute`: if not empty, wrap the mask in an object with this attribute.
    - `opposite`: the function takes two masks, and this one has the opposite polarity of the other.
    """

    kind: str = "booleans"
    axes: str = "t s"
    neutral: str = "mask"
    attribute: str = ""
    lowest: float = LOWEST
    opposite: bool = False

    def write(self, mask: Array, setup: Setup, blocks: bool = False) -> Any:
        """Write a mask `[t s]` or `[b h t s]` in this format; with `blocks`, True means hidden."""
        if self.opposite:
            mask, blocks = ~mask, not blocks
        allowed = ~mask if blocks else mask
        if self.neutral != "mask" and allowed.all():
            if self.neutral == "none":
                return None
            allowed, mask = ~allowed, ~mask  # "turned"
        if self.kind == "added":
            return np.where(self.arrange(allowed, setup), 0.0, self.lowest)
        dtypes = {"booleans": np.bool_, "integers": np.int64, "ones and zeros": np.float64}
        return self.arrange(mask, setup).astype(dtypes[self.kind])

    def arrange(self, mask: Array, setup: Setup) -> Array:
        """Return a mask with the axes of this format.

        With "t s", "b 1 t s" and "b t s", a mask that differs between heads keeps its batch and head axes.
        """
        if self.axes == "t s":
            return mask
        full = np.ascontiguousarray(np.broadcast_to(mask, (setup.batch, setup.heads, setup.rows, setup.keys)))
        is_individual = mask.shape[:-2] == (setup.batch, setup.heads)
        arranged: dict[str, Array] = {
            "b h t s": full, "b*h t s": full.reshape(-1, setup.rows, setup.keys),
            "b 1 t s": full if is_individual else full[:, :1], "b t s": full if is_individual else full[:, 0],
            "b s": full[:, 0, 0], "b 1 s": full[:, 0, :1], "b 1 1 s": full[:, :1, :1],
        }  # fmt: skip
        return arranged[self.axes]

    def wrap(self, mask: Any) -> Any:
        return SimpleNamespace(**{self.attribute: mask}) if self.attribute and mask is not None else mask

    def like(self, other: Masking) -> Masking:
        """Return this format with the `neutral` and `attribute` of another format of the same function."""
        return replace(self, neutral=other.neutral, attribute=other.attribute)

    def __str__(self) -> str:
        return f"{KIND_TEXTS[self.kind] or 'masks'} [{self.axes}]" if self.axes != "t s" else KIND_TEXTS[self.kind]


def attribute_of(error: str) -> str:
    """Return the mask attribute that an error reports as missing, or an empty string."""
    return next(iter(MISSING_ATTRIBUTE.findall(error)), "")


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
    """True if the window has as many keys on the right as on the left; False if it has none on the right."""


KEYS_WITH_OWN = WindowCount(1, 1, both_sides=False)
"""A window of keys before the query, passed as the number of its keys, including the query's own."""
KEYS_ON_EACH_SIDE = WindowCount(1, 0, both_sides=True)
"""A window on both sides, passed as the number of keys on each side."""
WINDOWS = (None, KEYS_WITH_OWN, WindowCount(1, 1, both_sides=True), KEYS_ON_EACH_SIDE,
           WindowCount(2, 0, both_sides=True), WindowCount(2, 1, both_sides=True))  # fmt: skip
"""Values of `Offer.counted` to try, the likeliest first."""


@dataclass(frozen=True)
class Offer:
    """What a function takes: q, k and v if `core`, else x and a layer's weight matrices.

    - `parameters`: the function's own parameter name for each role.
    - `positional`: which of these parameters are positional-only.
    - `defaults`: the function's defaults by role.
    - `description`: lists the other arguments.
    - `only_if_right`: the names do not say which arguments are the arrays, or how they are stored. A wrong answer may
      then come from a wrong guess, so only a right answer counts.
    - `divides`: scores are divided by the scale argument, not multiplied.
    - `counted`: how a window is written as one number; None if it is passed as a pair `(left, right)`.
    """

    core: bool
    parameters: Mapping[str, str]
    positional: tuple[str, ...]
    defaults: Mapping[str, Any]
    description: str = ""
    only_if_right: bool = False
    divides: bool = False
    counted: WindowCount | None = None

    def takes(self, role: str) -> bool:
        return role in self.parameters

    def as_padding(self) -> Offer:
        """Return the offer with the mask argument treated as a padding mask."""
        parameters = {"padding" if role == "mask" else role: name for role, name in self.parameters.items()}
        defaults = {"padding" if role == "mask" else role: value for role, value in self.defaults.items()}
        return replace(self, parameters=parameters, defaults=defaults)


def plain_default(default: Any) -> Any:
    """Return a default if it is a plain value, else `...`, which only records that a default exists."""
    return default if default is None or isinstance(default, bool | int | float | str | tuple | np.generic) else ...


# A case as keyword arguments. A rule without a keyword is not passed: the function must apply it by itself.

SCORE_KEYWORDS: dict[type, tuple[str, Callable[[Any, Setup], Any]]] = {
    Softcap: ("softcap", lambda rule, setup: float(rule.cap)),
    Alibi: ("alibi", lambda rule, setup: np.array(slopes(setup.heads))),
    Sink: (
        "sinks",
        lambda rule, setup: np.broadcast_to(np.ravel(np.asarray(rule.logit, np.float64)), (setup.heads,)).copy(),
    ),
    Added: ("added", lambda rule, setup: np.asarray(rule.values, np.float64)),
}
"""For each score rule, the role of its keyword, and a function that computes the value to pass."""
EXACT_KEYWORDS: dict[type, str] = {Causal: "causal", Window: "window", Padding: "lengths"}
"""For each of these masks, the role of the keyword that requests exactly this mask."""


def for_case(case: Case, offer: Offer, request: Request, splits_heads: bool = False) -> dict[str, Any]:
    """Return the keyword arguments of a case by role; `splits_heads`: the function splits the heads itself."""
    setup = setup_of(case)
    return {
        **neutral_arguments(setup, offer, request),
        **mask_arguments(case.recipe, setup, offer, request),
        **score_arguments(case.recipe, setup, offer),
        **head_arguments(case, setup, offer, splits_heads or case.given.x is not None),
    }


def neutral_arguments(setup: Setup, offer: Offer, request: Request) -> dict[str, Any]:
    """Return values that hide nothing, for masks without a default and for a causal flag that is on by default.

    Masks of the case replace these values.
    """
    neutral: dict[str, Any] = {
        "lengths": np.full(setup.batch, setup.keys, np.int64),
        "mask": np.full((setup.rows, setup.keys), not request.blocks),
        "padding": np.full((setup.batch, setup.keys), not request.blocks),
        "query_padding": np.full((setup.batch, setup.rows), not request.blocks),
        "causal": False,
        "window": count_keys(setup.rows + setup.keys, offer.counted) if offer.counted else (setup.keys, setup.keys),
    }
    needed = {role for role in neutral if offer.takes(role) and role not in offer.defaults}
    needed |= {"causal"} if offer.defaults.get("causal") is True else set()
    return {role: value for role, value in neutral.items() if role in needed}


def setup_of(case: Case) -> Setup:
    """Return the rules and sizes of a case as the `Setup` that steps of attention take."""
    recipe, given = case.recipe, case.given
    if given.x is not None:
        batch, rows, width = given.x.shape
        size = given.arrays["W_q"].shape[1] // recipe.heads
        keys = rows if given.memory is None else given.memory.shape[1]
        return Setup(recipe.rules, batch, recipe.heads, recipe.groups, rows, keys, size, width)
    assert given.q is not None and given.k is not None
    batch, heads, rows, size = given.q.shape
    return Setup(recipe.rules, batch, heads, given.k.shape[1], rows, given.k.shape[2], size, heads * size)


def mask_arguments(recipe: Recipe, setup: Setup, offer: Offer, request: Request) -> dict[str, Any]:
    """Return the values for the masks of a recipe by role; "mask" combines all masks without a keyword of their own."""
    arguments: dict[str, Any] = {}
    remaining: list[Mask] = []
    for mask in recipe.rules.masks:
        exact_role = EXACT_KEYWORDS.get(type(mask), "")
        if exact_role and offer.takes(exact_role) and exact_role not in arguments:
            arguments[exact_role] = find_exact_value(mask, offer, setup)
        elif isinstance(mask, Padding | Filler) and offer.takes("padding"):
            arguments["padding"] = find_visible_keys(mask, setup) ^ request.blocks
        else:
            remaining.append(mask)
    if remaining and offer.takes("mask"):
        arguments["mask"] = join_masks(remaining, setup, request)
    return arguments


def find_exact_value(mask: Mask, offer: Offer, setup: Setup) -> Any:
    """Return the value of a keyword that requests exactly this mask."""
    if isinstance(mask, Window):
        return count_keys(mask.left, offer.counted) if offer.counted else (mask.left, mask.right)
    if isinstance(mask, Padding):
        return np.broadcast_to(np.ravel(mask.lengths), (setup.batch,)).astype(np.int64)
    return True


def count_keys(left: int, counted: WindowCount) -> int:
    return left * counted.factor + counted.own


def find_visible_keys(mask: Padding | Filler, setup: Setup) -> Array:
    """Return which keys a padding mask leaves visible, `[b s]`."""
    allowed = steps.allowed(replace(setup, rules=setup.rules.__class__(masks=(mask,))))
    return np.broadcast_to(allowed[:, 0, 0], (setup.batch, setup.keys)).copy()


def join_masks(masks: list[Mask], setup: Setup, request: Request) -> Array:
    """Combine masks into one boolean mask: `[t s]` if batch and heads share it, else with axes for them."""
    rules = setup.rules.__class__(masks=tuple(masks), offset=setup.rules.offset)
    allowed = steps.allowed(replace(setup, rules=rules))
    return (allowed[0, 0] if allowed.shape[:2] == (1, 1) else allowed) ^ request.blocks


def score_arguments(recipe: Recipe, setup: Setup, offer: Offer) -> dict[str, Any]:
    supported = [(*SCORE_KEYWORDS[type(rule)], rule) for rule in recipe.rules.scores if type(rule) in SCORE_KEYWORDS]
    return {role: make_value(rule, setup) for role, make_value, rule in supported if offer.takes(role)}


def head_arguments(case: Case, setup: Setup, offer: Offer, splits_heads: bool) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for role, count in (("heads", case.recipe.heads), ("kv_heads", case.recipe.groups)):
        if offer.takes(role) and (splits_heads or role not in offer.defaults):
            arguments[role] = count
    if offer.takes("shared") and setup.groups != setup.heads:
        arguments["shared"] = True
    if offer.takes("scale") and (case.explicit_scale or "scale" not in offer.defaults):
        scale = float(case.recipe.rules.scale)
        arguments["scale"] = 1 / scale if offer.divides else scale
    if offer.takes("dropout") and offer.defaults.get("dropout", 0.0) is not None:
        arguments["dropout"] = 0.0
    return arguments
