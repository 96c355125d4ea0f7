"""The forms: ways to compute attention. Each file defines one as `FORM`, and is found by its name.

A form is a pure function `attend(q, k, v, rules) -> Trace`, with the properties that a run needs to know (`form.py`).
No form knows which masks exist. If a form cannot compute some rules, its `refuses` gives the reason. `trace.py` names
the stages. `_blocks/` is the engine of `blockwise`. `_operator.py` is the ONNX operator on arrays, exported as
`attn_exp.attention`.
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

NAMES = registry.names(__path__, without=("form", "pipeline", "steps", "trace"))


def form(name: str) -> Form:
    """Return the form of that name; its module is imported on first use.

    A name with a colon refers to the user's own code. This function does not import that code: the form it returns
    raises an error when called.
    """
    if is_own(name):
        return Form(functools.partial(refuse_to_run, name), mix=None, context_alone=True)
    if registry.is_absent(__name__, name):
        return Form(functools.partial(refuse_to_run, name))
    return registry.constant(__name__, name, Form)


def names() -> tuple[str, ...]:
    return (*NAMES, *registry.outside(__name__))


def is_own(name: str) -> bool:
    return ":" in name


def refuse_to_run(name: str, *inputs: object) -> Trace:
    """Raise an error: user code runs only if the command line names it.

    Raises:
        UserError: always.
    """
    raise UserError(f"{name} is code, which runs only if the command line names it")


def refuses(name: str, rules: Rules) -> str | None:
    """Return in one line why the named form cannot compute these rules, or None if it can."""
    member = form(name)
    if rules.bend_last and rules.scores and not member.bends_last:
        return f"form={name} can only apply score rules before masking"
    return member.refuses(rules)
