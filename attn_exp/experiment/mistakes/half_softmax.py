"""The softmax is computed in half precision."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes import _half as half
from attn_exp.experiment.mistakes.mistake import Change, Mistake
from attn_exp.forms.pipeline import Step


def change(kind: str) -> Change:
    """Return the change that computes the softmax in a half type."""
    return lambda recipe: replace(recipe, normalize=halved(recipe.normalize, kind))


def halved(normalize: Step, kind: str) -> Step:
    return lambda at, masked: half.rounded(normalize(at, half.rounded(masked, kind)), kind)


MISTAKE = Mistake(
    group="precision",
    says="The softmax is computed in half precision.",
    fix="compute the softmax in float32 or better",
    seen="llama.cpp issue 12441; flash-attention PR 2721",
    stage="weights",
    changes=(*(change(kind) for kind in half.KINDS),),
)
