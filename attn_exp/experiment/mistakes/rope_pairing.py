"""Rotary positions turn the wrong pairs: neighbours (2i, 2i+1) instead of halves (i, i + d/2), or the reverse."""

from __future__ import annotations

from attn_exp.experiment.mistakes._parts import other_pairs
from attn_exp.experiment.mistakes.mistake import Mistake

MISTAKE = Mistake(
    group="positions",
    says="Rotary positions turn the wrong pairs: neighbours (2i, 2i+1) instead of halves (i, i + d/2), or the reverse.",
    fix="use the pairing that the weights were trained with",
    seen="transformers issue 25199; LLMs-from-scratch issues 746 to 838",
    stage="q",
    changes=(other_pairs,),
    needs=("rope",),
)
