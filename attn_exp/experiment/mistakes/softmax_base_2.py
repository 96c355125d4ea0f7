"""The softmax takes powers of 2 instead of e."""

from __future__ import annotations

import math
from dataclasses import replace

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe, Step


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, normalize=lower(recipe.normalize))


def lower(normalize: Step) -> Step:
    return lambda at, masked: normalize(at, masked * math.log(2))


MISTAKE = Mistake(
    group="softmax",
    says="The softmax takes powers of 2 instead of e.",
    fix="multiply the logits by log2(e) where exp2 is used",
    seen="kernels with exp2 whose scale misses log2(e)",
    stage="weights",
    changes=(change,),
)
