"""The scores are divided by the root of the number of heads instead of the size of a head."""

from __future__ import annotations

import math
from dataclasses import replace

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, scaled=lambda at, scores: scores / math.sqrt(at.heads))


MISTAKE = Mistake(
    group="scale",
    says="The scores are divided by the root of the number of heads instead of the size of a head.",
    fix="divide by sqrt(q.shape[-1])",
    seen="the wrong one of the four axes of q",
    stage="logits",
    changes=(change,),
)
