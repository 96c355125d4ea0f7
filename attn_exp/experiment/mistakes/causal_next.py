"""The causal mask is one key too wide: a query sees the next token."""

from __future__ import annotations

from attn_exp.experiment.mistakes._parts import other_causal
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return other_causal(recipe, lambda grid: grid.key <= grid.query + 1)


MISTAKE = Mistake(
    group="masks",
    says="The causal mask is one key too wide: a query sees the next token.",
    fix="query i sees keys j <= i",
    seen="triu(diagonal=2) for triu(diagonal=1)",
    stage="masked",
    changes=(change,),
    needs=("causal",),
)
