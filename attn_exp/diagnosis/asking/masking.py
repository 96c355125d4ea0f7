"""How a function expects its mask: as booleans, ones and zeros or additive, and with which axes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms.pipeline import At

KINDS = ("booleans", "ones and zeros", "integers", "added")
AXES = ("t s", "b 1 t s", "b t s", "b h t s", "b*h t s")
OF_KEYS = ("b s", "b 1 1 s", "b 1 s")
"""Axes of masks that all queries share."""
LOWEST, ADDED = -np.inf, -1e9
"""Values of hidden keys in additive masks: -inf always hides, -1e9 is what most people use."""
WANTED = re.compile(r"has no attribute '(\w*mask\w*)'")
"""Raised by code that expects an object with the mask as an attribute."""
WORDS = {"booleans": "", "added": "masks added", "ones and zeros": "masks of ones and zeros",
         "integers": "masks of whole numbers"}  # fmt: skip


@dataclass(frozen=True)
class Masking:
    """One way to write a boolean mask as the argument of a function.

    `kind`: "added" is 0 where a query may attend and `lowest` elsewhere; "ones and zeros" is `highest` and 0 as floats.
    `axes` are those of a mask that batch and heads share. `neutral`: what to pass if nothing is hidden: the mask, None,
    or the inverted mask. `attribute`: wrap the mask in an object with this attribute. `opposite`: this mask has the
    opposite polarity of the other one in the same call.
    """

    kind: str = "booleans"
    axes: str = "t s"
    neutral: str = "mask"
    attribute: str = ""
    lowest: float = LOWEST
    highest: float = 1.0
    opposite: bool = False

    def write(self, mask: Array, at: At, blocks: bool = False) -> Any:
        """Write a mask `[t s]` or `[b h t s]` in this form; `blocks`: True means hidden."""
        if self.opposite:
            mask, blocks = ~mask, not blocks
        seen = ~mask if blocks else mask
        if self.neutral != "mask" and seen.all():
            if self.neutral == "none":
                return None
            seen, mask = ~seen, ~mask
        if self.kind == "added":
            return np.where(self.laid(seen, at), 0.0, self.lowest)
        laid: Array = self.laid(mask, at)
        if self.kind == "ones and zeros":
            return np.where(laid, self.highest, 0.0)
        return laid.astype(np.int64 if self.kind == "integers" else np.bool_)

    def laid(self, mask: Array, at: At) -> Array:
        """Return a mask with these axes; one that varies over more axes keeps its own."""
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

    def held(self, mask: Any) -> Any:
        return SimpleNamespace(**{self.attribute: mask}) if self.attribute and mask is not None else mask

    def like(self, other: Masking) -> Masking:
        return replace(self, neutral=other.neutral, attribute=other.attribute)

    def __str__(self) -> str:
        said = WORDS[self.kind]
        return f"{said or 'masks'} [{self.axes}]" if self.axes != "t s" else said


def attribute_of(error: str) -> str:
    found = WANTED.search(error)
    return found[1] if found else ""


def whole(mask: Array, at: At) -> Array:
    """Broadcast a mask to `[b h t s]`."""
    full = np.broadcast_to(mask, (at.batch, at.heads, at.rows, at.keys))
    return np.ascontiguousarray(full)


MASKINGS = tuple(Masking(kind, axes) for axes, kind in product(AXES, KINDS))
"""Every way to write a mask of queries and keys, the likeliest first."""
PADDINGS = tuple(Masking(kind, axes) for axes, kind in product((*OF_KEYS, "b 1 t s"), KINDS))
"""Every way to write a mask of keys alone."""
