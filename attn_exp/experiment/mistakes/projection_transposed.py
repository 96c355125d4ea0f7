"""A projection is transposed: x W^T instead of x W."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from attn_exp.arrays import Array
from attn_exp.experiment.mistakes.mistake import Change, Mistake
from attn_exp.forms.pipeline import Step


def change(sides: str) -> Change:
    """Return the change that turns the projections of these sides."""
    return lambda recipe: replace(recipe, project=turned(recipe.project, sides))


def turned(project: Step, sides: str) -> Step:
    def step(side: str, x: Array, arrays: Mapping[str, Array]) -> Any:
        name = f"W_{side}"
        return project(side, x, {**arrays, name: arrays[name].T} if side in sides else arrays)

    return step


MISTAKE = Mistake(
    group="heads",
    says="A projection is transposed: x W^T instead of x W.",
    fix="q = x @ W_q; nn.Linear stores the transpose",
    seen="x @ in_proj_weight without .T; AutoGPTQ PR 139",
    stage="q",
    changes=(*(change(sides) for sides in ("qkv", "q", "k", "v", "qk", "kv", "qv")),),
    needs=("layer",),
)
