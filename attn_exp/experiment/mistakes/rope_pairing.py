"""Rotary positions turn the wrong pairs: neighbours (2i, 2i+1) instead of halves (i, i + d/2), or the reverse."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes._parts import other_rope
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.experiment.mistakes.recipe import Recipe


def change(recipe: Recipe) -> Recipe:
    return other_rope(recipe, lambda rope: replace(rope, interleaved=not rope.interleaved))


MISTAKE = Mistake(
    group="positions",
    says="Rotary positions turn the wrong pairs: neighbours (2i, 2i+1) instead of halves (i, i + d/2), or the reverse.",
    fix="use the pairing that the weights were trained with",
    seen="transformers issue 25199; LLMs-from-scratch issues 746 to 838",
    stage="q",
    changes=(change,),
    needs=("rope",),
)
