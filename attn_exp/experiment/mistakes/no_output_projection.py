"""The output projection W_o is missing."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, finish=lambda at, merged, weight, bias: merged)


def bias_alone(recipe: Recipe) -> Recipe:
    return replace(recipe, finish=lambda at, merged, weight, bias: merged if bias is None else merged + bias)


MISTAKE = Mistake(
    group="heads",
    says="The output projection W_o is missing.",
    fix="output = concatenated heads @ W_o",
    seen="sequence_labeling_tf PR 83; LLMs-from-scratch issue 67",
    stage="output",
    changes=(
        change,
        bias_alone,
    ),
    needs=("output",),
)
