"""A variant as a recipe: the stages that steps give on its problem, what it asks for, and whether it follows steps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.executing import answer, execute
from attn_exp.experiment.mistaken import right, start, traced
from attn_exp.experiment.variant import Settled
from attn_exp.forms.pipeline import Given, Recipe
from attn_exp.problem.problem import Problem
from attn_exp.rules.scores.score import Score

STAGES = ("q", "k", "v", "scores", "logits", "capped", "masked", "weights", "context", "output")
"""The stages, in the order in which they are computed."""

Stages = dict[str, Array]


def stages_of(recipe: Recipe, settled: Settled, problem: Problem) -> Stages | None:
    """Return the stages that a recipe gives on a problem, or None where it does not fit the shapes."""
    try:
        with np.errstate(all="ignore"):
            trace = traced(recipe, settled, problem)
    except (ValueError, IndexError, ZeroDivisionError):
        return None
    arrays = dict(trace.stages())
    for name in "kv":
        if name in arrays and len(arrays[name]) != settled.heads.shared:
            step = 1 if settled.tiled else max(len(arrays[name]) // settled.heads.shared, 1)
            arrays[name] = arrays[name][::step][: settled.heads.shared]
    return {name: array for name, array in arrays.items() if name in STAGES}


def given_to(settled: Settled, problem: Problem) -> Given:
    """Return what the recipe of a variant starts from; nothing where the weights themselves are given."""
    return Given() if problem.weights is not None else start(settled, problem)


def follows_steps(settled: Settled, problem: Problem) -> bool:
    """Say whether a variant computes what its recipe does: kernels and conventions of libraries may not."""
    exact, trace = stages_of(right(settled), settled, problem), execute(settled, problem)
    if exact is None:
        return False
    last = answer(trace)
    mine = exact["output" if trace.output is not None else "weights"]
    return mine.shape == last.shape and np.allclose(mine, last, rtol=1e-4, atol=1e-4, equal_nan=True)


def features(asked: Iterable[tuple[Recipe, Given]]) -> set[str]:
    """Return what some recipes ask for, in the words that mistakes need."""
    words: set[str] = set()
    for recipe, given in asked:
        words |= {type(mask).__name__.lower() for mask in recipe.rules.masks}
        words |= {kind.__name__.lower() for rule in recipe.rules.scores for kind in type(rule).__mro__}
        words |= {"added"} if any(type(rule).bias is not Score.bias for rule in recipe.rules.scores) else set()
        words |= {type(position).__name__.lower() for position in recipe.positions}
        words |= {"mask"} if recipe.rules.masks else set()
        words |= {"position"} if recipe.positions else set()
        words |= {"shared"} if recipe.groups != recipe.heads else set()
        words |= {"batch"} if entries(given) > 1 else set()
        words |= {"layer"} if given.x is not None or recipe.wide else set()
        words |= {"output"} if "W_o" in given.arrays else set()
        words |= {"bias"} if any(name.startswith("b_") for name in given.arrays) else set()
    return words


def entries(given: Given) -> int:
    """Return how many entries the batch has."""
    array = given.q if given.x is None else given.x
    return 0 if array is None else len(array)
