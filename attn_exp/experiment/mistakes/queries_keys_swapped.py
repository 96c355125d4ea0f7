"""Keys ask and queries answer: the scores are k q^T instead of q k^T."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe, Step


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, score=swapped(recipe.score))


def swapped(score: Step) -> Step:
    return lambda at, q, k: score(at, k, q)


def exchanged(recipe: Recipe) -> Recipe:
    """W_q and W_k change places, so that q and k themselves are exchanged."""
    return replace(recipe, project=crossed(recipe.project))


def crossed(project: Step) -> Step:
    return lambda side, x, arrays: project({"q": "k", "k": "q"}.get(side, side), x, arrays)


MISTAKE = Mistake(
    group="products",
    says="Keys ask and queries answer: the scores are k q^T instead of q k^T.",
    fix="scores = q @ k^T",
    seen="projections in the order k, q, v; tokens as columns read as rows",
    stage="scores",
    changes=(change, exchanged),
)
