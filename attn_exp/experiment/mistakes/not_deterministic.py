"""The same call gives different answers."""

from __future__ import annotations

from attn_exp.experiment.mistakes.mistake import Mistake

MISTAKE = Mistake(
    group="behaviour",
    says="The same call gives different answers.",
    fix="look for threads that add in any order, for unset memory, or for a random number",
    seen="kernels with atomic sums; reads of memory that nobody wrote",
    stage="output",
)
