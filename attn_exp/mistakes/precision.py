"""Mistakes in precision: products are summed, or a softmax is computed, in float16 or bfloat16."""

from __future__ import annotations

from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms.pipeline import Recipe, Setup, Step
from attn_exp.mistakes.mistake import Change, Mistake, around

HALF_DTYPES = ("float16", "bfloat16")


def round_to_half(array: Array, dtype: str) -> Array:
    if dtype == "float16":
        return array.astype(np.float16).astype(np.float64)
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    nearest = bits + 0x7FFF + ((bits >> 16) & 1)  # bfloat16 is the upper half of float32; ties go to the even one
    truncated = np.where(np.isfinite(array), nearest & np.uint32(0xFFFF0000), bits)
    return truncated.astype(np.uint32).view(np.float32).astype(np.float64)


def halve_precision(dtype: str, *names: str) -> Change:

    def round_step(step: Step, setup: Setup, *operands: Array) -> Any:
        return round_to_half(step(setup, *(round_to_half(operand, dtype) for operand in operands)), dtype)

    def change(recipe: Recipe) -> Recipe:
        for name in names:
            recipe = around(name, round_step)(recipe)
        return recipe

    return change


MISTAKES = {
    "half_accumulation": Mistake(
        says="Products are summed in half precision.",
        fix="sum products in float32 or better",
        seen="tinygrad PR 4985; stablediffusion PR 89",
        stage="scores",
        changes=tuple(
            halve_precision(kind, *names) for kind in HALF_DTYPES for names in (("score", "mix"), ("score",), ("mix",))
        ),
    ),
    "half_softmax": Mistake(
        says="The softmax is computed in half precision.",
        fix="compute the softmax in float32 or better",
        seen="llama.cpp issue 12441; flash-attention PR 2721",
        stage="weights",
        changes=tuple(halve_precision(kind, "normalize") for kind in HALF_DTYPES),
    ),
}
