"""The heads are averaged or added instead of put side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.mistakes.mistake import Change, Mistake
from attn_exp.forms.pipeline import At, Step

Combine = Callable[[Array], Array]


def averaged(context: Array) -> Array:
    return np.asarray(context.mean(axis=1, keepdims=True))


def added(context: Array) -> Array:
    return np.asarray(context.sum(axis=1, keepdims=True))


def for_all(combine: Combine) -> Step:
    """Give every head the same."""
    return lambda at, context: np.broadcast_to(combine(context), context.shape)


def for_one(combine: Combine) -> Step:
    """Keep one head."""
    return lambda at, context: combine(context)


def without_heads(combine: Combine) -> Step:
    """Drop the axis of heads."""
    return lambda at, context: combine(context)[:, 0]


def change(gather: Step) -> Change:
    """Return the change that gathers the heads so; W_o then lends its first rows, as many as there are numbers."""
    return lambda recipe: replace(recipe, gather=gather, finish=fitting(recipe.finish))


def fitting(finish: Step) -> Step:
    def step(at: At, merged: Array, weight: Array | None, bias: Array | None) -> Array:
        return np.asarray(finish(at, merged, None if weight is None else weight[: merged.shape[-1]], bias))

    return step


MISTAKE = Mistake(
    group="heads",
    says="The heads are averaged or added instead of put side by side.",
    fix="concatenate the heads",
    seen="d2l-en PR 439; Kyubyong/transformer issue 117",
    stage="output",
    changes=tuple(change(way(how)) for how in (averaged, added) for way in (for_all, for_one, without_heads)),
)
