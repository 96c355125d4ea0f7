"""The scale is applied twice, such as to q and then to the scores again."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, scaled=lambda at, scores: scores * at.rules.scale**2)


MISTAKE = Mistake(
    group="scale",
    says="The scale is applied twice, such as to q and then to the scores again.",
    fix="scale once",
    seen="library attention called with a q that was scaled already",
    stage="logits",
    changes=(change,),
)
