"""In which order the axes of queries, keys and values lie: into an order of letters, and back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from attn_exp.arrays import Array

LAYOUTS = ("bhtd", "bthd", "htd", "td", "btm")
"""The usual ones: b batch, h heads, t tokens, d numbers of a head, m the numbers of all heads side by side."""
RARE = ("tbhd", "thd", "tbd", "btd", "ntd", "tbm", "tm", "bhdt", "hdt", "bdt", "bmt", "ndt", "bd1t",
        "btdh1")  # fmt: skip
"""Those that are tried where none of the usual ones is right; n is the heads of all entries, one after the other.

The last are those of images: of one whose points are tokens, in one row, and of several in a row, where each point
asks those at its own place and so counts as a head.
"""
WIDE = "btm"
"""The layout of those who split heads themselves, by a keyword that says how many there are."""
KNOWN = (*LAYOUTS, *RARE)
LISTED = ("hbtd",)
"""Those of answers alone: a list of heads."""
JOINED = {"m": "hd", "n": "bh", "1": ""}
"""Letters that stand for two axes in one, or for none."""


def spread(layout: str) -> str:
    """Return a layout with a letter for each axis."""
    return "".join(JOINED.get(letter, letter) for letter in layout)


def has_batch(layout: str) -> bool:
    """Say whether a layout has entries of a batch."""
    return "b" in spread(layout)


def has_heads(layout: str) -> bool:
    """Say whether a layout has heads."""
    return "h" in spread(layout)


def is_joined(layout: str) -> bool:
    """Say whether the numbers of all heads lie side by side."""
    return "m" in layout


def cuts_heads(layout: str) -> bool:
    """Say whether the heads of a token lie beside each other: then a function cuts them itself, or turns them."""
    letters = spread(layout)
    return is_joined(layout) or ("h" in letters and letters.index("t") < letters.index("h"))


def laid(array: Array, layout: str) -> Array:
    """Return heads `[b h t d]` in another layout; without a letter for them the first entry, or the first head."""
    letters = spread(layout)
    chosen = array[tuple(slice(None) if letter in letters else 0 for letter in "bhtd")]
    kept = [letter for letter in "bhtd" if letter in letters]
    turned = chosen.transpose([kept.index(letter) for letter in letters])
    sizes = dict(zip(letters, turned.shape, strict=True))
    laid_out: Array = turned.reshape([math.prod(sizes[one] for one in JOINED.get(letter, letter)) for letter in layout])
    return laid_out.copy()


def unlaid(array: Array, layout: str, sizes: Mapping[str, int]) -> Array:
    """Return an answer as `[b h t e]`; `sizes` says how many entries and heads there are.

    One that has other axes than the layout comes back with an axis more, so that it is the right answer of nobody.
    """
    heads, letters = sizes["h"], spread(layout)
    joined = [size for letter, size in zip(layout, array.shape, strict=False) if letter in "mn"]
    ones = [size for letter, size in zip(layout, array.shape, strict=False) if letter == "1"]
    if array.ndim != len(layout) or any(size % heads for size in joined) or any(size != 1 for size in ones):
        return array[None] if array.ndim == len("bhtd") else array
    split = [
        part
        for letter, size in zip(layout, array.shape, strict=True)
        for part in {"m": (heads, size // heads), "n": (size // heads, heads), "1": ()}.get(letter, (size,))
    ]
    turned = array.reshape(split).transpose([letters.index(letter) for letter in "bhtd" if letter in letters])
    for place, letter in enumerate("bhtd"):
        turned = turned if letter in letters else np.expand_dims(turned, place)
    return turned


def layouts_of_answer(array: Array, shape: tuple[int, ...], first: str, turned: bool) -> Iterator[str]:
    """Yield the layouts in which an array has the shape `[b h t e]` that an answer must have; `first` is likeliest.

    Numbers of a token lie last, unless those that were given lie otherwise, or may (`turned`): an answer that is
    transposed is a wrong one.
    """
    heads = {"h": shape[1]}
    for layout in dict.fromkeys((first, *(one for one in (*KNOWN, *LISTED) if turned or one[-1] in "dm"))):
        if len(layout) == array.ndim and unlaid(array, layout, heads).shape == shape:
            yield layout


def axes(layout: str) -> str:
    """Return a layout's axes, as people write them."""
    return " ".join({"m": "h*d", "n": "b*h"}.get(letter, letter) for letter in layout)
