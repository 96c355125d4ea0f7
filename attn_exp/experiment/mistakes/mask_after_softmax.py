"""The mask is applied after the softmax, so the weights of a row no longer sum to 1."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe, Step


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, forbid=lambda at, logits, allowed: logits, after=late(recipe.after))


def late(after: Step) -> Step:
    return lambda at, weights, allowed: np.where(allowed, after(at, weights, allowed), 0.0)


MISTAKE = Mistake(
    group="masks",
    says="The mask is applied after the softmax, so the weights of a row no longer sum to 1.",
    fix="put -inf where the mask forbids, before the softmax",
    seen="timm PR 2236; memory-compressed-attention issue 2",
    stage="weights",
    changes=(change,),
    needs=("mask",),
)
