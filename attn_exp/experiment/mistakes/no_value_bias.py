"""The bias of the values is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from attn_exp.arrays import Array
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe, Step


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, project=bare(recipe.project))


def bare(project: Step) -> Step:
    def step(side: str, x: Array, arrays: Mapping[str, Array]) -> Any:
        return project(side, x, {name: array for name, array in arrays.items() if side != "v" or name != "b_v"})

    return step


MISTAKE = Mistake(
    group="heads",
    says="The bias of the values is missing.",
    fix="v = x @ W_v + b_v",
    seen="ANEForge PR 253",
    stage="v",
    changes=(change,),
    needs=("bias",),
)
