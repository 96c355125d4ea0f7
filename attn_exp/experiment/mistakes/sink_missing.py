"""The attention sink is missing: the weights of a row sum to 1."""

from __future__ import annotations

import numpy as np

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    kept = tuple(rule for rule in recipe.rules.scores if rule.extra(np.zeros(1, np.int64)) is None)
    return recipe.with_rules(scores=kept)


MISTAKE = Mistake(
    group="scores",
    says="The attention sink is missing: the weights of a row sum to 1.",
    fix="add the sink's exp(logit) to the sum of each row",
    seen="AttentionIsOFFByOne issue 5; gpt-oss loaded without its sinks",
    stage="weights",
    changes=(change,),
    needs=("sink",),
)
