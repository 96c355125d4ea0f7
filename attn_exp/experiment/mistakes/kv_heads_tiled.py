"""Shared key/value heads are taken in turns: query head i reads i mod g instead of i // (h / g)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, share=lambda at, heads: heads[:, np.arange(at.heads) % at.groups])


MISTAKE = Mistake(
    group="heads",
    says="Shared key/value heads are taken in turns: query head i reads i mod g instead of i // (h / g).",
    fix="repeat each key/value head h / g times; do not tile them",
    seen="onnx PR 7274; axlearn PR 842; ONNXim PR 34",
    stage="k",
    changes=(change,),
    needs=("shared",),
)
