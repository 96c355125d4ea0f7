"""Test cases: their inputs, the expected results, and the comparison of answers with expected results.

A `Case` is what a function is called with, an `Answer` what it returned. `differs` returns whether an answer is wrong:
whether it is further from the exact stages than rounding can explain. A query that sees no key is called *blind* here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from attn_exp.arrays import Array, Arrays, Shape
from attn_exp.forms.pipeline import Given, Recipe, compute
from attn_exp.rules.masks.mask import Mask

MAX_BLIND = 0.5
"""Largest fraction of queries without visible keys at which an answer can still identify a mistake."""
HUGE = 1e290
"""Sums of numbers beyond this may overflow."""


@dataclass(frozen=True, eq=False)
class Case:
    """A test case.

    - `question`: its row in the report.
    - `recipe`: the reference computation.
    - `given`: the inputs.
    - `explicit_scale`: pass the scale instead of relying on the function's default.
    - `optional`: the function may refuse the case.
    - `unpromised`: no keyword announces the tested feature, so an error or a wrong shape means that it is missing.
    """

    question: str
    recipe: Recipe
    given: Given
    explicit_scale: bool = False
    optional: bool = False
    unpromised: bool = False

    @cached_property
    def right(self) -> dict[str, Array]:
        return compute(self.recipe, self.given)

    @cached_property
    def in_float32(self) -> Given:
        """The inputs of a case of q, k and v, rounded to float32."""
        return replace(self.given, **{side: getattr(self.given, side).astype(np.float32) for side in "qkv"})

    def with_masks(self, masks: tuple[Mask, ...]) -> Case:
        return self.with_recipe(self.recipe.with_rules(masks=masks))

    def with_recipe(self, recipe: Recipe) -> Case:
        return replace(self, recipe=recipe)


@dataclass(frozen=True, eq=False)
class Answer:
    """The result of one call, or why it failed.

    - `output`: `[b h t e]`, or `[b t m]` if heads are joined.
    - `stages`: other stages that the call returned, by name.
    - `error`: why the call failed. `refused`: the error says that the request is not supported.
    - `reached`: how far the call got before its error: the current instruction of each frame.
    - `axes`: describes the shape of an output that has too many or too few axes of length 1.
    """

    output: Array | None
    stages: Arrays = field(default_factory=dict)
    dtype: str = "float64"
    error: str = ""
    refused: bool = False
    reached: Shape | None = None
    axes: str = ""


CaseAnswer = tuple[Case, Answer]
"""A case that was run, and the answer of the function."""
Seen = Sequence[CaseAnswer]
"""Cases with their answers: all that were run so far, or a selection such as the wrong ones."""


def expected(case: Case) -> dict[str, Array]:
    return case.right


def predicted(recipe: Recipe, given: Given) -> dict[str, Array] | None:
    """Return the stages that a right or wrong recipe gives for these inputs; None if it fails on their shapes."""
    try:
        return compute(recipe, given)
    except (ValueError, IndexError, ZeroDivisionError):
        return None


def is_blind(stages: Arrays) -> bool:
    """Return whether so many queries see no key that an answer is inconclusive."""
    return bool((stages["masked"] == -np.inf).all(axis=-1).mean() > MAX_BLIND)


def is_usual_without_keys(output: Array, stages: Arrays) -> bool:
    """Return whether no query sees a key and the output is what functions usually return then: all NaN or all zeros."""
    if not (stages["masked"] == -np.inf).all() or output.shape != stages["output"].shape:
        return False
    return bool(np.isnan(output).all() or not output.any())


def without_blind(output: Array, stages: Arrays) -> Array:
    """Replace the outputs of queries that see no key with zeros.

    For these, functions return NaN, zeros or a mean; all are accepted. If there are several keys and no query sees any,
    the output is returned unchanged, because otherwise nothing would be left to compare.
    """
    is_blind_row = (stages["masked"] == -np.inf).all(axis=-1)
    nothing_left = is_blind_row.all() and stages["masked"].shape[-1] > 1
    if not is_blind_row.any() or nothing_left or output.shape != stages["output"].shape:
        return output
    # an output with joined heads is replaced if any head is blind
    is_replaced = (
        is_blind_row[..., None] if output.ndim == stages["context"].ndim else is_blind_row.any(axis=1)[..., None]
    )
    return np.where(is_replaced, 0.0, output) if is_replaced.shape[:-1] == output.shape[:-1] else output


def tolerance(stages: Arrays, digits: int) -> float:
    """Return how much rounding may change an output that is computed from these stages.

    It is a bound in the maximum norm, `c 2^-digits (2 (d + s) + 4 max|logit|) max(|w| |v|)`. The factor c is 8, or 64
    for a layer, because its projections round too. Below 24 bits, sums are assumed to accumulate in float32. Rounding
    weights, values and output then adds `4 2^-digits` of the largest number.
    """
    size, keys = stages["q"].shape[-1], stages["k"].shape[-2]
    with np.errstate(all="ignore"):
        factor = (64.0 if stages["output"].ndim == 3 else 8.0) * (2 * (size + keys) + 4 * largest_logit(stages))
        largest = largest_output(stages)
    if digits >= 24:
        return float(factor * 2.0**-digits * largest)
    return float((factor * 2.0**-24 + 4 * 2.0**-digits) * largest)


def largest_logit(stages: Arrays) -> float:
    """Return the largest finite |logit| whose weight is not 0: rounding any other logit has no effect."""
    weights = stages["weights"]
    has_effect = np.isfinite(stages["masked"])
    if weights.shape == has_effect.shape:
        has_effect &= find_magnitudes(weights) != 0
    return float(np.abs(np.where(has_effect, stages["masked"], 0.0)).max(initial=0.0))


def largest_output(stages: Arrays) -> float:
    """Return the largest number in `|weights| |v|` and in the output.

    If weights of opposite sign cancel within a row, `|weights| |v|` is scaled up, because the sum loses precision.
    """
    weights, values = find_magnitudes(stages["weights"]), find_magnitudes(stages["v"])
    largest = find_magnitudes(weights @ values if can_multiply(weights, values) else values).max(initial=0.0)
    weight_sums = weights.sum(axis=-1)
    cancellation = weight_sums / np.abs(stages["weights"].sum(axis=-1))  # how much relative errors grow in the sum
    largest *= max(np.fmin(weight_sums, cancellation).max(initial=0.0), 1.0)  # infinite if weights cancel
    return float(max(largest, find_magnitudes(stages["output"]).max(initial=0.0)))


def can_multiply(weights: Array, values: Array) -> bool:
    """Return whether weights and values can be multiplied; after some mistakes, their shapes do not match."""
    if weights.shape[-1] != values.shape[-2]:
        return False
    heads = zip(weights.shape[-3::-1], values.shape[-3::-1], strict=False)
    return all(one == other or 1 in (one, other) for one, other in heads)


def find_magnitudes(array: Array) -> Array:
    """Return absolute values, with 0 for NaN and inf: an infinite weight would let any answer pass."""
    return np.abs(array if np.isfinite(array).all() else np.where(np.isfinite(array), array, 0.0))


def differs(output: Array, stages: Arrays, digits: int) -> bool:
    """Return whether an output differs from these stages by more than rounding; NaN is right only where expected."""
    right = stages["output"]
    if output.shape != right.shape:
        return True
    with np.errstate(all="ignore"):
        errors = np.abs(output - right)
    largest = errors.max(initial=0.0)
    if not np.isfinite(largest):
        if overflows(output, right):
            return False
        if not np.array_equal(np.isnan(output), np.isnan(right)):
            return True
        errors = np.where((output == right) | np.isnan(right), 0.0, errors)
        largest = errors.max(initial=0.0)
        if not np.isfinite(largest):
            return True
    return bool(largest) and bool(largest > tolerance(stages, digits))


def overflows(output: Array, right: Array) -> bool:
    """Return whether two answers agree except where sums overflow, which depends on the order of summation.

    A sum that contains the lowest float64 may be -inf, NaN or, with one more positive term, finite.
    """
    overflowed, expected_overflow = (~(np.abs(array) < HUGE) for array in (output, right))
    are_huge = any((np.abs(array) > HUGE).any() for array in (output, right))  # NaN alone is not an overflow
    if not are_huge or not np.array_equal(overflowed, expected_overflow):
        return False
    return bool(np.allclose(output[~overflowed], right[~overflowed], rtol=1e-6, atol=1e-9))


# Comparing two answers, and the same case with other numbers


def same_answer(first: Answer, second: Answer, case: Case, digits: int) -> bool:
    if first.output is None or second.output is None:
        return first.output is None and second.output is None
    if first.output.shape != second.output.shape:
        return False
    return not differs(first.output, {**expected(case), "output": second.output}, digits)


def same_numbers(first: Array | None, second: Array | None) -> bool:
    return first is not None and second is not None and np.array_equal(first, second, equal_nan=True)


def make_other_data(case: Case) -> Case:
    """Return the case with different inputs of the same shapes."""
    given = case.given
    if given.x is not None:
        return replace(case, given=replace(given, x=given.x[:, ::-1] * 0.7 + 0.2))
    assert given.q is not None and given.k is not None and given.v is not None
    return replace(
        case, given=Given(given.q[..., ::-1, :] * 0.7, given.k[..., ::-1] + 0.2, given.v[..., ::-1] * 1.3 + 0.1)
    )
