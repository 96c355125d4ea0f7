"""The biases of the projections are missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from attn_exp.arrays import Array
from attn_exp.experiment.mistakes.mistake import Change, Mistake
from attn_exp.forms.pipeline import Step


def change(sides: str, output: bool) -> Change:
    """Return the change that leaves out the biases of these sides, and of the output."""
    return lambda recipe: replace(
        recipe,
        project=bare(recipe.project, sides),
        finish=bare_output(recipe.finish) if output else recipe.finish,
    )


def bare(project: Step, sides: str) -> Step:
    def step(side: str, x: Array, arrays: Mapping[str, Array]) -> Any:
        kept = {name: array for name, array in arrays.items() if name != f"b_{side}"}
        return project(side, x, kept if side in sides else arrays)

    return step


def bare_output(finish: Step) -> Step:
    return lambda at, merged, weight, bias: finish(at, merged, weight, None)


MISTAKE = Mistake(
    group="heads",
    says="The biases of the projections are missing.",
    fix="q = x @ W_q + b_q, and so for k and v",
    seen="Fast-LLM PR 398; candle-vllm PR 167; Qwen2 loaded as Llama",
    stage="q",
    changes=(
        change("qkv", True),
        change("qkv", False),
        change("q", False),
        change("k", False),
        change("qk", False),
        change("", True),
    ),
    needs=("bias",),
)
