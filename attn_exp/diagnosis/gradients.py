"""Gradients: what the library derives, beside the slope of the function itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from attn_exp.diagnosis.call import Caller, called, parts_of
from attn_exp.diagnosis.case import Case
from attn_exp.diagnosis.libraries import DIGITS
from attn_exp.experiment.verdict import ABSENT, BROKEN, HELD, REMARK, Finding

STEP = 1e-6


def gradients(caller: Caller, case: Case, digits: int) -> Finding:
    """Hold PyTorch's gradients against central differences of the function, along one random direction."""
    rung = "gradients"
    if caller.library.name != "torch" or digits < DIGITS["float64"]:
        return Finding(rung, ABSENT)
    sides = ("q", "k", "v") if case.given.x is None else ("x",)
    arguments = caller.arguments(case)
    try:
        derived, measured = slopes(caller, arguments, sides)
    except Exception as error:
        return Finding(rung, REMARK, f"none: {error}".splitlines()[0][:100])
    if abs(derived - measured) <= 1e-5 * max(abs(measured), 1.0):
        return Finding(rung, HELD)
    return Finding(rung, BROKEN, f"the slope is {measured:.6g}, the gradient says {derived:.6g}")


def slopes(caller: Caller, arguments: dict[str, Any], sides: tuple[str, ...]) -> tuple[float, float]:
    """Return the derivative that autograd gives along a direction, and the one measured."""
    import torch  # noqa: PLC0415 - the function brought it

    rng = np.random.default_rng(5)
    direction = {side: torch.from_numpy(rng.standard_normal(tuple(arguments[side].shape))) for side in sides}
    direction = {side: step.to(arguments[side].device) for side, step in direction.items()}
    leaves = {side: arguments[side].clone().requires_grad_() for side in sides}

    def total(moved: dict[str, Any]) -> Any:
        output = next(iter(parts_of(called(caller.function, caller.offer, arguments | moved)).values()))
        weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype, device=output.device)
        return (output.reshape(-1) * weights).sum()

    derivatives = torch.autograd.grad(total(leaves), list(leaves.values()))
    derived = sum(float((slope * direction[side]).sum()) for side, slope in zip(sides, derivatives, strict=True))
    ends = [
        float(total({side: arguments[side] + sign * STEP * direction[side] for side in sides})) for sign in (1.0, -1.0)
    ]
    return derived, (ends[0] - ends[1]) / (2 * STEP)
