"""Heads are cut with a view alone: tokens and features are mixed."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes._parts import as_it_lies
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.experiment.mistakes.recipe import Recipe
from attn_exp.rules.grid import Array


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, split=view)


def with_merge(recipe: Recipe) -> Recipe:
    return replace(recipe, split=view, merge=as_it_lies)


def view(flat: Array, count: int) -> Array:
    batch, length, width = flat.shape
    return flat.reshape(batch, count, length, width // count)


MISTAKE = Mistake(
    group="heads",
    says="Heads are cut with a view alone: tokens and features are mixed.",
    fix="reshape to [t, h, d] and transpose to [h, t, d]",
    seen="jsbaan/transformer-from-scratch PR 6; ajhalthor PR 4; hyunwoongko issue 15",
    stage="q",
    changes=(
        with_merge,
        change,
    ),
    needs=("layer",),
)
