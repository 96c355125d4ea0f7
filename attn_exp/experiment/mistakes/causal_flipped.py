"""The causal mask is flipped: queries see themselves and later keys."""

from __future__ import annotations

from attn_exp.experiment.mistakes._parts import other_causal
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return other_causal(recipe, lambda grid: grid.key >= grid.query)


MISTAKE = Mistake(
    group="masks",
    says="The causal mask is flipped: queries see themselves and later keys.",
    fix="lower triangle, tril, and not triu",
    seen="nanoGPT issue 170",
    stage="masked",
    changes=(change,),
    needs=("causal",),
)
