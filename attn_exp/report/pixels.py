"""Draw matrices as small PNG pictures without a plotting library, in shades of one colour or in a colour map."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from attn_exp.arrays import Array

Bytes = NDArray[np.uint8]

INK, GREY = bytes((43, 124, 192)), bytes((128, 128, 128))
FULL = 0.85
"""Opacity of the largest weight in tables and pictures; it is below 1, so that a number on it stays readable."""
VEIL = 70
"""Opacity of the grey of masked weights, out of 255."""
FEW = 256
"""Up to this many pixels, a picture is shorter if it stores the colour of each pixel instead of a palette."""
MASKED = "#d0d0d0"
"""The grey of masked cells in a colour map."""
SIDE = 256
"""Maximum number of pixels per side; a larger matrix is averaged over blocks."""


def picture_url(matrix: Array, shares: Callable[[Array], Array], is_masked: Array | None = None) -> str:
    """Return the `data:` URL of a picture of weights `[t s]`.

    `shares` maps weights to opacities from 0 to 1. Masked cells are grey; `is_masked` is None if there are none.
    """
    opacity = (255 * FULL * shares(average_blocks(matrix))).round().astype(np.uint8)
    if is_masked is not None:
        opacity = np.where(average_blocks(is_masked.astype(float)) == 1, 0, opacity.clip(1)).astype(np.uint8)
    data = encode_opacities(opacity, 0 if is_masked is None else VEIL)
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def average_blocks(matrix: Array, side: int = SIDE) -> Array:
    """Return a matrix averaged over blocks of nearly equal size, so that it has at most `side` rows and columns."""
    for axis in (0, 1):
        length = matrix.shape[axis]
        if length > side:
            edges = np.linspace(0, length, side + 1).round().astype(int)
            sums = np.add.reduceat(matrix, edges[:-1], axis=axis)
            matrix = sums / np.expand_dims(np.diff(edges), 1 - axis)
    return matrix


def encode_opacities(opacity: Bytes, veil: int = 0) -> bytes:
    """Return a PNG of opacities `[height width]` of one colour, from 1 to 255; 0 is grey with the opacity `veil`."""
    if opacity.size <= FEW:
        colours = np.array([[*GREY, veil], *([*INK, level] for level in range(1, 256))], np.uint8)
        return encode_png(colours[opacity])
    return encode_png(opacity[:, :, None], ((b"PLTE", GREY + INK * 255), (b"tRNS", bytes((veil, *range(1, 256))))))


def colour_cells(matrix: Array, end: float, gamma: float, colours: str, is_masked: Array | None = None) -> Bytes:
    """Return the colours of numbers as pixels `[row column 4]`; NaN is transparent, and masked numbers are grey."""
    opacity = 255 * np.isfinite(matrix)[:, :, None].astype(np.uint8)
    pixels = np.concatenate([palette(colours)[palette_indices(matrix, end, gamma)], opacity], axis=2)
    if is_masked is not None:
        pixels[is_masked] = tuple(bytes.fromhex(f"{MASKED[1:]}ff"))
    return pixels


def encode_png(pixels: Bytes, palette_chunks: Sequence[tuple[bytes, bytes]] = ()) -> bytes:
    """Return pixels `[height width byte]` as a PNG.

    A pixel of several bytes is a colour. A pixel of one byte is an index into the palette that `palette_chunks` has.

    Source: W3C, "Portable Network Graphics (PNG) Specification", third edition, sections 5 and 11.
    """
    height, width, size = pixels.shape
    filtered_rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, width * size)], axis=1)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, {1: 3, 3: 2, 4: 6}[size], 0, 0, 0)),
        *palette_chunks,
        (b"IDAT", zlib.compress(filtered_rows.tobytes(), 6)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*part) for part in chunks)


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


ANCHORS = {
    "Blues": "f7fbff deebf7 c6dbef 9ecae1 6baed6 4292c6 2171b5 08519c 08306b",
    "Oranges": "fff5eb fee6ce fdd0a2 fdae6b fd8d3c f16913 d94801 a63603 7f2704",
    "cividis": "00224e 002d68 163770 2e416d 3f4c6c 4e566c 5c616e 696b71 767676 "
    "838179 928c78 a09875 afa471 bfb06b cfbd62 dfca57 f0d846 fee838",
}
"""Evenly spaced colours of each map. Sources: Brewer's "Blues" and "Oranges" of nine classes, colorbrewer2.org; Nuñez,
Anderton and Renslow, "Optimizing colormaps with consideration for color vision deficiency", PLoS ONE 13 (2018)."""

SHADES = 256


def palette(name: str) -> Bytes:
    """Return the 256 colours `[c 3]` of a map, equal to Matplotlib's map of that name.

    Colours between two anchors are interpolated linearly, and bytes are truncated, not rounded.
    """
    anchors = np.array([tuple(bytes.fromhex(colour)) for colour in ANCHORS[name].split()]) / 255
    ends, positions = ((SHADES - 1) * np.linspace(0, 1, count) for count in (len(anchors), SHADES))
    right = np.maximum(1, np.searchsorted(ends, positions))
    fractions = (positions - ends[right - 1]) / (ends[right] - ends[right - 1])
    colours = fractions[:, None] * (anchors[right] - anchors[right - 1]) + anchors[right - 1]
    return np.asarray(colours * 255).astype(np.uint8)


def palette_indices(matrix: Array, end: float, gamma: float) -> Bytes:
    """Return the palette index of each number in a matrix, clipped to the range from 0 to `end`."""
    strengths = np.clip(np.nan_to_num(matrix / end, posinf=0, neginf=0), 0, 1) ** gamma
    return np.minimum(strengths * SHADES, SHADES - 1).astype(np.uint8)
