"""The logits are divided by their sum instead of passed through a softmax."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import At, Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, normalize=by_sum)


def by_sum(at: At, masked: Array) -> Array:
    kept = np.where(np.isneginf(masked), 0.0, masked)
    return np.asarray(kept / kept.sum(axis=-1, keepdims=True))


MISTAKE = Mistake(
    group="softmax",
    says="The logits are divided by their sum instead of passed through a softmax.",
    fix="weights = softmax(logits)",
    seen="exercise sheets that first divide by the sum",
    stage="weights",
    changes=(change,),
)
