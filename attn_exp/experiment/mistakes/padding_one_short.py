"""The padding mask ends one key early: the last real key is hidden."""

from __future__ import annotations

from attn_exp.experiment.mistakes._parts import other_lengths
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return other_lengths(recipe, -1)


MISTAKE = Mistake(
    group="masks",
    says="The padding mask ends one key early: the last real key is hidden.",
    fix="key j is seen where j < length",
    seen="length - 1 written for length",
    stage="masked",
    changes=(change,),
    needs=("padding",),
)
