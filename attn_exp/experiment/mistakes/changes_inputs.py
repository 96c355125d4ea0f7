"""The function changes its inputs."""

from __future__ import annotations

from attn_exp.experiment.mistakes.mistake import Mistake

MISTAKE = Mistake(
    group="behaviour",
    says="The function changes its inputs.",
    fix="work on copies; no += and no out= on what was given",
    seen="q *= scale; an in-place mask on a cell that is run again",
    stage="q",
)
