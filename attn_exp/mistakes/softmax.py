"""The softmax: over other axes, twice, not at all, or in another way."""

from __future__ import annotations

import math

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms import steps
from attn_exp.forms.pipeline import At, Recipe, Step
from attn_exp.mistakes.mistake import Change, Mistake, around, instead


def softmax_over(*axes: int) -> Change:
    """Return the change that normalizes over other axes of `[b h t s]`."""

    def normalize(at: At, masked: Array) -> Array:
        axis = tuple(axis for axis in axes if axis or not at.apart)
        powers = np.exp(masked - masked.max(axis=axis, keepdims=True, initial=-1e300))
        total = powers.sum(axis=axis, keepdims=True)
        return np.asarray(powers / np.where(total == 0, 1.0, total))

    return instead(normalize=normalize)


def divide_by_sum(at: At, masked: Array) -> Array:
    """Divide logits by the sum of their row, without an exponential."""
    kept = np.where(np.isneginf(masked), 0.0, masked)
    return np.asarray(kept / kept.sum(axis=-1, keepdims=True))


def softmax_again(normalize: Step, at: At, masked: Array) -> Array:
    """Take the softmax of the weights once more."""
    return steps.softmax(normalize(at, masked), -1)


def masked_softmax_again(normalize: Step, at: At, masked: Array) -> Array:
    """Take the softmax of the weights once more, among the keys that may be seen."""
    return steps.softmax(np.where(np.isneginf(masked), -np.inf, normalize(at, masked)), -1)


def raw_powers(at: At, masked: Array) -> Array:
    """Take the exponentials of logits as they are, without their largest taken off first."""
    powers = np.exp(masked)
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def raw_powers_times_mask(recipe: Recipe) -> Recipe:
    """Return the recipe whose powers are multiplied by the mask: 0 times an overflow is NaN."""

    def normalize(at: At, logits: Array) -> Array:
        powers = np.exp(logits) * recipe.allowed(at)
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))

    return instead(forbid=lambda at, logits, allowed: logits, normalize=normalize)(recipe)


MISTAKES = {
    "softmax_over_queries": Mistake(
        says="The softmax runs down the queries instead of along the keys.",
        fix="softmax over the last axis, the keys",
        seen="PyTorch-NLP issue 2; labml issue 146; axis=-2 or dim=0",
        stage="weights",
        changes=(softmax_over(-2),),
    ),
    "softmax_over_heads": Mistake(
        says="The softmax runs over the heads instead of the keys.",
        fix="softmax over the last axis, the keys",
        seen="softmax without a dim; catalyst PR 285",
        stage="weights",
        changes=(softmax_over(1),),
    ),
    "softmax_over_all": Mistake(
        says="One softmax runs over all places of the matrix instead of one for each query.",
        fix="softmax over the last axis, the keys",
        seen="exp(s) / exp(s).sum() without an axis",
        stage="weights",
        changes=(softmax_over(-2, -1), softmax_over(0, 1, 2, 3)),
    ),
    "no_softmax": Mistake(
        says="The logits are used as weights without a softmax.",
        fix="weights = softmax(logits)",
        seen="first versions of many notebooks; linear attention by accident",
        stage="weights",
        changes=(instead(normalize=lambda at, masked: np.where(np.isneginf(masked), 0.0, masked)),),
    ),
    "sum_normalized": Mistake(
        says="The logits are divided by their sum instead of passed through a softmax.",
        fix="weights = softmax(logits)",
        seen="exercise sheets that first divide by the sum",
        stage="weights",
        changes=(instead(normalize=divide_by_sum),),
    ),
    "softmax_twice": Mistake(
        says="The softmax is applied twice.",
        fix="weights = softmax(logits), once",
        seen="a function that returns weights, and a caller that takes them for logits",
        stage="weights",
        changes=(around("normalize", softmax_again), around("normalize", masked_softmax_again)),
    ),
    "softmax_base_2": Mistake(
        says="The softmax takes powers of 2 instead of e.",
        fix="multiply the logits by log2(e) where exp2 is used",
        seen="kernels with exp2 whose scale misses log2(e)",
        stage="weights",
        changes=(around("normalize", lambda normalize, at, masked: normalize(at, masked * math.log(2))),),
    ),
    "no_max_subtraction": Mistake(
        says="The largest logit is not subtracted before exp, so large logits overflow.",
        fix="subtract each row's largest logit first",
        seen="online softmax without its running maximum; vllm PR 56579",
        stage="weights",
        changes=(instead(normalize=raw_powers), raw_powers_times_mask),
    ),
}
