"""How attention is computed: one file per form, each with a constant `FORM`; `_blocks` is the machinery of `blockwise`,
and `_operator` the ONNX operator on arrays, which forms compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_exp import registry
from attn_exp.forms.form import Form, coarser

if TYPE_CHECKING:
    from attn_exp.rules.rules import Rules

__all__ = ["NAMES", "Form", "coarser", "form", "refuses"]

NAMES: tuple[str, ...] = registry.names(__path__, without=("form", "mixing", "trace"))


def form(name: str) -> Form:
    """Return the form of that name; one that is not used costs nothing."""
    member: Form = registry.module(__name__, name).FORM
    return member


def refuses(name: str, rules: Rules) -> str | None:
    """Return why the form of that name cannot compute these rules, in one line, or None where it can."""
    member = form(name)
    if rules.bend_last and rules.scores and not member.bends_last:
        return f"form={name} bends logits before masking them alone"
    return member.refuses(rules)
