"""The soft-cap is applied before the scale."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe, Step


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, scaled=capped(recipe.scaled, recipe.bent), bent=lambda at, logits: logits)


def capped(scaled: Step, bent: Step) -> Step:
    return lambda at, scores: scaled(at, bent(at, scores))


MISTAKE = Mistake(
    group="scores",
    says="The soft-cap is applied before the scale.",
    fix="scale, then cap",
    seen="scale applied in the kernel after a capped product",
    stage="logits",
    changes=(change,),
    needs=("softcap",),
)
