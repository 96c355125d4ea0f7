"""Conditions under which a function may go wrong, such as t = s or one mask per batch entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from attn_exp.diagnosis.asking.case import Case
from attn_exp.diagnosis.asking.offer import at_of
from attn_exp.diagnosis.asking.questions import SIZE
from attn_exp.diagnosis.recipes.candidates import Change, Seen
from attn_exp.forms.pipeline import Recipe
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal


@dataclass(frozen=True, eq=False)
class Condition:
    """A property of cases: `where` describes it for the user, `holds` tests it."""

    where: str
    holds: Callable[[Case], bool]


def sizes(where: str, holds: Callable[[int, int], bool]) -> Condition:
    """Return a condition on the numbers of queries and of keys."""
    return Condition(where, lambda case: holds(at_of(case).rows, at_of(case).keys))


def written(case: Case) -> list[Allowed]:
    """Return the masks of a case that are given as arrays."""
    return [mask for mask in case.recipe.rules.masks if isinstance(mask, Allowed)]


def is_causal(case: Case) -> bool:
    return any(isinstance(mask, Causal) for mask in case.recipe.rules.masks)


CONDITIONS = (
    Condition("there is a mask and causal together", lambda case: bool(written(case)) and is_causal(case)),
    Condition(
        "each head has a mask of its own", lambda case: any(one.values.shape[:-2][1:] > (1,) for one in written(case))
    ),
    Condition("each entry has a mask of its own", lambda case: any(one.values.ndim > 2 for one in written(case))),
    Condition("causal is asked for", is_causal),
    Condition("a mask is given", lambda case: bool(written(case))),
    Condition("heads share keys and values", lambda case: case.recipe.groups != case.recipe.heads),
    Condition("the scale is given", lambda case: case.explicit_scale),
    sizes("there are as many keys as queries (t = s)", lambda rows, keys: rows == keys),
    sizes("there are more keys than queries (s > t)", lambda rows, keys: keys > rows),
    sizes("there are more queries than keys (t > s)", lambda rows, keys: rows > keys),
    sizes("there are not as many keys as queries", lambda rows, keys: rows != keys),
    Condition("the batch has several entries", lambda case: at_of(case).batch > 1),
    Condition("the batch has one entry", lambda case: at_of(case).batch == 1),
    Condition("there are several heads", lambda case: at_of(case).heads > 1),
    Condition("there is one head", lambda case: at_of(case).heads == 1),
    Condition(f"a head has not {SIZE} numbers", lambda case: at_of(case).size != SIZE),
    Condition(f"a head has {SIZE} numbers", lambda case: at_of(case).size == SIZE),
)
"""Narrower conditions first."""


def that_hold(wrong: Seen, seen: Seen) -> Iterator[Condition]:
    """Yield the conditions that hold for all wrong answers, but not for all answers."""
    for condition in CONDITIONS:
        everywhere = all(condition.holds(case) for case, answer in seen if answer.output is not None)
        if not everywhere and all(condition.holds(case) for case, _ in wrong):
            yield condition


def only_there(wrong: Seen, seen: Seen) -> str:
    """Return the condition under which all answers, and at least two, are wrong; empty if there is none."""
    lost = {case for case, _ in wrong}
    for condition in that_hold(wrong, seen):
        inside = [case for case, answer in seen if answer.output is not None and condition.holds(case)]
        if len(inside) > 1 and all(case in lost for case in inside):
            return condition.where
    return ""


def under(condition: Condition, change: Change) -> Change:
    """Restrict a change to the cases for which a condition holds."""

    def changed(case: Case) -> Recipe:
        return change(case) if condition.holds(case) else case.recipe

    return changed
