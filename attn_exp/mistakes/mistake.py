"""What a mistake is: steps of attention done otherwise, with the words that name it and mend it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from attn_exp.forms.pipeline import Recipe, Step

Change = Callable[[Recipe], Recipe]


@dataclass(frozen=True)
class Mistake:
    """One way to compute attention wrongly.

    `says` is a sentence that a student understands, `fix` mends it in one line, `seen` is where it was found in the
    wild. `stage` is the first stage that it changes. `changes` are the ways in which people make it: each takes a
    recipe and returns the wrong one. Without any, only several calls show it, and the check finds it by asking twice.
    `needs` are the settings without which nobody could tell: all of them must be asked for. A `remark` is no failure:
    plain code that is otherwise right does it too. `also` names for each of the first changes what else it gets wrong
    at once, if anything. `of_code`: no numbers on paper are held against it, only functions. `group` is the file that
    it stands in.
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
    """Return the change that takes other steps, each by its name."""
    other: dict[str, Any] = dict(steps)
    return lambda recipe: recipe.changed(**other)


def around(name: str, wrong: Callable[..., Any]) -> Change:
    """Return the change of one step into `wrong(step, ...)`: the recipe's own step, and what that is given."""
    return lambda recipe: recipe.changed(**{name: Otherwise(wrong, getattr(recipe, name))})


class Otherwise(NamedTuple):
    """A step that is done otherwise, `wrong(step, ...)`: the same of the same two, so that what it made is found."""

    wrong: Callable[..., Any]
    step: Step

    def __call__(self, *given: Any) -> Any:
        """Take the step."""
        return self.wrong(self.step, *given)


def together(*changes: Change) -> Change:
    """Return the change that makes several, one after another."""

    def change(recipe: Recipe) -> Recipe:
        for one in changes:
            recipe = one(recipe)
        return recipe

    return change
