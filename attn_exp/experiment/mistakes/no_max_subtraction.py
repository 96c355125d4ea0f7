"""The largest logit is not subtracted before exp, so large logits overflow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import At, Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, normalize=raw)


def raw(at: At, masked: Array) -> Array:
    powers = np.exp(masked)
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def multiplied(recipe: Recipe) -> Recipe:
    """Return the recipe whose powers are multiplied by the mask: 0 times an overflow is NaN."""

    def shared(at: At, logits: Array) -> Array:
        powers = np.exp(logits) * recipe.allowed(at)
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))

    return replace(recipe, forbid=lambda at, logits, allowed: logits, normalize=shared)


MISTAKE = Mistake(
    group="softmax",
    says="The largest logit is not subtracted before exp, so large logits overflow.",
    fix="subtract each row's largest logit first",
    seen="online softmax without its running maximum; vllm PR 56579",
    stage="weights",
    changes=(change, multiplied),
)
