"""Products are summed in half precision."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes import _half as half
from attn_exp.experiment.mistakes.mistake import Change, Mistake
from attn_exp.forms.pipeline import Step


def change(kind: str, products: str) -> Change:
    """Return the change that computes these products in a half type: `qk`, `wv` or both."""
    return lambda recipe: replace(
        recipe,
        score=halved(recipe.score, kind) if "qk" in products else recipe.score,
        mix=halved(recipe.mix, kind) if "wv" in products else recipe.mix,
    )


def halved(step: Step, kind: str) -> Step:
    return lambda at, *operands: half.rounded(step(at, *(half.rounded(operand, kind) for operand in operands)), kind)


MISTAKE = Mistake(
    group="precision",
    says="Products are summed in half precision.",
    fix="sum products in float32 or better",
    seen="tinygrad PR 4985; stablediffusion PR 89",
    stage="scores",
    changes=(*(change(kind, products) for kind in half.KINDS for products in ("qk wv", "qk", "wv")),),
)
