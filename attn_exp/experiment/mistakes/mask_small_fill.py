"""Hidden keys get a logit that is too small a penalty, such as -10 or 1e-9, so they keep some weight."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_exp.experiment.mistakes.mistake import Change, Mistake

FILLS = (-10.0, -1.0, -2.0, -3.0, -4.0, -5.0, -8.0, -9.0, -15.0, -20.0, -30.0, 1e-9, 1e-6, -1e-9, -50.0, -100.0,
         -1e3, -1e4)  # fmt: skip
"""Numbers that people fill with; any other is fitted to the answer by the diagnosis."""


def filled(number: float) -> Change:
    """Return the change that fills with this number."""
    return lambda recipe: replace(recipe, forbid=lambda at, logits, allowed: np.where(allowed, logits, number))


def added(number: float) -> Change:
    """Return the change that adds this number where the mask forbids."""
    return lambda recipe: replace(recipe, forbid=lambda at, logits, allowed: np.where(allowed, logits, logits + number))


MISTAKE = Mistake(
    group="masks",
    says="Hidden keys get a logit that is too small a penalty, such as -10 or 1e-9, so they keep some weight.",
    fix="fill with -inf, or with the type's lowest number",
    seen="gluonts PR 1401 (1e-9 for -1e9); transformers issues 14859 and 17121",
    stage="masked",
    changes=(
        *(filled(number) for number in FILLS),
        *(added(number) for number in FILLS if number < -0.5),
    ),
    needs=("mask",),
)
