"""A query that may see no key gets NaN instead of zeros."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe, Step


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, normalize=unguarded(recipe.normalize))


def unguarded(normalize: Step) -> Step:
    return lambda at, masked: np.where(np.isneginf(masked).all(axis=-1, keepdims=True), np.nan, normalize(at, masked))


MISTAKE = Mistake(
    group="behaviour",
    says="A query that may see no key gets NaN instead of zeros.",
    fix="give zero weights to a row of -inf",
    seen="PyTorch issues 41508 and 103749, before its safe softmax",
    stage="weights",
    changes=(change,),
    needs=("mask",),
    remark=True,
)
