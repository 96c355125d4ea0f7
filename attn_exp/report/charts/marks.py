"""The shapes of marks, each one size across, as Matplotlib draws them."""

from __future__ import annotations

HALF = 0.5
ARM = 1 / 6
TURNED = 0.5**0.5

POLYGONS: dict[str, tuple[tuple[float, float], ...]] = {
    "s": ((-HALF, -HALF), (HALF, -HALF), (HALF, HALF), (-HALF, HALF)),
    "D": ((0, -TURNED), (TURNED, 0), (0, TURNED), (-TURNED, 0)),
    "^": ((0, -HALF), (HALF, HALF), (-HALF, HALF)),
    "v": ((0, HALF), (HALF, -HALF), (-HALF, -HALF)),
    "P": (
        (-ARM, -HALF), (ARM, -HALF), (ARM, -ARM), (HALF, -ARM), (HALF, ARM), (ARM, ARM),
        (ARM, HALF), (-ARM, HALF), (-ARM, ARM), (-HALF, ARM), (-HALF, -ARM), (-ARM, -ARM),
    ),
    "X": (
        (-HALF / 2, -HALF), (0, -HALF / 2), (HALF / 2, -HALF), (HALF, -HALF / 2), (HALF / 2, 0), (HALF, HALF / 2),
        (HALF / 2, HALF), (0, HALF / 2), (-HALF / 2, HALF), (-HALF, HALF / 2), (-HALF / 2, 0), (-HALF, -HALF / 2),
    ),
}  # fmt: skip
"""Corners, with y downwards; the circle `o` has none."""


def outline(mark: str, size: float) -> str:
    """Return the path of a mark, `size` points across, around the point 0 0."""
    if mark == "o":
        half = size / 2
        return f"M{-half:g} 0A{half:g} {half:g} 0 1 1 {half:g} 0A{half:g} {half:g} 0 1 1 {-half:g} 0Z"
    return "M" + "L".join(f"{x * size:.3g} {y * size:.3g}" for x, y in POLYGONS[mark]) + "Z"
