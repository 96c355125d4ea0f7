"""A second call overwrites the first answer: both are the same memory."""

from __future__ import annotations

from attn_exp.experiment.mistakes.mistake import Mistake

MISTAKE = Mistake(
    group="behaviour",
    says="A second call overwrites the first answer: both are the same memory.",
    fix="return a new array at each call",
    seen="a buffer kept between calls",
    stage="output",
)
