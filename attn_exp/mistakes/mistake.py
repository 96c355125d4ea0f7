"""The definition of a mistake: changed steps of attention, and sentences that describe it and its fix.

`pipeline.Recipe` lists the steps that a mistake can change, such as `scaled` or `normalize`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from attn_exp.forms.pipeline import Recipe, Step

Change = Callable[[Recipe], Recipe]


@dataclass(frozen=True)
class Mistake:
    """One way to compute attention wrongly.

    - `says`: describes the mistake to a student.
    - `fix`: corrects it in one line.
    - `seen`: names code where it was found.
    - `stage`: the first stage that it changes.
    - `changes`: the variants that people write; each takes a recipe and returns the wrong one. If there are none, the
      mistake shows only across several calls, so `check` calls the function twice.
    - `needs`: settings that must all be in use, because without them the mistake has no effect.
    - `remark`: whether it does not count as a failure, because simple code that is otherwise correct does it too.
    - `also`: pairs with the first `changes`: the name of a second mistake that this change makes, or "".
    - `of_code`: whether it occurs only in code, so that numbers on paper are not checked for it.
    - `group`: the name of the file that defines it.
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
    """Return the change that replaces these steps of a recipe."""
    replacements = dict(steps)
    return lambda recipe: recipe.changed(**replacements)


def around(name: str, wrong: Callable[..., Any]) -> Change:
    """Return the change that replaces one step with `wrong`, which gets the recipe's own step before the arguments."""
    return lambda recipe: recipe.changed(**{name: WrappedStep(wrong, getattr(recipe, name))})


class WrappedStep(NamedTuple):
    """A step that calls `wrong(step, ...)`; two wrappers of the same functions are equal, so that caches find them."""

    wrong: Callable[..., Any]
    step: Step

    def __call__(self, *given: Any) -> Any:
        return self.wrong(self.step, *given)


def together(*changes: Change) -> Change:

    def change(recipe: Recipe) -> Recipe:
        for apply_change in changes:
            recipe = apply_change(recipe)
        return recipe

    return change
