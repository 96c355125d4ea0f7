"""The causal mask stands at the bottom right: last query beside last key instead of first beside first."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes._parts import moved
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, allowed=moved(recipe.allowed, lambda at: at.keys - at.rows))


MISTAKE = Mistake(
    group="masks",
    says="The causal mask stands at the bottom right: last query beside last key instead of first beside first.",
    fix="query i sees keys j <= i",
    seen="flash-attention from 2.1 on; mlx PR 2836",
    stage="masked",
    changes=(change,),
    needs=("causal",),
)
