"""The softmax is applied twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms import steps
from attn_exp.forms.pipeline import Recipe, Step


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, normalize=twice(recipe.normalize))


def twice(normalize: Step) -> Step:
    return lambda at, masked: steps.softmax(normalize(at, masked), -1)


def masked_again(recipe: Recipe) -> Recipe:
    return replace(recipe, normalize=again(recipe.normalize))


def again(normalize: Step) -> Step:
    return lambda at, masked: steps.softmax(np.where(np.isneginf(masked), -np.inf, normalize(at, masked)), -1)


MISTAKE = Mistake(
    group="softmax",
    says="The softmax is applied twice.",
    fix="weights = softmax(logits), once",
    seen="a function that returns weights, and a caller that takes them for logits",
    stage="weights",
    changes=(
        change,
        masked_again,
    ),
)
