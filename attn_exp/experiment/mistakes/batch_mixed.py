"""The entries of a batch see each other: an answer depends on its neighbours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_exp.experiment.mistakes._parts import over
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe, Step


def over_batch(recipe: Recipe) -> Recipe:
    return replace(recipe, normalize=over(0))


def first_keys(recipe: Recipe) -> Recipe:
    return replace(recipe, share=first(recipe.share))


def first(share: Step) -> Step:
    return lambda at, heads: np.broadcast_to(share(at, heads)[:1], share(at, heads).shape)


def neighbours(recipe: Recipe) -> Recipe:
    return replace(recipe, share=rolled(recipe.share))


def rolled(share: Step) -> Step:
    return lambda at, heads: np.roll(share(at, heads), 1, axis=0)


MISTAKE = Mistake(
    group="behaviour",
    says="The entries of a batch see each other: an answer depends on its neighbours.",
    fix="no sum and no softmax may run over the batch",
    seen="batch and sequence swapped: AEMatter issue 3, OmDet issue 19",
    stage="weights",
    changes=(
        over_batch,
        first_keys,
        neighbours,
    ),
    needs=("batch",),
)
