"""Ways to compute attention wrongly, one to a file, found by its name: each can be run, and named in people's code."""

from __future__ import annotations

from collections.abc import Sequence

from attn_exp import registry
from attn_exp.errors import UserError, unknown
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe

CONTRACT = ("mistake",)


def names() -> tuple[str, ...]:
    """Return the name of every mistake."""
    return registry.names(__path__, without=CONTRACT)


def mistake(name: str) -> Mistake:
    """Return the mistake of that name.

    Raises:
        UserError: there is none.
    """
    if not registry.has(__name__, name, without=CONTRACT):
        raise UserError(unknown(name, ("none", *names()), "mistake"))
    member: Mistake = registry.module(__name__, name).MISTAKE
    return member


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
