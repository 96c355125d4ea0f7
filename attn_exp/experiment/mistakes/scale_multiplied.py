"""The scores are multiplied by sqrt(d) instead of divided."""

from __future__ import annotations

import math
from dataclasses import replace

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, scaled=lambda at, scores: scores * math.sqrt(at.size))


MISTAKE = Mistake(
    group="scale",
    says="The scores are multiplied by sqrt(d) instead of divided.",
    fix="logits = scores / sqrt(d)",
    seen="a factor written for its inverse",
    stage="logits",
    changes=(change,),
)
