"""Heads are put together with a view alone: the numbers of tokens and heads are mixed."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.arrays import Array
from attn_exp.experiment.mistakes._parts import as_it_lies
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import At, Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, merge=as_it_lies)


def strided(recipe: Recipe) -> Recipe:
    return replace(recipe, merge=by_size)


def by_size(at: At, context: Array) -> Array:
    batch, heads, rows, size = context.shape
    return context.transpose(0, 2, 3, 1).reshape(batch, rows, heads * size)


MISTAKE = Mistake(
    group="heads",
    says="Heads are put together with a view alone: the numbers of tokens and heads are mixed.",
    fix="transpose [h, t, d] to [t, h, d] before the reshape",
    seen="dfdx issue 158; Trans2Seg issue 4",
    stage="output",
    changes=(
        change,
        strided,
    ),
    needs=("layer",),
)
