"""What a mistake is: steps of attention changed, with the sentences that describe and fix it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from attn_exp.forms.pipeline import Recipe, Step

Change = Callable[[Recipe], Recipe]


@dataclass(frozen=True)
class Mistake:
    """One way to compute attention wrongly.

    `says` is a sentence that a student understands, `fix` corrects it in one line, `seen` is where it was found in the
    wild. `stage` is the first stage that it changes. `changes` are the variants that people write: each takes a recipe
    and returns the wrong one. Without any, the mistake shows only across several calls, and the check calls twice to
    find it. `needs` are the settings without which it cannot show: all must be in use. A `remark` is no failure:
    plain code that is otherwise right does it too. `also` names, for each of the first changes, another mistake that it
    makes at once, if any. `of_code`: only functions are checked for it, not numbers on paper. `group` is the file that
    defines it.
    """

    says: str
    fix: str
    seen: str
    stage: str
    changes: tuple[Change, ...] = ()
    needs: tuple[str, ...] = ()
    remark: bool = False
    also: tuple[str, ...] = ()
    of_code: bool = False
    group: str = ""


def instead(**steps: Step) -> Change:
    other: dict[str, Any] = dict(steps)
    return lambda recipe: recipe.changed(**other)


def around(name: str, wrong: Callable[..., Any]) -> Change:
    """Replace one step by `wrong(step, ...)`, which gets the recipe's own step and its arguments."""
    return lambda recipe: recipe.changed(**{name: Otherwise(wrong, getattr(recipe, name))})


class Otherwise(NamedTuple):
    """A wrapped step, `wrong(step, ...)`; equal to any other of the same two, so that caches find its result."""

    wrong: Callable[..., Any]
    step: Step

    def __call__(self, *given: Any) -> Any:
        return self.wrong(self.step, *given)


def together(*changes: Change) -> Change:

    def change(recipe: Recipe) -> Recipe:
        for one in changes:
            recipe = one(recipe)
        return recipe

    return change
