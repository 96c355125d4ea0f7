"""The weights mix the keys instead of the values."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe, Step


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, mix=of_keys(recipe.mix))


def of_keys(mix: Step) -> Step:
    return lambda at, weights, v, k: mix(at, weights, k, k)


def projected(recipe: Recipe) -> Recipe:
    """W_k makes the values too."""
    return replace(recipe, project=by_w_k(recipe.project))


def by_w_k(project: Step) -> Step:
    return lambda side, x, arrays: project("k" if side == "v" else side, x, arrays)


MISTAKE = Mistake(
    group="products",
    says="The weights mix the keys instead of the values.",
    fix="context = weights @ v",
    seen="k passed twice to an attention function",
    stage="context",
    changes=(change, projected),
)
