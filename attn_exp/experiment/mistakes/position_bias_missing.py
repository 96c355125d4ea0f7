"""What ALiBi or T5 adds to the logits by distance is missing."""

from __future__ import annotations

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe
from attn_exp.rules.scores.score import Score


def change(recipe: Recipe) -> Recipe:
    return recipe.with_rules(scores=tuple(rule for rule in recipe.rules.scores if type(rule).bias is Score.bias))


MISTAKE = Mistake(
    group="scores",
    says="The position bias is missing: nothing is added to the logits by distance.",
    fix="logits = scores / sqrt(d) + bias, before the mask and the softmax",
    seen="a call without the slopes of its ALiBi model: each keyword for a bias has none as its default",
    stage="masked",
    changes=(change,),
    needs=("added",),
)
