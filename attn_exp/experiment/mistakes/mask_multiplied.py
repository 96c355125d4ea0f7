"""The logits are multiplied by the mask: a hidden key has logit 0 and still gets weight."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, forbid=lambda at, logits, allowed: np.where(allowed, logits, 0.0))


MISTAKE = Mistake(
    group="masks",
    says="The logits are multiplied by the mask: a hidden key has logit 0 and still gets weight.",
    fix="put -inf where the mask forbids",
    seen="XLA PR 11444; good-features PR 1",
    stage="masked",
    changes=(change,),
    needs=("mask",),
)
