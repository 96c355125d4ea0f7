"""Query, key and value weights are taken in the wrong order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.mistakes.mistake import Change, Mistake
from attn_exp.forms.pipeline import Recipe, Step


def change(order: str) -> Change:
    """Return the change that takes the projections in this order."""
    return lambda recipe: replace(recipe, project=ordered(recipe.project, dict(zip("qkv", order, strict=True))))


def ordered(project: Step, taken: Mapping[str, str]) -> Step:
    return lambda side, x, arrays: project(taken[side], x, arrays)


def per_head(recipe: Recipe) -> Recipe:
    """The three matrices side by side are read as [q | k | v] of each head in turn, as GPT-NeoX has them."""
    return replace(recipe, project=read_per_head(recipe.heads))


def read_per_head(count: int) -> Step:
    def step(side: str, x: Array, arrays: Mapping[str, Array]) -> Array:
        fused = np.concatenate([x @ arrays[f"W_{name}"] + arrays.get(f"b_{name}", 0.0) for name in "qkv"], axis=-1)
        apart = fused.reshape(*x.shape[:-1], count, 3, fused.shape[-1] // (3 * count))
        return np.asarray(apart[..., "qkv".index(side), :].reshape(*x.shape[:-1], -1))

    return step


def interleaved(recipe: Recipe) -> Recipe:
    """The three matrices side by side are read with q, k and v in turns."""
    return replace(recipe, project=read_in_turns)


def read_in_turns(side: str, x: Array, arrays: Mapping[str, Array]) -> Array:
    fused = np.concatenate([x @ arrays[f"W_{name}"] + arrays.get(f"b_{name}", 0.0) for name in "qkv"], axis=-1)
    return np.asarray(fused[..., "qkv".index(side) :: 3])


MISTAKE = Mistake(
    group="heads",
    says="Query, key and value weights are taken in the wrong order.",
    fix="the fused matrix holds [q | k | v] in this order; check the model's own layout",
    seen="mlxcel PR 928; NeMo-RL PR 2802; Odyssey issue 5648",
    stage="q",
    changes=(
        *(change(order) for order in ("vkq", "qvk", "kvq", "vqk")),
        per_head,
        interleaved,
    ),
    needs=("layer",),
)
