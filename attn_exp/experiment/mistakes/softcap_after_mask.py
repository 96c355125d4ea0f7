"""The soft-cap comes after the mask: -inf becomes -cap, and hidden keys get weight."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe, Step


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, bent=lambda at, logits: logits, forbid=capped(recipe.forbid, recipe.bent))


def capped(forbid: Step, bent: Step) -> Step:
    return lambda at, logits, allowed: bent(at, forbid(at, logits, allowed))


MISTAKE = Mistake(
    group="scores",
    says="The soft-cap comes after the mask: -inf becomes -cap, and hidden keys get weight.",
    fix="cap first, then mask",
    seen="flash-attention PR 1025; ONNX's reference code up to 1.21",
    stage="masked",
    changes=(change,),
    needs=("softcap", "mask"),
)
