"""One row of the comparison: a variant with its settings settled, run on the problem."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attn_exp import forms
from attn_exp.config import Config, UserError, Variant, unknown
from attn_exp.mistakes import MISTAKES
from attn_exp.problem import Problem, projected
from attn_exp.projections import check_divides
from attn_exp.rules.rule import Rules
from attn_exp.stages import Trace

Array = NDArray[Any]


@dataclass(frozen=True)
class Settled:
    """A variant in which nothing follows the run any more."""

    name: str
    form: str
    head: int
    scale: bool | float
    multiplier: float
    output_projection: bool
    mistake: str
    rules: Rules


def settle(name: str, variant: Variant, config: Config, problem: Problem) -> Settled:
    """Fill what the variant does not pin from the run, and check that it fits the problem.

    Raises:
        UserError: an unknown form or mistake, or heads that do not divide the sizes.
    """
    if variant.form not in forms.NAMES:
        raise UserError(unknown(variant.form, forms.NAMES, f"variant.{name}.form"))
    mistake = config.mistake if variant.mistake is None else variant.mistake
    if mistake not in MISTAKES:
        raise UserError(unknown(mistake, tuple(MISTAKES), "mistake"))
    head = config.head if variant.head is None else variant.head
    scale = config.scale if variant.scale is None else variant.scale
    check_head(head, problem)
    size = 1 if problem.q is None else problem.q.shape[-1] // head
    multiplier = factor(scale, size)
    return Settled(
        name,
        variant.form,
        head,
        scale,
        multiplier,
        variant.output_projection,
        mistake,
        Rules(scale=multiplier),
    )


def factor(scale: bool | float, size: int) -> float:
    """Return what the scores are multiplied by: 1 / sqrt(d), 1, or the number given."""
    if isinstance(scale, bool):
        return 1 / math.sqrt(size) if scale else 1.0
    return scale


def check_head(head: int, problem: Problem) -> None:
    """Refuse heads that would not share the sizes evenly, and name those that would."""
    for name, array in (("d_model", problem.q), ("the size of v", problem.v)):
        if array is not None:
            check_divides(head, array.shape[-1], name)


def execute(settled: Settled, problem: Problem) -> Trace:
    """Compute the variant on the problem and return every stage that its form formed."""
    v = None if problem.v is None else split(problem.v, settled.head)
    if problem.weights is not None:
        weights = np.broadcast_to(problem.weights, (settled.head, *problem.weights.shape))
        stages = forms.module(settled.form).mix(Trace(v=v, weights=weights))
    else:
        assert problem.q is not None and problem.k is not None
        stages = forms.attend(settled.form)(
            split(problem.q, settled.head), split(problem.k, settled.head), v, settled.rules
        )
    stages = MISTAKES[settled.mistake](stages)
    if stages.context is None:
        return stages
    return stages.replace(output=joined(stages.context, settled, problem))


def split(side_by_side: Array, heads: int) -> Array:
    """Turn `[t h*d]` into `[h t d]`: head i takes the i-th run of neighbouring columns."""
    length, width = side_by_side.shape
    return side_by_side.reshape(length, heads, width // heads).swapaxes(0, 1)


def joined(context: Array, settled: Settled, problem: Problem) -> Array:
    """Put the heads side by side `[t h*e]`, and multiply by W_o where the variant has an output projection."""
    heads, length, width = context.shape
    together = context.swapaxes(0, 1).reshape(length, heads * width)
    return (
        projected(together, problem.projections, "o") if settled.output_projection and problem.projections else together
    )
