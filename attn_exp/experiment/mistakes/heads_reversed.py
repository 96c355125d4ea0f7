"""The heads are put together in the reverse order."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe, Step


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, gather=backwards(recipe.gather))


def backwards(gather: Step) -> Step:
    return lambda at, context: gather(at, context)[:, ::-1]


MISTAKE = Mistake(
    group="heads",
    says="The heads are put together in the reverse order.",
    fix="head 0 first, head h - 1 last",
    seen="a list of heads that is built from its end",
    stage="output",
    changes=(change,),
)
