"""Axis layouts of queries, keys and values: convert `[b h t d]` to a layout and back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from attn_exp.arrays import Array, Shape

LAYOUTS = ("bhtd", "bthd", "htd", "td", "btm")
"""The usual layouts: b batch, h heads, t tokens, d numbers of a head, m all heads concatenated (h*d)."""
RARE = ("tbhd", "thd", "tbd", "btd", "ntd", "tbm", "tm", "bhdt", "hdt", "bdt", "bmt", "ndt")
"""Layouts that are tried if no usual one is right; n is batch and heads in one axis (b*h)."""
WIDE = "btm"
"""The layout of functions that split heads themselves and take the number of heads."""
KNOWN = (*LAYOUTS, *RARE)
LISTED = ("hbtd",)
"""Layouts of outputs only: a list of heads."""
JOINED = {"m": "hd", "n": "bh"}
"""Letters that stand for two axes in one."""


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


def laid(array: Array, layout: str) -> Array:
    """Convert heads `[b h t d]` to a layout; without a batch or head axis, keep the first entry or head."""
    letters = spread(layout)
    chosen = array[tuple(slice(None) if letter in letters else 0 for letter in "bhtd")]
    kept = [letter for letter in "bhtd" if letter in letters]
    turned = chosen.transpose([kept.index(letter) for letter in letters])
    sizes = dict(zip(letters, turned.shape, strict=True))
    laid_out: Array = turned.reshape([math.prod(sizes[one] for one in JOINED.get(letter, letter)) for letter in layout])
    return laid_out.copy()


def unlaid(array: Array, layout: str, sizes: Mapping[str, int]) -> Array:
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
    """Yield the layouts in which an array converts to `shape`, `[b h t e]`; `first` is the likeliest.

    The last axis must be d or m: a transposed output is wrong.
    """
    heads = {"h": shape[1]}
    for layout in dict.fromkeys((first, *(one for one in (*KNOWN, *LISTED) if one[-1] in "dm"))):
        if len(layout) == array.ndim and unlaid(array, layout, heads).shape == shape:
            yield layout


def axes(layout: str) -> str:
    return " ".join({"m": "h*d", "n": "b*h"}.get(letter, letter) for letter in layout)
