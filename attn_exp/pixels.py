"""Small pictures without a plotting library: a matrix of weights as a PNG whose opacity is the weight."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

INK = (0, 114, 178)


def picture(matrix: NDArray[Any], top: float) -> str:
    """Return a matrix `[t s]` as the address of a picture, one pixel per number, opaque at `top` and clear at 0."""
    opacity = np.clip(255 * matrix / top, 0, 255).round().astype(np.uint8)
    pixels = np.empty((*opacity.shape, 4), np.uint8)
    pixels[..., :3], pixels[..., 3] = INK, opacity
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Encode RGBA pixels `[height width 4]`. Source: W3C, "Portable Network Graphics", third edition, section 5."""
    height, width = pixels.shape[:2]
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    head = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
