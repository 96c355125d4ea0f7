"""The catalogue of attention mistakes: each can be made in a run by name, and is diagnosed in user code.

Each file is a group, which lists its mistakes by name in `MISTAKES`; `mistake.py` defines `Mistake`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from attn_exp import registry
from attn_exp.errors import UserError, unknown
from attn_exp.forms.pipeline import Recipe
from attn_exp.mistakes.mistake import Mistake


@cache
def catalogue() -> dict[str, Mistake]:
    """Return every mistake of every group by name; they are loaded on the first call.

    Raises:
        TypeError: two groups define the same name.
    """
    mistakes_by_name: dict[str, Mistake] = {}
    for group in registry.names(__path__, without=("mistake",)):
        for name, mistake in registry.module(__name__, group).MISTAKES.items():
            if name in mistakes_by_name:
                raise TypeError(f"mistake {name} is defined in {mistakes_by_name[name].group}.py and in {group}.py")
            mistakes_by_name[name] = replace(mistake, group=group)
    return mistakes_by_name


def names() -> tuple[str, ...]:
    return tuple(sorted(catalogue()))


def mistake(name: str) -> Mistake:
    if name not in catalogue():
        raise UserError(unknown(name, ("none", *names()), "mistake"))
    return catalogue()[name]


def require_usable(name: str) -> Mistake:
    member = mistake(name)
    if not member.changes:
        raise UserError(f"mistake={name} shows only across several calls; attn-exp check finds it in a function")
    return member


def apply_mistakes(mistake_names: Sequence[str], recipe: Recipe) -> Recipe:
    """Apply the first variant of each mistake to the recipe, in order.

    Raises:
        UserError: a mistake shows only across several calls.
    """
    for name in mistake_names:
        recipe = require_usable(name).changes[0](recipe)
    return recipe
