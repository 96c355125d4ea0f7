"""Mistakes in the softmax: it runs over the wrong axes, is applied twice, is missing, or is computed differently."""

from __future__ import annotations

import math

import numpy as np

from attn_exp.arrays import Array, Shape
from attn_exp.forms import steps
from attn_exp.forms.pipeline import Recipe, Setup, Step
from attn_exp.mistakes.mistake import Change, Mistake, around, instead


def softmax_over(*axes: int, empty: float | None = 0.0) -> Change:
    """Normalize over these axes of `[b h t s]` instead of the keys.

    Where all logits are masked, the weights are `empty`. With None, they are equal, as in a softmax whose masked logits
    are a finite number such as -1e9.
    """

    def normalize(setup: Setup, masked: Array) -> Array:
        axis = tuple(axis for axis in axes if axis or not setup.independent)
        powers = np.exp(masked - row_maximum(masked, axis))
        total = powers.sum(axis=axis, keepdims=True)
        where_empty = total.size / max(powers.size, 1) if empty is None else empty
        return np.where(total == 0, where_empty, powers / np.where(total == 0, 1.0, total))

    return instead(normalize=normalize)


def row_maximum(masked: Array, axis: int | Shape) -> Array:
    """Return the largest logits along some axes; where all are masked, return the lowest number of the dtype."""
    return np.asarray(masked.max(axis=axis, keepdims=True, initial=np.finfo(masked.dtype).min))


def softmax_again_over(axis: int) -> Change:
    return around("normalize", lambda normalize, setup, masked: steps.softmax(normalize(setup, masked), axis))


def subtract_maximum(*axes: int, in_numerator: bool = True, in_denominator: bool = True) -> Change:
    """Subtract the maximum along these axes in the numerator, the denominator, or both."""

    def normalize(setup: Setup, masked: Array) -> Array:
        axis = tuple(axis for axis in axes if axis or not setup.independent) or None
        lowered = np.exp(masked - masked.max(axis=axis, keepdims=True))
        powers, summed = (lowered if is_lowered else np.exp(masked) for is_lowered in (in_numerator, in_denominator))
        return np.asarray(powers / summed.sum(axis=-1, keepdims=True))

    return instead(normalize=normalize)


def use_other_rows(maxima_along_keys: bool | None, sums_along_keys: bool) -> Change:
    """Normalize rows with the maxima or the sums of other rows, as happens without `keepdims`.

    The flags say whether maxima and sums broadcast along the keys; None means that no maxima are subtracted.
    """

    def broadcast(rows: Array, along_keys: bool) -> Array:
        return rows[..., None, :] if along_keys else rows[..., None]

    def normalize(setup: Setup, masked: Array) -> Array:
        powers = np.exp(
            masked if maxima_along_keys is None else masked - broadcast(masked.max(axis=-1), maxima_along_keys)
        )
        return powers / broadcast(powers.sum(axis=-1), sums_along_keys)

    return instead(normalize=normalize)


def with_epsilon(epsilon: float, largest: bool = True) -> Change:
    """Add `epsilon` to the sum of exponentials; with `largest`, the largest logit is subtracted first."""

    def normalize(setup: Setup, masked: Array) -> Array:
        powers = np.exp(masked - row_maximum(masked, -1)) if largest else np.exp(masked)
        return np.asarray(powers / (powers.sum(axis=-1, keepdims=True) + epsilon))

    return instead(normalize=normalize)


EPSILONS = tuple(10.0**-digits for digits in range(1, 13))


def divide_by_sum(rows: Array) -> Array:
    return np.asarray(rows / rows.sum(axis=-1, keepdims=True))


def skip_exponentials(setup: Setup, masked: Array) -> Array:
    return divide_by_sum(np.where(np.isneginf(masked), 0.0, masked))


def repeat_masked_softmax(normalize: Step, setup: Setup, masked: Array) -> Array:
    return steps.softmax(np.where(np.isneginf(masked), -np.inf, normalize(setup, masked)), -1)


def log_softmax(lowest: float) -> Change:
    """Return the logarithms of the weights; `lowest` replaces the logits of hidden keys."""

    def normalize(normalize: Step, setup: Setup, masked: Array) -> Array:
        filled = np.where(np.isneginf(masked), lowest, masked)
        largest = row_maximum(masked, -1)
        return np.asarray(filled - largest - np.log(np.exp(masked - largest).sum(axis=-1, keepdims=True)))

    return around("normalize", normalize)


def skip_maximum(setup: Setup, masked: Array) -> Array:
    return divide_by_sum(np.exp(masked))


def skip_maximum_in_float32(least: float) -> Change:
    """Take the exponentials in float32: they overflow for logits above 88, and those below `least` become 0."""

    def normalize(setup: Setup, masked: Array) -> Array:
        powers = np.exp(np.asarray(masked, np.float32))
        return divide_by_sum(np.where(powers < least, np.float32(0.0), powers))

    return instead(normalize=normalize)


def multiply_powers_by_mask(recipe: Recipe) -> Recipe:
    """Multiply the exponentials by the mask; if a masked one overflows, the product is NaN."""

    def normalize(setup: Setup, logits: Array) -> Array:
        return divide_by_sum(np.exp(logits) * recipe.allowed(setup))

    return instead(forbid=lambda setup, logits, allowed: logits, normalize=normalize)(recipe)


