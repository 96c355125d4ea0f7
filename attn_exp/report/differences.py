"""Explain in words why rows differ: the effect of each step of a ladder, leaving out settings without any."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from attn_exp.experiment.ladder import TOO_LARGE
from attn_exp.experiment.measuring import DIFFERENT
from attn_exp.experiment.row import Row, Step
from attn_exp.report.words import listed

MATTERS = 0.1
"""Orders are reported if they vary the move of a step by more than this share of the largest."""

NOTHING = 1e-9
"""A step is left out if it moves less than this share of the largest move, in every order."""


def departure(members: Sequence[Row], first: Row, steps: Sequence[Step] | None) -> str:
    """Say how far a group of variants that compute one function is from the baseline row, and why."""
    names, far = listed([row.variant for row in members]), max(row.max_diff for row in members)
    differ = "differs" if len(members) == 1 else "differ"
    shape = math.isnan(far)
    said = f"{names} {differ} from {first.variant} " + (
        "in the shape of the output" if shape else f"by up to {far:.2g} in the output"
    )
    return said + format_causes(members, steps or ())


def format_causes(members: Sequence[Row], steps: Sequence[Step]) -> str:
    causes: dict[str, list[str]] = {}
    for row in members:
        mine = [step for step in steps if step.variant == row.variant]
        if mine:
            causes.setdefault(format_cause(mine), []).append(row.variant)
    if len(causes) < 2:
        return next(iter(causes), "")
    return ": " + "; ".join(
        f"in {listed(names)} {said.removeprefix(', and ').removeprefix(': ')}" for said, names in causes.items()
    )


def format_cause(steps: Sequence[Step]) -> str:
    """Describe the steps to one row: `: 2 heads change the output by up to 0.031, then W_o by up to 0.67`."""
    telling = [step for step in steps if tells(step, steps)]
    if len(telling) == 1 and telling[0].note == TOO_LARGE:
        return f": {telling[0].change}; the run is too large to tell them apart"
    settings = {name for step in steps for name in step.setting.split(" + ")} - {"form"}
    if len(telling) == 1 and len(settings) < 2:
        alone = telling[0]
        return f", and {alone.change} alone {'do' if is_plural(alone) else 'does'} that"
    return ": " + ", then ".join(format_steps(telling))


def format_steps(steps: Sequence[Step]) -> Iterator[str]:
    verb = {True: " change the output", False: " changes the output"}
    for step in steps:
        many, orders = is_plural(step), ranged(step)
        if math.isnan(step.moved):
            yield f"{step.change} {'change' if many else 'changes'} its shape"
            continue
        yield f"{step.change}{verb.get(many, '')} by up to {step.moved:.2g}{f' ({orders})' if orders else ''}"
        verb = {}


def tells(step: Step, steps: Sequence[Step]) -> bool:
    """Return whether a step moves the output beyond rounding, in this order or another."""
    return step.sameness == DIFFERENT or step.most > NOTHING * max(
        (other.moved for other in steps if not math.isnan(other.moved)), default=0.0
    )


def ranged(step: Step) -> str:
    """Format how far a step moves the output over all orders; empty if the order hardly matters."""
    if not step.orders or step.most - step.least <= MATTERS * step.most:
        return ""
    return f"{step.least:.2g} to {step.most:.2g}, depending on the order"


def is_plural(step: Step) -> bool:
    return " + " in step.setting or (step.setting in ("head", "kv_head") and step.after != "1")
