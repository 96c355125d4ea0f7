"""Tokens and heads are not exchanged: features of tokens are mixed, or the heads of one token attend to one another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.mistakes._parts import as_it_lies
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import At, Recipe, Step


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, split=view)


def with_merge(recipe: Recipe) -> Recipe:
    return replace(recipe, split=view, merge=as_it_lies)


def view(flat: Array, count: int) -> Array:
    batch, length, width = flat.shape
    return flat.reshape(batch, count, length, width // count)


def heads_as_tokens(recipe: Recipe) -> Recipe:
    """Return the recipe that leaves heads `[b t h d]`, where those of one token are each other's keys."""

    def allowed(at: At) -> Array:
        return np.asarray(recipe.allowed(replace(at, rows=at.heads, keys=at.heads)))

    return replace(recipe, place=exchanged(recipe.place), allowed=allowed, gather=back(recipe.gather))


def heads_as_tokens_merged(recipe: Recipe) -> Recipe:
    return replace(heads_as_tokens(recipe), merge=as_it_lies)


def exchanged(place: Step) -> Step:
    return lambda at, side, heads, positions: place(at, side, heads, positions).swapaxes(1, 2)


def back(gather: Step) -> Step:
    return lambda at, context: gather(at, context.swapaxes(1, 2))


MISTAKE = Mistake(
    group="heads",
    says="Tokens and heads are not exchanged: tokens and features are mixed, or the heads of one token attend to each "
    "other.",
    fix="reshape to [t, h, d] and transpose to [h, t, d]",
    seen="jsbaan/transformer-from-scratch PR 6; ajhalthor PR 4; hyunwoongko issue 15",
    stage="q",
    changes=(
        with_merge,
        change,
        heads_as_tokens,
        heads_as_tokens_merged,
    ),
    needs=("layer",),
)
