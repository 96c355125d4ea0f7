"""What questions ask for, in the words that mistakes need."""

from __future__ import annotations

from collections.abc import Sequence

from attn_exp.experiment.judging.case import Case
from attn_exp.rules.scores.score import Score


def features(cases: Sequence[Case]) -> set[str]:
    """Return what the cases ask for: the words that mistakes need."""
    words: set[str] = set()
    for case in cases:
        recipe = case.recipe
        words |= {type(mask).__name__.lower() for mask in recipe.rules.masks}
        words |= {type(rule).__name__.lower() for rule in recipe.rules.scores}
        words |= {"added"} if any(type(rule).bias is not Score.bias for rule in recipe.rules.scores) else set()
        words |= {type(position).__name__.lower() for position in recipe.positions}
        words |= {"mask"} if recipe.rules.masks else set()
        words |= {"position"} if recipe.positions else set()
        words |= {"shared"} if recipe.groups != recipe.heads else set()
        words |= {"batch"} if batch_of(case) > 1 else set()
        words |= {"layer"} if case.given.x is not None or recipe.wide else set()
        words |= {"output"} if "W_o" in case.given.arrays else set()
        words |= {"bias"} if any(name.startswith("b_") for name in case.given.arrays) else set()
    return words


def batch_of(case: Case) -> int:
    array = case.given.q if case.given.x is None else case.given.x
    return 0 if array is None else len(array)
