"""HOW attention is computed: one form to a file, each with a constant `FORM`, found by the file's name.

A form is a pure function `attend(q, k, v, rules) -> Trace`, and what a run has to know of it (`form`). No form knows
which masks exist; one that cannot compute some rules says why in `refuses`. `trace` names the stages. `_blocks/` is
the machinery of `blockwise`, `_operator/` the ONNX operator on arrays, which is `attn_exp.attention`, and `_foreign`
says rules as the arguments of other libraries.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from attn_exp import registry
from attn_exp.errors import UserError
from attn_exp.forms.form import Form, coarser

if TYPE_CHECKING:
    from attn_exp.forms.trace import Trace
    from attn_exp.rules.rules import Rules

__all__ = ["NAMES", "Form", "coarser", "form", "is_own", "names", "refuses"]

NAMES: tuple[str, ...] = registry.names(__path__, without=("around", "form", "pipeline", "steps", "trace"))


def form(name: str) -> Form:
    """Return the form of that name; one that is not used costs nothing.

    A name with a colon is code of the user's own. This imports none of it: what it returns computes nothing.
    """
    if is_own(name):
        return Form(functools.partial(unnamed, name), mix=None, context_alone=True)
    if registry.is_absent(__name__, name):
        return Form(functools.partial(unnamed, name))
    return registry.constant(__name__, name, Form)


def names() -> tuple[str, ...]:
    """Return the names of every form, those from outside the package among them."""
    return (*NAMES, *registry.outside(__name__))


def is_own(name: str) -> bool:
    """Say whether a form's name is that of code of the user's own, such as `mine.py:attention`."""
    return ":" in name


def unnamed(name: str, *inputs: object) -> Trace:
    """Refuse to compute: code is run only where the command line names it.

    Raises:
        UserError: always.
    """
    raise UserError(f"{name} is code, and the command line does not name it; it is not run")


def refuses(name: str, rules: Rules) -> str | None:
    """Return why the form of that name cannot compute these rules, in one line, or None where it can."""
    member = form(name)
    if rules.bend_last and rules.scores and not member.bends_last:
        return f"form={name} bends logits before masking them alone"
    return member.refuses(rules)