MISTAKES = {
    "softmax_over_queries": Mistake(
        says="The softmax runs down the queries instead of along the keys.",
        fix="apply the softmax over the last axis, the keys",
        seen="PyTorch-NLP issue 2; labml issue 146; axis=-2 or dim=0",
        stage="weights",
        changes=(softmax_over(-2), softmax_over(-2, empty=math.nan), softmax_over(-2, empty=None)),
    ),
    "softmax_over_heads": Mistake(
        says="The softmax runs over the heads instead of the keys.",
        fix="apply the softmax over the last axis, the keys",
        seen="softmax without a dim; catalyst PR 285",
        stage="weights",
        changes=(softmax_over(1), softmax_over(1, empty=math.nan), softmax_over(1, empty=None)),
    ),
    "keepdims_missing": Mistake(
        says="Each row is normalized with the sums or maxima of other rows, because they broadcast along the keys.",
        fix="max(axis=-1, keepdims=True) and sum(axis=-1, keepdims=True)",
        seen="np.exp(x) / np.sum(np.exp(x), axis=1)",
        stage="weights",
        changes=(
            use_other_rows(None, True),
            use_other_rows(False, True),
            use_other_rows(True, True),
            use_other_rows(True, False),
        ),
        of_code=True,
    ),
    "softmax_over_all": Mistake(
        says="One softmax runs over the whole matrix instead of one per query.",
        fix="apply the softmax over the last axis, the keys",
        seen="exp(s) / exp(s).sum() without an axis",
        stage="weights",
        changes=(softmax_over(-2, -1), softmax_over(0, 1, 2, 3)),
    ),
    "softmax_over_heads_and_keys": Mistake(
        says="One softmax runs over the keys of all heads together.",
        fix="apply the softmax over the last axis, the keys",
        seen="einsum layouts with heads and keys side by side; softmax over a flattened [h*s]",
        stage="weights",
        changes=(softmax_over(1, -1),),
        of_code=True,
    ),
    "one_maximum": Mistake(
        says="One maximum is subtracted from all rows: rows far below it vanish, and 0 / 0 is NaN.",
        fix="subtract each row's own largest logit",
        seen="exp(s - s.max()) without an axis",
        stage="weights",
        changes=(
            subtract_maximum(0, 1, 2, 3),
            subtract_maximum(1, 2, 3),
            subtract_maximum(2, 3),
            subtract_maximum(0, 1, 2),
            subtract_maximum(2),
        ),
        of_code=True,
    ),
    "maximum_on_one_side": Mistake(
        says="The maximum is subtracted in the numerator or the denominator, not in both: weights do not sum to 1.",
        fix="powers = exp(s - s.max(-1, keepdims=True)), and powers / powers.sum(-1, keepdims=True)",
        seen="np.exp(s - np.max(s)) / np.sum(np.exp(s))",
        stage="weights",
        changes=(
            subtract_maximum(-1, in_denominator=False),
            subtract_maximum(0, 1, 2, 3, in_denominator=False),
            subtract_maximum(-1, in_numerator=False),
            subtract_maximum(0, 1, 2, 3, in_numerator=False),
        ),
        of_code=True,
    ),
    "sum_epsilon": Mistake(
        says="A small number is added to each sum of the softmax, so the weights of a row sum to less than 1.",
        fix="divide by the sum itself: after subtracting the largest logit it is at least 1",
        seen="weights / (weights.sum(-1, keepdim=True) + 1e-6)",
        stage="weights",
        changes=(
            *(with_epsilon(epsilon) for epsilon in EPSILONS),
            *(with_epsilon(epsilon, largest=False) for epsilon in EPSILONS),
        ),
        of_code=True,
    ),
    "softmax_over_two_axes": Mistake(
        says="The weights are normalized once more, over the queries or the heads.",
        fix="apply one softmax, over the keys",
        seen="softmax(dim=-1) in the function and softmax(dim=1) in its caller",
        stage="weights",
        changes=(softmax_again_over(-2), softmax_again_over(1), softmax_again_over(0)),
        of_code=True,
    ),
    "no_softmax": Mistake(
        says="The logits are used as weights without a softmax.",
        fix="weights = softmax(logits)",
        seen="first versions of many notebooks; accidental linear attention",
        stage="weights",
        changes=(instead(normalize=lambda setup, masked: np.where(np.isneginf(masked), 0.0, masked)),),
    ),
    "sum_normalized": Mistake(
        says="The logits are divided by their sum instead of being passed through a softmax.",
        fix="weights = softmax(logits)",
        seen="exercise sheets that first divide by the sum",
        stage="weights",
        changes=(instead(normalize=skip_exponentials),),
    ),
    "softmax_twice": Mistake(
        says="The softmax is applied twice.",
        fix="weights = softmax(logits), once",
        seen="a function that returns weights, whose caller takes them for logits",
        stage="weights",
        changes=(softmax_again_over(-1), around("normalize", repeat_masked_softmax)),
    ),
    "log_softmax": Mistake(
        says="A log-softmax is used: the values are multiplied by the logarithms of the weights.",
        fix="softmax, not log_softmax, which is for a loss",
        seen="F.log_softmax(scores, dim=-1) @ v",
        stage="weights",
        changes=(log_softmax(-math.inf), log_softmax(-1e9)),
        of_code=True,
    ),
    "softmax_base_2": Mistake(
        says="The softmax takes powers of 2 instead of e.",
        fix="multiply the logits by log2(e) where exp2 is used",
        seen="kernels with exp2 whose scale lacks the factor log2(e)",
        stage="weights",
        changes=(around("normalize", lambda normalize, setup, masked: normalize(setup, masked * math.log(2))),),
    ),
    "no_max_subtraction": Mistake(
        says="The largest logit is not subtracted before exp, so large logits overflow.",
        fix="subtract each row's largest logit first",
        seen="online softmax without its running maximum; vllm PR 56579",
        stage="weights",
        changes=(
            instead(normalize=skip_maximum),
            multiply_powers_by_mask,
            skip_maximum_in_float32(float(np.finfo(np.float32).tiny)),  # JAX flushes subnormal numbers to zero
            skip_maximum_in_float32(0.0),
        ),
    ),
}
