"""Every query head reads the first key/value head."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, share=lambda at, heads: heads[:, np.zeros(at.heads, np.int64)])


def first_few(recipe: Recipe) -> Recipe:
    return replace(recipe, share=lambda at, heads: heads[:, np.minimum(np.arange(at.heads), at.groups - 1)])


MISTAKE = Mistake(
    group="heads",
    says="Every query head reads the first key/value head.",
    fix="query head i reads key/value head i // (h / g)",
    seen="broadcast of k[:, :1]; tiny-universe issue 21",
    stage="k",
    changes=(
        change,
        first_few,
    ),
    needs=("shared",),
)
