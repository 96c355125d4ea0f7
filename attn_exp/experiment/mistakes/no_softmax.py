"""The logits are used as weights without a softmax."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, normalize=lambda at, masked: np.where(np.isneginf(masked), 0.0, masked))


MISTAKE = Mistake(
    group="softmax",
    says="The logits are used as weights without a softmax.",
    fix="weights = softmax(logits)",
    seen="first versions of many notebooks; linear attention by accident",
    stage="weights",
    changes=(change,),
)
