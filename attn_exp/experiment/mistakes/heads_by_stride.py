"""Head i owns every h-th column instead of its own block of columns."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.arrays import Array
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import At, Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, split=strided, merge=strided_back)


def cut_alone(recipe: Recipe) -> Recipe:
    return replace(recipe, split=strided)


def strided(flat: Array, count: int) -> Array:
    batch, length, width = flat.shape
    return flat.reshape(batch, length, width // count, count).transpose(0, 3, 1, 2)


def strided_back(at: At, context: Array) -> Array:
    batch, heads, rows, size = context.shape
    return context.transpose(0, 2, 3, 1).reshape(batch, rows, heads * size)


MISTAKE = Mistake(
    group="heads",
    says="Head i owns every h-th column instead of its own block of columns.",
    fix="reshape the last axis to [h, d], not [d, h]",
    seen="reshape(t, d, h) in several ports",
    stage="q",
    changes=(
        cut_alone,
        change,
    ),
    needs=("layer",),
)
