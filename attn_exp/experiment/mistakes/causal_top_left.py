"""The causal mask stands at the top left: first query beside first key instead of last beside last."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes._parts import moved
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, allowed=moved(recipe.allowed, lambda at: 0))


MISTAKE = Mistake(
    group="masks",
    says="The causal mask stands at the top left: first query beside first key instead of last beside last.",
    fix="query i sees keys j <= i + (keys - queries)",
    seen="PyTorch issues 108108 and 144858; flash-attention issue 282",
    stage="masked",
    changes=(change,),
    needs=("causal",),
)
