"""NaN behind the mask reaches the answer, because 0 times NaN is NaN."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, mix=lambda at, weights, v, k: np.asarray(weights @ v))


MISTAKE = Mistake(
    group="behaviour",
    says="NaN behind the mask reaches the answer, because 0 times NaN is NaN.",
    fix="put zeros where no value may be seen, before the product",
    seen="PyTorch issue 101967; its own scaled_dot_product_attention does it",
    stage="context",
    changes=(change,),
    needs=("mask",),
    remark=True,
)
