"""Whether so many explanations were tried on so few digits that one of them would fit by chance."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attn_exp.diagnosis.boxes import Box
from attn_exp.diagnosis.suspects import Made
from attn_exp.diagnosis.worksheet import Sheet, part

Array = NDArray[np.float64]
SPARE = 5.0
"""Bits that numbers must tell beyond those that the choice among explanations takes: 1 in 32 fits by chance."""


def by_chance(sheet: Sheet, known: Sequence[Made], tried: int) -> bool:
    """Say whether numbers tell too little to choose among so many explanations.

    A cell tells `log2(spread / rounding)` bits, its spread being that of the middle four fifths of what the candidates
    would write there. Boxes follow from one another, so the one that tells most counts.
    """
    amounts = (
        bits(box, [array for made in known if (array := part(made.stages, box)) is not None]) for box in sheet.boxes
    )
    return max(amounts, default=0.0) < math.log2(max(tried, 1)) + SPARE


def bits(box: Box, arrays: Sequence[Array]) -> float:
    """Return how much the given cells of a box tell, in bits."""
    fitting = [np.where(np.isfinite(array), array, 0.0) for array in arrays if array.shape == box.values.shape]
    if not fitting:
        return 0.0
    low, high = np.quantile(np.stack(fitting), [0.1, 0.9], axis=0)
    width = np.maximum(2 * box.halves, 1e-12)
    return float(np.log2(np.maximum((high - low) / width, 1.0)).sum(where=box.given))
