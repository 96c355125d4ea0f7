"""The output projection W_o is transposed."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe, Step


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, finish=turned(recipe.finish))


def turned(finish: Step) -> Step:
    return lambda at, merged, weight, bias: finish(at, merged, None if weight is None else weight.T, bias)


MISTAKE = Mistake(
    group="heads",
    says="The output projection W_o is transposed.",
    fix="output = concatenated heads @ W_o; nn.Linear stores the transpose",
    seen="weights moved between libraries",
    stage="output",
    changes=(change,),
    needs=("output",),
)
