"""The soft-cap is missing."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, bent=lambda at, logits: logits)


MISTAKE = Mistake(
    group="scores",
    says="The soft-cap is missing.",
    fix="logits = cap * tanh(logits / cap)",
    seen="sglang issue 33915; vllm-metal issue 665",
    stage="capped",
    changes=(change,),
    needs=("softcap",),
)
