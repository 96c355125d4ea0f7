"""Ways to compute attention wrongly, found by name: each can be run, and named in people's code.

The files are groups of mistakes. Each holds them by name in its `MISTAKES`; `mistake.py` says what a mistake is.
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
    """Return every mistake of every group by its name; runs that make none need not load them.

    Raises:
        TypeError: two groups have one of the same name.
    """
    known: dict[str, Mistake] = {}
    for group in registry.names(__path__, without=("mistake",)):
        for name, mistake in registry.module(__name__, group).MISTAKES.items():
            if name in known:
                raise TypeError(f"mistake {name} stands in {known[name].group}.py and in {group}.py")
            known[name] = replace(mistake, group=group)
    return known


def names() -> tuple[str, ...]:
    """Return the name of every mistake, in order."""
    return tuple(sorted(catalogue()))


def mistake(name: str) -> Mistake:
    """Return the mistake of that name.

    Raises:
        UserError: there is none.
    """
    if name not in catalogue():
        raise UserError(unknown(name, ("none", *names()), "mistake"))
    return catalogue()[name]


def usable(name: str) -> Mistake:
    """Return the mistake of that name, which a run can make.

    Raises:
        UserError: there is none, or it shows only between several calls.
    """
    member = mistake(name)
    if not member.changes:
        raise UserError(f"mistake={name} shows only between several calls; attn-exp check finds it in a function")
    return member


def applied(wanted: Sequence[str], recipe: Recipe) -> Recipe:
    """Return the recipe with these mistakes made, one after another, each in the first of its ways.

    Raises:
        UserError: a mistake that shows only between several calls.
    """
    for name in wanted:
        recipe = usable(name).changes[0](recipe)
    return recipe
