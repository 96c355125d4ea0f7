"""Each value is spread by its own query's weights instead of gathered: the weights are transposed."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe, Step


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, mix=turned(recipe.mix))


def turned(mix: Step) -> Step:
    return lambda at, weights, v, k: mix(at, weights.swapaxes(-1, -2), v, k)


def written(recipe: Recipe) -> Recipe:
    """The weights themselves are written down with queries as columns, and used so."""
    return replace(recipe, after=turned_after(recipe.after))


def turned_after(after: Step) -> Step:
    return lambda at, weights, allowed: after(at, weights, allowed).swapaxes(-1, -2)


MISTAKE = Mistake(
    group="products",
    says="Each value is spread by its own query's weights instead of gathered: the weights are transposed.",
    fix="context = weights @ v",
    seen="Understanding Deep Learning, notebook 12.1; SAGAN issue 11",
    stage="context",
    changes=(change, written),
)
