"""Attention as in textbooks: one expression over the whole matrix of logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_exp.forms import pipeline
from attn_exp.forms.form import Form
from attn_exp.forms.pipeline import Recipe

if TYPE_CHECKING:
    from attn_exp.arrays import Array
    from attn_exp.forms.trace import Trace
    from attn_exp.rules.rules import Rules


def attend(q: Array, k: Array, v: Array | None, rules: Rules) -> Trace:
    """Compute `normalizer(mask(scale * q k^T)) v` over whole arrays, by the steps of the pipeline.

    `q` `[... h t d]`, `k` `[... g s d]`, `v` `[... g s e]`; query head `i` reads key/value head `i // (h / g)`.
    The trace has every stage, each rounded to the type of `q`.
    """
    return pipeline.attend(Recipe(rules), q, k, v)


FORM = Form(attend, bends_last=True, stacked=attend)
