"""The scores are divided by the root of the number of keys instead of the size of a head."""

from __future__ import annotations

import math
from dataclasses import replace

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, scaled=lambda at, scores: scores / math.sqrt(at.keys))


MISTAKE = Mistake(
    group="scale",
    says="The scores are divided by the root of the number of keys instead of the size of a head.",
    fix="divide by sqrt(k.shape[-1])",
    seen="shape[-2] written for shape[-1]",
    stage="logits",
    changes=(change,),
)
