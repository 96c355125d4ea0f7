"""Why rows differ, in words: what each step of a ladder does, and never a setting that did nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from attn_exp.experiment.ladder import TOO_LARGE
from attn_exp.experiment.measuring import DIFFERENT
from attn_exp.experiment.row import Row, Step
from attn_exp.report.words import listed

MATTERS = 0.1
"""An order matters where it changes how far a step moves the answer by more than this share of the most."""

NOTHING = 1e-9
"""A step that moves less than this share of the whole difference in any order does nothing that is told."""


def departure(members: Sequence[Row], first: Row, steps: Sequence[Step] | None) -> str:
    """Say how far a group of variants that compute one function is from the row compared with, and what makes it so."""
    names, far = listed([row.variant for row in members]), max(row.shift for row in members)
    differ = "differs" if len(members) == 1 else "differ"
    shape = math.isnan(far)
    said = f"{names} {differ} from {first.variant} " + (
        "in the shape of the output" if shape else f"by up to {far:.2g} in the output"
    )
    return said + why(members, steps or ())


def why(members: Sequence[Row], steps: Sequence[Step]) -> str:
    """Return what makes a group of variants differ, after its distance; nothing where no steps are known."""
    causes: dict[str, list[str]] = {}
    for row in members:
        mine = [step for step in steps if step.variant == row.variant]
        if mine:
            causes.setdefault(cause(mine), []).append(row.variant)
    if len(causes) < 2:
        return next(iter(causes), "")
    return ": " + "; ".join(
        f"in {listed(names)} {said.removeprefix(', and ').removeprefix(': ')}" for said, names in causes.items()
    )


def cause(steps: Sequence[Step]) -> str:
    """Say what the steps to one row do: `: 2 heads move it by up to 0.031, then W_o by up to 0.67`."""
    telling = [step for step in steps if tells(step, steps)]
    if len(telling) == 1 and telling[0].note == TOO_LARGE:
        return f": {telling[0].change}; the run is too large to tell them apart"
    settings = {name for step in steps for name in step.setting.split(" + ")} - {"form"}
    if len(telling) == 1 and len(settings) < 2:
        alone = telling[0]
        return f", and {alone.change} alone {'do' if is_plural(alone) else 'does'} that"
    return ": " + ", then ".join(clauses(telling))


def clauses(steps: Sequence[Step]) -> Iterator[str]:
    """Yield what each step does; the verb stands in the first that has it."""
    verb = {True: " move it", False: " moves it"}
    for step in steps:
        many, orders = is_plural(step), ranged(step)
        if math.isnan(step.moved):
            yield f"{step.change} {'change' if many else 'changes'} its shape"
            continue
        yield f"{step.change}{verb.get(many, '')} by up to {step.moved:.2g}{f' ({orders})' if orders else ''}"
        verb = {}


def tells(step: Step, steps: Sequence[Step]) -> bool:
    """Say whether a step moves the answer beyond rounding, here or in another order."""
    return step.sameness == DIFFERENT or step.most > NOTHING * max(
        (other.moved for other in steps if not math.isnan(other.moved)), default=0.0
    )


def ranged(step: Step) -> str:
    """Say how far a step moves the answer in other orders, where that matters."""
    if not step.orders or step.most - step.least <= MATTERS * step.most:
        return ""
    return f"{step.least:.2g} to {step.most:.2g} over all orders"


def is_plural(step: Step) -> bool:
    """Say whether a verb after the change is that of several things."""
    return " + " in step.setting or (step.setting in ("head", "kv_head") and step.after != "1")


def nothing_else(members: Sequence[Row], steps: Sequence[Step] | None) -> str:
    """Say of rows that compute one function that nothing else tells them apart, where that is so."""
    if steps is None:
        return ""
    settings = {
        frozenset(
            (step.setting, step.after) for step in steps if step.variant == row.variant and step.setting != "form"
        )
        for row in members
    }
    if len(settings) > 1:
        return ""
    if len({row.form for row in members}) == 1:
        return ", and nothing in them differs"
    return ", and differ in nothing but how they compute it"
