"""Harmless variations in right numbers: steps done early, logits shifted, or intermediate rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.sheets.boxes import TURNED, Box
from attn_exp.diagnosis.sheets.worksheet import Sheet, rounded, stages
from attn_exp.forms.pipeline import Recipe, Step

LOGITS = ("scores", "logits", "capped", "masked")


@dataclass(frozen=True, eq=False)
class Reading:
    """An equivalent computation or notation: the boxes, the recipe, and the remark on it."""

    sheet: Sheet
    recipe: Recipe
    remark: str


def other_readings(sheet: Sheet) -> Iterator[Reading]:
    yield from rename_scores(sheet)
    yield from scale_early(sheet)
    yield from shift_logits(sheet)
    digits = fewest_digits(sheet)
    if digits is not None:
        remark = f"every step is rounded to {digits} decimals, and the next continues from that"
        yield Reading(sheet, rounded(sheet.right, digits), remark)


def scale_early(sheet: Sheet) -> Iterator[Reading]:
    factor = sheet.settled.multiplier
    if factor == 1 or factor <= 0:
        return
    powers = (("q", 1.0, 0.0), ("k", 0.0, 1.0), ("q and k, half on each", 0.5, 0.5))
    for name, query, key in powers:
        recipe = sheet.right
        place = times(recipe.place, {"q": factor**query, "k": factor**key})
        yield Reading(sheet, replace(recipe, place=place, scaled=unchanged), f"the scale is already applied to {name}")


def times(place: Step, factors: dict[str, float]) -> Step:
    return lambda at, side, heads, positions: place(at, side, heads, positions) * factors.get(side, 1.0)


def unchanged(at: Any, scores: Array) -> Array:
    return scores


def shift_logits(sheet: Sheet) -> Iterator[Reading]:
    """Yield the alternative with a constant added to the logits of each query, which a softmax ignores."""
    exact = stages(sheet, sheet.right)
    if exact is None or not sheet.settled.rules.normalizer.exponential:
        return
    boxes = tuple(subtract_row_mean(box, exact.get(box.stage)) for box in sheet.boxes)
    if any(new is not old for new, old in zip(boxes, sheet.boxes, strict=True)):
        yield Reading(replace(sheet, boxes=boxes), sheet.right, "a constant is added to all logits of a query")


def subtract_row_mean(box: Box, array: Array | None) -> Box:
    """Subtract the mean deviation of each row from a box of logits; return any other box unchanged."""
    if box.stage not in LOGITS or array is None or array.shape != box.values.shape or not box.misses(array).any():
        return box
    with np.errstate(invalid="ignore"):
        gap = np.where(np.isfinite(array) & box.given, box.values - array, np.nan)
    counts = np.isfinite(gap).sum(axis=-1, keepdims=True)
    if (counts[box.given.any(axis=-1, keepdims=True)] < 2).any():
        return box
    mean = np.nansum(gap, axis=-1, keepdims=True) / np.maximum(counts, 1)
    return replace(box, values=box.values - mean, halves=2 * box.halves, own=2 * box.own, moves=None)


def rename_scores(sheet: Sheet) -> Iterator[Reading]:
    """Yield the alternative in which "scores" means the scaled scores, as in many documents."""
    present = {box.stage for box in sheet.boxes}
    if "scores" in present and "logits" not in present:
        boxes = tuple(replace(box, stage="logits") if box.stage == "scores" else box for box in sheet.boxes)
        yield Reading(replace(sheet, boxes=boxes), sheet.right, "the scores are scaled; here these are the logits")


def transpose_sheet(sheet: Sheet) -> Sheet | None:
    boxes = [swapped(box) for box in sheet.boxes]
    kept = tuple(box for box in boxes if box is not None)
    return replace(sheet, boxes=kept) if len(kept) == len(boxes) else None


def swapped(box: Box) -> Box | None:
    if TURNED in box.note:
        return box
    *_, rows, columns = box.values.shape
    size = min(rows, columns)
    if box.given[..., size:, :].any() or box.given[..., size:].any():
        return None
    values, halves, own = (transpose_square(array, size) for array in (box.values, box.halves, box.own))
    return replace(box, values=values, halves=halves, own=own, moves=None, note=f"{box.note}, {TURNED}".strip(", "))


def transpose_square(array: Array, size: int) -> Array:
    whole = np.full(array.shape, np.nan)
    whole[..., :size, :size] = array[..., :size, :size].swapaxes(-1, -2)
    return whole


def fewest_digits(sheet: Sheet) -> int | None:
    half = max(float(box.halves.max(initial=0.0, where=box.given)) for box in sheet.boxes)
    digits = round(-np.log10(2 * half)) if 0 < half < np.inf else 99
    return int(digits) if 1 <= digits <= 4 else None


def by_own_digits(sheet: Sheet) -> Sheet:
    """Return the sheet with each number's tolerance by its own digits; the same object if nothing changes."""
    boxes = tuple(replace(box, halves=box.own, moves=None) for box in sheet.boxes)
    same = all(np.array_equal(new.halves, old.halves) for new, old in zip(boxes, sheet.boxes, strict=True))
    return sheet if same else replace(sheet, boxes=boxes)
