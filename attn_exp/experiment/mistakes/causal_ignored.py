"""The causal mask is missing: queries see later keys."""

from __future__ import annotations

from attn_exp.experiment.mistakes._parts import other_causal
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return other_causal(recipe, None)


MISTAKE = Mistake(
    group="masks",
    says="The causal mask is missing: queries see later keys.",
    fix="hide key j from query i where j > i",
    seen="keras issue 23038; candle issue 3567; transformers PR 48821",
    stage="masked",
    changes=(change,),
    needs=("causal",),
)
