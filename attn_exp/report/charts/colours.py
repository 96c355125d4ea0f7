"""Maps of colours: from a share of the largest to the red, green and blue of a screen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attn_exp.arrays import Array

Bytes = NDArray[np.uint8]

ANCHORS = {
    "Blues": "f7fbff deebf7 c6dbef 9ecae1 6baed6 4292c6 2171b5 08519c 08306b",
    "Oranges": "fff5eb fee6ce fdd0a2 fdae6b fd8d3c f16913 d94801 a63603 7f2704",
}
"""Nine colours each, evenly apart. Source: Brewer's "Blues" and "Oranges" of nine classes, colorbrewer2.org."""

SHADES = 256


def palette(name: str) -> Bytes:
    """Return the 256 colours `[c 3]` of a map, as Matplotlib's map of that name has them.

    Between two anchors colours lie on a straight line, and bytes are cut off, not rounded.
    """
    anchors = np.array([tuple(bytes.fromhex(colour)) for colour in ANCHORS[name].split()]) / 255
    ends, places = ((SHADES - 1) * np.linspace(0, 1, count) for count in (len(anchors), SHADES))
    above = np.maximum(1, np.searchsorted(ends, places))
    parts = (places - ends[above - 1]) / (ends[above] - ends[above - 1])
    colours = parts[:, None] * (anchors[above] - anchors[above - 1]) + anchors[above - 1]
    return np.asarray(colours * 255).astype(np.uint8)


def shades(matrix: Array, end: float, gamma: float) -> NDArray[np.uint8]:
    """Return which of the 256 colours each number of a matrix has; below 0 the first, beyond the end the last."""
    shares = np.clip(np.nan_to_num(matrix / end, posinf=0, neginf=0), 0, 1) ** gamma
    return np.minimum(shares * SHADES, SHADES - 1).astype(np.uint8)
