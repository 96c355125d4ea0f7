"""One question to a function: what it is given, what it should compute of it, and whether an answer is that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms.pipeline import Given, Recipe, compute
from attn_exp.rules.masks.mask import Mask


class Right(dict[str, Array]):
    """The stages of a right answer, and how far others may lie from them: every answer to a question is held to it."""

    def __init__(self, stages: Mapping[str, Array]) -> None:
        """Hold the stages; how far others may lie is computed when it is first asked for."""
        super().__init__(stages)
        self.rooms = dict[int, float]()

    def tolerance(self, digits: int) -> float:
        """Return `tolerance` of them, computed once."""
        if digits not in self.rooms:
            self.rooms[digits] = how_far(self, digits)
        return self.rooms[digits]


@dataclass(frozen=True, eq=False)
class Case:
    """A question: `rung` is the line of the ladder that it belongs to, `recipe` what is right, `given` the input.

    `explicit_scale` says that the scale is passed and not left to the function. An `optional` question may be refused.
    An `unpromised` one has no keyword of its own: an error, or an answer of another shape, says that it is not offered.
    """

    rung: str
    recipe: Recipe
    given: Given
    explicit_scale: bool = False
    optional: bool = False
    unpromised: bool = False

    @cached_property
    def right(self) -> Right:
        """Every stage of the right answer, computed when it is first asked for."""
        return Right(compute(self.recipe, self.given, self.given.done))

    @cached_property
    def in_float32(self) -> Given:
        """The input with heads in float32, for who was given no more."""
        return replace(self.given, **{side: getattr(self.given, side).astype(np.float32) for side in "qkv"})

    def with_masks(self, masks: tuple[Mask, ...]) -> Case:
        """Return the same question under other masks."""
        return self.asking(self.recipe.with_rules(masks=masks))

    def asking(self, recipe: Recipe) -> Case:
        """Return the same question with another recipe as what is right."""
        return Case(self.rung, recipe, self.given, self.explicit_scale, self.optional, self.unpromised)


@dataclass(frozen=True, eq=False)
class Answer:
    """What a function said: its output `[b h t e]` or `[b t m]`, other stages that it returned, or why it failed.

    `refused` says that it refuses in words what it was asked for, and `reached` how far it came before an error; `axes`
    says which shape it had, where that has axes of length 1 more or fewer than it should.
    """

    output: Array | None
    stages: Mapping[str, Array] = field(default_factory=dict)
    dtype: str = "float64"
    error: str = ""
    refused: bool = False
    reached: tuple[int, ...] | None = None
    axes: str = ""


def expected(case: Case) -> Right:
    """Return every stage of the right answer."""
    return case.right


def predicted(recipe: Recipe, given: Given) -> dict[str, Array] | None:
    """Return the stages of a wrong recipe, or None where it does not fit the shapes."""
    try:
        return compute(recipe, given, given.done)
    except (ValueError, IndexError, ZeroDivisionError):
        return None


FEW_BLIND = 0.5
"""The share of queries that may see no key, for an answer to say anything of a mistake that hides them."""


def is_blind(stages: Mapping[str, Array]) -> bool:
    """Say whether so many queries see no key that an answer tells nothing of the stages."""
    blind: Any = (stages["masked"] == -np.inf).all(axis=-1)
    return bool(blind.mean() > FEW_BLIND)


def is_for_no_key(output: Array, stages: Mapping[str, Array]) -> bool:
    """Say whether no query of these stages sees a key, and an output is what people write there: NaN, or zeros."""
    if not (stages["masked"] == -np.inf).all() or output.shape != stages["output"].shape:
        return False
    nothing: bool = bool(np.isnan(output).all() or not output.any())
    return nothing


def without_blind(output: Array, stages: Mapping[str, Array]) -> Array:
    """Return an output with zeros where a query sees no key: there, people write NaN, zeros or a mean.

    Where no query sees one of several keys, what a function gives there is all that it gives.
    """
    blind: Any = (stages["masked"] == -np.inf).all(axis=-1)
    all_of_it = blind.all() and stages["masked"].shape[-1] > 1
    if not blind.any() or all_of_it or output.shape != stages["output"].shape:
        return output
    rows = blind[..., None] if output.ndim == stages["context"].ndim else blind.any(axis=1)[..., None]
    return np.where(rows, 0.0, output) if rows.shape[:-1] == output.shape[:-1] else output


def tolerance(stages: Mapping[str, Array], digits: int) -> float:
    """Return how far an answer may lie from these stages by rounding alone, to `digits` bits."""
    return stages.tolerance(digits) if isinstance(stages, Right) else how_far(stages, digits)


def how_far(stages: Mapping[str, Array], digits: int) -> float:
    """Compute `tolerance`.

    A bound in the largest norm, `c 2^-digits (2 (d + s) + 4 max|logit|) max(|w| |v|)`, with c = 8, and 64 for a layer,
    whose projections round too. Of a type of fewer than 24 bits, sums are taken to be kept in float32; weights, values
    and the answer are rounded, which is `4 2^-digits` of the largest number.
    """
    safety = 64.0 if stages["output"].ndim == 3 else 8.0
    size, keys = stages["q"].shape[-1], stages["k"].shape[-2]
    with np.errstate(all="ignore"):
        weights = sizes(stages["weights"])
        known = np.isfinite(stages["masked"])
        if weights.shape == known.shape:  # how a logit is rounded whose weight is 0 changes nothing
            known &= weights != 0
        logits = np.abs(np.where(known, stages["masked"], 0.0)).max(initial=0.0)
        values = sizes(stages["v"])
        scale = sizes(weights @ values if can_mix(weights, values) else values).max(initial=0.0)
        total = weights.sum(axis=-1)
        lost = total / np.abs(stages["weights"].sum(axis=-1))  # by what sums of numbers of either sign are rounded more
        scale *= max(np.fmin(total, lost).max(initial=0.0), 1.0)  # shares of sums that nearly vanish
        scale = max(scale, sizes(stages["output"]).max(initial=0.0))
    if digits >= 24:
        return float(safety * 2.0**-digits * (2 * (size + keys) + 4 * logits) * scale)
    sums = safety * 2.0**-24 * (2 * (size + keys) + 4 * logits)
    return float((sums + 4 * 2.0**-digits) * scale)


def can_mix(weights: Array, values: Array) -> bool:
    """Say whether weights can be taken with values as they stand: a mistake may mix other values, or other heads."""
    if weights.shape[-1] != values.shape[-2]:
        return False
    heads = zip(weights.shape[-3::-1], values.shape[-3::-1], strict=False)
    return all(one == other or 1 in (one, other) for one, other in heads)


def sizes(array: Array) -> Array:
    """Return the sizes of numbers, 0 for what is none: an infinite weight would let any answer beside it pass."""
    return np.abs(array if np.isfinite(array).all() else np.where(np.isfinite(array), array, 0.0))


def differs(output: Array, stages: Mapping[str, Array], digits: int, room: float | None = None) -> bool:
    """Say whether an output is not these stages' own, rounding apart; NaN must stand where NaN is expected.

    `room` is their `tolerance`, where that is known.
    """
    right = stages["output"]
    if output.shape != right.shape:
        return True
    with np.errstate(all="ignore"):
        gap = np.abs(output - right)
    farthest = gap.max(initial=0.0)
    if not np.isfinite(farthest):
        if overflows(output, right):
            return False
        if not np.array_equal(np.isnan(output), np.isnan(right)):
            return True
        gap = np.where((output == right) | np.isnan(right), 0.0, gap)
        farthest = gap.max(initial=0.0)
        if not np.isfinite(farthest):
            return True
    if not farthest:
        return False
    return bool(farthest > (tolerance(stages, digits) if room is None else room))


def overflows(output: Array, right: Array) -> bool:
    """Say whether two answers are alike but where sums overflow: in which order they are taken is the processor's.

    A float64's lowest number beside another comes to -inf, to NaN or, with one more that is positive, to neither.
    """
    one, other = (~(np.abs(array) < HUGE) for array in (output, right))
    are_finite = any((np.isfinite(array) & (np.abs(array) > HUGE)).any() for array in (output, right))
    if not are_finite or not np.array_equal(one, other):
        return False
    return bool(np.allclose(output[~one], right[~other], rtol=1e-6, atol=1e-9))


HUGE = 1e290
"""Numbers beyond are near those of which a sum overflows."""


def is_far(output: Array, stages: Mapping[str, Array]) -> bool:
    """Say at a glance whether an output is another one than that of these stages: most are.

    What a query gives that sees no key is open, and large logits allow for much rounding: there it is not said.
    """
    right = stages["output"]
    if output.shape != right.shape or not output.size:
        return False
    gap = np.abs(right - output).max()  # NaN is no number above another
    if not gap > FAR * np.abs(output).max():
        return False
    masked = stages["masked"]
    low, high = masked.min(initial=0.0), masked.max(initial=0.0)
    if np.isfinite(low) and np.isfinite(high):
        return bool(low > -LARGE_LOGITS and high < LARGE_LOGITS)
    if (masked == -np.inf).all(axis=-1).any():
        return False
    return bool(np.abs(np.where(masked > -np.inf, masked, 0.0)).max(initial=0.0) < LARGE_LOGITS)  # of NaN, 0


FAR, LARGE_LOGITS = 0.1, 1e6
"""Of the largest number of an answer: a gap that no rounding makes, as long as logits are not so large."""


# Two answers beside each other, and the same question with other numbers


def same_answer(one: Answer, other: Answer, case: Case, digits: int) -> bool:
    """Say whether two answers are the same, rounding apart."""
    if one.output is None or other.output is None:
        return one.output is None and other.output is None
    if one.output.shape != other.output.shape:
        return False
    return not differs(one.output, {**expected(case), "output": other.output}, digits)


def same_numbers(one: Array | None, other: Array | None) -> bool:
    """Say whether two answers are there and equal, number by number; NaN equals NaN."""
    return one is not None and other is not None and np.array_equal(one, other, equal_nan=True)


def other_data(case: Case) -> Case:
    """Return the case with the same shapes and other numbers."""
    given = case.given
    if given.x is not None:
        return replace(case, given=replace(given, x=given.x[:, ::-1] * 0.7 + 0.2))
    assert given.q is not None and given.k is not None and given.v is not None
    return replace(
        case, given=Given(given.q[..., ::-1, :] * 0.7, given.k[..., ::-1] + 0.2, given.v[..., ::-1] * 1.3 + 0.1)
    )
