"""Small pictures without a plotting library: a matrix of weights as a PNG whose opacity is the weight."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from attn_exp.arrays import Array
from attn_exp.report.charts.chart import CLOSED

INK, GREY = bytes((43, 124, 192)), bytes((128, 128, 128))
FULL = 0.85
"""How opaque the ink of the largest weight is, in tables and pictures alike: numbers stay readable on it."""
VEIL = 70
"""How opaque the grey of masked places is, of 255."""
SIDE = 256
"""A picture has at most this many pixels a side; each then stands for the mean of its neighbours."""


def picture(matrix: Array, shares: Callable[[Array], Array], closed: Array | None = None) -> str:
    """Return weights `[t s]` as the address of a picture: a pixel's opacity is the strength of its colour.

    `shares` says from 0 to 1 how strong it is. Places that are `closed` are grey.
    """
    opacity = (255 * FULL * shares(coarse(matrix))).round().astype(np.uint8)
    if closed is not None:
        opacity = np.where(coarse(closed.astype(float)) == 1, 0, opacity.clip(1)).astype(np.uint8)
    return "data:image/png;base64," + base64.b64encode(png(opacity, VEIL if closed is not None else 0)).decode()


def coarse(matrix: Array, side: int = SIDE) -> Array:
    """Return the means over equal runs of rows and columns, at most `side` of each."""
    for axis in (0, 1):
        length = matrix.shape[axis]
        if length > side:
            edges = np.linspace(0, length, side + 1).round().astype(int)
            sums = np.add.reduceat(matrix, edges[:-1], axis=axis)
            matrix = sums / np.expand_dims(np.diff(edges), 1 - axis)
    return matrix


def png(opacity: NDArray[np.uint8], veil: int = 0) -> bytes:
    """Encode a picture `[height width]` in one colour of 256 opacities, the least of which is grey behind a veil."""
    return encoded(opacity[:, :, None], ((b"PLTE", GREY + INK * 255), (b"tRNS", bytes((veil, *range(1, 256))))))


def coloured(
    places: NDArray[np.uint8], palette: NDArray[np.uint8], visible: NDArray[np.bool_], closed: Array | None = None
) -> bytes:
    """Encode a picture `[height width]` of places in a palette `[c 3]`.

    What is not visible is clear, and what a mask has closed is grey.
    """
    if visible.all() and closed is None:
        return encoded(places[:, :, None], ((b"PLTE", palette.tobytes()),))
    shown = palette[places]
    if closed is not None:
        shown[closed] = tuple(bytes.fromhex(CLOSED[1:]))
    return encoded(np.concatenate([shown, 255 * visible[:, :, None].astype(np.uint8)], axis=2))


def encoded(pixels: NDArray[np.uint8], before: Sequence[tuple[bytes, bytes]] = ()) -> bytes:
    """Encode pixels `[height width byte]`: one byte is a place in the palette `before` them, four are a colour.

    Source: W3C, "Portable Network Graphics (PNG) Specification", third edition, sections 5 and 11.
    """
    height, width, size = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, width * size)], axis=1)
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3 if size == 1 else 6, 0, 0, 0)),
        *before,
        (b"IDAT", zlib.compress(lines.tobytes(), 6)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
