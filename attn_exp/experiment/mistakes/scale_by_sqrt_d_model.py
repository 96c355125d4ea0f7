"""The scores are divided by the root of the model's size instead of the head's."""

from __future__ import annotations

import math
from dataclasses import replace

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    """By the width of x."""
    return replace(recipe, scaled=lambda at, scores: scores / math.sqrt(at.width))


def all_heads(recipe: Recipe) -> Recipe:
    """By the width of all heads side by side."""
    return replace(recipe, scaled=lambda at, scores: scores / math.sqrt(at.heads * at.size))


MISTAKE = Mistake(
    group="scale",
    says="The scores are divided by the root of the model's size instead of the head's.",
    fix="divide by sqrt(d_model / heads)",
    seen="d_model written for d_k in many multi-head layers",
    stage="logits",
    changes=(change, all_heads),
)
