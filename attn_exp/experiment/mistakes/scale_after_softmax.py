"""The weights are scaled after the softmax instead of the scores before it."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe, Step


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, scaled=lambda at, scores: scores, after=late(recipe.after))


def late(after: Step) -> Step:
    return lambda at, weights, allowed: after(at, weights, allowed) * at.rules.scale


MISTAKE = Mistake(
    group="scale",
    says="The weights are scaled after the softmax instead of the scores before it.",
    fix="weights = softmax(scores * scale)",
    seen="dropped brackets: softmax(q k^T) / sqrt(d)",
    stage="weights",
    changes=(change,),
)
