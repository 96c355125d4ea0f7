"""The scores are divided by d instead of sqrt(d)."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, scaled=lambda at, scores: scores / at.size)


MISTAKE = Mistake(
    group="scale",
    says="The scores are divided by d instead of sqrt(d).",
    fix="logits = scores / sqrt(d)",
    seen="aprender PR 1258 tests for it",
    stage="logits",
    changes=(change,),
)
