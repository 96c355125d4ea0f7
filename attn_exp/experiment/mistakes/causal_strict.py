"""The causal mask hides the diagonal: a query does not see its own key."""

from __future__ import annotations

from attn_exp.experiment.mistakes._parts import other_causal
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return other_causal(recipe, lambda grid: grid.key < grid.query)


MISTAKE = Mistake(
    group="masks",
    says="The causal mask hides the diagonal: a query does not see its own key.",
    fix="query i sees keys j <= i, itself included",
    seen="GPT-SoVITS issue 965",
    stage="masked",
    changes=(change,),
    needs=("causal",),
)
