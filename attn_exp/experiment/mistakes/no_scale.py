"""The scores q k^T are not divided by sqrt(d)."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, scaled=lambda at, scores: scores)


MISTAKE = Mistake(
    group="scale",
    says="The scores q k^T are not divided by sqrt(d).",
    fix="logits = scores / sqrt(d)",
    seen="the Annotated Transformer's readers; Understanding Deep Learning, notebook 12.1",
    stage="logits",
    changes=(change,),
)
