"""The catalogue of attention mistakes. A run can make each of them, by name, and `check` finds them in user code.

Each file is a group, and lists its mistakes by name in `MISTAKES`. `mistake.py` defines `Mistake`.
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
    """Return all mistakes by name; the groups are imported on the first call.

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
    """Return the mistake of that name; raise a UserError if a run cannot make it."""
    member = mistake(name)
    if not member.changes:
        raise UserError(
            f"mistake={name} shows only across several calls, so a run cannot make it; "
            "attn-exp check finds it in a function"
        )
    return member


def apply_mistakes(mistake_names: Sequence[str], recipe: Recipe) -> Recipe:
    """Return the recipe with the mistakes applied in order, each in its first variant.

    Raises:
        UserError: a mistake shows only across several calls.
    """
    for name in mistake_names:
        recipe = require_usable(name).changes[0](recipe)
    return recipe
